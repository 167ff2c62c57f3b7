"""What the losses of a pretraining run are measured against: known from its data alone, before it starts."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.batch import PretrainingBatch
from bertsmith.data.config import MaskingConfig
from bertsmith.data.masking import MaskingVocabulary
from bertsmith.data.shards import Instances
from bertsmith.objectives import unigram_entropy
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.diagnosis import Levels

_COUNTED_SHARDS = 4
_COUNTED_AT_ONCE = 1 << 22  # pieces; counting widens them to 64 bits


def piece_counts(instances: Instances, vocab_size: int) -> NDArray[np.int64]:
    """Return int64 ``(vocab,)``: how often each piece occurs in the instances.

    Of large data, in shards spread evenly over all: some hundred million pieces are enough.
    """
    shards = instances.manifest["splits"][instances.split]["shards"]
    counts = np.zeros(vocab_size, dtype=np.int64)
    for shard in shards[:: -(-len(shards) // _COUNTED_SHARDS)]:
        path = instances.directory / instances.split / shard["files"]["ids"]["file"]
        ids = np.load(path, allow_pickle=False)
        for start in range(0, len(ids), _COUNTED_AT_ONCE):
            part = ids[start : start + _COUNTED_AT_ONCE]
            known = part[(part >= 0) & (part < vocab_size)]  # a damaged file may hold others
            counts += np.bincount(known, minlength=vocab_size)
    return counts


def measured_levels(
    counts: NDArray[np.int64],
    tokenizer: Tokenizer,
    masking: MaskingConfig,
    heldout: Iterable[PretrainingBatch],
    pair_majority: float | None,
) -> Levels:
    """Return the losses of blind guessing and of guessing by word frequency.

    Args:
        counts: int64 ``(vocab,)``, of the training pieces.
        tokenizer: of the data.
        masking: says which pieces are never predicted.
        heldout: the batches whose words are to be guessed; without any, words as frequent as in training.
        pair_majority: share of the more frequent class of pairs; ``None``: no pairs.
    """
    known = predicted_counts(counts, tokenizer, masking)
    labels = [batch.pick_labels.cpu().numpy() for batch in heldout]
    if labels:
        unigram = unigram_entropy(known, np.concatenate(labels))
    else:
        shares = known[known > 0] / known.sum()
        unigram = float(-(shares * np.log(shares)).sum())
    return Levels(math.log(tokenizer.vocab_size), unigram, pair_majority)


def source_levels(
    counts: NDArray[np.int64],
    tokenizer: Tokenizer,
    masking: MaskingConfig,
    heldout: Iterable[PretrainingBatch],
    instances: Instances,
) -> dict[str, float]:
    """Return the loss of guessing by word frequency for the held-out words of each source alone.

    Args:
        counts: int64 ``(vocab,)``, of the training pieces of all sources.
        tokenizer: of the data.
        masking: says which pieces are never predicted.
        heldout: the batches whose words are to be guessed, each of one source (``fixed_batches``).
        instances: the held-out ones; they know the sources.
    """
    known = predicted_counts(counts, tokenizer, masking)
    labels: dict[str, list[NDArray[np.int64]]] = {}
    for batch in heldout:
        name = instances.source_names[instances.sources(batch.example_ids[:1])[0]]
        labels.setdefault(name, []).append(batch.pick_labels.cpu().numpy())
    return {name: unigram_entropy(known, np.concatenate(parts)) for name, parts in labels.items()}


def predicted_counts(
    counts: NDArray[np.int64], tokenizer: Tokenizer, masking: MaskingConfig
) -> NDArray[np.int64]:
    """Return the counts of the pieces that masks choose, 0 for the others."""
    return np.where(MaskingVocabulary.of(tokenizer, masking).choosable, counts, 0)


def pair_majority(instances: Instances) -> float | None:
    """Return the share of the more frequent class of pairs; ``None`` where the data has no pairs."""
    pairing = instances.manifest["settings"].get("pairing")
    counted = instances.manifest["splits"][instances.split].get(pairing)
    if counted is None:
        return None
    classes = [number for number in counted.values() if isinstance(number, int)]
    return max(classes) / sum(classes)
