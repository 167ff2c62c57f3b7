"""Evaluate a fine-tuned model on labelled rows: every row counts, metrics are over the whole set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.bundle import load_bundle
from bertsmith.config import to_dict
from bertsmith.device import limit_threads
from bertsmith.errors import InputError
from bertsmith.recipes.compare import compare_runs
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.labelled import read_labelled
from bertsmith.tasks.inference import inference_settings
from bertsmith.tasks.prepared import read_other_dev, with_other_dev


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
    labelled = read_labelled(config, bundle)
    task, data, tuned = labelled.task, labelled.split, labelled.tuned
    rows = data.rows
    model = task.kind.load_model(bundle, None).to(inference.device)
    others = (
        read_other_dev(task, labelled.source, labelled.labels, labelled.encoding)
        if config.split == "dev"
        else {}
    )
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
