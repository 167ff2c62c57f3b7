"""Kinds of tasks: from rows to the inputs of a model, and from its outputs to answers and metrics.

A task names its kind; recipes and the predictor use a kind's record and never ask which it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith.bundle import Bundle
from bertsmith.errors import InputError
from bertsmith.layout import Tokens
from bertsmith.model.config import BertConfig
from bertsmith.significance import Sample
from bertsmith.tasks.encode import CUTS, TRUNCATIONS, EncodedRow
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.loop import Objective

Labels = tuple[str, ...] | None
"""Names of the labels in the order of their numbers; ``None`` where a task has none (a number, a span)."""

Outputs = NDArray[np.float32] | list[NDArray[np.float32]]
"""One entry an input: float32 ``(inputs, outputs)``, or a list where their shapes differ."""


class Batch(Protocol):
    """Inputs of one forward pass with what they should give."""

    @property
    def tokens(self) -> Tokens:
        """The unpadded inputs."""
        ...

    def to(self, device: torch.device | str) -> Batch:
        """Return the same batch on another device."""
        ...


class Split(Protocol):
    """The rows of one split as inputs of a model, with their gold answers."""

    @property
    def rows(self) -> RowSet[Any]:
        """What was read."""
        ...

    @property
    def encoded(self) -> Sequence[EncodedRow]:
        """The inputs of forward passes; a row may have several."""
        ...

    @property
    def truncated(self) -> Sequence[bool]:
        """Whether each row lost pieces."""
        ...

    @property
    def gold_objects(self) -> list[Any]:
        """The gold answer of each row as it is written to JSON."""
        ...

    @property
    def num_units(self) -> int:
        """How many units there are to train on: what a batch size counts."""
        ...

    def batch(self, units: Sequence[int]) -> Batch:
        """Return units as one batch."""
        ...


@dataclass(frozen=True)
class Encoding:
    """How rows become pieces.

    Attributes:
        tokenizer: of the model.
        seq_len: pieces of the longest input, special tokens counted.
        truncation: what happens to longer rows.
        settings: those that only tasks of this kind have, by name; see ``Kind.settings``.
    """

    tokenizer: Tokenizer
    seq_len: int
    truncation: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, bundle: Bundle) -> Encoding:
        """Return how a fine-tuned model's rows are encoded, as stored with it.

        Raises:
            InputError: task.json names a truncation that does not exist.
        """
        stored = bundle.task or {}
        seq_len = stored.get("seq_len") or bundle.config.max_positions
        truncation = stored.get("truncation") or "tail"
        if truncation not in TRUNCATIONS:
            path = bundle.directory / "task.json"
            raise InputError(f"{path}: truncation is {truncation!r}; expected {', '.join(TRUNCATIONS)}")
        return cls(bundle.tokenizer, seq_len, truncation, stored.get("settings") or {})

    def stored(self) -> dict[str, Any]:
        """Return what task.json keeps of it."""
        stored = {"seq_len": self.seq_len, "truncation": self.truncation}
        return stored | {"settings": dict(self.settings)} if self.settings else stored


@dataclass(frozen=True)
class Score:
    """How good outputs are.

    Attributes:
        metrics: the task's metrics over all rows.
        loss: mean loss over all rows; of a regression in the labels' unit.
        constant: every row got the same prediction: nothing was learnt, or it was lost.
        details: what else is to be said about the metrics, of JSON types.
    """

    metrics: dict[str, float]
    loss: float
    constant: bool
    details: dict[str, Any] = field(default_factory=dict)


def _as_they_are(task: Task, train: Split, dev: Split) -> tuple[Split, Split]:
    return train, dev


def _teaches_all(split: Split, architecture: BertConfig, batch_size: int) -> None:
    return None


def _nothing_to_finish(model: nn.Module, train: Split) -> None:
    return None


def _always_alike(task: Task, rows: RowSet[Any]) -> Task:
    return task


def _no_baseline(task: Task, split: Split) -> float | None:
    return None


def _no_sample(
    metric: str, gold: Sequence[Any], answers: Sequence[Mapping[str, Any]], labels: Labels
) -> Sample | None:
    return None


def _nothing_to_tune(task: Task, split: Split, outputs: Outputs) -> dict[str, Any]:
    return {}


@dataclass(frozen=True)
class Kind:
    """What all tasks of a kind have in common.

    Attributes:
        name: also the name of the head in task.json.
        verb: the predictor's method.
        labels: from the training rows to the names of the labels.
            Raises InputError when they teach nothing.
        num_outputs: of the head, for these labels.
        load_model: a model directory's model with a new head of that many outputs; ``None``: with the stored
            head.
        encode: rows as a split. Raises InputError naming the line of a row that cannot be used.
        objective: what is minimised on a training split.
        outputs: of a model in evaluation mode for every input, in their order.
        score: metrics over a whole split, of outputs and what was tuned.
        answers: one JSON object a row, of outputs, labels and what was tuned.
        fit: adapts both splits to what the training rows say, such as the scale of values.
            Raises InputError when they teach nothing.
        check: of a training split, a model's architecture and a batch size, before the first step.
            Raises InputError when the model could not read the split so, or learn from it.
        finish: makes what ``fit`` found part of a trained model, in place.
        tune: what is chosen on dev after training and stored with the model.
        settings: settings that tasks of other kinds do not have, with their defaults.
        inherited: of these settings those that a model of this kind, if training begins with one, hands on.
        truncations: the policies for long rows that fit.
        example: what one item looks like that the verb takes; ``None``: a text, or a pair of texts.
        baseline: the main metric of the best single answer for all rows, which a run has to beat to have
            learnt anything; ``None`` where there is no such answer.
        sample: from a metric's name, gold answers and answers as they stand in predictions-dev.jsonl, and
            labels: what can be drawn anew row by row; ``None`` where a metric cannot.
    """

    name: str
    verb: str
    labels: Callable[[Task, RowSet[Any]], Labels]
    num_outputs: Callable[[Labels], int]
    load_model: Callable[[Bundle, int | None], nn.Module]
    encode: Callable[[Task, RowSet[Any], Labels, Encoding], Split]
    objective: Callable[[Split], Objective[Any]]
    outputs: Callable[[nn.Module, Split, Inference], Outputs]
    score: Callable[[Task, Split, Outputs, Mapping[str, Any]], Score]
    answers: Callable[[Split, Outputs, Labels, Mapping[str, Any]], list[dict[str, Any]]]
    fit: Callable[[Task, Split, Split], tuple[Split, Split]] = _as_they_are
    check: Callable[[Split, BertConfig, int], None] = _teaches_all
    finish: Callable[[nn.Module, Split], None] = _nothing_to_finish
    tune: Callable[[Task, Split, Outputs], dict[str, Any]] = _nothing_to_tune
    settings: Mapping[str, Any] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()
    truncations: tuple[str, ...] = CUTS
    example: str | None = None
    baseline: Callable[[Task, Split], float | None] = _no_baseline
    sample: Callable[[str, Sequence[Any], Sequence[Mapping[str, Any]], Labels], Sample | None] = _no_sample


@dataclass(frozen=True)
class Task:
    """What a recipe has to know about a task.

    Attributes:
        name: as on the command line.
        kind: from rows to inputs, from outputs to answers.
        labels: names of the labels in the order of their numbers; ``None``: found once, in the training rows.
        metrics: names of the metrics to report.
        main_metric: the metric that picks the best epoch and seed; more is better.
        read: reads a split; ``None`` when there is no such file.
        scale_values: train on standardised values and fold mean and deviation into the head afterwards, so
            that values of any size can be learnt (a house price as well as a score of 0..5).
        other_dev: further dev splits, scored beside "dev" and never chosen by; ``accuracy`` on
            "dev_mismatched" is reported as ``mismatched_accuracy``.
        frozen_kind: the kind of its models whose encoder was not trained (see ``frozen_encoder``); ``None``:
            there is none.
        measured_by: the task with the metrics that fit some rows, where rows of more than one form are read.
    """

    name: str
    kind: Kind
    labels: Labels
    metrics: tuple[str, ...]
    main_metric: str
    read: Callable[[DataSource, str], RowSet[Any] | None]
    scale_values: bool = False
    other_dev: tuple[str, ...] = ()
    frozen_kind: Kind | None = None
    measured_by: Callable[[Task, RowSet[Any]], Task] = _always_alike
