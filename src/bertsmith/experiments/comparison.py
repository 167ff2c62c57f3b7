"""Runs of the same kind side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bertsmith.errors import InputError
from bertsmith.experiments import plots, shown
from bertsmith.experiments.fine_tuned import finished, main_metric
from bertsmith.experiments.page import Badge, Table, differences
from bertsmith.experiments.plots import Curve
from bertsmith.experiments.pretrained import HELD_OUT, last, levels, millions
from bertsmith.experiments.runs import PRETRAINING, Run, points
from bertsmith.recipes.compare import compare_runs

_SECONDS_AN_HOUR = 3600.0


@dataclass(frozen=True)
class Comparison:
    """Runs of one kind side by side.

    Attributes:
        kind: PRETRAINING or FINE_TUNING.
        table: a line for each run.
        figures: what they reached.
        tests: whether each differs from the first by more than chance; ``None`` where that cannot be tested.
        settings: those in which they differ.
        doubts: what makes them hard to compare.
    """

    kind: str
    table: Table
    figures: list[str]
    tests: Table | None
    settings: Table | None
    doubts: list[str]


def compare(kind: str, badged: Sequence[tuple[Run, Badge]]) -> Comparison:
    """Return runs of one kind side by side.

    Args:
        kind: of all the runs.
        badged: the runs, at least two, and their badges.
    """
    runs, badges = [run for run, _ in badged], [badge for _, badge in badged]
    table, figures = (_pretraining if kind == PRETRAINING else _fine_tuning)(runs, badges)
    doubts = _pretraining_doubts(runs) if kind == PRETRAINING else _fine_tuning_doubts(runs)
    tests, problems = (None, []) if kind == PRETRAINING else _tests(runs, badges)
    return Comparison(kind, table, figures, tests, differences(runs, badges), doubts + problems)


def _fine_tuning(runs: Sequence[Run], badges: Sequence[Badge]) -> tuple[Table, list[str]]:
    """Return a line for each run with mean and deviation of its seeds, and the seeds as dots."""
    metrics = list(dict.fromkeys(name for run in runs for name in run.metrics.get("mean") or {}))
    lines = []
    for run, badge in zip(runs, badges, strict=True):
        mean, deviation = run.metrics.get("mean") or {}, run.metrics.get("std") or {}
        lines.append(
            [
                f"{badge.letter} · {run.name}",
                shown.text(run.metrics.get("task") or run.config.get("task") or "–"),
                *(shown.spread(mean.get(m), deviation.get(m), len(finished(run, m))) for m in metrics),
                f"{len(run.seeds)}",
                shown.number(run.metrics.get("train_rows")),
                shown.number(run.metrics.get("dev_rows")),
                shown.duration(run.metrics.get("train_seconds")),
            ]
        )
    headings = ["run", "task", *map(shown.text, metrics), "seeds", "train rows", "dev rows", "time"]
    figures = []
    for metric in dict.fromkeys(name for run in runs if (name := main_metric(run)) is not None):
        groups = [
            (badge, finished(run, metric))
            for run, badge in zip(runs, badges, strict=True)
            if finished(run, metric)
        ]
        if groups:
            title = f"dev {metric}: each seed, and mean with standard deviation"
            figures.append(plots.strips(title, [(one.letter, one.color, values) for one, values in groups]))
    return Table(headings, lines), figures


def _tests(runs: Sequence[Run], badges: Sequence[Badge]) -> tuple[Table | None, list[str]]:
    """Return paired tests of each run against the first, and why some cannot be done."""
    lines, problems = [], []
    for run, badge in zip(runs[1:], badges[1:], strict=True):
        pair = f"{badge.letter} − {badges[0].letter}"
        try:
            found = compare_runs(str(runs[0].path), str(run.path))
        except InputError as error:
            problems.append(shown.text(f"{pair} cannot be tested: {error}."))
            continue
        ends = found["interval"]
        interval = f"{ends['low']:+.4f} to {ends['high']:+.4f}" if ends else "–"
        chances = [shown.number(found["p_value"]), shown.number(found["seeds"]["p_value"])]
        lines.append([pair, shown.text(found["metric"]), f"{found['difference']:+.4f}", interval, *chances])
    headings = ["kept models", "metric", "difference", "95 % interval", "p over rows", "p over seeds"]
    return Table(headings, lines) if lines else None, problems


def _fine_tuning_doubts(runs: Sequence[Run]) -> list[str]:
    doubts = []
    tasks = {run.metrics.get("task") for run in runs if run.metrics}
    hashes = {(run.metrics.get("data_sha256") or {}).get("dev") for run in runs if run.metrics}
    if len(tasks) > 1:
        doubts.append("The runs are of different tasks.")
    elif len(hashes | {run.metrics.get("dev_rows") for run in runs}) > 2 or len(hashes) > 1:
        doubts.append("The runs were scored on different dev rows: their figures do not compare.")
    if any(len(run.seeds) == 1 for run in runs):
        doubts.append("A run of one seed has no deviation: a difference to it may be chance.")
    return doubts


def _pretraining_doubts(runs: Sequence[Run]) -> list[str]:
    known = {round(level, 6) for run in runs if (level := levels(run).get("word frequencies")) is not None}
    if len(known) > 1:
        return [
            "The held-out texts differ, as their word frequencies do: only distances to that level compare."
        ]
    return []


def _pretraining(runs: Sequence[Run], badges: Sequence[Badge]) -> tuple[Table, list[str]]:
    """Return a line for each run, and held-out losses over tokens and over hours."""
    headings = [
        "run",
        "held-out loss",
        "below frequencies",
        "accuracy",
        "tokens",
        "tokens/s",
        "time",
        "parameters",
    ]
    lines = []
    for run, badge in zip(runs, badges, strict=True):
        loss, unigram = last(run, HELD_OUT), levels(run).get("word frequencies")
        below = unigram - loss if unigram is not None and isinstance(loss, float) else None
        tokens, size = last(run, "tokens"), run.metrics.get("parameters")
        lines.append(
            [
                f"{badge.letter} · {run.name}",
                *map(shown.number, (loss, below, last(run, "heldout_mlm_accuracy"))),
                millions(tokens) if tokens else "–",
                shown.number(last(run, "tokens_per_second")),
                shown.duration(last(run, "seconds")),
                millions(size) if size else "–",
            ]
        )
    axes = (("tokens", 1e6, "million tokens"), ("seconds", _SECONDS_AN_HOUR, "hours"))
    figures = [_held_out_over(runs, badges, key, unit, name) for key, unit, name in axes]
    return Table(headings, lines), [figure for figure in figures if figure]


def _held_out_over(runs: Sequence[Run], badges: Sequence[Badge], key: str, unit: float, name: str) -> str:
    """Return held-out losses over what steps have cost; evaluations stand at the steps logged before them."""
    drawn = []
    for run, badge in zip(runs, badges, strict=True):
        steps, losses = points(run.events, HELD_OUT)
        logged, cost = points(run.events, key)
        if steps and logged:
            x = np.interp(steps, logged, cost) / unit
            drawn.append(Curve(badge.letter, list(map(float, x)), losses, badge.color, "points"))
    return plots.curves(f"held-out masked-word loss over {name}", drawn, name) if drawn else ""
