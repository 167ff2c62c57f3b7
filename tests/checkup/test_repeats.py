"""Repeated lines, documents, boilerplate: against counting by hand; places lead to the lines."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from bertsmith.checkup import repeats
from bertsmith.text.config import CorpusConfig
from tests.checkup.texts import findings, prose, write


def test_a_clean_corpus_has_no_repetition(tmp_path: Path) -> None:
    found = findings(corpus=[str(write(tmp_path / "a.txt", prose()))])
    assert not {"repeated_lines", "repeated_documents", "near_duplicates", "boilerplate"} & set(found)


def test_shared_case_c026_b_nine_hundred_equal_lines_in_a_thousand(tmp_path: Path) -> None:
    lines = [paragraph for document in prose(25, 4) for paragraph in document]
    lines += [lines[7]] * 900
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n\n" + prose(1, seed=5)[0][0] + "\n")
    found = findings(corpus=[str(tmp_path / "a.txt")])["repeated_lines"]
    assert found["level"] == "error"
    assert found["count"] == 900
    assert "900 of 1,001 lines (89.9 %)" in found["what"]
    assert found["examples"] == [{"place": f"{tmp_path / 'a.txt'}:8", "text": f"901 times: {lines[7][:89]}…"}]


def test_equal_documents_name_the_first(tmp_path: Path) -> None:
    documents = prose(30)
    write(tmp_path / "a.txt", documents)
    write(tmp_path / "b.txt", [*prose(2, seed=1), documents[3]])
    found = findings(corpus=[str(tmp_path)])["repeated_documents"]
    assert found["count"] == 1
    assert found["level"] == "warning"
    (example,) = found["examples"]
    assert example["place"] == f"{tmp_path / 'b.txt'}:11"  # two documents of four lines and a blank one
    assert example["text"].startswith(f"is the document at {tmp_path / 'a.txt'}:16: {documents[3][0][:20]}")


def test_shares_are_of_the_characters(tmp_path: Path) -> None:
    documents = prose(10)
    documents += documents[:5]
    found = findings(corpus=[str(write(tmp_path / "a.txt", documents))])
    characters = [sum(map(len, document)) for document in documents]
    expected = sum(characters[10:]) / sum(characters)
    assert found["repeated_documents"]["share"] == pytest.approx(expected, abs=1e-6)
    assert found["repeated_lines"]["share"] == pytest.approx(expected, abs=1e-6)
    assert "100 % of that in repeated documents" in found["repeated_lines"]["what"]


def test_boilerplate_is_what_stands_in_many_documents(tmp_path: Path) -> None:
    notice = "Subscribe to our newsletter and never miss another story from this lovely little town."
    twice = "This sentence stands many times in one document only, which makes it no boilerplate at all."
    documents = [[*document, notice] for document in prose(12)] + [[twice] * 20]
    path = write(tmp_path / "a.txt", documents)
    found = findings(corpus=[str(path)])["boilerplate"]
    assert found["count"] == 1
    assert found["examples"] == [{"place": f"{path}:5", "text": f"12 times: {notice}"}]


def test_lines_are_counted_as_the_reader_counts_them(tmp_path: Path) -> None:
    documents = [[line for line in document for _ in range(3)] for document in prose(8)]
    path = write(tmp_path / "a.txt", documents)
    counts = Counter(line for document in documents for line in document)
    assert findings(corpus=[str(path)])["repeated_lines"]["count"] == sum(n - 1 for n in counts.values())


def test_places_in_gzip_and_json_lines(tmp_path: Path) -> None:
    documents = prose(6)
    texts = ["\n".join(document) for document in [*documents, documents[1]]]
    content = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    (example,) = findings(corpus=[str(tmp_path)])["repeated_documents"]["examples"]
    assert example["place"] == f"{tmp_path / 'a.jsonl.gz'}:7"
    assert documents[1][0][:20] in example["text"]


def test_lines_that_are_dropped_count_for_nothing_and_do_not_shift_places(tmp_path: Path) -> None:
    documents = prose(5)
    documents = [["Chapter One", *document] for document in documents] + [["Contents", "Preface"]]
    documents.append(documents[2])
    path = write(tmp_path / "a.txt", documents)
    found = findings(corpus=[str(path)])
    assert found["repeated_lines"]["count"] == 4
    assert found["repeated_documents"]["examples"][0]["place"] == f"{path}:{5 * 6 + 3 + 2}"
    kept = findings(corpus=[str(path)], text=CorpusConfig(prose_only=False))
    assert kept["repeated_lines"]["count"] == 4 + 5


def test_lines_beyond_the_bound_are_left_out_and_it_says_so(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(repeats, "MOST_LINES", 30)
    documents = prose(5)
    found = findings(corpus=[str(write(tmp_path / "a.txt", [*documents, *documents]))])
    assert found["repeated_lines"]["count"] == 8
    assert "the last 12 lines were not compared" in found["repeated_lines"]["what"]
