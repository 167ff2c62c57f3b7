"""What a pretraining run is made of, and what a checkpoint keeps of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith import distributed
from bertsmith.data.batch import PretrainingBatch
from bertsmith.data.loader import fixed_batches
from bertsmith.data.shards import Instances
from bertsmith.device import dtype_name
from bertsmith.distributed import ALONE, Ranks, SharedClock
from bertsmith.model.bert import BertForPreTraining
from bertsmith.objectives import PretrainingObjective
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_levels import measured_levels, pair_majority, piece_counts, source_levels
from bertsmith.recipes.pretrain_phases import Phases
from bertsmith.recipes.pretrain_probes import Probe
from bertsmith.runlog import Means, RunLog
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.checkpoint import Checkpoint
from bertsmith.training.diagnosis import Levels, Watcher
from bertsmith.training.loop import LoopSettings
from bertsmith.training.schedule import Budget

if TYPE_CHECKING:
    from bertsmith.training.sharded_checkpoint import ShardedCheckpoints

_EVALUATION_BATCH = 32


@dataclass(frozen=True)
class Parts:
    """What does not change while a run goes on (the weights and the optimiser's state do)."""

    config: PretrainConfig
    out: Path
    tokenizer: Tokenizer
    instances: Instances
    heldout: Instances
    phases: Phases
    model: BertForPreTraining
    optimizer: torch.optim.Optimizer
    objective: PretrainingObjective
    settings: LoopSettings
    budget: Budget
    fixed: dict[str, Any]
    clock: SharedClock
    sharded: ShardedCheckpoints | None
    probes: Sequence[Probe] = ()

    @cached_property
    def trained(self) -> nn.Module:
        """The model as the loop trains it: its gradients are exchanged with those of other ranks."""
        return distributed.replicated(self.model)

    @property
    def num_parameters(self) -> int:
        """Parameters of the model, tied ones once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def batches(self, step: int) -> list[PretrainingBatch]:
        """Return this rank's micro-batches of a step on the device."""
        micro_batches = self.phases.batch(step, self.budget, distributed.ranks())
        return [batch.to(self.settings.device) for batch in micro_batches]

    def heldout_batches(self, ranks: Ranks = ALONE) -> Iterator[PretrainingBatch]:
        """Yield a rank's held-out batches on the device: always the same instances with the same masks."""
        config = self.config
        batches = fixed_batches(
            self.heldout,
            self.tokenizer,
            config.masking,
            config.evaluate_examples,
            _EVALUATION_BATCH,
            ranks,
            self.phases.targets,
        )
        return (batch.to(self.settings.device) for batch in batches)

    def long_heldout_batches(self, step: int) -> Iterator[PretrainingBatch]:
        """Yield this rank's of the long data on the device; none before the long phase begins."""
        batches = self.phases.long_heldout(step, self.budget, self.tokenizer, _EVALUATION_BATCH)
        return (batch.to(self.settings.device) for batch in batches)

    @cached_property
    def piece_counts(self) -> NDArray[np.int64]:
        """How often each piece occurs in the training data, int64 ``(vocab,)``."""
        return piece_counts(self.instances, self.tokenizer.vocab_size)

    @cached_property
    def levels(self) -> Levels:
        """What the losses are measured against; counted once, from the data."""
        return measured_levels(
            self.piece_counts,
            self.tokenizer,
            self.config.masking,
            self.heldout_batches(),
            pair_majority(self.instances) if self.phases.targets.pairs else None,
        )

    def source_levels(self) -> dict[str, float]:
        """Return the level of word frequencies of each source; nothing if there is only one."""
        if len(self.heldout.source_names) == 1:
            return {}
        batches = self.heldout_batches()
        return source_levels(self.piece_counts, self.tokenizer, self.config.masking, batches, self.heldout)


@dataclass
class Standing:
    """Where a run stands: besides the tensors, what a checkpoint keeps.

    Attributes:
        step: completed steps.
        tokens: trained on so far, without padding.
        means: of the steps since the last log event.
        heldout: the last held-out evaluation, with its step.
        probed: the last probes, with their step.
        elapsed_seconds: at the last checkpoint.
        evaluation_seconds: what the last evaluation took, or the first one is expected to take.
        evaluations_seconds: what all evaluations took.
        probe_seconds: what the last probes took.
        probes_seconds: what all probes took.
        save_seconds: what the last checkpoint took.
        tenths: of the run that were over at the last look.
        watcher: what it knows of the run so far.
        findings: what it has found, JSON objects.
        rollbacks: how often the run went back to an earlier checkpoint.
        rate_factor: of the learning rate, after rollbacks.
        checkpoint: the last one.
        last_saved: when, on the run's clock.
    """

    step: int = 0
    tokens: int = 0
    means: Means = field(default_factory=Means)
    heldout: dict[str, Any] = field(default_factory=dict)
    probed: dict[str, Any] = field(default_factory=dict)
    elapsed_seconds: float = 0.0
    evaluation_seconds: float = 0.0
    evaluations_seconds: float = 0.0
    probe_seconds: float = 0.0
    probes_seconds: float = 0.0
    save_seconds: float = 0.0
    tenths: int = 0
    watcher: Watcher = field(default_factory=Watcher)
    findings: list[dict[str, Any]] = field(default_factory=list)
    rollbacks: int = 0
    rate_factor: float = 1.0
    checkpoint: Path | None = None
    last_saved: float = 0.0

    @property
    def logged(self) -> int:
        """The last step whose log lines count; -1: none, for nothing was saved with them."""
        return -1 if self.checkpoint is None else self.step

    def state(self, elapsed_seconds: float) -> dict[str, Any]:
        """Return what a checkpoint keeps, JSON types."""
        return {
            "tokens": self.tokens,
            "means": self.means.state(),
            "heldout": self.heldout,
            "probed": self.probed,
            "elapsed_seconds": elapsed_seconds,
            "evaluation_seconds": self.evaluation_seconds,
            "evaluations_seconds": self.evaluations_seconds,
            "probe_seconds": self.probe_seconds,
            "probes_seconds": self.probes_seconds,
            "save_seconds": self.save_seconds,
            "watcher": self.watcher.state(),
            "findings": list(self.findings),
            "rollbacks": self.rollbacks,
            "rate_factor": self.rate_factor,
        }

    def keep_time_back(self, budget: Budget) -> None:
        """Leave time in a budget of seconds for what follows the last step: evaluation, checkpoint, model."""
        if budget.seconds is not None:
            margin = min(2.0, 0.05 * budget.seconds)
            evaluating = self.evaluation_seconds + self.probe_seconds
            reserve = margin + 1.2 * evaluating + 2 * self.save_seconds
            budget.reserve_seconds = min(reserve, 0.5 * budget.seconds)  # a run that only evaluates is none

    @classmethod
    def from_state(cls, found: Checkpoint) -> Standing:
        """Return where the run of a checkpoint stood."""
        names = cls().state(0.0).keys() & found.state.keys() - {"means", "watcher"}
        return cls(
            step=found.step,
            checkpoint=found.directory,
            means=Means(found.state["means"]),
            watcher=Watcher(found.state.get("watcher")),
            **{name: found.state[name] for name in names},
        )

    def return_to(self, found: Checkpoint, budget: Budget) -> None:
        """Stand where the run stood at a checkpoint; what is known of times and of earlier returns stays."""
        then = Standing.from_state(found)
        self.step, self.tokens, self.means = then.step, then.tokens, then.means
        self.heldout, self.probed = then.heldout, then.probed
        self.watcher, self.checkpoint = then.watcher, then.checkpoint
        returns = [entry for entry in self.findings[len(then.findings) :] if "back_to" in entry]
        self.findings = then.findings + returns
        self.tenths = int(10 * budget.progress(self.step))


def headline(parts: Parts, standing: Standing) -> str:
    """Return what is trained on what, as one line."""
    start = f"; going on after step {standing.step}" if standing.step else ""
    world = distributed.ranks().world
    ranks = f"{world} ranks; " if world > 1 else ""
    return (
        f"{ranks}{parts.num_parameters / 1e6:.1f} M parameters; "
        f"{parts.phases.loader.num_examples} instances, {parts.phases.loader.steps_per_epoch} steps an "
        f"epoch, {len(parts.heldout)} held out; "
        f"{dtype_name(parts.settings.precision)} on {parts.fixed['machine']['device']}, "
        f"threads: {parts.fixed['machine']['threads']}{start}"
    )


def log_means(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Log the means of the steps since the last time."""
    learning_rate = parts.optimizer.param_groups[0]["lr"]
    means = standing.means.take()
    tokens, seconds, grad_norm = (means.pop(name) for name in ("tokens", "seconds", "grad_norm"))
    log.log(
        {
            "step": standing.step,
            **means,
            "learning_rate": learning_rate,
            "grad_norm": grad_norm,
            "tokens": standing.tokens,
            "tokens_per_second": round(tokens / seconds, 1),
            "seconds": round(parts.budget.elapsed_seconds, 3),
        }
    )
