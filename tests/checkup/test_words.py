"""Words, and runs of words as numbers."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.checkup.words import WordHashes, run_hashes, words_of


def test_words_are_lower_case_without_punctuation() -> None:
    assert words_of('He said: "Don\'t!" -- twice_over.') == ["he", "said", "don", "t", "twice", "over"]


def test_other_scripts() -> None:
    assert words_of("Élan vital; Größe, 尖山是x台湾。") == ["élan", "vital", "größe", *"尖山是", "x", *"台湾"]


def test_hashes_are_the_same_in_every_process() -> None:
    assert WordHashes().of(["word"]).tolist() == [10776770685243991114]


def test_forgotten_words_keep_their_number(monkeypatch) -> None:
    monkeypatch.setattr("bertsmith.checkup.words._MOST_KNOWN", 2)
    hashes = WordHashes()
    words = ["a", "b", "c", "a", "b", "c"]
    assert hashes.of(words).tolist() == WordHashes().of(words[:3]).tolist() * 2
    assert len(hashes) <= 2


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 6))
def test_equal_runs_have_equal_numbers_and_others_not(words: list[str], length: int) -> None:
    numbers = run_hashes(WordHashes().of(words), length)
    runs = [tuple(words[place : place + length]) for place in range(len(words) - length + 1)]
    assert len(numbers) == len(runs)
    assert len(set(zip(runs, numbers.tolist(), strict=True))) == len(set(runs)) == len(np.unique(numbers))
