"""Long texts in overlapping windows: nothing is cut, and a row still has one result.

The windows of a text are equally long, evenly spread, and neighbours share at least a quarter. A row's
outputs are the mean over its pieces of the mean over the windows that hold the piece; so every piece counts
the same, whether one window holds it or two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.tasks.encode import WINDOWS, EncodedRow, Texts, assembled, encode_rows
from bertsmith.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Inputs:
    """The inputs of the forward passes of some rows: one a row, or its windows, in the order of the rows.

    Attributes:
        encoded: each input.
        owners: int64 ``(inputs,)``, the row of each, ascending; every row has at least one.
        shares: float64 ``(inputs,)``, how much each counts in its row's result; those of a row sum to 1.
    """

    encoded: list[EncodedRow]
    owners: NDArray[np.int64]
    shares: NDArray[np.float64]

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return int(self.owners[-1]) + 1 if len(self.owners) else 0

    @property
    def truncated(self) -> list[bool]:
        """Whether each row lost pieces."""
        lost = np.zeros(self.num_rows, dtype=bool)
        lost[self.owners[[row.truncated for row in self.encoded]]] = True
        return [bool(value) for value in lost]

    def of_rows(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the mean of each row's outputs, float32 ``(rows, width)``, from ``(inputs, width)``."""
        sums = np.zeros((self.num_rows, outputs.shape[1]), dtype=np.float64)
        np.add.at(sums, self.owners, outputs * self.shares[:, np.newaxis])
        return sums.astype(np.float32)

    def weights(self) -> NDArray[np.float64]:
        """Return how much each input counts in training, ``(inputs,)``: every row the same, 1 on average."""
        weights: NDArray[np.float64] = self.shares * (len(self.shares) / max(1, self.num_rows))
        return weights


def encode_inputs(
    texts: Sequence[Texts],
    tokenizer: Tokenizer,
    seq_len: int,
    truncation: str,
    where: Callable[[int], str] = "text number {}".format,
) -> Inputs:
    """Encode texts by any policy; "windows" gives a row as many inputs as its text needs.

    Of a pair the longer text (of equals the second) has windows, and the other stands whole in each of them;
    if it would take more than half of the space its end is cut, which the row says.

    Args:
        texts: (text, second text or ``None``) of each row.
        tokenizer: of the model.
        seq_len: pieces of the longest input, special tokens counted.
        truncation: one of ``TRUNCATIONS``.
        where: as in ``encode_rows``.

    Raises:
        InputError: a row is too long under "error".
    """
    if truncation != WINDOWS:
        encoded = encode_rows(texts, tokenizer, seq_len, truncation, where)
        return Inputs(encoded, np.arange(len(encoded)), np.ones(len(encoded)))
    firsts = tokenizer.encode_batch([first for first, _ in texts])
    seconds = iter(tokenizer.encode_batch([second for _, second in texts if second is not None]))
    inputs: list[EncodedRow] = []
    owners: list[int] = []
    shares: list[NDArray[np.float64]] = []
    for number, (first, (_, second_text)) in enumerate(zip(firsts, texts, strict=True)):
        second = None if second_text is None else next(seconds)
        rows, counts = _windows_of(first, second, tokenizer, seq_len)
        inputs += rows
        owners += [number] * len(rows)
        shares.append(counts)
    return Inputs(inputs, np.array(owners, dtype=np.int64), np.concatenate([np.zeros(0), *shares]))


def _windows_of(
    first: list[int], second: list[int] | None, tokenizer: Tokenizer, seq_len: int
) -> tuple[list[EncodedRow], NDArray[Any]]:
    space = seq_len - 2
    if second is None:
        spans = spread(len(first), space)
        return [assembled(first[a:b], None, tokenizer, False) for a, b in spans], fair_shares(spans)
    space -= len(tokenizer.between_ids)
    longer, shorter = (first, second) if len(first) > len(second) else (second, first)
    fits = len(first) + len(second) <= space
    kept = shorter if fits else shorter[: space // 2]
    spans = spread(len(longer), space - len(kept))
    pairs = [(longer[a:b], kept) if longer is first else (kept, longer[a:b]) for a, b in spans]
    cut = len(kept) < len(shorter)
    return [assembled(one, two, tokenizer, cut) for one, two in pairs], fair_shares(spans)


def spread(length: int, space: int) -> list[tuple[int, int]]:
    """Return the first place and the place behind the last of each window, in order.

    Args:
        length: pieces of the text.
        space: pieces of a window, at least 2.
    """
    if length <= space:
        return [(0, length)]
    step = max(1, space - max(1, space // 4))
    gaps = -(-(length - space) // step)
    starts = [(length - space) * number // gaps for number in range(gaps + 1)]
    return [(start, start + space) for start in starts]


def fair_shares(spans: Sequence[tuple[int, int]]) -> NDArray[np.float64]:
    """Return how much each window counts, float64 ``(windows,)``, so that every piece counts the same.

    A window's share is the sum over its pieces of one part in as many as there are windows that hold the
    piece, as a share of all pieces.
    """
    length = spans[-1][1]
    if length == 0:
        return np.ones(1)
    holders = np.zeros(length, dtype=np.int64)
    for start, end in spans:
        holders[start:end] += 1
    shares = np.array([(1.0 / holders[start:end]).sum() for start, end in spans]) / length
    return np.asarray(shares / shares.sum())  # exactly 1 for a single window
