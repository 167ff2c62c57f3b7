"""Files of rows as such: each fault in a real file, all places counted, and its remedy run."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from bertsmith.cli import run
from bertsmith.errors import InputError
from bertsmith.tasks import custom
from bertsmith.tasks.source import DataSource
from tests.checkup.texts import findings, prose

TEXTS = [line for document in prose(60, 3) for line in document]
ROWS = [(text, "no" if number % 3 else "yes") for number, text in enumerate(TEXTS)]


def found_in(path: Path, content: str | bytes, **more: Any) -> dict[str, Any]:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return findings(data=str(path), task="classify", **more)


def lines(delimiter: str = "\t", end: str = "\n", rows: list[tuple[str, str]] | None = None) -> str:
    return "".join(delimiter.join(row) + end for row in [("text", "label"), *(rows or ROWS)])


def mended(finding: dict[str, Any], directory: Path) -> int:
    """Run the remedy, and return how many rows are then read."""
    subprocess.run(finding["remedy"].partition(" (")[0], shell=True, check=True, cwd=directory)
    (path,) = directory.glob("mended.*")
    read = custom.read_split(DataSource(str(path)), "train")
    assert read is not None
    assert {row.label for row in read.rows} == {"yes", "no"}
    return len(read.rows)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "a.csv"])
def test_sound_files_have_no_finding(tmp_path: Path, name: str, mark: str, end: str) -> None:
    assert found_in(tmp_path / name, mark + lines("," if ".csv" in name else "\t", end)) == {}


@pytest.mark.parametrize(
    "encoding, word, likely",
    [
        ("utf-16", "ü水", "UTF-16"),
        ("gb18030", "这个酒店很好", "GB18030"),
        ("cp1252", "Müller’s", "WINDOWS-1252"),
    ],
)
def test_other_encodings_are_named_and_converted(
    tmp_path: Path, encoding: str, word: str, likely: str
) -> None:
    rows = [
        (f"{text} {word}" if number in (3, 9) else text, label) for number, (text, label) in enumerate(ROWS)
    ]
    found = found_in(tmp_path / "a.tsv", lines(rows=rows).encode(encoding))
    assert set(found) == {"wrong_encoding"}
    assert likely in found["wrong_encoding"]["what"]
    assert found["wrong_encoding"]["level"] == "error"
    if likely != "UTF-16":
        assert found["wrong_encoding"]["count"] == 2
        places = [example["place"] for example in found["wrong_encoding"]["examples"]]
        assert places == [f"{tmp_path / 'a.tsv'}:5", f"{tmp_path / 'a.tsv'}:11"]
    assert mended(found["wrong_encoding"], tmp_path) == len(rows)


@pytest.mark.parametrize("name, delimiter", [("a.csv", ";"), ("a.csv", "\t"), ("a.tsv", ","), ("a.csv", "|")])
def test_a_delimiter_that_the_name_does_not_say(tmp_path: Path, name: str, delimiter: str) -> None:
    found = found_in(tmp_path / name, lines(delimiter))
    assert set(found) == {"wrong_delimiter"}
    assert mended(found["wrong_delimiter"], tmp_path) == len(ROWS)


def test_commas_in_texts_of_a_tsv_are_no_delimiters(tmp_path: Path) -> None:
    rows = [(f"One, {text}", label) for text, label in ROWS]
    assert found_in(tmp_path / "a.tsv", lines(rows=rows)) == {}


def test_c027_every_row_with_a_wrong_number_of_fields_is_found(tmp_path: Path) -> None:
    rows = [("too\tmany", "yes") if number in (4, 7) else row for number, row in enumerate(ROWS)]
    found = found_in(tmp_path / "a.tsv", lines(rows=rows) + "too few\n")["ragged_rows"]
    assert (found["count"], found["level"]) == (3, "error")
    assert [example["place"].rpartition(":")[2] for example in found["examples"]] == ["6", "9"]
    assert found["examples"][0]["text"].startswith("3 fields: too")
    csv = found_in(tmp_path / "a.csv", lines(",") + "one, two, yes\n")["ragged_rows"]
    assert csv["count"] == 1
    assert csv["examples"][0]["place"].endswith(f"a.csv:{len(ROWS) + 2}")


def test_c027_quotes_that_do_not_close(tmp_path: Path) -> None:
    rows = [('"only an opening quote', "yes"), ("plain row", "no"), ('ends " inside', "yes")]
    found = found_in(tmp_path / "a.csv", lines(",", rows=rows))["broken_quotes"]
    assert (found["level"], found["examples"][0]["place"]) == ("error", f"{tmp_path / 'a.csv'}:2")
    assert "',' expected after '\"'" in found["examples"][0]["text"]
    last = found_in(tmp_path / "a.csv", lines(",") + '"never closed,yes\n')["broken_quotes"]
    assert last["examples"][0]["place"].endswith(f":{len(ROWS) + 2}")


def test_c027_rows_inside_a_text_are_found_and_paragraphs_are_none(tmp_path: Path) -> None:
    """Quotes that happen to close: the CSV is well-formed, and rows are gone."""
    swallowed = '"opens,yes\nplain row,no\nanother one",no\n'
    found = found_in(tmp_path / "a.csv", lines(",") + swallowed)["swallowed_rows"]
    assert (found["count"], found["level"]) == (1, "warning")
    assert found["examples"][0]["place"].endswith(f":{len(ROWS) + 2}")
    paragraphs = '"A first, longer one.\n\nA second, it says yes\nand no, no.",no\n'
    assert "swallowed_rows" not in found_in(tmp_path / "a.csv", lines(",") + paragraphs)


def test_a_tsv_that_is_quoted_like_a_csv(tmp_path: Path) -> None:
    rows = [(f'"{text} ""so"""', label) for text, label in ROWS]
    found = found_in(tmp_path / "a.tsv", lines(rows=rows))["quoted_fields"]
    assert (found["level"], found["count"]) == ("warning", len(ROWS))
    assert mended(found, tmp_path) == len(ROWS)
    read = custom.read_split(DataSource(str(tmp_path / "mended.csv")), "train")
    assert read is not None
    assert read.rows[0].texts[0] == f'{ROWS[0][0]} "so"'


def test_old_line_ends(tmp_path: Path) -> None:
    found = found_in(tmp_path / "a.tsv", lines(end="\r") + "\n")
    assert found["foreign_line_ends"]["level"] == "error"
    assert mended(found["foreign_line_ends"], tmp_path) == len(ROWS)


def test_json_lines_that_are_none(tmp_path: Path) -> None:
    objects = [{"text": text, "label": label} for text, label in ROWS]
    good = "".join(json.dumps(value) + "\n" for value in objects)
    assert found_in(tmp_path / "a.jsonl", "\n" + good) == {}
    found = found_in(tmp_path / "a.jsonl", good + '{"text": \n["a"]\n')["broken_json"]
    assert (found["count"], found["level"]) == (2, "error")
    assert found["examples"][1]["text"].startswith("list: ")
    listed = found_in(tmp_path / "b.jsonl", json.dumps(objects, indent=1))
    assert mended(listed["broken_json"], tmp_path) == len(ROWS)


def test_the_dev_file_is_looked_at_too_and_a_broken_file_ends_with_code_1(tmp_path: Path, capsys) -> None:
    (tmp_path / "train.tsv").write_text(lines())
    (tmp_path / "dev.tsv").write_bytes("text\tlabel\nMüller\tyes\n".encode("cp1252"))
    flags = ["--data", str(tmp_path / "train.tsv"), "--dev", str(tmp_path / "dev.tsv"), "--task", "classify"]
    assert run(["doctor", *flags]) == 1
    out = capsys.readouterr().out
    assert f"cat {tmp_path / 'dev.tsv'} | iconv -f WINDOWS-1252 -t UTF-8 > mended.tsv" in out
    assert "the rows cannot be read until they are mended" in out.splitlines()[-1]
    with pytest.raises(InputError, match="no such file"):
        findings(data=str(tmp_path / "gone.tsv"), task="classify")
    (tmp_path / "cut.tsv.gz").write_bytes(gzip.compress(lines().encode())[:-20])
    with pytest.raises(InputError, match="damaged or cut gzip file"):
        findings(data=str(tmp_path / "cut.tsv.gz"), task="classify")
    (tmp_path / "empty.tsv").write_text("")
    with pytest.raises(InputError, match="empty; expected a header line"):
        findings(data=str(tmp_path / "empty.tsv"), task="classify")
