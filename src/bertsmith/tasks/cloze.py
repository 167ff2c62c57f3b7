"""Texts with [MASK]s, and the pieces that fit best into each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from torch import nn

from bertsmith.errors import InputError
from bertsmith.tasks.encode import EncodedRow, RowBatch
from bertsmith.tasks.inference import Inference, rows_in_batches
from bertsmith.text.tokenizer import Tokenizer

ScoredPieces = list[tuple[int, float]]
"""Ids of pieces with their probabilities, best first."""


def masked_row(number: int, text: str, tokenizer: Tokenizer, seq_len: int) -> EncodedRow:
    """Encode a text with [MASK]s; what is too long is cut behind the last of them.

    Raises:
        InputError: the text has no [MASK], or has one beyond the length.
    """
    pieces = tokenizer.encode_with_masks(text)
    if tokenizer.mask_id not in pieces:
        raise InputError(
            f"text number {number} has no [MASK]: {text[:60]!r}; put one where a word is missing"
        )
    kept = pieces[: seq_len - 2]
    if tokenizer.mask_id in pieces[len(kept) :]:
        raise InputError(f"text number {number} has a [MASK] beyond the model's {seq_len} pieces; shorten it")
    ids = np.array([tokenizer.cls_id, *kept, tokenizer.sep_id], dtype=np.int64)
    return EncodedRow(ids, len(ids), len(kept) < len(pieces))


def filled_texts(
    model: nn.Module, texts: Sequence[str], tokenizer: Tokenizer, seq_len: int, top: int, inference: Inference
) -> list[tuple[str, list[list[tuple[str, float]]], bool]]:
    """Return each text with the best piece in each [MASK], the candidates of each, and whether it was cut.

    Args:
        model: with a masked language model head.
        texts: each with at least one [MASK].
        tokenizer: of the model.
        seq_len: pieces of the longest text.
        top: candidates, as pieces that people read with probabilities, best first.
        inference: device, precision and size of batches.

    Raises:
        InputError: a text has no [MASK], or has one beyond the length.
    """
    rows = [masked_row(number, text, tokenizer, seq_len) for number, text in enumerate(texts)]
    answers = []
    masks = best_pieces(model, rows, tokenizer, top, inference)
    for text, found, row in zip(texts, masks, rows, strict=True):
        filled = tokenizer.filled(text, [scored[0][0] for scored in found])
        shown = [[(tokenizer.shown(id), share) for id, share in scored] for scored in found]
        answers.append((filled, shown, row.truncated))
    return answers


def best_pieces(
    model: nn.Module, rows: Sequence[EncodedRow], tokenizer: Tokenizer, top: int, inference: Inference
) -> list[list[ScoredPieces]]:
    """Return the best pieces for each [MASK] of each row, in the order of the places."""
    masks: list[list[ScoredPieces]] = [[] for _ in rows]
    for _, found in rows_in_batches(rows, partial(_best_of_batch, model, tokenizer, top), inference):
        for row, scored in found:
            masks[row].append(scored)
    return masks


def _best_of_batch(
    model: nn.Module, tokenizer: Tokenizer, top: int, batch: RowBatch
) -> list[tuple[int, ScoredPieces]]:
    """Return (row, best ids with probabilities) for each [MASK] of a batch, in the order of the places."""
    picks = (batch.tokens.input_ids == tokenizer.mask_id).nonzero().squeeze(1)  # (picks,)
    scores, _ = model(batch.tokens, picks)
    # Ids beyond the vocabulary (embeddings that were padded) name no piece.
    shares = torch.softmax(scores[:, : tokenizer.vocab_size].float(), dim=-1)  # (picks, vocab)
    best = shares.topk(min(top, tokenizer.vocab_size))
    owners = np.searchsorted(batch.tokens.layout.starts, picks.cpu().numpy(), side="right") - 1
    return [
        (int(batch.rows[owner]), list(zip(ids, values, strict=True)))
        for owner, values, ids in zip(owners, best.values.tolist(), best.indices.tolist(), strict=True)
    ]
