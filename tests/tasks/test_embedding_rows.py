"""Rows for embeddings: which columns hold what, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import InputError
from bertsmith.tasks.embedding_rows import EmbeddingRowSet, read_split
from bertsmith.tasks.source import DataSource, hold_out, limit


def write(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read(path: str, **more: Any) -> EmbeddingRowSet:
    found = read_split(DataSource(path, **more), "train")
    assert found is not None
    return found


def test_pairs_with_negatives_in_lists_and_columns(tmp_path: Path) -> None:
    rows = [
        {"query": "a", "positive": "b", "negatives": ["c", "d"]},
        {"query": "e", "positive": "f"},
        {"query": "g", "positive": "h", "negatives": [], "negative": "i"},
    ]
    found = read(write(tmp_path / "a.jsonl", rows))
    assert [row.texts for row in found.rows] == [("a", "b", "c", "d"), ("e", "f"), ("g", "h", "i")]
    assert [row.score for row in found.rows] == [None] * 3
    assert not found.is_scored
    assert [row.label for row in found.rows] == ["b", "f", "h"]
    tsv = tmp_path / "b.tsv"
    tsv.write_bytes(b"\xef\xbb\xbfAnchor\tPositive\tnegative_1\tnegative_2\r\na\tb\tc\t\r\nd\te\tf\tg\r\n")
    assert [row.texts for row in read(str(tsv)).rows] == [("a", "b", "c"), ("d", "e", "f", "g")]


def test_scores_in_own_files_and_in_the_published_one(tmp_path: Path, shared_data: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('sentence1,sentence2,score\n"one, two",three,4.5\nfour,five,0\n', encoding="utf-8")
    found = read(str(path))
    assert found.is_scored
    assert [(row.texts, row.score) for row in found.rows] == [
        (("one, two", "three"), 4.5),
        (("four", "five"), 0.0),
    ]
    published = read_split(DataSource(str(shared_data / "glue" / "STS-B")), "dev")
    assert published is not None
    assert len(published.rows) == 1500
    assert published.rows[0].score == 5.0
    assert published.rows[0].anchor == "A man with a hard hat is dancing."


def test_named_columns_and_the_dev_file_of_another_form(tmp_path: Path) -> None:
    train = write(tmp_path / "a.jsonl", [{"q": "a", "d": "b", "x": 1}, {"q": "c", "d": "e", "x": 1}])
    dev = write(tmp_path / "b.jsonl", [{"text1": "a", "text2": "b", "score": 0.5}])
    found = read(train, text="q", second_text="d")
    assert [row.texts for row in found.rows] == [("a", "b"), ("c", "e")]
    other = read_split(DataSource(train, dev, stored=found.columns), "dev")
    assert other is not None
    assert other.is_scored
    again = read_split(DataSource(dev, train, stored=found.columns), "dev")  # what a model stores
    assert again is not None
    assert [row.texts for row in again.rows] == [("a", "b"), ("c", "e")]


@pytest.mark.parametrize(
    "rows, message",
    [
        ([{"anchor": "a", "other": "b"}], "no column is known to be the text"),
        ([{"anchor": "a", "positive": 3}], "line 1: 'positive' is 3, a text has to be a string"),
        ([{"anchor": "a", "positive": ["b"]}], "line 1: 'positive' is .*a text has to be a string"),
        ([{"anchor": "a", "positive": "b"}, {"anchor": "", "positive": "b"}], r"line 2 \(anchor\)"),
        ([{"anchor": "a", "positive": "b", "negatives": ["c", ""]}], "line 1: 'negatives' has an empty text"),
        ([{"anchor": "a", "positive": "b", "negative": {"c": 1}}], "line 1: 'negative' is .*string"),
        ([{"text1": "a", "text2": "b", "score": "high"}], "line 1: 'high' is no number"),
        ([{"text1": "a", "text2": "b", "score": True}], "line 1: 'True' is no number"),
        ([{"text1": "a", "text2": "b", "score": 10**400}], "line 1: '1000.*' is no number"),
        ([{"text1": "a", "text2": "b", "score": "nan"}], "line 1: 'nan' is no number"),
        ([{"text1": "a", "text2": "b", "score": None}], r"line 1 \(score\)"),
        ([{"text1": "a", "text2": "b", "score": 1, "negative": "c"}], "rows have one of both"),
    ],
)
def test_what_is_refused(rows: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / "a.jsonl", rows))


def test_rows_that_lack_a_text_are_left_out_and_counted(tmp_path: Path) -> None:
    rows = [
        {"anchor": "a", "positive": "b"},
        {"anchor": "a"},
        {"positive": "b"},
        {"anchor": "NA", "positive": "x"},
    ]
    found = read(write(tmp_path / "a.jsonl", rows), missing="skip")
    assert [row.anchor for row in found.rows] == ["a", "NA"]
    assert found.counts["missing_rows"] == 2


def test_rows_of_one_passage_stay_together(tmp_path: Path) -> None:
    rows = [{"question": f"q{number}", "positive": f"p{number % 20}"} for number in range(100)]
    found = read(write(tmp_path / "a.jsonl", rows))
    train, dev = hold_out(found, seed=3)
    assert isinstance(dev, EmbeddingRowSet)
    assert (len(train.rows), len(dev.rows)) == (90, 10)
    assert not {row.positive for row in train.rows} & {row.positive for row in dev.rows}
    assert len(limit(found, 12, seed=0).rows) == 15
