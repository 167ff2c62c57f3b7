"""Evaluate a fine-tuned model on labelled rows: every row counts, metrics are over the whole set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.bundle import load_bundle
from bertsmith.config import nearest, to_dict
from bertsmith.device import limit_threads
from bertsmith.errors import InputError
from bertsmith.recipes.compare import compare_runs
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.tasks.inference import inference_settings
from bertsmith.tasks.kind import Encoding, Task
from bertsmith.tasks.prepared import read_other_dev, with_other_dev
from bertsmith.tasks.rows import Columns
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.task import TASKS, all_settings, find_task, settings_of


def evaluate(config: EvaluateConfig) -> dict[str, Any]:
    """Evaluate a model; the labels are those stored in it, never those of the file. Or compare two runs.

    Returns:
        Metrics, loss, how many rows were read, cut, left out; or what ``compare_runs`` returns. Written to
        ``config.out`` when it is named.

    Raises:
        InputError: the model has no head for the task, a label is unknown to it, a setting would be
            ignored, or the data is broken.
    """
    if config.out is not None:
        files.require_no_directory(Path(config.out))
    result = _compared(config) if config.compare else _evaluated(config)
    if config.out is not None:
        files.write_json(Path(config.out), result)
    return result


def _compared(config: EvaluateConfig) -> dict[str, Any]:
    """Compare two fine-tunings.

    Raises:
        InputError: there are not two, they cannot be compared, or another setting would be ignored.
    """
    if len(config.compare) != 2:
        raise InputError(f"--compare names {len(config.compare)} directories; give two")
    for name, default in to_dict(EvaluateConfig()).items():
        value = getattr(config, name)
        if name not in ("compare", "out") and value != default:
            name = name.replace("_", "-")
            raise InputError(
                f"--{name} {value} would be ignored: --compare reads stored answers; leave it out"
            )
    return compare_runs(*config.compare)


def _evaluated(config: EvaluateConfig) -> dict[str, Any]:
    if not config.model or not config.data:
        raise InputError("evaluate needs --model and --data, or --compare with two run directories")
    limit_threads()
    inference = inference_settings(config.precision, config.batch_tokens)
    bundle = load_bundle(config.model)
    stored = bundle.task or {}
    task = _task(config, stored)
    settings_of(task, dict.fromkeys(all_settings()) | {"scheme": config.scheme})
    model = task.kind.load_model(bundle, None).to(inference.device)
    source = _source(config, stored)
    rows = _read(config, task, source)
    task = task.measured_by(task, rows)
    labels, encoding = None if stored.get("labels") is None else tuple(stored["labels"]), Encoding.of(bundle)
    data = task.kind.encode(task, rows, labels, encoding)
    others = read_other_dev(task, source, labels, encoding) if config.split == "dev" else {}
    tuned = stored.get("tuned") or {}
    found = task.kind.score(task, data, task.kind.outputs(model, data, inference), tuned)
    found = with_other_dev(task, model, found, others, inference, tuned)
    return {
        "task": task.name,
        "model": config.model,
        "data": rows.path,
        "split": config.split if Path(config.data).is_dir() else None,
        "partial": rows.partial,
        "examples": len(rows.rows),
        "metrics": found.metrics,
        **found.details,
        "loss": found.loss,
        "constant_predictions": found.constant,
        "truncated_rows": sum(data.truncated),
        "missing_rows": rows.counts.get("missing_rows", 0),
        "blank_lines": rows.counts.get("blank_lines", 0),
        "data_sha256": files.sha256_of(Path(rows.path)),
        "other_dev": {
            name: {
                "data": split.rows.path,
                "partial": split.rows.partial,
                "examples": len(split.rows.rows),
                "truncated_rows": sum(split.truncated),
                "missing_rows": split.rows.counts.get("missing_rows", 0),
            }
            for name, split in others.items()
        },
    }


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
