"""Random rows in both layouts, for the tests of models."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from bertsmith.layout import Layout, Tokens, padded, unpadded

VOCAB_SIZE = 97
PAD_ID = 0


def random_ids(lengths: Sequence[int], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(5, VOCAB_SIZE, (length,), generator=generator) for length in lengths]


def rows_of(ids: Sequence[Tensor], row_tokens: int | None = None) -> Tokens:
    """Lay rows end to end, or padded to ``row_tokens``; the second half of each row is its second segment."""
    lengths = [len(row) for row in ids]
    segments = [(torch.arange(length) >= length // 2).long() for length in lengths]
    positions = [torch.arange(length) for length in lengths]
    if row_tokens is None:
        return Tokens(torch.cat(list(ids)), torch.cat(segments), torch.cat(positions), unpadded(lengths))
    filled = [
        torch.stack([torch.nn.functional.pad(row, (0, row_tokens - len(row)), value=PAD_ID) for row in rows])
        for rows in (ids, segments, positions)
    ]
    return Tokens(*(rows.flatten() for rows in filled), padded(lengths, row_tokens))


def places_of(layout: Layout) -> Tensor:
    """Where the tokens of all rows lie, padding left out."""
    pairs = zip(layout.starts, layout.lengths, strict=True)
    return torch.cat([torch.arange(start, start + length) for start, length in pairs])
