"""Passages longer than a model reads: windows over their pieces, and which one knows a piece best.

Source: run_squad.py, convert_examples_to_features and _check_is_max_context.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Passage:
    """A passage in pieces.

    Attributes:
        ids: int64 ``(pieces,)``.
        offsets: where each piece starts and ends in the passage, in characters, int64 ``(pieces, 2)``.
    """

    ids: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def pieces_of(self, start: int, end: int) -> tuple[int, int] | None:
        """Return first and last piece of the characters ``start`` to ``end``; ``None`` without any."""
        first = int(np.searchsorted(self.offsets[:, 1], start, side="right"))
        last = int(np.searchsorted(self.offsets[:, 0], end, side="left")) - 1
        return (first, last) if first <= last else None

    def characters_of(self, first: int, last: int) -> tuple[int, int]:
        """Return where the pieces ``first`` to ``last`` start and end in the passage."""
        return int(self.offsets[first, 0]), int(self.offsets[last, 1])


@dataclass(frozen=True)
class Window:
    """What one input holds of a passage.

    Attributes:
        row: which question.
        first: the first of the passage's pieces in it.
        pieces: how many there are.
        place: where the first one stands in the input.
    """

    row: int
    first: int
    pieces: int
    place: int


def passage_of(text: str, tokenizer: Tokenizer) -> Passage:
    """Return a passage in pieces."""
    ids, offsets = tokenizer.encode_with_offsets(text)
    return Passage(np.array(ids, dtype=np.int64), np.array(offsets, dtype=np.int64).reshape(-1, 2))


def cut(pieces: int, space: int, step: int) -> list[tuple[int, int]]:
    """Return (first piece, number of pieces) of every window over a passage.

    Each starts ``step`` pieces after the one before, or where that one ends if this is earlier, until one
    reaches the end. A passage without pieces has one window without pieces.

    Args:
        pieces: of the passage.
        space: pieces that an input has room for, at least 1.
        step: pieces from one start to the next, at least 1.
    """
    assert min(space, step) >= 1, "a window has room, and the next one starts later"
    starts = [0]
    while starts[-1] + space < pieces:
        starts.append(starts[-1] + min(step, space))
    return [(start, min(space, pieces - start)) for start in starts]


def best_known(windows: Sequence[Window]) -> list[NDArray[np.bool_]]:
    """Say for each window of one passage which of its pieces no other window knows better.

    The context of a piece in a window is what stands on its poorer side; a hundredth of the window's length
    decides between equals, then the earlier window. So every piece belongs to exactly one window.

    Returns:
        For each window bool ``(pieces,)``.
    """
    total = max(window.first + window.pieces for window in windows)
    context = np.full((len(windows), total), -1.0)
    for row, window in zip(context, windows, strict=True):
        inside = np.arange(window.pieces)
        row[window.first : window.first + window.pieces] = (
            np.minimum(inside, inside[::-1]) + 0.01 * window.pieces
        )
    owners = context.argmax(axis=0) if total else np.zeros(0, dtype=np.int64)  # (pieces of the passage,)
    return [
        owners[window.first : window.first + window.pieces] == number for number, window in enumerate(windows)
    ]
