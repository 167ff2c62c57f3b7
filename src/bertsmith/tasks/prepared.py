"""A task's rows ready for training: pieces, gold answers, what was read and what was cut."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from bertsmith.errors import InputError
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.kind import Encoding, Labels, Score, Split, Task
from bertsmith.tasks.source import DataSource, hold_out, limit


@dataclass(frozen=True)
class TrainingData:
    """What every run of a fine-tuning reads.

    Attributes:
        labels: names of the labels, ``None`` where the task has none.
        train: rows to train on.
        dev: rows that pick the best epoch.
        dev_source: where the dev rows come from, in words.
        other_dev: further dev splits, by name; scored, never chosen by.
    """

    labels: Labels
    train: Split
    dev: Split
    dev_source: str
    other_dev: Mapping[str, Split] = field(default_factory=dict)

    @property
    def splits(self) -> dict[str, Split]:
        """All splits by name."""
        return {"train": self.train, "dev": self.dev, **self.other_dev}


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
    labels = task.kind.labels(task, rows)
    source = dataclasses.replace(source, stored=rows.columns)
    dev = task.read(source, "dev")
    dev_source = "dev file"
    if dev is None:
        rows, dev = hold_out(rows, seed)
        dev_source = f"a tenth of the training rows, chosen by seed {seed}"
    encode = task.kind.encode
    read = encode(task, limit(rows, limit_rows, seed), labels, encoding)
    train, dev_split = task.kind.fit(task, read, encode(task, dev, labels, encoding))
    others = {
        name: task.kind.fit(task, read, split)[1]
        for name, split in read_other_dev(task, source, labels, encoding).items()
    }
    return TrainingData(labels, train, dev_split, dev_source, others)


def read_other_dev(task: Task, source: DataSource, labels: Labels, encoding: Encoding) -> dict[str, Split]:
    """Return the further dev splits that are there, by name.

    Raises:
        InputError: a file is broken, or a label is unknown.
    """
    found = {name: task.read(source, name) for name in task.other_dev}
    return {
        name: task.kind.encode(task, rows, labels, encoding)
        for name, rows in found.items()
        if rows is not None
    }


def with_other_dev(
    task: Task,
    model: nn.Module,
    found: Score,
    other_dev: Mapping[str, Split],
    inference: Inference,
    tuned: Mapping[str, Any],
) -> Score:
    """Return dev's score with the metrics on further dev splits beside its own.

    A metric on "dev_mismatched" is called ``mismatched_accuracy``.
    """
    values = dict(found.metrics)
    for name, split in other_dev.items():
        score = task.kind.score(task, split, task.kind.outputs(model, split, inference), tuned)
        prefix = name.removeprefix("dev_")
        values |= {f"{prefix}_{metric}": value for metric, value in score.metrics.items()}
    return dataclasses.replace(found, metrics=values)
