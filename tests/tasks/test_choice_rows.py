"""Rows of choices: three forms, any number of choices, labels that name what they say."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import InputError
from bertsmith.tasks.choice_rows import ChoiceRow, read_split, read_swag_split
from bertsmith.tasks.source import DataSource


def jsonl(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def text(path: Path, content: str) -> str:
    path.write_bytes(content.encode("utf-8"))
    return str(path)


def read(path: str, **more: Any) -> list[ChoiceRow]:
    found = read_split(DataSource(path, **more), "train")
    assert found is not None
    return found.rows


def test_json_lines_of_any_number_of_choices(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path / "a.jsonl",
        {"context": "Two and two", "choices": ["four", "five"], "label": 0},
        {"context": "水", "choices": ["is wet", "火", "NA"], "label": "NA"},
        {"context": "the number", "choices": ["1", "2", "0"], "label": 2},
        {"context": "the number", "choices": ["1", "2", "0"], "label": "2"},
    )
    assert [(row.choices, row.label) for row in read(path)] == [
        (("four", "five"), 0),
        (("is wet", "火", "NA"), 2),
        (("1", "2", "0"), 2),
        (("1", "2", "0"), 1),
    ]


@pytest.mark.parametrize(
    "row, message",
    [
        ({"label": 2}, r"line 2: label 2 names no choice; expected a JSON number from 0 to 1"),
        ({"label": -1}, "label -1 names no choice"),
        ({"label": True}, "label true names no choice"),
        ({"label": "c"}, 'label "c" names no choice'),
        ({"label": "1"}, "or the very text of one choice"),
        ({"label": "a", "choices": ["a", "a"]}, 'label "a" names no choice'),
        ({"choices": "a b"}, r"'choices' is \"a b\"; expected a JSON list of texts"),
        ({"choices": ["a", 3]}, "'choices' is 3, a text has to be a string"),
        ({"context": ["a"]}, "'context' is .*, a text has to be a string"),
    ],
)
def test_what_names_no_choice_is_named_with_its_line(
    tmp_path: Path, row: dict[str, Any], message: str
) -> None:
    good = {"context": "x", "choices": ["a", "b"], "label": 1}
    with pytest.raises(InputError, match=message):
        read(jsonl(tmp_path / "a.jsonl", good, good | row))


def test_c029_missing_values_are_named_or_left_out_and_counted(tmp_path: Path) -> None:
    good = {"context": "null", "choices": ["None", "nan"], "label": "nan"}
    path = jsonl(
        tmp_path / "a.jsonl",
        good,
        good | {"context": None},
        good | {"context": ""},
        good | {"choices": ["a"]},
        good | {"choices": []},
        good | {"choices": ["a", None]},
        good | {"label": None},
        {"context": "x", "choices": ["a", "b"]},
    )
    with pytest.raises(InputError, match=r"7 rows lack a value: line 2 \(context\).* and 2 more"):
        read(path)
    found = read_split(DataSource(path, missing="skip"), "train")
    assert found is not None
    assert [row.texts for row in found.rows] == [("null", "None", "nan")]
    assert found.counts == {"rows": 1, "missing_rows": 7, "blank_lines": 0}


def test_columns_of_choices_and_the_numbers_in_their_names(tmp_path: Path) -> None:
    path = text(
        tmp_path / "a.csv",
        '\ufeffquestion,option1,option2,option3,label\r\n"a ""b""\nc",x,"y, z",w,3\r\nq,NA,no,,1\r\n',
    )
    rows = read(path)
    assert [(row.context, row.choices, row.label, row.line) for row in rows] == [
        ('a "b"\nc', ("x", "y, z", "w"), 2, 2),
        ("q", ("NA", "no"), 0, 4),
    ]
    for label in ("0", "4", "x", "1.0", "²"):
        bad = text(tmp_path / "b.csv", f"question,option1,option2,option3,label\nq,a,b,c,{label}\n")
        with pytest.raises(
            InputError, match=r"line 2: label .* names no choice; expected 1 to 3, the number"
        ):
            read(bad)
    gone = text(tmp_path / "b.csv", "question,option1,option2,option3,label\nq,a,b,,3\n")
    with pytest.raises(InputError, match="expected 1 to 2"):
        read(gone)
    hole = text(tmp_path / "b.csv", "question,option1,option2,option3,label\nq,a,,c,1\n")
    with pytest.raises(InputError, match=r"line 2 \(option2\)"):
        read(hole)


def test_columns_are_found_by_name_or_named_by_flags(tmp_path: Path) -> None:
    path = jsonl(tmp_path / "a.jsonl", {"frage": "x", "wahl": ["a", "b"], "richtig": 1})
    (row,) = read(path, text="frage", second_text="wahl", label="richtig")
    assert (row.texts, row.label) == (("x", "a", "b"), 1)
    with pytest.raises(InputError, match="no column is known to be the context; name it with --text"):
        read(path)
    with pytest.raises(InputError, match="no column is known to be the choices; name it with --second-text"):
        read(path, text="frage")
    with pytest.raises(InputError, match=r"no column 'fragen' \(--text\); did you mean 'frage'"):
        read(path, text="fragen")
    with pytest.raises(InputError, match="--second-text wahlen is neither a column nor"):
        read(path, text="frage", second_text="wahlen")
    with pytest.raises(InputError, match="no column is known to be the label"):
        read(path, text="frage", second_text="wahl")


def test_swag_as_published(tmp_path: Path) -> None:
    header = [
        "", "video-id", "fold-ind", "startphrase", "sent1", "sent2", "gold-source",
        "ending0", "ending1", "ending2", "ending3", "label",
    ]  # fmt: skip
    rows = [
        ["0", "v1", "3", "He sits. He", "He sits.", "He", "gold", 'says "hi", twice.', "b", "c", "d", "0"],
        ["1", "v1", "4", "She is. She", "She is.", "She", "gen", "a", "b", "c", "walks.", "3"],
    ]
    for name, content in (("train", rows), ("val", rows[1:])):
        with open(tmp_path / f"{name}.csv", "w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([header, *content])
    with open(tmp_path / "test.csv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header[:-1], rows[0][:-1]])
    source = DataSource(str(tmp_path))
    train, dev, test = (read_swag_split(source, split) for split in ("train", "dev", "test"))
    assert train is not None
    assert train.rows[0].texts == ("He sits.", 'He says "hi", twice.', "He b", "He c", "He d")
    assert [row.label for row in train.rows] == [0, 3]
    assert dev is not None
    assert dev.path.endswith("val.csv")
    assert test is not None
    assert test.rows[0].label is None
    single = read_swag_split(DataSource(str(tmp_path / "train.csv"), dev=str(tmp_path / "val.csv")), "dev")
    assert single is not None
    assert [row.label for row in single.rows] == [3]
    with pytest.raises(InputError, match="--dev x would be ignored"):
        read_swag_split(DataSource(str(tmp_path), dev="x"), "train")
    with pytest.raises(InputError, match=r"no train\.csv \(SWAG\) or train\.tsv \(CODAH\)"):
        (tmp_path / "empty").mkdir()
        read_swag_split(DataSource(str(tmp_path / "empty")), "train")


def test_c027_quotes_of_codahs_form_are_plain_characters(tmp_path: Path) -> None:
    lines = ['n\t"He\tsays "a\tb"\tc\t"d"\t3', "p\tShe\tx\ty\tz\tw\t0"]
    path = text(tmp_path / "train.tsv", "\n".join(lines))
    found = read_swag_split(DataSource(path), "train")
    assert found is not None
    assert [(*row.texts, row.label) for row in found.rows] == [
        ('"He', 'says "a', 'b"', "c", '"d"', 3),
        ("She", "x", "y", "z", "w", 0),
    ]
    text(tmp_path / "train.tsv", lines[0] + "\nn\tHe\tonly\tthree\tchoices\t1\n")
    with pytest.raises(InputError, match="line 2: 6 fields, expected 7"):
        read_swag_split(DataSource(path), "train")


def test_the_shared_codah_is_read_whole(shared_data: Path) -> None:
    source = DataSource(str(shared_data / "codah" / "fold_0"))
    counted = {}
    for split in ("train", "dev", "test"):
        found = read_swag_split(source, split)
        assert found is not None
        counted[split] = len(found.rows)
        lines = gzip.decompress(Path(found.path).read_bytes()).decode().split("\n")[: len(found.rows)]
        for row, line in zip(found.rows, lines, strict=True):
            assert "\t".join([*row.texts, str(row.label)]) == line.split("\t", 1)[1]
    assert counted == {"train": 1665, "dev": 556, "test": 555}
