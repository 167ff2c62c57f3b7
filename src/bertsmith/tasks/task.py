"""Tasks as records. The recipes read a record's fields and never ask for its name."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import metrics
from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.tasks import custom, glue
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import DataSource, RowSet

CLASSIFICATION = "classification"
REGRESSION = "regression"
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,100}")


@dataclass(frozen=True)
class Task:
    """What a recipe has to know about a task.

    Attributes:
        name: as on the command line.
        kind: "classification" or "regression", also the name of the head.
        labels: names of the labels in the order of their numbers; ``None``: found once, in the training rows.
        metrics: names of the metrics to report.
        main_metric: the metric that picks the best epoch and seed; more is better.
        read: reads a split; ``None`` when there is no such file.
        scale_values: train on standardised values and fold mean and deviation into the head afterwards, so
            that values of any size can be learnt (a house price as well as a score of 0..5).
    """

    name: str
    kind: str
    labels: tuple[str, ...] | None
    metrics: tuple[str, ...]
    main_metric: str
    read: Callable[[DataSource, str], RowSet | None]
    scale_values: bool = False


# The labels of the GLUE tasks are the strings of the published files, in the order of the original.
# Source: run_classifier.py, get_labels of each processor; metrics: the paper, section 4.1.
TASKS: Mapping[str, Task] = {
    "cola": Task(
        "cola",
        CLASSIFICATION,
        ("0", "1"),
        ("matthews", "accuracy"),
        "matthews",
        partial(glue.read_split, glue.GLUE["cola"]),
    ),
    "sst2": Task(
        "sst2",
        CLASSIFICATION,
        ("0", "1"),
        ("accuracy",),
        "accuracy",
        partial(glue.read_split, glue.GLUE["sst2"]),
    ),
    "mrpc": Task(
        "mrpc",
        CLASSIFICATION,
        ("0", "1"),
        ("f1", "accuracy"),
        "f1",
        partial(glue.read_split, glue.GLUE["mrpc"]),
    ),
    "stsb": Task(
        "stsb",
        REGRESSION,
        None,
        ("pearson", "spearman"),
        "spearman",
        partial(glue.read_split, glue.GLUE["stsb"]),
    ),
    "rte": Task(
        "rte",
        CLASSIFICATION,
        ("entailment", "not_entailment"),
        ("accuracy",),
        "accuracy",
        partial(glue.read_split, glue.GLUE["rte"]),
    ),
    "classify": Task(
        "classify",
        CLASSIFICATION,
        None,
        ("accuracy", "macro_f1", "matthews"),
        "accuracy",
        custom.read_split,
    ),
    "regress": Task(
        "regress",
        REGRESSION,
        None,
        ("pearson", "spearman", "rmse"),
        "pearson",
        custom.read_split,
        scale_values=True,
    ),
}


def find_task(name: str) -> Task:
    """Return a task by its name.

    Raises:
        InputError: there is none of that name; the message names the nearest.
    """
    if name not in TASKS:
        raise InputError(f"task {name!r} is unknown; {nearest(name, list(TASKS))}")
    return TASKS[name]


def labels_of(rows: Sequence[Row], path: str) -> tuple[str, ...]:
    """Return the label names of training rows, sorted: by value if all are whole numbers, else as text.

    Raises:
        InputError: there are fewer than two labels: nothing can be learnt.
    """
    names = {str(row.label) for row in rows}
    if len(names) < 2:
        raise InputError(f"{path}: every row has the label {min(names)!r}; a classifier needs at least two")
    if all(_WHOLE_NUMBER.fullmatch(name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def label_numbers(rows: Sequence[Row], labels: Sequence[str], path: str) -> NDArray[np.int64]:
    """Return the number of each row's label, int64 ``(rows,)``.

    Raises:
        InputError: a label is not among the model's; label and line are named.
    """
    numbers = {name: number for number, name in enumerate(labels)}
    for row in rows:
        if row.label not in numbers:
            shown = ", ".join(labels[:10]) + (", …" if len(labels) > 10 else "")
            raise InputError(
                f"{path}, line {row.line}: label {row.label!r} is unknown to the model (it knows {shown}); "
                "mend the label or train with rows of it"
            )
    return np.array([numbers[str(row.label)] for row in rows], dtype=np.int64)


def label_values(rows: Sequence[Row], path: str) -> NDArray[np.float64]:
    """Return the value of each row, float64 ``(rows,)``.

    Raises:
        InputError: a label is no finite number; label and line are named.
    """
    return np.array([_value(row, path) for row in rows], dtype=np.float64)


def _value(row: Row, path: str) -> float:
    try:
        value = float(str(row.label))
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(
            f"{path}, line {row.line}: {row.label!r} is no number; "
            "regression needs numbers (for names: --task classify)"
        )
    return value


def gold_of(task: Task, rows: RowSet, labels: Sequence[str] | None) -> NDArray[Any]:
    """Return label numbers or values of all rows, as the task's kind says."""
    if task.kind == REGRESSION:
        return label_values(rows.rows, rows.path)
    assert labels is not None, "a classifier has labels"
    return label_numbers(rows.rows, labels, rows.path)


@dataclass(frozen=True)
class Score:
    """How good outputs are.

    Attributes:
        metrics: the task's metrics over all rows.
        loss: mean cross entropy in nats, or mean squared error in the labels' unit, over all rows.
        constant: every row got the same prediction: nothing was learnt, or it was lost.
    """

    metrics: dict[str, float]
    loss: float
    constant: bool


def score(task: Task, outputs: NDArray[np.float32], gold: NDArray[Any]) -> Score:
    """Return the metrics over the whole set at once.

    Args:
        task: says which metrics.
        outputs: of the head, float32 ``(rows, outputs)``.
        gold: label numbers int64 ``(rows,)`` or values float64 ``(rows,)``.
    """
    if task.kind == REGRESSION:
        predicted: NDArray[Any] = outputs[:, 0].astype(np.float64)  # (rows,)
        loss = float(np.mean((predicted - gold) ** 2))
    else:
        predicted = outputs.argmax(axis=1)  # (rows,)
        loss = metrics.classification_loss(outputs, gold)
    values = metrics.compute(task.metrics, gold, predicted)
    return Score(values, loss, len(predicted) > 1 and metrics.is_constant(predicted))
