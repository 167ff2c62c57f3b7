"""The phases of a run: instances of one length, or short ones first and long ones at its end.

Attention costs the square of the length, and what it learns on short text serves on long text; the positions
behind the short length have to be learned as well. So the original trains nine tenths of the steps at length
128 and the last tenth at 512, with one optimiser and one schedule.

Source: the paper, appendix A.2; the original's README, "Pre-training tips and caveats".
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bertsmith.data.batch import PretrainingBatch
from bertsmith.data.config import Targets
from bertsmith.data.loader import PretrainingLoader, fixed_batches
from bertsmith.data.shards import Instances
from bertsmith.distributed import ALONE, Ranks, ranks
from bertsmith.errors import InputError
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_loader import loader_of
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.schedule import Budget


@dataclass(frozen=True)
class LongPhase:
    """The last part of a run.

    Attributes:
        instances: those of training.
        heldout: those held out.
        loader: batches of ``instances``, counted from the phase's first step.
        fraction: of the run that it takes.
        length_ratio: how many times as long as the first phase's its instances are.
    """

    instances: Instances
    heldout: Instances
    loader: PretrainingLoader
    fraction: float
    length_ratio: float

    def shared(self, number: int) -> int:
        """Return how many long instances hold the tokens of so many short ones, at least 1; of 0: 0."""
        return max(1, round(number / self.length_ratio)) if number else 0


class Phases:
    """Which batch a step reads: a pure function of the step, once the first long step is settled.

    With a number of steps that one follows from the settings. With a time budget it is the first step that
    starts in the last part of the time; a checkpoint keeps it (``state``), so that a resumed run reads what
    the run never stopped would have read.

    Attributes:
        first: instances of the first phase.
        loader: their batches.
        long: the second phase, ``None`` if there is none.
        targets: what is predicted in both.
        long_start: completed steps at which the second phase begins; ``None``: not settled.
        skipped_batches: by which the data is ahead of the steps, after rollbacks.
    """

    def __init__(
        self,
        config: PretrainConfig,
        first: Instances,
        loader: PretrainingLoader,
        long: LongPhase | None,
        targets: Targets,
    ) -> None:
        self.first = first
        self.loader = loader
        self.long = long
        self.targets = targets
        self.long_start: int | None = None
        self.skipped_batches = 0
        self._config = config
        if long is not None and config.steps is not None:
            self.long_start = _first_long_step(config.steps, long.fraction)

    @classmethod
    def open(cls, config: PretrainConfig, first: Instances, tokenizer: Tokenizer, targets: Targets) -> Phases:
        """Open the data of a run.

        Args:
            config: of the run; its numbers are in range.
            first: the first phase's instances.
            tokenizer: of the data.
            targets: what is predicted.

        Raises:
            InputError: data that cannot be read or does not fit together, or settings that nothing reads.
        """
        loader = loader_of(config, first, tokenizer, targets)
        return cls(config, first, loader, _open_long(config, first, tokenizer, targets), targets)

    @property
    def seq_len(self) -> int:
        """Pieces of the longest instance of the run."""
        return self.first.seq_len if self.long is None else self.long.instances.seq_len

    def batch(self, step: int, budget: Budget, here: Ranks = ALONE) -> list[PretrainingBatch]:
        """Return a rank's micro-batches of a step, on the host.

        Args:
            step: completed steps of the run.
            budget: says whether the last part of the time has begun.
            here: who reads.
        """
        micro_batch_size = self._config.micro_batch_size
        if self.long is None or not self._is_long(step, budget):
            return self.loader.batch(step + self.skipped_batches, micro_batch_size, here)
        if self.long_start is None:
            self.long_start = step
        place = step - self.long_start + self.skipped_batches
        return self.long.loader.batch(place, self.long.shared(micro_batch_size), here)

    def _is_long(self, step: int, budget: Budget) -> bool:
        """Return whether the step after so many completed ones is of the second phase."""
        if self.long_start is not None:
            return step >= self.long_start
        return self.long is not None and budget.progress(step) >= 1 - self.long.fraction

    def epochs(self, step: int) -> float:
        """Return how often the first phase's data was read after so many steps."""
        if self.long_start is not None:
            step = min(step, self.long_start)
        return self.loader.epochs(step)

    def long_heldout(
        self, step: int, budget: Budget, tokenizer: Tokenizer, batch_size: int
    ) -> Iterator[PretrainingBatch]:
        """Yield this rank's held-out batches of the second phase, on the host; none before it begins.

        Args:
            step: completed steps of the run.
            budget: says whether the last part of the time has begun.
            tokenizer: of the data.
            batch_size: instances of the first phase's held-out batches; here as many tokens are one.
        """
        if self.long is None or not self._is_long(step, budget):
            return
        yield from fixed_batches(
            self.long.heldout,
            tokenizer,
            self._config.masking,
            self.long.shared(self._config.evaluate_examples),
            self.long.shared(batch_size),
            ranks(),
            self.targets,
        )

    def settings(self) -> dict[str, Any]:
        """Return what of the second phase makes a run what it is; nothing if there is none."""
        if self.long is None:
            return {}
        return {
            "long_data": self.long.instances.identity(),
            "long_fraction": self.long.fraction,
            "long_batch_size": self._config.long_batch_size,
        }

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, JSON types."""
        return {"long_start": self.long_start, "skipped_batches": self.skipped_batches}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what a checkpoint kept."""
        self.long_start = state.get("long_start", self.long_start)
        self.skipped_batches = state.get("skipped_batches", 0)


def _first_long_step(steps: int, fraction: float) -> int:
    """Return the completed steps at which the second phase of a run of so many steps begins."""
    return math.ceil(steps * (1 - fraction) - 1e-9)


def _open_long(
    config: PretrainConfig, first: Instances, tokenizer: Tokenizer, targets: Targets
) -> LongPhase | None:
    if config.long_data is None:
        for name in ("long_fraction", "long_batch_size"):
            if getattr(config, name) != getattr(PretrainConfig, name):
                flag = name.replace("_", "-")
                raise InputError(f"--{flag} is given without --long-data, which it belongs to; add the data")
        return None
    instances = Instances.open(config.long_data, "train")
    _check_long(config, first, instances, tokenizer)
    ratio = instances.seq_len / first.seq_len
    batch_size = config.long_batch_size or max(1, round(config.batch_size / ratio))
    loader = PretrainingLoader(instances, tokenizer, config.masking, config.seed, batch_size, targets=targets)
    heldout = Instances.open(config.long_data, "heldout")
    return LongPhase(instances, heldout, loader, config.long_fraction, ratio)


def _check_long(config: PretrainConfig, first: Instances, long: Instances, tokenizer: Tokenizer) -> None:
    """Refuse long data that does not go on with what the first data began.

    Raises:
        InputError: naming both values.
    """
    if not 0.0 < config.long_fraction < 1.0:
        raise InputError(f"--long-fraction is {config.long_fraction}; it has to be above 0 and below 1")
    steps = config.steps
    if steps is not None and _first_long_step(steps, config.long_fraction) in (0, steps):
        raise InputError(
            f"--long-fraction {config.long_fraction} of {config.steps} steps leaves a phase without a step; "
            "give more --steps or another fraction"
        )
    if long.seq_len <= first.seq_len:
        raise InputError(
            f"--long-data {config.long_data} was prepared with --seq-len {long.seq_len}, {config.data} with "
            f"{first.seq_len}; the long data has to be the longer one"
        )
    if long.manifest.get("vocabulary", {}).get("identity") != tokenizer.identity():
        raise InputError(
            f"--long-data {config.long_data} has another vocabulary (or other settings of it) than "
            f"{config.data}; prepare it with --vocab {config.data}"
        )
    pairings = [instances.manifest["settings"].get("pairing") for instances in (first, long)]
    if pairings[0] != pairings[1]:
        raise InputError(
            f"--long-data {config.long_data} was prepared with --pairing {pairings[1]}, {config.data} with "
            f"{pairings[0]}; both phases need the same"
        )
