"""Texts with spans: both forms, words, what tags cannot spell, and every fault with its line."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.errors import InputError
from bertsmith.tasks import marked_text
from bertsmith.tasks.entities import Entity
from bertsmith.tasks.marked_text import MarkedText
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.tagged_rows import TaggedRow, count_unspelled, in_characters, in_words, words_of


def write(path: Path, *rows: dict[str, Any]) -> str:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def read_marked_text(path: str, text: str | None, label: str | None, missing: str) -> MarkedText:
    return marked_text.read_marked_text(path, DataSource(path, text=text, label=label, missing=missing))


def spelled(text: str) -> list[str]:
    return [text[start:end] for start, end in words_of(text)]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "Ada's 3DMax, AT&T (1996-08-22).",
            ["Ada", "'", "s", "3DMax", ",", "AT&T", "(", "1996-08-22", ")", "."],
        ),
        ("U.S.-based O'Brien", ["U.S.-based", "O'Brien"]),
        ("国内Riddick发现2013年", ["国", "内", "Riddick", "发", "现", "2013", "年"]),
        ("हिन्दी naïve\u0301 한국어", ["हिन्दी", "naïve\u0301", "한국어"]),
        ("a\u3000b\u00a0c\n\t\u200ed😀", ["a", "b", "c", "\u200e", "d", "😀"]),
        ("  \n", []),
        ("", []),
    ],
)
def test_words_of_running_text(text: str, words: list[str]) -> None:
    assert spelled(text) == words


@given(st.text(max_size=60))
def test_words_cover_everything_but_white_space_in_order(text: str) -> None:
    places = words_of(text)
    assert all(start < end for start, end in places)
    assert all(first[1] <= second[0] for first, second in itertools.pairwise(places))
    between = set(range(len(text))) - {i for start, end in places for i in range(start, end)}
    assert all(text[i].isspace() or text[i] in "\x85" for i in between)


def test_all_forms_of_spans_are_the_same_entities(tmp_path: Path) -> None:
    text = "Ada lives in 北京市"
    forms: list[Any] = [
        [{"start": 0, "end": 3, "label": "PER"}, {"start": 13, "end": 15, "label": "LOC", "text": "北京"}],
        [
            {"start_offset": 13, "end_offset": 15, "type": "LOC"},
            {"start_offset": 0, "end_offset": 3, "type": "PER"},
        ],
        [[0, 3, "PER"], [13, 15, "LOC"], [0, 3, "PER"]],
        {"PER": {"Ada": [[0, 2]]}, "LOC": {"北京": [[13, 14]]}},
    ]
    path = write(tmp_path / "a.jsonl", *({"text": text, "label": form} for form in forms))
    marked = read_marked_text(path, None, None, "error")
    assert (marked.text_key, marked.label_key) == ("text", "label")
    for row in marked.rows:
        assert row.entities == (Entity(0, 3, "PER"), Entity(13, 15, "LOC"))
        assert in_words(row) == [Entity(0, 1, "PER"), Entity(3, 5, "LOC")]
    assert [row.line for row in marked.rows] == [1, 2, 3, 4]
    assert len({row.document for row in marked.rows}) == 4
    assert marked.counts["entities"] == 8


def test_what_tags_cannot_spell_is_counted_and_kept_for_scores() -> None:
    text = "the WCG2010 finals"
    entities = (Entity(4, 7, "game"), Entity(4, 18, "event"), Entity(3, 4, "blank"))
    row = TaggedRow(text, words_of(text), entities, 1, 0)
    assert in_words(row) == [Entity(1, 3, "event")]
    assert count_unspelled(row) == 2
    widened = TaggedRow(text, words_of(text), (Entity(4, 7, "game"),), 1, 0)
    assert in_words(widened) == [Entity(1, 2, "game")]
    assert in_characters(widened.words, in_words(widened)) == [Entity(4, 11, "game")]
    assert count_unspelled(widened) == 1


def test_rows_without_text_or_spans(tmp_path: Path) -> None:
    rows = [{"text": "a", "spans": []}, {"text": "", "spans": []}, {"text": "b"}, {"text": "c", "spans": {}}]
    path = write(tmp_path / "a.jsonl", *rows)
    with pytest.raises(InputError, match=r"2 rows lack a value: line 2 \(text\), line 3 \(spans\)"):
        read_marked_text(path, None, None, "error")
    skipped = read_marked_text(path, None, None, "skip")
    assert [row.text for row in skipped.rows] == ["a", "c"]
    assert skipped.counts["missing_rows"] == 2
    texts = marked_text.read_marked_text(path, DataSource(path), labelled=False)
    assert [row.missing for row in texts.rows] == [(), ("text",), (), ()]
    assert texts.label_key is None
    unlabelled = read_marked_text(write(tmp_path / "b.jsonl", {"text": "a"}), None, None, "error")
    assert unlabelled.rows[0].entities is None
    assert unlabelled.label_key is None


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "Ada", "label": [[0, 4, "PER"]]}, "does not lie in the text of 3 characters"),
        ({"text": "Ada", "label": [[2, 2, "PER"]]}, "does not lie"),
        ({"text": "Ada", "label": [[-1, 2, "PER"]]}, "does not lie"),
        ({"text": "Ada", "label": [[0, True, "PER"]]}, "expected first character"),
        ({"text": "Ada", "label": [[0, 3]]}, "expected first character"),
        ({"text": "Ada", "label": [{"start": 0, "label": "PER"}]}, "expected first character"),
        ({"text": "Ada", "label": [[0, 3, ""]]}, "the label is ''"),
        ({"text": "Ada", "label": [[0, 3, None]]}, "the label is None"),
        ({"text": "Ada", "label": "PER"}, "the spans are"),
        (
            {"text": "Ada", "label": [{"start": 0, "end": 2, "label": "PER", "text": "Ada"}]},
            "the text has 'Ad' there",
        ),
        ({"text": "Ada", "label": {"PER": {"Ada": [[0, 3]]}}}, "does not lie|the text has"),
        ({"text": "Ada", "label": {"PER": {"Ada": [0, 2]}}}, "expected first character"),
        ({"text": "Ada", "label": {"PER": [[0, 2]]}}, "label 'PER' holds no"),
        ({"text": 5, "label": []}, "a text has to be a string"),
    ],
)
def test_faults_name_the_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "a.jsonl", {"text": "x", "label": []}, row)
    with pytest.raises(InputError, match=message) as refused:
        read_marked_text(path, None, None, "error")
    assert "line 2" in str(refused.value)


def test_keys_are_named_or_found(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", {"body": "Ada", "marks": [[0, 3, "PER"]], "label": [[0, 1, "X"]]})
    marked = read_marked_text(path, "body", "marks", "error")
    assert marked.rows[0].entities == (Entity(0, 3, "PER"),)
    with pytest.raises(InputError, match="--text; keys: body"):
        read_marked_text(path, None, None, "error")
    with pytest.raises(InputError, match=r"no key 'mark' \(--label\); did you mean 'marks'"):
        read_marked_text(path, "body", "mark", "error")


def test_cluener_has_its_published_counts(shared_data: Path) -> None:
    dev = read_marked_text(str(shared_data / "cluener" / "dev.json.gz"), None, None, "error")
    assert (dev.counts["rows"], dev.counts["entities"], dev.counts["unspelled_entities"]) == (1343, 3072, 7)
    test = read_marked_text(str(shared_data / "cluener" / "test.json.gz"), None, None, "error")
    assert (test.counts["rows"], test.label_key) == (1345, None)
