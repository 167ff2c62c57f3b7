"""Made-up instances with the shape of real ones, and the arithmetic that a step needs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from bertsmith.data.batch import IGNORED, PretrainingBatch, tokens_of
from bertsmith.data.config import MaskingConfig
from bertsmith.data.masking import max_predictions_of
from bertsmith.model.config import BertConfig
from bertsmith.randomness import generator

_SHORT_SHARE = 0.1
_SHORTEST = 8
_FIRST_WORD = 1000  # below are unused entries, special tokens and single characters

Batches = Callable[[int], list[PretrainingBatch]]
"""From the number of a step, from 0, to its micro-batches."""


def random_batches(
    vocab_size: int, rows: int, seq_len: int, masking: MaskingConfig, pairs: bool = True
) -> Batches:
    """Return instances as ``prepare`` makes them: nine in ten are full, the others of any length.

    Args:
        vocab_size: entries of the vocabulary.
        rows: instances of a batch, each batch a single micro-batch.
        seq_len: pieces of a full instance.
        masking: says how many pieces are predicted.
        pairs: whether an instance has two segments and a label of the next sentence.
    """
    most_picks = max_predictions_of(masking, seq_len)
    first_word = min(_FIRST_WORD, vocab_size // 2)

    def batch(step: int) -> list[PretrainingBatch]:
        draw = generator(0, "synthetic", step)
        is_full = draw.random(rows) >= _SHORT_SHARE
        lengths = np.sort(np.where(is_full, seq_len, draw.integers(_SHORTEST, seq_len + 1, rows)))
        texts = [draw.integers(first_word, vocab_size, length) for length in lengths]
        tokens = tokens_of(texts, lengths // 2 if pairs else lengths)
        picks = [
            start
            + 1
            + np.sort(draw.choice(length - 2, _num_picks(length, masking, most_picks), replace=False))
            for start, length in zip(tokens.layout.starts, lengths.tolist(), strict=True)
        ]
        places = torch.from_numpy(np.concatenate(picks))
        nsp_labels = torch.from_numpy(draw.integers(0, 2, rows) if pairs else np.full(rows, IGNORED))
        return [PretrainingBatch(tokens, places, tokens.input_ids[places], nsp_labels, np.arange(rows))]

    return batch


def mean_length(seq_len: int) -> float:
    """Return the mean number of pieces of such an instance, over all that could be drawn."""
    return (1 - _SHORT_SHARE) * seq_len + _SHORT_SHARE * (_SHORTEST + seq_len) / 2


def _num_picks(length: int, masking: MaskingConfig, most: int) -> int:
    return min(most, max(1, round(masking.rate * length)), length - 2)


def operations(config: BertConfig, batch: PretrainingBatch) -> float:
    """Return the floating-point operations of a step's matrix products: forward, and twice that backward.

    The last layer counts only the places that are read, as our model computes it.
    """
    hidden, tokens, picks = config.hidden_size, batch.tokens.layout.num_tokens, len(batch.picks)
    read = picks + batch.tokens.layout.batch
    projections = 3 * hidden * hidden
    rest = hidden * hidden + 2 * hidden * config.intermediate_size
    scores = 2 * hidden * sum(length**2 for length in batch.tokens.layout.lengths)
    layers = config.num_layers * (tokens * projections + scores) + (config.num_layers - 1) * tokens * rest
    heads = read * rest + picks * hidden * (hidden + config.vocab_size)
    return 6.0 * (layers + heads)
