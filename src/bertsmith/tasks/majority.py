"""Answering every row alike: the most frequent label, or the mean value; what WNLI is known to be lost to."""

from __future__ import annotations

from collections import Counter
from statistics import fmean

import numpy as np

from bertsmith import metrics
from bertsmith.errors import InputError
from bertsmith.tasks.classification import label_numbers
from bertsmith.tasks.kind import Task
from bertsmith.tasks.regression import label_values
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import DataSource, RowSet


def majority_answer(task: Task, source: DataSource) -> str | float:
    """Return the most frequent label of the training rows (of equals the first of the task's), or their mean.

    Raises:
        InputError: there are no training rows, or a label is unknown.
    """
    rows = task.read(source, "train")
    if rows is None:
        raise InputError(f"{source.data}: no training file of {task.name} to find its majority in")
    if task.labels is None:
        return fmean(label_values(rows.rows, rows.path).tolist())
    counts = Counter(label_numbers(rows.rows, task.labels, rows.path).tolist())
    return task.labels[max(range(len(task.labels)), key=lambda number: counts[number])]


def majority_metrics(task: Task, rows: RowSet[Row], answer: str | float) -> dict[str, float]:
    """Return the task's metrics when every row gets this answer."""
    if task.labels is None:
        gold, value = label_values(rows.rows, rows.path), float(answer)
        return metrics.compute(task.metrics, gold, np.full(len(gold), value))
    numbers = label_numbers(rows.rows, task.labels, rows.path)
    number = task.labels.index(str(answer))
    return metrics.compute(task.metrics, numbers, np.full(len(numbers), number, dtype=np.int64))
