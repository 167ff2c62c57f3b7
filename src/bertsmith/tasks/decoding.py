"""From the scores of starts and ends to answers: the best spans of a passage over all its windows.

Source: run_squad.py, write_predictions. Deviations: every allowed span is weighed, not only those whose start
and end are each among the best of a window; a span's text is cut out of the passage by the places of its
pieces, not found again by comparing letters.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.metrics import probabilities_of
from bertsmith.tasks.windows import Passage, Window, best_known

NOTHING_TO_SAY = 1e30
"""Null odds of a passage without any span."""


@dataclass(frozen=True)
class Span:
    """A possible answer.

    Attributes:
        text: the passage's characters ``start`` to ``end``; "" for "no answer".
        start: place of the first character; 0 for "no answer".
        end: place behind the last one; 0 for "no answer".
        score: score of its start plus score of its end.
    """

    text: str
    start: int
    end: int
    score: float


@dataclass(frozen=True)
class Decoded:
    """What a model says to one question.

    Attributes:
        spans: the best ones, best first, all of different texts; none where the passage has no piece.
        null_score: of "no answer": the smallest over the windows of the scores of [CLS] as start and end.
    """

    spans: tuple[Span, ...]
    null_score: float

    @property
    def null_odds(self) -> float:
        """The score of "no answer" minus that of the best span."""
        return self.null_score - self.spans[0].score if self.spans else NOTHING_TO_SAY

    def answers(self, null_threshold: float | None) -> list[Span]:
        """Return the candidates, the answer first.

        Args:
            null_threshold: "no answer" comes first where the null odds exceed it; ``None``: it is none of
                the candidates, unless there is no other.
        """
        none = Span("", 0, 0, self.null_score)
        if null_threshold is None:
            return list(self.spans) or [none]
        first = none if self.null_odds > null_threshold or not self.spans else self.spans[0]
        others = [span for span in (*self.spans, none) if span is not first]
        return [first, *sorted(others, key=lambda span: -span.score)]


def shares_of(spans: Sequence[Span]) -> list[float]:
    """Return the softmax over the scores of candidates."""
    scores = np.array([[span.score for span in spans]])
    shares: list[float] = probabilities_of(scores)[0].tolist()
    return shares


def decode(
    text: str,
    passage: Passage,
    windows: Sequence[Window],
    outputs: Sequence[NDArray[np.float32]],
    max_answer_len: int,
    n_best: int,
) -> Decoded:
    """Return the best answers to a question.

    A span starts with a piece that its window knows best, ends in the same window, and has at most
    ``max_answer_len`` pieces.

    Args:
        text: the passage.
        passage: its pieces.
        windows: of the question, in their order.
        outputs: of each window, float32 ``(places, 2)``: scores as start and as end.
        max_answer_len: pieces of the longest answer.
        n_best: how many answers to return at most.
    """
    candidates = [
        _spans_of(scores[window.place : window.place + window.pieces], owned, max_answer_len, n_best**2)
        + np.array([0, window.first, window.first])
        for window, owned, scores in zip(windows, best_known(windows), outputs, strict=True)
    ]
    found = np.concatenate(candidates)  # (spans, 3)
    spans: dict[str, Span] = {}
    for score, first, last in found[np.lexsort((found[:, 2], found[:, 1], -found[:, 0]))]:
        start, end = trimmed(text, *passage.characters_of(int(first), int(last)))
        spans.setdefault(text[start:end], Span(text[start:end], start, end, float(score)))
        if len(spans) == n_best:
            break
    spans.pop("", None)
    return Decoded(tuple(spans.values()), min(float(scores[0].sum()) for scores in outputs))


def _spans_of(
    scores: NDArray[np.float32], owned: NDArray[np.bool_], max_len: int, number: int
) -> NDArray[np.float64]:
    """Return score, first and last piece of the best spans of a window, float64 ``(spans, 3)``, in no order.

    Args:
        scores: of the window's pieces, float32 ``(pieces, 2)``.
        owned: where spans may start, bool ``(pieces,)``.
        max_len: pieces of the longest span.
        number: how many spans at most.
    """
    if not len(scores):
        return np.zeros((0, 3))
    ends = np.concatenate([scores[:, 1], np.full(max_len - 1, -np.inf, dtype=np.float32)])
    by_length = np.lib.stride_tricks.sliding_window_view(ends, max_len)  # (pieces, max_len)
    sums = np.where(owned[:, None], scores[:, :1] + by_length, -np.inf).ravel()
    best = np.argpartition(-sums, number)[:number] if number < len(sums) else np.arange(len(sums))
    best = best[np.isfinite(sums[best])]
    first, further = np.divmod(best, max_len)
    return np.stack([sums[best], first, first + further], axis=1)


def trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Return a span without the white space at its ends (BPE may count a space to the next word)."""
    inside = text[start:end]
    return start + len(inside) - len(inside.lstrip()), end - (len(inside) - len(inside.rstrip()))


def windows_by_row(windows: Sequence[Window]) -> list[range]:
    """Return the numbers of each question's windows; those of one question are neighbours."""
    groups = itertools.groupby(range(len(windows)), key=lambda number: windows[number].row)
    numbers = (list(group) for _, group in groups)
    return [range(group[0], group[-1] + 1) for group in numbers]
