"""One run of a fine-tuning: train with one seed, evaluate on dev after each epoch, keep the best epoch."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.bundle import Bundle
from bertsmith.device import pick_precision
from bertsmith.model.bert import reinitialize_top
from bertsmith.randomness import seed_of
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune_grid import Cell
from bertsmith.runlog import RunLog
from bertsmith.tasks.encode import TrainingRows
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.kind import Outputs, Score, Task
from bertsmith.tasks.prepared import TrainingData, with_other_dev
from bertsmith.training.loop import LoopSettings, NonFiniteLoss, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget, rate_of

LEARNED = "learned"
CONSTANT = "constant predictions"
MAJORITY = "no better than one answer for all rows"
DIVERGED = "diverged"


@dataclass(frozen=True)
class Setup:
    """What all runs of a fine-tuning share.

    Attributes:
        task: the task.
        data: its rows.
        bundle: the model to start from, without a head; its task describes the head that is trained.
        inference: how dev is scored.
        baseline: the main metric of the best single answer for all dev rows; ``None`` where there is none.
    """

    task: Task
    data: TrainingData
    bundle: Bundle
    inference: Inference
    baseline: float | None


@dataclass(frozen=True)
class Place:
    """Where a run stands among the others.

    Attributes:
        logged_steps: steps of the runs before it in metrics.jsonl.
        index: runs of the plan before it.
        count: runs of the plan.
    """

    logged_steps: int
    index: int
    count: int


@dataclass
class SeedRun:
    """One run.

    Attributes:
        seed: of head, order and dropout.
        main_metric: what the best epoch is chosen by.
        settings: what the grid gave it, by path; empty without a grid.
        epochs: the score on dev after each epoch.
        best_epoch: counted from 1; 0: none was finished.
        status: LEARNED; CONSTANT: the best epoch predicts the same for every row; MAJORITY: it is not better
            than that would be; DIVERGED: the loss became infinite or NaN.
        stopped_early: it had epochs left, but none had been better for a while.
        seconds: of training and evaluations.
        last_step: its last one in metrics.jsonl, which counts on from run to run.
        state: weights of the best epoch, by our names; empty once they are on the disk.
        outputs: of the best epoch on dev, in the unit of the labels; empty when another process made them.
        tuned: what was chosen on dev with these outputs.
    """

    seed: int
    main_metric: str
    settings: dict[str, Any] = field(default_factory=dict)
    epochs: list[Score] = field(default_factory=list)
    best_epoch: int = 0
    status: str = LEARNED
    stopped_early: bool = False
    seconds: float = 0.0
    last_step: int = 0
    state: dict[str, Tensor] = field(default_factory=dict)
    outputs: Outputs = field(default_factory=list)
    tuned: dict[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> Score | None:
        """The score of the best epoch; ``None`` when the run diverged within the first."""
        return self.epochs[self.best_epoch - 1] if self.epochs else None

    @property
    def value(self) -> float:
        """The main metric of the best epoch; minus infinity without one."""
        return self.best.metrics[self.main_metric] if self.best else float("-inf")

    def line(self) -> str:
        """Return the run in one line for people."""
        name = f"{named(self.settings)}seed {self.seed}"
        if self.best is None:
            return f"{name}: {self.status} within the first epoch"
        values = ", ".join(f"{metric} {value:.4f}" for metric, value in self.best.metrics.items())
        doubt = "" if self.status == LEARNED else f"  ({self.status})"
        return f"{name}: dev {values} in epoch {self.best_epoch}, {self.seconds:.1f} s{doubt}"

    def to_dict(self) -> dict[str, Any]:
        """Return the run as it stands in metrics.json."""
        best = self.best
        return {
            "seed": self.seed,
            "settings": self.settings,
            "status": self.status,
            "dev": dict(best.metrics) if best else None,
            "dev_loss": best.loss if best else None,
            "dev_details": best.details if best else {},
            "best_epoch": self.best_epoch,
            "epochs": [{"dev": dict(epoch.metrics), "dev_loss": epoch.loss} for epoch in self.epochs],
            "stopped_early": self.stopped_early,
            "train_seconds": round(self.seconds, 3),
            "last_step": self.last_step,
        }

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any], main_metric: str) -> SeedRun:
        """Return the run that ``to_dict`` described, without weights and outputs."""
        epochs = [Score(epoch["dev"], epoch["dev_loss"], False) for epoch in stored["epochs"]]
        if epochs:
            best = stored["best_epoch"] - 1
            epochs[best] = dataclasses.replace(epochs[best], details=stored["dev_details"])
        return cls(
            seed=stored["seed"],
            main_metric=main_metric,
            settings=stored["settings"],
            epochs=epochs,
            best_epoch=stored["best_epoch"],
            status=stored["status"],
            stopped_early=stored["stopped_early"],
            seconds=stored["train_seconds"],
            last_step=stored["last_step"],
        )


def named(settings: Mapping[str, Any]) -> str:
    """Return settings of a grid for people, each followed by a comma."""
    return "".join(
        f"{path.rpartition('.')[2].replace('_', ' ')} {value}, " for path, value in settings.items()
    )


def shaped(bundle: Bundle, config: FinetuneConfig) -> Bundle:
    """Return the model to start from with a run's dropout, and with a BiLSTM on it if the run wants one."""
    shape = bundle.config
    if config.dropout is not None:
        shape = dataclasses.replace(shape, hidden_dropout=config.dropout, attention_dropout=config.dropout)
    if config.bilstm:
        shape = dataclasses.replace(shape, recurrent_top=True)
    return dataclasses.replace(bundle, config=shape)


def initial_model(setup: Setup, config: FinetuneConfig, seed: int) -> nn.Module:
    """Return the model before the first step: its head, and what else is to be random, drawn by the seed."""
    torch.manual_seed(seed_of(seed, "weights"))
    kind = setup.task.kind
    model = kind.load_model(shaped(setup.bundle, config), kind.num_outputs(setup.data.labels))
    if config.reinit_layers:
        reinitialize_top(model, config.reinit_layers)
    return model.to(setup.inference.device)


def train_run(setup: Setup, cell: Cell, seed: int, log: RunLog, place: Place) -> SeedRun:
    """Train with one seed; evaluate on dev after each epoch and keep the best one's weights."""
    config, device = cell.config, setup.inference.device
    model = initial_model(setup, config, seed)
    train_split = setup.data.train
    rows = TrainingRows(train_split.num_units, train_split.batch, config.batch_size, seed)
    total_steps = config.epochs * rows.steps_per_epoch
    steps = train(
        model,
        build_optimizer(model, config.optimizer, config.layer_rate_decay),
        setup.task.kind.objective(train_split),
        lambda step: [batch.to(device) for batch in rows.batch(step)],
        LoopSettings(
            seed,
            device,
            pick_precision(config.precision, device),
            config.optimizer.max_grad_norm,
            rate_of(config.optimizer),
        ),
        Budget(steps=total_steps),
    )
    run = SeedRun(seed, setup.task.main_metric, cell.values, last_step=place.logged_steps)
    begun = time.perf_counter()
    try:
        for step in steps:
            run.last_step = place.logged_steps + step.step
            event = {"step": run.last_step, "seed": seed, **cell.values, **step.losses, **step.monitors}
            event |= {"learning_rate": step.learning_rate, "grad_norm": step.grad_norm}
            log.log(event | {"tokens": step.tokens, "seconds": step.seconds})
            speed = f"{config.batch_size / step.seconds:.0f} rows/s"
            text = f"{named(cell.values)}seed {seed}  loss {step.loss:.4f}  {speed}"
            log.progress((place.index + step.step / total_steps) / place.count, text)
            if step.step % rows.steps_per_epoch == 0:
                _evaluate(setup, model, run, step.step)
                found = run.epochs[-1]
                dev = {f"dev_{name}": value for name, value in found.metrics.items()}
                log.log({"step": run.last_step, "seed": seed, **cell.values, **dev, "dev_loss": found.loss})
                if _is_enough(run, config):
                    run.stopped_early = True
                    break
    except NonFiniteLoss:
        run.status = DIVERGED
    run.status = _judged(run, setup.baseline)
    run.seconds = time.perf_counter() - begun
    return run


def _is_enough(run: SeedRun, config: FinetuneConfig) -> bool:
    """Say whether the run has epochs left, but none was better for as long as it may take."""
    since_best = len(run.epochs) - run.best_epoch
    return 0 < config.early_stopping <= since_best and len(run.epochs) < config.epochs


def _judged(run: SeedRun, baseline: float | None) -> str:
    if run.status == DIVERGED or run.best is None:
        return DIVERGED
    if run.best.constant:
        return CONSTANT
    return MAJORITY if baseline is not None and run.value <= baseline else LEARNED


def _evaluate(setup: Setup, model: nn.Module, run: SeedRun, step: int) -> None:
    """Score dev; keep weights and outputs if this epoch is the best so far (of equals the first).

    Raises:
        NonFiniteLoss: the last step broke the weights, which the loop would notice at the next one.
    """
    task, dev = setup.task, setup.data.dev
    outputs = task.kind.outputs(model, dev, setup.inference)
    if not all(np.isfinite(part).all() for part in outputs):
        raise NonFiniteLoss(step, {"a dev output": float("nan")})
    tuned = task.kind.tune(task, dev, outputs)
    previous = run.value
    found = task.kind.score(task, dev, outputs, tuned)
    run.epochs.append(with_other_dev(task, model, found, setup.data.other_dev, setup.inference, tuned))
    if len(run.epochs) == 1 or run.epochs[-1].metrics[task.main_metric] > previous:
        run.best_epoch = len(run.epochs)
        run.outputs, run.tuned = outputs, tuned
        run.state = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}
