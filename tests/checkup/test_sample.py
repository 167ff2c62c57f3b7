"""The sample of lines; unknown pieces and languages in it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bertsmith.checkup import sample
from bertsmith.checkup.sample import LineSample
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.checkup.texts import WORDS, findings, prose, write


def test_the_sample_is_the_same_in_any_order(monkeypatch) -> None:
    monkeypatch.setattr(sample, "_MOST_LINES", 5)
    offered = [(hashed * 7919 % 101, place, f"line {hashed}") for place, hashed in enumerate(range(50))]
    forward, backward = LineSample(), LineSample()
    for item in offered:
        forward.add(*item)
    for item in reversed(offered):
        backward.add(*item)
    smallest = sorted(sorted(offered)[:5], key=lambda item: item[1])
    assert [(line.place, line.text) for line in forward.lines()] == [item[1:] for item in smallest]
    assert forward.lines() == backward.lines()


def test_equal_lines_are_taken_once() -> None:
    lines = LineSample()
    for place in range(3):
        lines.add(5, place, "same")
    assert [line.place for line in lines.lines()] == [0]


@pytest.fixture
def vocabulary(tmp_path: Path) -> str:
    letters = "abcdefghijklmnopqrstuvwxyz"
    pieces = [*SPECIAL_TOKENS, ".", *letters, *(f"##{letter}" for letter in letters), *WORDS]
    Tokenizer(list(dict.fromkeys(pieces)), TokenizerConfig()).save(tmp_path / "vocab")
    return str(tmp_path / "vocab")


def test_known_words_are_not_unknown(tmp_path: Path, vocabulary: str) -> None:
    path = write(tmp_path / "a.txt", prose())
    assert "unknown_pieces" not in findings(corpus=[str(path)], vocab=vocabulary)


def test_unknown_words_are_counted_and_named(tmp_path: Path, vocabulary: str) -> None:
    documents = prose(25, 2)
    documents[4][0] = "ж " * 40 + "б " * 20 + documents[4][0]
    path = write(tmp_path / "a.txt", documents)
    found = findings(corpus=[str(path)], vocab=vocabulary)["unknown_pieces"]
    pieces = 60 + sum(len(line.replace(".", " .").split()) for document in prose(25, 2) for line in document)
    assert found["count"] == 60
    assert found["share"] == pytest.approx(60 / pieces, abs=1e-6)
    assert found["level"] == "warning"
    assert [example["place"] for example in found["examples"]] == [f"{path}:13"] * 2
    assert found["examples"][0]["text"].startswith("'ж', 40 times: ж ж")


def test_a_vocabulary_of_another_language_is_an_error(
    tmp_path: Path, shared_data: Path, vocabulary: str
) -> None:
    text = gzip.decompress((shared_data / "corpus" / "zh" / "heldout.txt.gz").read_bytes())
    (tmp_path / "zh.txt").write_bytes(text)
    found = findings(corpus=[str(tmp_path / "zh.txt")], vocab=vocabulary)["unknown_pieces"]
    assert found["level"] == "error"
    assert found["share"] > 0.9


def test_repeated_entries_of_a_vocabulary(tmp_path: Path, vocabulary: str) -> None:
    file = Path(vocabulary) / "vocab.txt"
    file.write_text(file.read_text() + "ship\n")
    path = write(tmp_path / "a.txt", prose())
    found = findings(corpus=[str(path)], vocab=vocabulary)["vocabulary_repeats"]
    assert (found["count"], found["level"]) == (1, "warning")
    assert "'ship'" in found["what"]


def test_languages_are_told_apart(tmp_path: Path, shared_data: Path) -> None:
    english = gzip.decompress((shared_data / "corpus" / "wiki-en" / "heldout.txt.gz").read_bytes()).decode()
    chinese = gzip.decompress((shared_data / "corpus" / "zh" / "heldout.txt.gz").read_bytes()).decode()
    (tmp_path / "a.txt").write_text("\n".join(english.split("\n")[:400]) + "\n\n")
    (tmp_path / "b.txt").write_text("\n".join(chinese.split("\n")[:200]) + "\n")
    found = findings(corpus=[str(tmp_path / "a.txt"), str(tmp_path / "b.txt")])["languages"]
    assert found["level"] == "warning"
    assert "en " in found["what"]
    assert found["examples"][0]["place"].startswith(str(tmp_path / "b.txt"))
    assert found["examples"][0]["text"].startswith("zh: ")
    alone = findings(corpus=[str(tmp_path / "a.txt")])
    assert alone.get("languages", {"share": 0.0})["share"] < 0.02
