"""Overlap with evaluation rows: every way in which a row can stand in a corpus, or nearly."""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bertsmith.checkup.contamination import read_evaluation_rows
from bertsmith.errors import InputError
from tests.checkup.texts import WORDS, findings, prose, write


def rows_file(path: Path, texts: list[str]) -> str:
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *((text, "1") for text in texts)])
    return str(path)


def contamination(corpus: Path, rows: str, **settings: Any) -> dict[str, Any] | None:
    return findings(corpus=[str(corpus)], against=[rows], **settings).get("contamination")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write(tmp_path / "a.txt", prose(50))


def other(seed: int, words: int = 30) -> str:
    draw = random.Random(1000 + seed)
    return " ".join(draw.choice(WORDS) for _ in range(words))


def test_rows_from_elsewhere_are_clean(corpus: Path, tmp_path: Path) -> None:
    assert contamination(corpus, rows_file(tmp_path / "dev.csv", [other(n) for n in range(50)])) is None


def test_thirteen_words_in_a_row_are_enough_and_twelve_are_not(corpus: Path, tmp_path: Path) -> None:
    words = prose(50)[9][2].lower().replace(".", "").split()
    thirteen = f"{other(1)} {' '.join(words[5:18])} {other(2)}"
    twelve = f"{other(3)} {' '.join(words[5:17])} {other(4)}"
    found = contamination(corpus, rows_file(tmp_path / "dev.csv", [other(5), thirteen, twelve]))
    assert found is not None
    assert found["count"] == 1
    assert "1 of 3 evaluation rows (33.3 %)" in found["what"]
    assert found["level"] == "error"
    (example,) = found["examples"]
    assert example["place"] == f"{tmp_path / 'dev.csv'}:3"
    assert example["text"].startswith(f"also at {corpus}:{9 * 5 + 3}: ")
    eight = contamination(
        corpus, rows_file(tmp_path / "dev.csv", [other(5), thirteen, twelve]), ngram_words=8
    )
    assert eight is not None
    assert eight["count"] == 2


def test_case_and_punctuation_do_not_hide_a_row(corpus: Path, tmp_path: Path) -> None:
    words = prose(50)[9][2].upper().replace(".", "").split()[:13]
    found = contamination(corpus, rows_file(tmp_path / "dev.csv", ["'" + ", ".join(words) + "!'"]))
    assert found is not None
    assert found["count"] == 1


def test_short_rows_count_whole_and_very_short_ones_not_at_all(corpus: Path, tmp_path: Path) -> None:
    words = prose(50)[9][2].replace(".", "").split()
    rows = [" ".join(words[2:11]), " ".join(words[2:10]) + " zebra", " ".join(words[2:9])]
    found = contamination(corpus, rows_file(tmp_path / "dev.csv", rows))
    assert found is not None
    assert found["count"] == 1
    assert "1 of 2 evaluation rows" in found["what"]
    assert "1 row of fewer than 8 words not compared" in found["what"]


def test_a_run_does_not_go_from_one_document_into_the_next(corpus: Path, tmp_path: Path) -> None:
    documents = prose(50)
    end = documents[9][-1].replace(".", "").split()[-7:]
    begin = documents[10][0].replace(".", "").split()[:7]
    assert contamination(corpus, rows_file(tmp_path / "dev.csv", [" ".join(end + begin)])) is None


def test_all_blocks_are_looked_at(corpus: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("bertsmith.checkup.survey._BLOCK_WORDS", 500)
    rows = [document[1] for document in prose(50)]
    found = contamination(corpus, rows_file(tmp_path / "dev.csv", rows))
    assert found is not None
    assert found["count"] == 50


def test_pairs_json_lines_and_plain_text(corpus: Path, tmp_path: Path) -> None:
    text = prose(50)[3][0]
    (tmp_path / "dev.jsonl").write_text(
        json.dumps({"premise": other(1), "hypothesis": text, "label": "x"}) + "\n"
    )
    (tmp_path / "dev.txt").write_text(f"{other(2)}\n\n{text}\n")
    found = findings(corpus=[str(corpus)], against=[str(tmp_path / "dev.jsonl"), str(tmp_path / "dev.txt")])
    places = [example["place"] for example in found["contamination"]["examples"]]
    assert places == [f"{tmp_path / 'dev.jsonl'}:1", f"{tmp_path / 'dev.txt'}:3"]


def test_glue_directories_are_read_by_their_tasks(
    shared_data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = [path for path in (shared_data / "glue").iterdir() if path.is_dir()]
    for folder in folders:
        (tmp_path / folder.name).symlink_to(folder)
    (tmp_path / "SNLI").mkdir()
    rows = read_evaluation_rows([str(tmp_path)])
    (record,) = caplog.records
    assert "SNLI not compared" in record.message
    places = Counter(Path(row.where.rsplit(":", 1)[0]).name.split(".")[0] for row in rows)
    assert "train" not in places
    assert (places["dev_matched"], places["dev_mismatched"], places["diagnostic"]) == (7469, 1000, 1104)
    names = {Path(row.where.rsplit(":", 1)[0]).parent.name for row in rows}
    assert names == {folder.name for folder in folders}
    alone = read_evaluation_rows([str(shared_data / "glue" / "CoLA")])
    assert len(alone) == 1043 + 1063
    assert alone[0].where.endswith("dev.tsv.gz:1")
    assert len(caplog.records) == 1


def test_a_real_row_in_a_real_corpus_is_found(tmp_path: Path, shared_data: Path) -> None:
    wiki = gzip.decompress((shared_data / "corpus" / "wiki-en" / "heldout.txt.gz").read_bytes()).decode()
    row = next(
        row
        for row in read_evaluation_rows([str(shared_data / "glue" / "RTE")])
        if len(row.texts[0].split()) > 30
    )
    lines = wiki.split("\n")
    lines[100] += " " + row.texts[0]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    found = contamination(tmp_path / "a.txt", str(shared_data / "glue" / "RTE"))
    assert found is not None
    assert row.where in [example["place"] for example in found["examples"]]
    assert found["share"] < 0.01


@pytest.mark.parametrize(
    "against, words",
    [
        ("nowhere.csv", "no such file"),
        (".", "no known task in this directory"),
        ("empty.csv", "no row with a text in it"),
        ("strange.csv", "--text"),
    ],
)
def test_what_cannot_be_read_is_one_clear_error(
    against: str, words: str, corpus: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty.csv").write_text("text,label\n")
    (tmp_path / "strange.csv").write_text("here,there\n1,2\n")
    with pytest.raises(InputError, match=words):
        contamination(corpus, str(tmp_path / against))


def test_a_run_that_is_too_short_is_refused(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="at least 8"):
        contamination(corpus, rows_file(tmp_path / "dev.csv", ["a text"]), ngram_words=5)
