"""Masks of the masked language model: which pieces are predicted, and what stands in their place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.config import LONGEST_SPAN_WORDS, MaskingConfig

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
    counting [CLS] and [SEP]; fewer only if the instance has fewer, or no whole word fits the rest of the
    budget. Each piece throws its own coin for what stands in its place; with spans each span throws one
    (the random pieces are still drawn one by one), as SpanBERT does.

    Args:
        ids: int64 ``(n,)``, the instance with its special tokens.
        generator: of this instance (and of this epoch, when masks are dynamic).
        config: rate and shares.
        vocabulary: what may be chosen and drawn.
        max_predictions: the cap of the budget.

    Returns:
        The masked ids, int64 ``(n,)``; the chosen positions in rising order, int64 ``(picks,)``; and the
        original ids there, int64 ``(picks,)``.

    Source: create_pretraining_data.py, create_masked_lm_predictions; SpanBERT, arXiv 1907.10529, section 3.1.
    """
    budget = min(max_predictions, max(1, round(len(ids) * config.rate)))
    candidates = np.flatnonzero(vocabulary.choosable[ids])
    coin_of = None
    if config.span_mean:
        positions, coin_of = _spans(ids, candidates, budget, generator, vocabulary.continuation, config)
    elif config.whole_words:
        positions = _whole_words(ids, candidates, budget, generator, vocabulary.continuation)
    elif len(candidates) > budget:
        order = np.argpartition(generator.random(len(candidates)), budget)
        positions = np.sort(candidates[order[:budget]])
    else:
        positions = candidates
    labels = ids[positions]
    masked = ids.copy()
    masked[positions] = _replaced(labels, coin_of, generator, config, vocabulary)
    return masked, positions, labels


def next_pieces(ids: Ids, vocabulary: MaskingVocabulary) -> tuple[Ids, Ids, Ids]:
    """Have every place of one instance predict the piece behind it, but for those that masks never choose.

    Args:
        ids: int64 ``(n,)``, the instance with its special tokens.
        vocabulary: what may be predicted.

    Returns:
        The same ids, int64 ``(n,)``; the places that predict, int64 ``(picks,)``; and the pieces behind
        them, int64 ``(picks,)``.
    """
    positions = np.flatnonzero(vocabulary.choosable[ids[1:]])
    return ids, positions, ids[positions + 1]


def neighbours(ids: Ids, vocabulary: MaskingVocabulary) -> tuple[Ids, Ids, Ids]:
    """Have each piece be predicted twice: from the place before it and from the place behind it.

    Returns:
        As ``next_pieces``; a place that predicts is counted double, plus 1 where it predicts the piece
        before it: each place has two halves, of which one has seen the left and the other the right.
    """
    _, before, labels = next_pieces(ids, vocabulary)
    behind = before[before + 2 < len(ids)] + 2
    return ids, np.concatenate([2 * before, 2 * behind + 1]), np.concatenate([labels, ids[behind - 1]])


def _replaced(
    labels: Ids,
    coin_of: Ids | None,
    generator: np.random.Generator,
    config: MaskingConfig,
    vocabulary: MaskingVocabulary,
) -> Ids:
    """Return what stands in the place of each chosen piece.

    ``coin_of``, int64 ``(picks,)``, names the piece whose coin counts; ``None``: each its own.
    """
    coins, draws = generator.random((2, len(labels)))
    if coin_of is not None:
        coins = coins[coin_of]
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
    bounds = _word_bounds(ids, candidates, continuation)
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


def _word_bounds(ids: Ids, candidates: Ids, continuation: NDArray[np.bool_]) -> list[int]:
    """Return where in the candidates, of which there are some, each word starts; last: their number."""
    starts = ~continuation[ids[candidates]]
    starts[0] = True
    starts[1:] |= np.diff(candidates) != 1
    return [*np.flatnonzero(starts).tolist(), len(candidates)]


def _spans(
    ids: Ids,
    candidates: Ids,
    budget: int,
    generator: np.random.Generator,
    continuation: NDArray[np.bool_],
    config: MaskingConfig,
) -> tuple[Ids, Ids]:
    """Choose spans of whole words; return the positions and, for each, which of them its span begins with.

    Words are taken in random order as starts; from each that is left, a span goes on for the drawn number of
    words, until it meets a special token, another span or a word that would exceed the budget.

    Deviations from SpanBERT's code: there a start is drawn among the pieces, so long words start more often;
    the last span is cut within a word to fill the budget; and a span goes on over words that are in another
    one. When no word fits, part of one is chosen, so that there is a prediction.

    Source: SpanBERT, arXiv 1907.10529, section 3.1; its masking.py, PairWithSpanMaskingScheme.
    """
    if len(candidates) == 0:
        return candidates, candidates
    bounds = _word_bounds(ids, candidates, continuation)
    number = len(bounds) - 1
    keys, draws = generator.random((2, number))
    lengths = 1 + np.searchsorted(_span_lengths(config.span_mean), draws, side="right")
    after_gap = np.diff(candidates, prepend=candidates[0] - 1) != 1  # (candidates,)
    span_of_piece: dict[int, int] = {}
    taken = [False] * number
    order = np.argsort(keys).tolist()
    for first in order:
        for word in range(first, min(first + int(lengths[first]), number)):
            start, end = bounds[word], bounds[word + 1]
            fits = len(span_of_piece) + end - start <= budget
            if taken[word] or not fits or (word > first and after_gap[start]):
                break
            taken[word] = True
            span_of_piece.update(dict.fromkeys(range(start, end), bounds[first]))
        if len(span_of_piece) == budget:
            break
    if not span_of_piece:
        start = bounds[order[0]]
        span_of_piece = dict.fromkeys(range(start, start + budget), start)
    chosen = np.array(sorted(span_of_piece), dtype=np.int64)
    begins = np.array([span_of_piece[piece] for piece in chosen.tolist()], dtype=np.int64)
    return candidates[chosen], np.searchsorted(chosen, begins)


@lru_cache(maxsize=16)
def _span_lengths(mean: float) -> NDArray[np.float64]:
    """Return float64 ``(9,)``: the share of spans of at most 1, 2, ... 9 words.

    The lengths are geometric, cut at ten, with that mean: 3.8 gives SpanBERT's p = 0.2.
    """
    words = np.arange(1, LONGEST_SPAN_WORDS + 1)
    low, high = 0.0, 1.0  # of 1 - p; the mean rises with it
    for _ in range(60):
        middle = (low + high) / 2
        weights = middle ** (words - 1)
        low, high = (middle, high) if words @ weights < mean * weights.sum() else (low, middle)
    shares = low ** (words - 1)
    cumulative: NDArray[np.float64] = np.cumsum(shares / shares.sum())[:-1]
    return cumulative
