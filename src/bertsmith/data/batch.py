"""Batches: rows of ids on one flat token axis, with what the objectives read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.layout import Tokens, moved, padded, unpadded

IGNORED = -100
"""The label of what no loss reads."""


def tokens_of(
    rows: Sequence[NDArray[Any] | Sequence[int]],
    second_starts: Sequence[int] | NDArray[Any],
    padded_to: int | None = None,
    pad_id: int = 0,
) -> Tokens:
    """Lay rows on one token axis, in their order.

    Args:
        rows: ids of each row, special tokens included; none is empty.
        second_starts: place in each row where its second segment starts; the row's length when it has none.
        padded_to: places of each row, at least the longest row; ``None``: rows lie end to end.
        pad_id: id of [PAD]; read only when padded.

    Returns:
        int64 tensors ``(tokens,)`` and their layout. Padding has segment 0 and goes on counting positions.
    """
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    seconds = np.asarray(second_starts, dtype=np.int64)
    if padded_to is None:
        layout = unpadded(lengths.tolist())
        ids = np.concatenate(rows).astype(np.int64)
        places = lengths
    else:
        layout = padded(lengths.tolist(), padded_to)
        ids = np.full(len(rows) * padded_to, pad_id, dtype=np.int64)
        for start, row in zip(layout.starts, rows, strict=True):
            ids[start : start + len(row)] = row
        places = np.full(len(rows), padded_to, dtype=np.int64)
    starts = np.cumsum(places) - places  # (batch,)
    positions = np.arange(len(ids), dtype=np.int64) - np.repeat(starts, places)  # (tokens,)
    segments = positions >= np.repeat(seconds, places)
    if padded_to is not None:
        segments &= positions < np.repeat(lengths, places)
    return Tokens(
        torch.from_numpy(ids),
        torch.from_numpy(segments.astype(np.int64)),
        torch.from_numpy(positions),
        layout,
    )


@dataclass(frozen=True)
class PretrainingBatch:
    """What one forward pass of pretraining reads.

    Attributes:
        tokens: the inputs, masks applied.
        picks: int64 ``(picks,)``, places on the token axis whose original piece is predicted.
        pick_labels: int64 ``(picks,)``, the original pieces there.
        nsp_labels: int64 ``(batch,)``, 0 next / in order, 1 random / swapped, IGNORED where there is no pair.
        example_ids: int64 ``(batch,)``, on the host: which instances these are.
        num_pairs: labels that are not IGNORED, counted before the batch was moved; ``None``: not moved.
    """

    tokens: Tokens
    picks: torch.Tensor
    pick_labels: torch.Tensor
    nsp_labels: torch.Tensor
    example_ids: NDArray[np.int64]
    num_pairs: int | None = None

    def count_pairs(self) -> int:
        """Return the number of labels that are not IGNORED, without waiting for a device."""
        if self.num_pairs is not None:
            return self.num_pairs
        return int((self.nsp_labels != IGNORED).sum())

    def to(self, device: torch.device | str) -> PretrainingBatch:
        """Return the same batch on another device."""
        return replace(
            self,
            tokens=self.tokens.to(device),
            picks=moved(self.picks, device),
            pick_labels=moved(self.pick_labels, device),
            nsp_labels=moved(self.nsp_labels, device),
            num_pairs=self.count_pairs(),
        )
