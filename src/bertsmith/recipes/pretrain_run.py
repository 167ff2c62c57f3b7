"""What a pretraining run is made of, what a checkpoint keeps of it, and what must not change on resuming."""

from __future__ import annotations

import dataclasses
import logging
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
from bertsmith.bundle import Bundle
from bertsmith.config import duration_seconds, to_dict
from bertsmith.data.batch import PretrainingBatch
from bertsmith.data.loader import fixed_batches
from bertsmith.data.shards import Instances
from bertsmith.distributed import ALONE, Ranks, SharedClock
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.objectives import PretrainingObjective
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_levels import measured_levels, pair_majority, piece_counts, source_levels
from bertsmith.recipes.pretrain_loader import batch_warmup_of
from bertsmith.recipes.pretrain_phases import Phases
from bertsmith.recipes.pretrain_probes import Probe
from bertsmith.recipes.pretrain_ranks import check_sharding
from bertsmith.runlog import Means, RunLog
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training import checkpoint
from bertsmith.training.checkpoint import Checkpoint
from bertsmith.training.diagnosis import Levels, Watcher
from bertsmith.training.loop import LoopSettings
from bertsmith.training.schedule import Budget

if TYPE_CHECKING:
    from bertsmith.training.sharded_checkpoint import ShardedCheckpoints

logger = logging.getLogger(__name__)

_EVALUATION_BATCH = 32
_AT_LEAST = {
    "steps": 1,
    "batch_size": 1,
    "batch_warmup_start": 0,
    "micro_batch_size": 0,
    "long_batch_size": 0,
    "checkpoint_steps": 0,
    "checkpoint_seconds": 1,
    "keep_checkpoints": 1,
    "evaluate_steps": 0,
    "evaluate_examples": 0,
    "log_steps": 1,
}


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


def check(config: PretrainConfig) -> None:
    """Refuse settings that cannot be meant.

    Raises:
        InputError: naming the setting.
    """
    if config.steps is None and config.budget is None:
        raise InputError("give either --steps or --budget, not neither: for example --budget 30m")
    if config.steps is not None and config.budget is not None:
        raise InputError(
            f"give either --steps or --budget, not both: steps is {config.steps} (--steps None takes a "
            "preset's away)"
        )
    if config.budget is not None:
        duration_seconds(config.budget)
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise InputError(f"--{name.replace('_', '-')} is {value}; it has to be at least {least}")
    batch_warmup_of(config)
    check_sharding(config)


def tokenizer_of(instances: Instances) -> Tokenizer:
    """Return the tokenizer that lies beside the instances.

    Raises:
        InputError: it is not the one that they were made with.
    """
    tokenizer = Tokenizer.load(instances.directory)
    if tokenizer.identity() != instances.manifest.get("vocabulary", {}).get("identity"):
        raise InputError(
            f"{instances.directory}: the vocabulary or its settings are not those that the data was prepared "
            "with; prepare the data again"
        )
    return tokenizer


def architecture_of(
    config: PretrainConfig, bundle: Bundle | None, tokenizer: Tokenizer, phases: Phases
) -> BertConfig:
    """Return the architecture, of the model to go on from if any, with vocabulary and dropout filled in.

    Raises:
        InputError: the data does not fit into it.
    """
    architecture = config.architecture if bundle is None else bundle.config
    vocab_size, seq_len = tokenizer.vocab_size, phases.seq_len
    if architecture.vocab_size == 0:
        architecture = dataclasses.replace(architecture, vocab_size=vocab_size)
    if architecture.vocab_size < vocab_size:
        raise InputError(
            f"architecture.vocab_size is {architecture.vocab_size}, but the vocabulary of {config.data} has "
            f"{vocab_size} entries; leave it at 0"
        )
    if architecture.max_positions < seq_len:
        raise InputError(
            f"architecture.max_positions is {architecture.max_positions}, but the data was prepared with "
            f"--seq-len {seq_len}; raise the one or prepare again with the other"
        )
    pairing = phases.first.manifest["settings"].get("pairing")
    if architecture.family == "roberta" and pairing in ("nsp", "sop"):
        raise InputError(
            f"{config.data} was prepared with --pairing {pairing}, but a RoBERTa has no second task to learn "
            "from pairs; prepare it with --pairing full-sentences, or take a bert preset"
        )
    if not config.next_sentence and pairing not in ("nsp", "sop"):
        raise InputError(
            f"--no-next-sentence would be ignored: {config.data} was prepared with --pairing {pairing}, "
            "which makes no pairs to learn from; leave it out"
        )
    if bundle is None and architecture.family == "roberta" and tokenizer.algorithm != "bpe":
        logger.warning(
            "%s has a WordPiece vocabulary; RoBERTa's is byte-level BPE (vocab --algorithm bpe)", config.data
        )
    if config.dropout is not None:
        architecture = dataclasses.replace(
            architecture, hidden_dropout=config.dropout, attention_dropout=config.dropout
        )
    return architecture


def fixed_settings(
    config: PretrainConfig,
    architecture: BertConfig,
    precision: str,
    phases: Phases,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    """Return the settings that make a run what it is: a resumed run must have the same.

    The data counts by its content, not by its path. The number of steps and the budget count, for the
    schedule follows from them. Ranks and micro-batches do not: examples and masks are the same.
    """
    return {
        "data": phases.first.identity(),
        "vocabulary": tokenizer.identity(),
        "init": config.init,
        "steps": config.steps,
        "budget": config.budget,
        "batch_size": config.batch_size,
        "batch_warmup_fraction": config.batch_warmup_fraction,
        "batch_warmup_start": config.batch_warmup_start,
        "precision": precision,
        "compile": config.compile,
        "word_bias": config.word_bias,
        "next_sentence": config.next_sentence,
        "seed": config.seed,
        "architecture": to_dict(architecture),
        "optimizer": to_dict(config.optimizer),
        "masking": to_dict(config.masking),
        **phases.settings(),
    }


def open_run(config: PretrainConfig, settings: dict[str, Any]) -> Checkpoint | None:
    """Make the run directory, or find the checkpoint from which to go on.

    Raises:
        InputError: the directory is in use and ``resume`` is not set; it is no run; its settings differ.
    """
    out = Path(config.out)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a new directory")
    # A run that was killed while it wrote its first file left a temporary one: it can be started again.
    if out.exists() and any(not path.name.startswith(".config.yaml.") for path in out.iterdir()):
        if not config.resume:
            raise InputError(
                f"--out {out} is not empty; add --resume to go on with it, or choose another --out"
            )
        if not (out / "config.yaml").exists():
            raise InputError(
                f"--out {out} is not empty and no run: it has no config.yaml; choose another --out"
            )
    out.mkdir(parents=True, exist_ok=True)
    found = checkpoint.latest(out)
    if found is not None:
        defaults = to_dict(PretrainConfig(config.data, config.out))
        checkpoint.require_same_settings(found, settings, to_dict(config), defaults)
    return found


def headline(parts: Parts, standing: Standing) -> str:
    """Return what is trained on what, as one line."""
    start = f"; going on after step {standing.step}" if standing.step else ""
    world = distributed.ranks().world
    ranks = f"{world} ranks; " if world > 1 else ""
    return (
        f"{ranks}{parts.num_parameters / 1e6:.1f} M parameters; "
        f"{parts.phases.loader.num_examples} instances, {parts.phases.loader.steps_per_epoch} steps an "
        f"epoch, {len(parts.heldout)} held out; "
        f"{str(parts.settings.precision).removeprefix('torch.')} on {parts.fixed['machine']['device']}, "
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
