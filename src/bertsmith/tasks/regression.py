"""One number for each row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith import metrics
from bertsmith.errors import InputError
from bertsmith.objectives import RegressionObjective
from bertsmith.significance import MANY, Sample
from bertsmith.tasks.classification import (
    LabelledRows,
    encode_texts,
    labelled,
    load_single_head,
    of_rows,
    single_head_outputs,
    stacked,
)
from bertsmith.tasks.encode import TRUNCATIONS
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.kind import Encoding, Kind, Labels, Outputs, Score, Split, Task
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import RowSet


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


def _encode(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> LabelledRows:
    return LabelledRows(rows, encode_texts(rows, encoding), label_values(rows.rows, rows.path))


def _fit(task: Task, train: Split, dev: Split) -> tuple[Split, Split]:
    """Measure values by their mean and deviation, where the task says so."""
    train, dev = labelled(train), labelled(dev)
    if metrics.is_constant(train.gold):
        low, high = train.gold.min(), train.gold.max()
        problem = f"every row has the value {low}" if low == high else f"{low} to {high} are one float32"
        raise InputError(f"{train.rows.path}: {problem}; there is nothing to learn")
    if not task.scale_values:
        return train, dev
    center, scale = float(train.gold.mean()), float(train.gold.std())
    return replace(train, center=center, scale=scale), replace(dev, center=center, scale=scale)


def in_unit(split: Split, outputs: Outputs) -> Outputs:
    """Return what a head said as values in the unit of the labels, float32 ``(inputs, 1)``."""
    unit = labelled(split)
    return (stacked(outputs) * unit.scale + unit.center).astype(np.float32)


def _outputs(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the values in the unit of the labels, float32 ``(inputs, 1)``."""
    return in_unit(split, single_head_outputs(model, split, inference))


def _finish(model: nn.Module, train: Split) -> None:
    """Make the scale of the values part of the head."""
    last = model.classifier
    assert isinstance(last, nn.Linear), "a head for whole rows ends in a linear layer"
    unit = labelled(train)
    with torch.no_grad():
        last.weight.mul_(unit.scale)
        last.bias.mul_(unit.scale).add_(unit.center)


def _score(task: Task, split: Split, outputs: Outputs, tuned: Mapping[str, Any]) -> Score:
    gold = labelled(split).gold
    predicted = of_rows(split, outputs)[:, 0].astype(np.float64)  # (rows,)
    constant = len(predicted) > 1 and metrics.is_constant(predicted)
    loss = float(np.mean((predicted - gold) ** 2))
    return Score(metrics.compute(task.metrics, gold, predicted), loss, constant)


def _answers(
    split: Split, outputs: Outputs, labels: Labels, tuned: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the ``value`` of each row."""
    return [{"value": float(value)} for value in of_rows(split, outputs)[:, 0]]


def _baseline(task: Task, split: Split) -> float | None:
    gold = labelled(split).gold
    return metrics.METRICS[task.main_metric](gold, np.full_like(gold, gold.mean()))


def _sample(
    metric: str, gold: Sequence[Any], answers: Sequence[Mapping[str, Any]], labels: Labels
) -> Sample | None:
    predicted = [answer["value"] for answer in answers]
    return Sample(MANY[metric], np.array(gold, dtype=np.float64), np.array(predicted))


REGRESSION = Kind(
    name="regression",
    verb="regress",
    labels=lambda task, rows: None,
    num_outputs=lambda labels: 1,
    load_model=load_single_head,
    encode=_encode,
    objective=lambda split: RegressionObjective(),
    outputs=_outputs,
    score=_score,
    answers=_answers,
    fit=_fit,
    finish=_finish,
    truncations=TRUNCATIONS,
    baseline=_baseline,
    sample=_sample,
)
