"""Whether two fine-tunings differ by more than chance: tests of their answers to the same dev rows."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.errors import InputError
from bertsmith.significance import (
    Interval,
    Sample,
    bootstrap_interval,
    mcnemar,
    paired_interval,
    randomization_p,
    welch_p,
)
from bertsmith.tasks.task import find_task


@dataclass(frozen=True)
class FinishedRun:
    """What a fine-tuning left behind.

    Attributes:
        path: its directory.
        metrics: metrics.json.
        lines: predictions-dev.jsonl.
    """

    path: str
    metrics: dict[str, Any]
    lines: list[dict[str, Any]]

    @classmethod
    def read(cls, path: str) -> FinishedRun:
        """Read a run directory.

        Raises:
            InputError: it holds no finished fine-tuning.
        """
        try:
            metrics = json.loads((Path(path) / "metrics.json").read_text(encoding="utf-8"))
            text = (Path(path) / "predictions-dev.jsonl").read_text(encoding="utf-8")
            lines = [json.loads(line) for line in text.split("\n") if line]
            _ = metrics["task"], metrics["main_metric"], metrics["dev"], metrics["seeds"], metrics["labels"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{path} holds no finished fine-tuning ({error}); name a run directory"
            ) from None
        return cls(path, metrics, lines)

    @property
    def gold(self) -> list[tuple[Any, Any]]:
        """Place and gold answer of each row."""
        return [(line.get("line"), line.get("gold")) for line in self.lines]


def compare_runs(first: str, second: str) -> dict[str, Any]:
    """Compare two fine-tunings on the dev rows that both were scored on; nothing is computed anew.

    Args:
        first: a run directory.
        second: another.

    Returns:
        Both values of the main metric with their bootstrap intervals; ``difference``, the second's minus the
        first's, with its interval and the p of an exchange test; McNemar's test where a row is right or wrong
        (else ``None``); and Welch's test over the seeds, where both have several.

    Raises:
        InputError: a directory holds no finished fine-tuning, or both are not about the same rows.
    """
    runs = [FinishedRun.read(path) for path in (first, second)]
    _check_same(*runs)
    task, metric = find_task(runs[0].metrics["task"]), runs[0].metrics["main_metric"]
    labels = [name for run in runs for name in run.metrics["labels"] or ()]
    names = tuple(dict.fromkeys(labels)) if labels else None
    samples = []
    for run in runs:
        sample = task.kind.sample(metric, [gold for _, gold in run.gold], run.lines, names)
        if sample is None:
            raise InputError(f"task {task.name}: its {metric} cannot be compared row by row")
        _check_belongs(run, sample)
        samples.append(sample)
    one, other = samples
    values = [float(sample.metric(sample.gold, sample.predicted)) for sample in samples]
    is_label = one.gold.ndim == 1 and np.issubdtype(one.gold.dtype, np.integer)
    return {
        "task": task.name,
        "metric": metric,
        "rows": len(one.gold),
        "runs": [
            {
                "run": run.path,
                "value": value,
                "interval": _stored(bootstrap_interval(sample.metric, sample.gold, sample.predicted)),
            }
            for run, value, sample in zip(runs, values, samples, strict=True)
        ],
        "difference": values[1] - values[0],
        "interval": _stored(paired_interval(one.metric, one.gold, one.predicted, other.predicted)),
        "p_value": randomization_p(one.metric, one.gold, one.predicted, other.predicted),
        "mcnemar": dataclasses.asdict(mcnemar(one.gold, one.predicted, other.predicted))
        if is_label
        else None,
        "seeds": _over_seeds(metric, runs),
    }


def _check_same(first: FinishedRun, second: FinishedRun) -> None:
    """Refuse runs that were not scored on the same rows.

    Raises:
        InputError: tasks, metrics or rows differ.
    """
    for name in ("task", "main_metric"):
        values = first.metrics[name], second.metrics[name]
        if values[0] != values[1]:
            raise InputError(
                f"{first.path} and {second.path}: {name} is {values[0]} and {values[1]}; use runs of a task"
            )
    if first.gold != second.gold:
        raise InputError(
            f"{first.path} and {second.path} were scored on different dev rows ({len(first.lines)} and "
            f"{len(second.lines)}); a paired test needs the same"
        )


def _check_belongs(run: FinishedRun, sample: Sample) -> None:
    """Refuse predictions that are not those of the metrics beside them.

    Raises:
        InputError: they give another value.
    """
    found = float(sample.metric(sample.gold, sample.predicted))
    stated = run.metrics["dev"][run.metrics["main_metric"]]
    if abs(found - stated) > 1e-6:
        raise InputError(
            f"{run.path}: predictions-dev.jsonl gives {run.metrics['main_metric']} {found:.6f}, metrics.json "
            f"says {stated:.6f}; they are of different runs"
        )


def _over_seeds(metric: str, runs: Sequence[FinishedRun]) -> dict[str, Any]:
    """Return the means over seeds and Welch's p; each side's runs differ by their seed alone."""
    values = [[seed["dev"][metric] for seed in run.metrics["seeds"] if seed["dev"]] for run in runs]
    return {
        "counts": [len(side) for side in values],
        "means": [float(np.mean(side)) for side in values],
        "p_value": welch_p(*values),
    }


def _stored(interval: Interval | None) -> Mapping[str, float] | None:
    return dataclasses.asdict(interval) if interval else None
