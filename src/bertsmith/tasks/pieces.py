"""Texts as a model reads them, piece by piece, with the place of each piece in its text."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bertsmith.tasks.encode import EncodedRow, Texts, kept_pieces
from bertsmith.text.tokenizer import Tokenizer

Offsets = list[tuple[int, int]]


@dataclass(frozen=True)
class PlacedPieces:
    """The pieces of a text or pair, special tokens included.

    Attributes:
        ids: of the pieces.
        tokens: the pieces.
        offsets: where each piece starts and ends in its text, in characters; (0, 0) for special tokens.
        second_start: place of the second text's first piece; the number of pieces when there is none.
        truncated: pieces were cut off.
    """

    ids: list[int]
    tokens: list[str]
    offsets: Offsets
    second_start: int
    truncated: bool

    @property
    def row(self) -> EncodedRow:
        """The same as an input."""
        return EncodedRow(np.array(self.ids, dtype=np.int64), self.second_start, self.truncated)


def placed_pieces(
    texts: Texts, tokenizer: Tokenizer, seq_len: int, truncation: str, masks: bool
) -> PlacedPieces:
    """Return the pieces of a text or pair, cut as ``encode_rows`` cuts them ("error" cuts the end).

    Args:
        texts: (text, second text or ``None``).
        tokenizer: of the model.
        seq_len: most pieces, special tokens counted.
        truncation: one of ``CUTS``.
        masks: read "[MASK]" as the mask; else it is text like any other.
    """
    encode = tokenizer.encode_with_masks_and_offsets if masks else tokenizer.encode_with_offsets
    found = [encode(text) for text in texts if text is not None]
    lengths = [len(ids) for ids, _ in found]
    kept = kept_pieces(lengths, tokenizer, seq_len, truncation)
    parts = [
        ([ids[place] for place in places], [offsets[place] for place in places])
        for (ids, offsets), places in zip(found, kept, strict=True)
    ]
    ids, offsets = [tokenizer.cls_id, *parts[0][0]], [(0, 0), *parts[0][1]]
    second_start = None
    if len(parts) == 2:
        second_start = len(ids) + len(tokenizer.between_ids)
        ids += [*tokenizer.between_ids, *parts[1][0]]
        offsets += [*[(0, 0)] * len(tokenizer.between_ids), *parts[1][1]]
    ids.append(tokenizer.sep_id)
    offsets.append((0, 0))
    truncated = sum(map(len, kept)) < sum(lengths)
    tokens = [tokenizer.token(id) for id in ids]
    return PlacedPieces(ids, tokens, offsets, len(ids) if second_start is None else second_start, truncated)


def count_pieces(texts: Texts, tokenizer: Tokenizer) -> int:
    """Return how many pieces a text or pair has before anything is cut, special tokens counted."""
    first, second = texts
    if second is None:
        return len(tokenizer.encode(first)) + 2
    between = len(tokenizer.between_ids)
    return len(tokenizer.encode(first)) + len(tokenizer.encode(second)) + 2 + between
