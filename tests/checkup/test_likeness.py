"""Nearly equal documents: found from four fifths on, against similarities counted by hand."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from bertsmith.checkup.likeness import RUN_WORDS, Sketches
from bertsmith.checkup.words import WordHashes
from tests.checkup.texts import WORDS, findings, prose, write


def changed(words: list[str], number: int, draw: random.Random) -> list[str]:
    """Return the words with a number of them replaced."""
    places = set(draw.sample(range(len(words)), number))
    return [f"other{draw.randrange(10**6)}" if place in places else word for place, word in enumerate(words)]


def resemblance(a: list[str], b: list[str]) -> float:
    runs = [{tuple(t[i : i + RUN_WORDS]) for i in range(len(t) - RUN_WORDS + 1)} for t in (a, b)]
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1])


def test_found_if_alike_and_not_if_unlike() -> None:
    draw = random.Random(1)
    originals = [[f"{draw.choice(WORDS)}{draw.randrange(99)}" for _ in range(300)] for _ in range(60)]
    near = [changed(words, 2, draw) for words in originals[:30]]
    far = [changed(words, 45, draw) for words in originals[30:]]
    documents = [*originals, *near, *far]
    assert min(resemblance(a, b) for a, b in zip(originals[:30], near, strict=True)) > 0.9
    assert max(resemblance(a, b) for a, b in zip(originals[30:], far, strict=True)) < 0.45
    sketches = Sketches()
    hashes = WordHashes()
    for first in range(0, len(documents), 50):  # in blocks, as the survey hands them over
        block = documents[first : first + 50]
        starts = np.cumsum([0, *map(len, block)])
        sketches.add(hashes.of([word for words in block for word in words]), starts, first)
    pairs = {tuple(pair) for pair in sketches.near_duplicates().tolist()}
    expected = {(60 + number, number) for number in range(30)}
    assert len(pairs & expected) >= 27
    assert pairs <= expected


def test_short_documents_are_left_alone() -> None:
    sketches = Sketches()
    words = WordHashes().of(("one two three four five six seven eight nine " * 2).split())
    sketches.add(words, np.array([0, 9, 18]), 0)
    assert len(sketches.near_duplicates()) == 0


def test_the_finding_names_both_documents_and_leaves_out_equal_ones(tmp_path: Path) -> None:
    documents = prose(10, paragraphs=6)
    almost = [documents[2][0].replace("the", "that"), *documents[2][1:]]
    path = write(tmp_path / "a.txt", [*documents, almost, documents[5]])
    found = findings(corpus=[str(path)])
    assert found["near_duplicates"]["count"] == 1
    (example,) = found["near_duplicates"]["examples"]
    assert example["place"] == f"{path}:71"
    assert example["text"].startswith(f"is like the document at {path}:15: ")
    assert found["repeated_documents"]["count"] == 1
