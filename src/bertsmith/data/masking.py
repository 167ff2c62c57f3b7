"""Masks of the masked language model: which pieces are predicted, and what stands in their place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.config import MaskingConfig

if TYPE_CHECKING:
    from bertsmith.text.tokenizer import Tokenizer

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class MaskingVocabulary:
    """What masking has to know of a vocabulary.

    Attributes:
        mask_id: id of [MASK].
        choosable: bool ``(vocab,)``, false for [CLS], [SEP], [PAD] and [MASK]: never predicted. [UNK] stands
            for a word of the text and may be chosen, as in the original.
        replacements: int64, the ids that random replacements are drawn from.
        continuation: bool ``(vocab,)``, true for pieces inside a word (``##``).
    """

    mask_id: int
    choosable: NDArray[np.bool_]
    replacements: Ids
    continuation: NDArray[np.bool_]

    @classmethod
    def of(cls, tokenizer: Tokenizer, config: MaskingConfig) -> MaskingVocabulary:
        """Return the vocabulary of a tokenizer.

        The original draws random replacements from the whole vocabulary, special tokens included. Deviation:
        we leave special tokens out, unless ``config.random_specials`` is set.
        """
        choosable = np.ones(tokenizer.vocab_size, dtype=np.bool_)
        choosable[[tokenizer.cls_id, tokenizer.sep_id, tokenizer.pad_id, tokenizer.mask_id]] = False
        replacements = np.arange(tokenizer.vocab_size, dtype=np.int64)
        if not config.random_specials:
            replacements = np.setdiff1d(replacements, sorted(tokenizer.special_ids))
        continuation = np.asarray(tokenizer.continuation, dtype=np.bool_)
        return cls(tokenizer.mask_id, choosable, replacements, continuation)


def max_predictions_of(config: MaskingConfig, seq_len: int) -> int:
    """Return the most predictions of one instance: 20 at 128 pieces and 77 at 512 with the default rate."""
    return config.max_predictions or max(1, math.ceil(config.rate * seq_len - 1e-9))


def mask(
    ids: Ids,
    generator: np.random.Generator,
    config: MaskingConfig,
    vocabulary: MaskingVocabulary,
    max_predictions: int,
) -> tuple[Ids, Ids, Ids]:
    """Choose the pieces of one instance that are predicted, and replace them.

    Exactly ``min(max_predictions, max(1, round(n * rate)))`` pieces are chosen without replacement, n
    counting [CLS] and [SEP]; fewer only if the instance has fewer, or whole words do not fit the budget.

    Args:
        ids: int64 ``(n,)``, the instance with its special tokens.
        generator: of this instance (and of this epoch, when masks are dynamic).
        config: rate and shares.
        vocabulary: what may be chosen and drawn.
        max_predictions: the cap of the budget.

    Returns:
        The masked ids, int64 ``(n,)``; the chosen positions in rising order, int64 ``(picks,)``; and the
        original ids there, int64 ``(picks,)``.

    Source: create_pretraining_data.py, create_masked_lm_predictions.
    """
    budget = min(max_predictions, max(1, round(len(ids) * config.rate)))
    candidates = np.flatnonzero(vocabulary.choosable[ids])
    if config.whole_words:
        positions = _whole_words(ids, candidates, budget, generator, vocabulary.continuation)
    elif len(candidates) > budget:
        order = np.argpartition(generator.random(len(candidates)), budget)
        positions = np.sort(candidates[order[:budget]])
    else:
        positions = candidates
    labels = ids[positions]
    masked = ids.copy()
    masked[positions] = _replaced(labels, generator, config, vocabulary)
    return masked, positions, labels


def _replaced(
    labels: Ids, generator: np.random.Generator, config: MaskingConfig, vocabulary: MaskingVocabulary
) -> Ids:
    """Return what stands in the place of each chosen piece; every piece throws its own coin."""
    coins, draws = generator.random((2, len(labels)))
    drawn = vocabulary.replacements[(draws * len(vocabulary.replacements)).astype(np.int64)]
    rest = np.where(coins < config.mask_share + config.same_share, labels, drawn)
    return np.where(coins < config.mask_share, vocabulary.mask_id, rest)


def _whole_words(
    ids: Ids,
    candidates: Ids,
    budget: int,
    generator: np.random.Generator,
    continuation: NDArray[np.bool_],
) -> Ids:
    """Choose words in random order; a word that would exceed the budget is skipped.

    Deviations: a continuation piece that follows [CLS] or [SEP] starts a word (the original joins it to the
    word before the separator); when no word fits, part of one is chosen, so that there is
    a prediction.
    """
    if len(candidates) == 0:
        return candidates
    starts = ~continuation[ids[candidates]]
    starts[0] = True
    starts[1:] |= np.diff(candidates) != 1
    bounds = [*np.flatnonzero(starts).tolist(), len(candidates)]
    order = np.argsort(generator.random(len(bounds) - 1)).tolist()
    chosen: list[int] = []
    for word in order:
        if len(chosen) + bounds[word + 1] - bounds[word] <= budget:
            chosen.extend(range(bounds[word], bounds[word + 1]))
        if len(chosen) == budget:
            break
    if not chosen:
        chosen = list(range(bounds[order[0]], bounds[order[0]] + budget))
    return candidates[sorted(chosen)]
