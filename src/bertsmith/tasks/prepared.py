"""A task's rows ready for a model: pieces, label numbers or values, what was read and what was cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import metrics
from bertsmith.errors import InputError
from bertsmith.tasks.encode import EncodedRow, count_truncated, encode_rows
from bertsmith.tasks.source import DataSource, RowSet, hold_out, limit
from bertsmith.tasks.task import REGRESSION, Task, gold_of, labels_of
from bertsmith.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Split:
    """One split: rows, pieces, and gold label numbers int64 or values float64 ``(rows,)``."""

    rows: RowSet
    encoded: list[EncodedRow]
    gold: NDArray[Any]

    @property
    def truncated_rows(self) -> int:
        """Rows that lost pieces."""
        return count_truncated(self.encoded)


@dataclass(frozen=True)
class Encoding:
    """How rows become pieces."""

    tokenizer: Tokenizer
    seq_len: int
    truncation: str


def encode_split(task: Task, rows: RowSet, labels: Sequence[str] | None, encoding: Encoding) -> Split:
    """Encode the rows and number their labels.

    Raises:
        InputError: a label is unknown or no number, or a row is too long under "error"; the line is named.
    """
    texts = [row.texts for row in rows.rows]
    encoded = encode_rows(texts, encoding.tokenizer, encoding.seq_len, encoding.truncation, rows.where)
    return Split(rows, encoded, gold_of(task, rows, labels))


@dataclass(frozen=True)
class TrainingData:
    """What every run of a fine-tuning reads.

    Attributes:
        labels: names of the labels, ``None`` in a regression.
        train: rows to train on.
        dev: rows that pick the best epoch.
        dev_source: where the dev rows come from, in words.
        center: the value that training takes as 0.
        scale: the value's distance from it that training takes as 1.
    """

    labels: tuple[str, ...] | None
    train: Split
    dev: Split
    dev_source: str
    center: float = 0.0
    scale: float = 1.0

    @property
    def targets(self) -> NDArray[Any]:
        """What training aims at: label numbers, or values measured by center and scale."""
        if self.labels is not None:
            return self.train.gold
        scaled: NDArray[Any] = (self.train.gold - self.center) / self.scale
        return scaled

    def unscaled(self, outputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return outputs in the unit of the labels (scores of labels as they are)."""
        if self.labels is not None:
            return outputs
        return (outputs * self.scale + self.center).astype(np.float32)


def read_training_data(
    task: Task, source: DataSource, encoding: Encoding, limit_rows: int, seed: int
) -> TrainingData:
    """Read train and dev rows; without a dev file a tenth of the rows is kept for dev.

    Args:
        task: the task's record.
        source: the files.
        encoding: how rows become pieces.
        limit_rows: train on that many rows; 0: all.
        seed: chooses these rows and those kept for dev.

    Raises:
        InputError: data is missing, broken or teaches nothing (a single label, a constant value).
    """
    rows = task.read(source, "train")
    if rows is None:
        raise InputError(f"{source.data}: no training file of {task.name} in it")
    labels = None if task.kind == REGRESSION else task.labels or labels_of(rows.rows, rows.path)
    dev = task.read(dataclasses.replace(source, stored=rows.columns), "dev")
    dev_source = "dev file"
    if dev is None:
        rows, dev = hold_out(rows, seed)
        dev_source = f"a tenth of the training rows, chosen by seed {seed}"
    train = encode_split(task, limit(rows, limit_rows, seed), labels, encoding)
    data = TrainingData(labels, train, encode_split(task, dev, labels, encoding), dev_source)
    if task.kind == REGRESSION:
        if metrics.is_constant(train.gold):
            low, high = train.gold.min(), train.gold.max()
            problem = f"every row has the value {low}" if low == high else f"{low} to {high} are one float32"
            raise InputError(f"{rows.path}: {problem}; there is nothing to learn")
        if task.scale_values:
            return dataclasses.replace(data, center=float(train.gold.mean()), scale=float(train.gold.std()))
    return data
