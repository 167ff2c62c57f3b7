"""A task's rows ready for training: pieces, gold answers, what was read and what was cut."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from bertsmith.errors import InputError
from bertsmith.tasks.kind import Encoding, Labels, Split, Task
from bertsmith.tasks.source import DataSource, hold_out, limit


@dataclass(frozen=True)
class TrainingData:
    """What every run of a fine-tuning reads.

    Attributes:
        labels: names of the labels, ``None`` where the task has none.
        train: rows to train on.
        dev: rows that pick the best epoch.
        dev_source: where the dev rows come from, in words.
    """

    labels: Labels
    train: Split
    dev: Split
    dev_source: str


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
    dev = task.read(dataclasses.replace(source, stored=rows.columns), "dev")
    dev_source = "dev file"
    if dev is None:
        rows, dev = hold_out(rows, seed)
        dev_source = f"a tenth of the training rows, chosen by seed {seed}"
    encode = task.kind.encode
    train, dev_split = task.kind.fit(
        task,
        encode(task, limit(rows, limit_rows, seed), labels, encoding),
        encode(task, dev, labels, encoding),
    )
    return TrainingData(labels, train, dev_split, dev_source)
