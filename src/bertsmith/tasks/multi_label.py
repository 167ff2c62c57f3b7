"""Any number of labels for each row, each by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import metrics
from bertsmith.errors import InputError
from bertsmith.objectives import MultiLabelObjective
from bertsmith.significance import MANY, Sample
from bertsmith.tasks.classification import (
    LabelledRows,
    encode_texts,
    in_order,
    is_balanced,
    labelled,
    load_single_head,
    of_rows,
    require_known,
    single_head_outputs,
)
from bertsmith.tasks.encode import TRUNCATIONS
from bertsmith.tasks.kind import Encoding, Kind, Labels, Outputs, Score, Split, Task
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.thresholds import DEFAULT_THRESHOLD, best_thresholds, given_labels, sigmoid

AT_HALF = "_at_half"
"""Ends the name of a metric that is measured with thresholds of 0.5 instead of those chosen on dev."""


def _labels(task: Task, rows: RowSet[Any]) -> Labels:
    names = {name for row in rows.rows for name in row.label}
    if not names:
        raise InputError(f"{rows.path}: no row has a label; there is nothing to learn")
    return in_order(names)


def label_table(rows: RowSet[Row], labels: tuple[str, ...]) -> NDArray[np.int64]:
    """Return 1 where a row has a label, int64 ``(rows, labels)``.

    Raises:
        InputError: a label is not among the model's; label and line are named.
    """
    numbers = {name: number for number, name in enumerate(labels)}
    table = np.zeros((len(rows.rows), len(labels)), dtype=np.int64)
    for place, row in enumerate(rows.rows):
        for name in row.label or ():
            require_known(name, numbers, rows.where(place))
            table[place, numbers[name]] = 1
    return table


def _encode(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> LabelledRows:
    assert labels is not None, "there are labels"
    gold = label_table(rows, labels)
    weights = balanced_weights(gold) if is_balanced(encoding) else None
    return LabelledRows(rows, encode_texts(rows, encoding), gold, gold_weights=weights)


def balanced_weights(gold: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a weight for each row and label: with and without the label weigh the same, the mean is 1.

    Args:
        gold: 0 or 1, ``(rows, labels)``.
    """
    total, having = len(gold), gold.sum(axis=0)  # (labels,)
    sides = 1 + ((having > 0) & (having < total))
    weights = np.where(gold == 1, total / np.maximum(having, 1), total / np.maximum(total - having, 1))
    shared: NDArray[np.float64] = weights / sides
    return shared


def _thresholds(tuned: Mapping[str, Any], number: int) -> list[float]:
    return list(tuned.get("thresholds") or [DEFAULT_THRESHOLD] * number)


def _tune(task: Task, split: Split, outputs: Outputs) -> dict[str, Any]:
    rows = labelled(split)
    chosen = best_thresholds(sigmoid(of_rows(split, outputs)), rows.gold)
    return {"thresholds": chosen}


def _score(task: Task, split: Split, outputs: Outputs, tuned: Mapping[str, Any]) -> Score:
    logits, gold = of_rows(split, outputs), labelled(split).gold
    probabilities = sigmoid(logits)
    given = given_labels(probabilities, _thresholds(tuned, gold.shape[1]))
    plain = given_labels(probabilities, [DEFAULT_THRESHOLD] * gold.shape[1])
    values = {
        name: metrics.compute([name.removesuffix(AT_HALF)], gold, plain if name.endswith(AT_HALF) else given)
        for name in task.metrics
    }
    found = {name: next(iter(value.values())) for name, value in values.items()}
    constant = len(given) > 1 and bool((given == given[0]).all())
    return Score(found, metrics.multi_label_loss(logits, gold), constant)


def _answers(
    split: Split, outputs: Outputs, labels: Labels, tuned: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the ``labels`` given to each row, and all ``probabilities``."""
    assert labels is not None, "there are labels"
    probabilities = sigmoid(of_rows(split, outputs))
    given = given_labels(probabilities, _thresholds(tuned, len(labels)))
    return [
        {
            "labels": [label for label, is_given in zip(labels, row, strict=True) if is_given],
            "probabilities": dict(zip(labels, shares, strict=True)),
        }
        for row, shares in zip(given.tolist(), probabilities.tolist(), strict=True)
    ]


def _baseline(task: Task, split: Split) -> float | None:
    """Return micro F1 of the best labels for all rows: some number of the most frequent."""
    gold = labelled(split).gold
    counts = np.sort(gold.sum(axis=0))[::-1]
    given = np.arange(1, len(counts) + 1) * len(gold)
    return float((2.0 * np.cumsum(counts) / (given + counts.sum())).max()) if counts.any() else 0.0


def _sample(
    metric: str, gold: Sequence[Any], answers: Sequence[Mapping[str, Any]], labels: Labels
) -> Sample | None:
    names = labels or ()
    tables = [
        np.array([[int(name in given) for name in names] for given in column], dtype=np.int64)
        for column in (gold, [answer["labels"] for answer in answers])
    ]
    return Sample(MANY[metric], *tables)


MULTI_LABEL = Kind(
    name="multi-label",
    verb="multilabel",
    labels=_labels,
    num_outputs=lambda labels: len(labels or ()),
    load_model=load_single_head,
    encode=_encode,
    objective=lambda split: MultiLabelObjective(),
    outputs=single_head_outputs,
    score=_score,
    answers=_answers,
    tune=_tune,
    truncations=TRUNCATIONS,
    baseline=_baseline,
    sample=_sample,
    settings={"class_weights": None, "label_separator": None},
)
