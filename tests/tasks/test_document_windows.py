"""Windows: every word is scored once, where it has most context; whole sentences stay together."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.tasks.document_windows import Window, document_windows

DOCUMENTS = st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=30), min_size=1, max_size=20)


def scored_words(windows: list[Window]) -> list[int]:
    return [word for window in windows for start, end in window.scored for word in range(start, end)]


def test_a_document_that_fits_is_one_window() -> None:
    assert document_windows([[1, 2], [3], [1, 1, 1]], 9) == [Window(0, 6, [(0, 2), (2, 3), (3, 6)])]


@given(DOCUMENTS, st.integers(6, 40))
def test_every_word_is_scored_once_in_a_window_that_fits(sentences: list[list[int]], capacity: int) -> None:
    windows = document_windows(sentences, capacity)
    pieces = [count for sentence in sentences for count in sentence]
    assert sorted(scored_words(windows)) == list(range(len(pieces)))
    for window in windows:
        assert sum(pieces[window.start : window.end]) <= capacity
        assert all(window.start <= start < end <= window.end for start, end in window.scored)


@given(DOCUMENTS, st.integers(6, 40))
def test_no_window_has_room_for_another_word(sentences: list[list[int]], capacity: int) -> None:
    pieces = [count for sentence in sentences for count in sentence]
    for window in document_windows(sentences, capacity):
        spare = capacity - sum(pieces[window.start : window.end])
        beside = [pieces[i] for i in (window.start - 1, window.end) if 0 <= i < len(pieces)]
        # At most both neighbours could be half in: the window is laid by pieces, then cut to whole words.
        assert not beside or spare < 2 * max(pieces)


@given(DOCUMENTS, st.integers(6, 40))
def test_sentences_stay_whole_and_are_scored_where_they_have_most_context(
    sentences: list[list[int]], capacity: int
) -> None:
    pieces = [count for sentence in sentences for count in sentence]
    windows = document_windows(sentences, capacity)

    def context(window: Window, start: int, end: int) -> float:
        before = sum(pieces[window.start : start]) if window.start else float("inf")
        behind = sum(pieces[end : window.end]) if window.end < len(pieces) else float("inf")
        return min(before, behind)

    place = 0
    for sentence in sentences:
        start, end = place, place + len(sentence)
        place = end
        if sum(sentence) > capacity:
            continue
        scoring = [window for window in windows if (start, end) in window.scored]
        assert len(scoring) == 1
        holding = [window for window in windows if window.start <= start and end <= window.end]
        assert context(scoring[0], start, end) == max(context(window, start, end) for window in holding)


def test_context_reaches_a_quarter_of_the_window_on_both_sides() -> None:
    draw = random.Random(0)
    sentences = [[1] * draw.randint(1, 25) for _ in range(300)]
    total, capacity = sum(map(len, sentences)), 126
    for window in document_windows(sentences, capacity):
        for start, end in window.scored:
            assert window.start == 0 or start - window.start >= capacity // 4 - 1
            assert window.end == total or window.end - end >= capacity // 4 - 1


@pytest.mark.parametrize("capacity", [6, 7, 510])
def test_a_sentence_beyond_the_limit_is_scored_in_parts(capacity: int) -> None:
    sentence = [1, 3] * 700
    windows = document_windows([[2], sentence, [1]], capacity)
    assert sorted(scored_words(windows)) == list(range(1402))
    assert len(windows) > 1400 * 2 // capacity


def test_a_long_document_takes_no_time() -> None:
    windows = document_windows([[1, 2, 1] * 5] * 20_000, 126)
    assert len(scored_words(windows)) == 300_000
