"""Decoding: the original's rule by brute force, no answer, exact characters."""

from __future__ import annotations

import random

import numpy as np
import pytest
from numpy.typing import NDArray

from bertsmith.tasks.decoding import NOTHING_TO_SAY, Decoded, Span, decode, shares_of, windows_by_row
from bertsmith.tasks.windows import Passage, Window, best_known, cut

PLACE = 4  # [CLS], two pieces of a question, [SEP]


def words(number: int) -> tuple[str, Passage]:
    """A passage of ``number`` words, some of them twice."""
    texts = [f"w{n % 7}" for n in range(number)]
    offsets = [(3 * n, 3 * n + 2) for n in range(number)]
    return " ".join(texts), Passage(np.zeros(number, dtype=np.int64), np.array(offsets).reshape(-1, 2))


def windows_of(number: int, space: int, step: int) -> list[Window]:
    return [Window(0, first, count, PLACE) for first, count in cut(number, space, step)]


def random_outputs(windows: list[Window], seed: int) -> list[NDArray[np.float32]]:
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(PLACE + w.pieces + 1, 2)).astype(np.float32) for w in windows]


def brute_force(
    text: str,
    passage: Passage,
    windows: list[Window],
    outputs: list[NDArray[np.float32]],
    max_len: int,
    n_best: int,
) -> list[tuple[str, float]]:
    """Every pair of places, one by one. Source: run_squad.py, write_predictions."""
    found = []
    for window, owned, scores in zip(windows, best_known(windows), outputs, strict=True):
        for start in range(len(scores)):
            for end in range(len(scores)):
                inside = range(window.place, window.place + window.pieces)
                if start not in inside or end not in inside or not owned[start - window.place]:
                    continue
                if end < start or end - start + 1 > max_len:
                    continue
                first, last = (p - window.place + window.first for p in (start, end))
                answer = text[passage.offsets[first, 0] : passage.offsets[last, 1]]
                found.append((answer, float(scores[start, 0] + scores[end, 1])))
    best: dict[str, float] = {}
    for answer, score in sorted(found, key=lambda pair: -pair[1]):
        best.setdefault(answer, score)
    return list(best.items())[:n_best]


@pytest.mark.parametrize("seed", range(40))
def test_the_best_spans_are_those_of_all_pairs(seed: int) -> None:
    draw = random.Random(seed)
    number, space = draw.randint(1, 40), draw.randint(1, 20)
    text, passage = words(number)
    windows = windows_of(number, space, draw.randint(1, 12))
    outputs = random_outputs(windows, seed)
    max_len, n_best = draw.choice([1, 3, 30]), draw.choice([1, 5, 20])
    decoded = decode(text, passage, windows, outputs, max_len, n_best)
    expected = brute_force(text, passage, windows, outputs, max_len, n_best)
    assert [span.text for span in decoded.spans] == [answer for answer, _ in expected]
    np.testing.assert_allclose(
        [span.score for span in decoded.spans], [score for _, score in expected], rtol=1e-6
    )
    assert all(text[span.start : span.end] == span.text for span in decoded.spans)
    assert decoded.null_score == pytest.approx(min(float(o[0, 0]) + float(o[0, 1]) for o in outputs))
    assert decoded.null_odds == pytest.approx(decoded.null_score - expected[0][1], rel=1e-5)


def test_no_answer_comes_first_above_the_threshold() -> None:
    spans = (Span("a", 0, 1, 3.0), Span("b", 2, 3, 1.0))
    decoded = Decoded(spans, 2.0)
    assert decoded.null_odds == -1.0
    assert [span.text for span in decoded.answers(None)] == ["a", "b"]
    assert [span.text for span in decoded.answers(-1.0)] == ["a", "", "b"], "at the threshold it is answered"
    assert [span.text for span in decoded.answers(-1.5)] == ["", "a", "b"]
    shares = shares_of(decoded.answers(0.0))
    assert sum(shares) == pytest.approx(1.0)
    assert shares[0] == pytest.approx(1 / (1 + np.exp(-1.0) + np.exp(-2.0)))


def test_a_passage_without_pieces_has_no_span() -> None:
    text, passage = words(0)
    windows = windows_of(0, 5, 3)
    decoded = decode(text, passage, windows, random_outputs(windows, 0), 30, 20)
    assert decoded.spans == ()
    assert decoded.null_odds == NOTHING_TO_SAY
    assert [span.text for span in decoded.answers(None)] == [""]
    assert [span.text for span in decoded.answers(5.0)] == [""]


def test_white_space_at_the_ends_is_no_part_of_an_answer() -> None:
    passage = Passage(np.zeros(2, dtype=np.int64), np.array([[0, 3], [3, 6]]))
    windows = [Window(0, 0, 2, 1)]
    outputs = [np.array([[0, 0], [0, 0], [9, 9], [0, 0]], dtype=np.float32)]
    (best, *_) = decode("the oo", passage, windows, outputs, 1, 5).spans
    assert (best.text, best.start, best.end) == ("oo", 4, 6)


def test_windows_of_a_question_are_neighbours() -> None:
    windows = [Window(row, 0, 1, 0) for row in (0, 0, 1, 2, 2, 2)]
    assert windows_by_row(windows) == [range(0, 2), range(2, 3), range(3, 6)]
    assert windows_by_row([]) == []
