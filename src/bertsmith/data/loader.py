"""From instances to batches: order, masks and collation as index arithmetic, in the training process.

Which examples a step reads, and their masks, are pure functions of (seed, step): nothing is stored between
steps, so resuming is calling ``batch`` with the next step, and micro-batches or ranks only cut the same rows.
All ranks get the same number of batches: one that has no row left gets a batch without targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.data.batch import IGNORED, PretrainingBatch, tokens_of
from bertsmith.data.config import MASKED_AND_PAIRS, MaskingConfig, Targets
from bertsmith.data.cuts import BatchWarmup, Cuts
from bertsmith.data.damage import require_sound
from bertsmith.data.masking import Ids, MaskingVocabulary, mask, max_predictions_of, neighbours, next_pieces
from bertsmith.data.pairing import NO_LABEL
from bertsmith.data.shards import Instances
from bertsmith.distributed import ALONE, Ranks
from bertsmith.errors import InputError
from bertsmith.randomness import generator

if TYPE_CHECKING:
    from bertsmith.text.tokenizer import Tokenizer


_UNMASKED = {"next": next_pieces, "neighbours": neighbours}


class Masker:
    """Draws the masks of instances: a pure function of (seed, purpose, epoch, instance)."""

    def __init__(
        self,
        instances: Instances,
        tokenizer: Tokenizer,
        config: MaskingConfig,
        seed: int,
        purpose: str,
        targets: Targets = MASKED_AND_PAIRS,
    ) -> None:
        self._instances = instances
        self._config = config
        self._vocabulary = MaskingVocabulary.of(tokenizer, config)
        self._max_predictions = max_predictions_of(config, instances.seq_len)
        self._seed = seed
        self._purpose = purpose
        self._targets = targets

    def batch(self, indices: NDArray[np.int64], epoch: int) -> PretrainingBatch:
        """Return the batch of some instances, int64 ``(batch,)``, in their order.

        Raises:
            InputError: one of them is damaged.
        """
        stored = self._instances.rows(indices)
        second_starts = self._instances.second_starts(indices)
        nsp_labels = self._instances.labels(indices)
        vocab_size = len(self._vocabulary.choosable)
        require_sound(self._instances, indices, stored, second_starts, nsp_labels, vocab_size)
        rows, picks, labels = [], [], []
        start = 0
        for index, row in zip(indices.tolist(), stored, strict=True):
            masked, positions, originals = self._predicted(row.astype(np.int64), epoch, index)
            rows.append(masked)
            picks.append(positions + start)
            labels.append(originals)
            start += len(masked) * (2 if self._targets.pieces == "neighbours" else 1)
        nsp_labels[(nsp_labels == NO_LABEL) | (not self._targets.pairs)] = IGNORED
        return PretrainingBatch(
            tokens_of(rows, second_starts),
            torch.from_numpy(np.concatenate(picks)),
            torch.from_numpy(np.concatenate(labels)),
            torch.from_numpy(nsp_labels),
            indices,
        )

    def _predicted(self, ids: Ids, epoch: int, index: int) -> tuple[Ids, Ids, Ids]:
        if self._targets.pieces != "masked":
            return _UNMASKED[self._targets.pieces](ids, self._vocabulary)
        drawn = generator(self._seed, self._purpose, epoch, index)
        return mask(ids, drawn, self._config, self._vocabulary, self._max_predictions)

    def without_targets(self, index: int) -> PretrainingBatch:
        """Return a batch of one instance, of which nothing is predicted and which counts as none."""
        batch = self.batch(np.array([index]), 0)
        return replace(
            batch,
            picks=batch.picks[:0],
            pick_labels=batch.pick_labels[:0],
            nsp_labels=torch.full_like(batch.nsp_labels, IGNORED),
            example_ids=batch.example_ids[:0],
        )


class PretrainingLoader:
    """The batches of a pretraining run.

    An epoch reads each instance exactly once, in an order drawn from (seed, epoch). A batch never crosses the
    end of an epoch: the last one of an epoch may be short.

    Attributes:
        num_examples: instances of an epoch.
        steps_per_epoch: full batches of an epoch.
    """

    def __init__(
        self,
        instances: Instances,
        tokenizer: Tokenizer,
        masking: MaskingConfig,
        seed: int,
        batch_size: int,
        warmup: BatchWarmup | None = None,
        targets: Targets = MASKED_AND_PAIRS,
    ) -> None:
        """Open a loader; with ``warmup`` its batches grow to ``batch_size``.

        Raises:
            InputError: no instances, or a batch size below 1.
        """
        if len(instances) == 0:
            raise InputError(f"{instances.directory}: no {instances.split} instances; prepare more text")
        if batch_size < 1:
            raise InputError(f"batch-size is {batch_size}; it has to be at least 1")
        self.num_examples = len(instances)
        self.steps_per_epoch = -(-self.num_examples // batch_size)
        self._instances = instances
        self._cuts = Cuts(self.num_examples, batch_size, warmup)
        self._seed = seed
        self._dynamic = masking.dynamic
        self._masker = Masker(instances, tokenizer, masking, seed, "masking", targets)
        self._epoch = -1
        self._order: NDArray[np.int64] = np.zeros(0, dtype=np.int64)

    def example_ids(self, step: int) -> NDArray[np.int64]:
        """Return int64 ``(batch,)``: the instances of a step, from 0, sorted by length.

        Rows of equal length are neighbours, so that a forward pass finds few groups of them.
        """
        epoch, first, end = self._cuts.of(step)
        if epoch != self._epoch:
            self._order = generator(self._seed, "order", epoch).permutation(self.num_examples)
            self._epoch = epoch
        ids = self._order[first:end]
        return ids[np.argsort(self._instances.lengths(ids), kind="stable")]

    def epochs(self, step: int) -> float:
        """Return how many times the instances have been read after ``step`` completed steps."""
        epoch, first, _ = self._cuts.of(step)
        return epoch + first / self.num_examples

    def batch(self, step: int, micro_batch_size: int = 0, ranks: Ranks = ALONE) -> list[PretrainingBatch]:
        """Return the micro-batches of a step for one rank.

        Args:
            step: counted from 0 over the whole run.
            micro_batch_size: instances of a forward pass; 0: all of the rank. It changes the cuts, neither
                the instances nor their masks.
            ranks: who reads. The step's instances are dealt out in turn, so that all have rows of all
                lengths.
        """
        all_ids = self.example_ids(step)
        ids = ranks.share(all_ids)
        most = -(-len(all_ids) // ranks.world)
        size = micro_batch_size or most
        epoch = self._cuts.of(step)[0] if self._dynamic else 0
        return [
            self._masker.batch(ids[cut : cut + size], epoch)
            if cut < len(ids)
            else self._masker.without_targets(int(all_ids[0]))
            for cut in range(0, most, size)
        ]


HELDOUT_SEED = 0
"""Seed of the masks of held-out evaluation: the same in every run, so that runs compare."""


def fixed_batches(
    instances: Instances,
    tokenizer: Tokenizer,
    masking: MaskingConfig,
    limit: int,
    batch_size: int,
    ranks: Ranks = ALONE,
    targets: Targets = MASKED_AND_PAIRS,
) -> Iterator[PretrainingBatch]:
    """Yield the same held-out batches with the same masks each time it is called, whatever the run's seed.

    All instances of a batch are of one source, so that what is summed over a batch is of that source.
    Ranks take whole batches in turn, so that the numbers of a batch are the same with any number of ranks.

    Args:
        instances: the held-out ones.
        tokenizer: of the data.
        masking: the masks' settings.
        limit: at most that many instances, spread evenly over all; 0: all.
        batch_size: instances of a batch; sorted by length over all of a source, so that batches are compact.
        ranks: who reads.
        targets: what is predicted.
    """
    count = min(limit, len(instances)) if limit else len(instances)
    chosen = np.arange(count, dtype=np.int64) * len(instances) // max(count, 1)
    sources = instances.sources(chosen)
    order = np.lexsort((instances.lengths(chosen), sources))
    groups = np.split(chosen[order], np.flatnonzero(np.diff(sources[order])) + 1)
    masker = Masker(instances, tokenizer, masking, HELDOUT_SEED, "heldout-masking", targets)
    batches = [
        group[start : start + batch_size] for group in groups for start in range(0, len(group), batch_size)
    ]
    mine = ranks.share(np.arange(len(batches))).tolist()
    for number in mine:
        yield masker.batch(batches[number], 0)
    if len(mine) < -(-len(batches) // ranks.world):
        yield masker.without_targets(int(chosen[0]))
