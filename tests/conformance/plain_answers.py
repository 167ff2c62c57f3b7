"""The original's choice of an answer, and its windows, written from their rules as plainly as possible.

Source: run_squad.py, convert_examples_to_features, _check_is_max_context and write_predictions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bertsmith.tasks.windows import Window


def windows_over(pieces: int, space: int, step: int) -> list[tuple[int, int]]:
    """Return (first piece, number of pieces) of every window."""
    found = []
    start = 0
    while start < pieces:
        length = min(pieces - start, space)
        found.append((start, length))
        if start + length == pieces:
            break
        start += min(length, step)
    return found


def knows_best(windows: Sequence[tuple[int, int]], number: int, piece: int) -> bool:
    """Say whether a window has most context for a piece, the first one of equals."""
    scores = {}
    for place, (start, length) in enumerate(windows):
        if start <= piece < start + length:
            scores[place] = min(piece - start, start + length - 1 - piece) + 0.01 * length
    return max(scores, key=lambda place: scores[place]) == number


def best_and_null(
    windows: Sequence[Window], outputs: Sequence[NDArray[np.float32]], max_length: int, n_best: int = 20
) -> tuple[tuple[float, int, int], float]:
    """Return (score, first, last piece) of the best answer, and the lowest score of "no answer"."""
    spans = [(window.first, window.pieces) for window in windows]
    best = (-np.inf, 0, 0)
    null = np.inf
    for number, (window, scores) in enumerate(zip(windows, outputs, strict=True)):
        null = min(null, float(scores[0, 0]) + float(scores[0, 1]))
        starts = np.argsort(-scores[:, 0])[:n_best]
        ends = np.argsort(-scores[:, 1])[:n_best]
        for start in starts:
            for end in ends:
                first, last = start - window.place, end - window.place
                if not (0 <= first <= last < window.pieces) or last - first + 1 > max_length:
                    continue
                if knows_best(spans, number, window.first + first):
                    score = float(scores[start, 0]) + float(scores[end, 1])
                    best = max(best, (score, int(window.first + first), int(window.first + last)))
    return best, null
