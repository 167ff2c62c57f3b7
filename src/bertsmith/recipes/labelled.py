"""Labelled rows for a model that is there: its task, its labels, its way of cutting texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.bundle import Bundle
from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.tasks.kind import Encoding, Labels, Split, Task
from bertsmith.tasks.rows import Columns
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.task import TASKS, all_settings, find_task, settings_of


@dataclass(frozen=True)
class LabelledSplit:
    """Rows as inputs of a model, with what they are measured by.

    Attributes:
        task: the task, with the metrics that fit the rows.
        source: where the rows come from.
        labels: those stored in the model, never those of the file.
        encoding: how rows become pieces.
        split: the rows.
        tuned: what was chosen on dev and is stored with the model.
    """

    task: Task
    source: DataSource
    labels: Labels
    encoding: Encoding
    split: Split
    tuned: Mapping[str, Any]


def read_labelled(config: EvaluateConfig, bundle: Bundle) -> LabelledSplit:
    """Read and encode the rows that ``config`` names.

    Raises:
        InputError: the model has no head for the task, a label is unknown to it, a setting would be ignored,
            or the data is broken.
    """
    stored = bundle.task or {}
    task = _task(config, stored)
    settings_of(task, dict.fromkeys(all_settings()) | {"scheme": config.scheme})
    source = _source(config, stored)
    rows = _read(config, task, source)
    task = task.measured_by(task, rows)
    labels, encoding = None if stored.get("labels") is None else tuple(stored["labels"]), Encoding.of(bundle)
    split = task.kind.encode(task, rows, labels, encoding)
    return LabelledSplit(task, source, labels, encoding, split, stored.get("tuned") or {})


def _task(config: EvaluateConfig, stored: dict[str, Any]) -> Task:
    name = config.task or stored.get("task")
    head = stored.get("head")
    if name is None or (config.task is None and name not in TASKS):
        raise InputError(
            f"{config.model}: the model stores no task to evaluate; fine-tune it, or name --task"
        )
    task = find_task(name, head)
    if head != task.kind.name:
        fitting = [known.name for known in TASKS.values() if find_task(known.name, head).kind.name == head]
        hint = nearest(name, fitting) if fitting else "it can only be fine-tuned"
        raise InputError(
            f"{config.model}: --task {name} needs a {task.kind.name} head, the model has {head}; {hint}"
        )
    labels = stored.get("labels")
    if task.labels is not None and not _fits(task, task.labels, labels or []):
        raise InputError(
            f"{config.model}: the labels of {name} are {', '.join(task.labels)}, the model's "
            f"{', '.join(labels or ['unknown'])}; evaluate it with --task classify"
        )
    return task


def _fits(task: Task, wanted: Sequence[str], labels: Sequence[str]) -> bool:
    """Say whether a model's labels are the task's; tools order those of MNLI differently."""
    if "f1" in task.metrics:  # it is of label number 1: another order would give another figure
        return list(labels) == list(wanted)
    return sorted(labels) == sorted(wanted)


def _source(config: EvaluateConfig, stored: dict[str, Any]) -> DataSource:
    """Return where the rows are.

    Raises:
        InputError: a split is named that would be ignored.
    """
    columns = stored.get("columns")
    is_directory = Path(config.data).is_dir()
    if not is_directory and config.split != EvaluateConfig.split:
        raise InputError(
            f"--split {config.split} would be ignored: {config.data} is no directory; leave it out"
        )
    return DataSource(
        config.data,
        None if is_directory else config.data,
        config.text,
        config.second_text,
        config.label,
        config.missing,
        Columns(**columns) if columns else None,
        scheme=config.scheme,
    )


def _read(config: EvaluateConfig, task: Task, source: DataSource) -> RowSet[Any]:
    rows = task.read(source, config.split)
    if rows is None:
        raise InputError(f"{config.data}: no {config.split} file of {task.name} in it")
    if rows.columns is not None and rows.columns.label is None:
        raise InputError(f"{rows.path}: the {config.split} rows have no labels; use bertsmith predict")
    return rows
