"""What the page shows of a fine-tuning run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bertsmith import metrics
from bertsmith.calibration import Calibration, calibration_of
from bertsmith.experiments import judged, plots, shown
from bertsmith.experiments.judges import Judged
from bertsmith.experiments.page import Badge, Origin, Table, Tile, origin_doubts
from bertsmith.experiments.runs import Event, Run, points
from bertsmith.metrics import LabelScore
from bertsmith.recipes.caveats import caveats, rows_of
from bertsmith.stored_task import plain_head

_MOST_LABELS = 20  # of a confusion matrix that can be read
_MOST_CONFUSIONS = 12
_STATISTICS = ("mean", "median", "std", "max")


@dataclass(frozen=True)
class Confusion:
    """Which label of the data got which label of the model.

    Attributes:
        labels: names.
        counts: a line for each label of the data; empty where there are too many labels to read it.
        each: precision, recall and F1 of each label.
        frequent: the most frequent errors.
    """

    labels: list[str]
    counts: list[list[int]]
    each: list[LabelScore]
    frequent: list[tuple[str, str, int]]


@dataclass(frozen=True)
class FineTuned:
    """One fine-tuning run on the page."""

    run: Run
    badge: Badge
    title: str
    tiles: list[Tile]
    doubts: list[str]
    legend: list[tuple[str, str]]
    curves: list[str]
    grid: Table | None
    seeds: Table
    confusion: Confusion | None
    calibration: Calibration | None
    reliability: str
    scatter: str
    lengths: str
    errors: list[Judged]
    num_errors: int
    data: Table
    labels: Table | None
    origin: Origin


def fine_tuned(run: Run, badge: Badge, most_errors: int) -> FineTuned:
    """Return everything that the page shows of a fine-tuning run."""
    kind = kind_of(run)
    rows, lost = judged.judge(kind, run.predictions)
    names = label_names(run)
    is_classifier = kind == "classification" and bool(names) and bool(rows)
    found = _confusion(rows, names) if is_classifier else _of_items(rows)
    calibration = _calibration(run, names) if is_classifier else None
    bars, unit = judged.by_length(rows)
    right = [row.right for row in rows if row.right is not None]
    level = sum(right) / len(right) if right else None
    errors = judged.worst(rows, len(rows))
    return FineTuned(
        run=run,
        badge=badge,
        title=f"{shown.text(run.metrics.get('task') or run.config.get('task') or 'task unknown')}",
        tiles=_tiles(run, rows, calibration),
        doubts=_doubts(run, rows, lost) + origin_doubts(run),
        legend=_legend(run),
        curves=_curves(run),
        grid=_grid(run),
        seeds=_seeds(run),
        confusion=found,
        calibration=calibration,
        reliability=_reliability(calibration),
        scatter=_scatter(run) if kind == "regression" else "",
        lengths=plots.bars("share of right rows, with 95 % interval", bars, f"{unit} (rows)", level)
        if len(bars) > 1
        else "",
        errors=[_shown(row) for row in errors[:most_errors]],
        num_errors=len(errors),
        data=_data(run),
        labels=_labels(run, rows),
        origin=Origin.of(run),
    )


def _shown(row: Judged) -> Judged:
    """Return a row whose texts a page can hold."""
    texts = tuple(shown.text(text) for text in row.texts)
    gold, predicted, note = (shown.text(text, 200) for text in (row.gold, row.predicted, row.note))
    return replace(row, texts=texts, gold=gold, predicted=predicted, note=note)


def kind_of(run: Run) -> str:
    """Return the kind of the run's task, frozen or not; for runs that do not say: by their labels."""
    kind = run.metrics.get("kind") or run.task.get("head")
    return plain_head(str(kind or ("classification" if run.metrics.get("labels") else "regression")))


def label_names(run: Run) -> list[str]:
    """Return the labels, those of the data that the model does not know behind its own."""
    labels = run.metrics.get("labels") or run.task.get("labels") or []
    return [str(label) for label in labels]


def main_metric(run: Run) -> str | None:
    """Return the name of the metric that chose the model."""
    name = run.metrics.get("main_metric") or run.task.get("main_metric")
    return name if isinstance(name, str) else None


def finished(run: Run, metric: str) -> list[float]:
    """Return the best value on dev of each seed that has one."""
    values = [(seed.get("dev") or {}).get(metric) for seed in run.seeds]
    return [float(value) for value in values if isinstance(value, int | float)]


def _tiles(run: Run, rows: Sequence[Judged], calibration: Calibration | None) -> list[Tile]:
    tiles = []
    metric = main_metric(run)
    if metric is not None and finished(run, metric):
        values = finished(run, metric)
        mean, deviation = run.metrics.get("mean") or {}, run.metrics.get("std") or {}
        several, value = len(values) > 1, shown.number(mean.get(metric, values[0]))
        spread = f"± {shown.number(deviation.get(metric))}, mean of {len(values)} seeds"
        tiles.append(Tile(f"dev {metric}", value, spread if several else _interval(run, "one seed")))
        if several:
            kept = shown.number((run.metrics.get("dev") or {}).get(metric))
            tiles.append(Tile("kept model", kept, _interval(run, f"seed {run.metrics.get('best_seed')}")))
    right = [row.right for row in rows if row.right is not None]
    if right and metric != "accuracy":
        tiles.append(Tile("right rows", f"{sum(right) / len(right):.1%}", f"of {len(right):,} on dev"))
    if right and label_names(run):
        frequent, count = Counter(row.gold for row in rows).most_common(1)[0]
        tiles.append(
            Tile("always one answer", f"{count / len(rows):.1%}", f"right with “{shown.text(frequent, 30)}”")
        )
    if calibration is not None:
        is_scaled = calibration.temperature != 1.0
        beside = (
            f"{calibration.before:.3f} before temperature scaling" if is_scaled else "no temperature scaling"
        )
        tiles.append(Tile("calibration error", f"{calibration.after:.3f}", beside))
    if "train_seconds" in run.metrics:
        beside = f"{len(run.seeds)} runs together" if len(run.seeds) > 1 else "with evaluations"
        tiles.append(Tile("training", shown.duration(run.metrics["train_seconds"]), beside))
    return tiles


def _interval(run: Run, name: str) -> str:
    """Return what is beside the kept model's metric: its interval over dev rows, if it has one."""
    found = run.metrics.get("dev_interval") or {}
    is_whole = isinstance(found.get("low"), float) and isinstance(found.get("high"), float)
    return f"{name}; 95 % interval {found['low']:.3f} to {found['high']:.3f}" if is_whole else name


def _doubts(run: Run, rows: Sequence[Judged], lost: int) -> list[str]:
    """Return what a reader of the figures has to know, the weightiest first."""
    doubts = [] if run.metrics else ["The run is not finished: it has no results yet."]
    doubts += caveats(run.metrics)
    if lost:
        doubts.append(f"{lost:,} lines of predictions-dev.jsonl could not be judged and were left out.")
    if rows and not any(row.texts for row in rows):
        doubts.append(
            "The run holds no texts (it is of an earlier version): errors are named by their lines."
        )
    return [shown.text(doubt) for doubt in doubts]


def by_seed(run: Run) -> dict[Any, list[Event]]:
    """Return each seed's events, their steps from its own first; of a grid those of its kept point."""
    found: dict[Any, list[Event]] = {}
    kept = run.metrics.get("grid_settings") or {}
    for event in run.events:
        if isinstance(event.get("step"), int) and all(event.get(name) == kept[name] for name in kept):
            found.setdefault(event.get("seed"), []).append(event)
    return {
        seed: [event | {"step": event["step"] - events[0]["step"] + 1} for event in events]
        for seed, events in found.items()
    }


def _legend(run: Run) -> list[tuple[str, str]]:
    """Return the names of the seeds and their colours; nothing where there is one."""
    seeds = list(by_seed(run))
    names = [
        (f"seed {shown.text(seed, 20)}", plots.COLORS[n % len(plots.COLORS)]) for n, seed in enumerate(seeds)
    ]
    return names if len(names) > 1 else []


def _curves(run: Run) -> list[str]:
    metric = main_metric(run)
    wanted = [
        ("loss", "training loss", "line"),
        (f"dev_{metric}", f"dev {metric}, after each epoch", "points"),
        ("dev_loss", "dev loss, after each epoch", "points"),
        ("learning_rate", "learning rate", "line"),
        ("grad_norm", "gradient norm", "line"),
        ("tokens_per_second", "pieces a second", "line"),
    ]
    seeds = {seed: [_with_speed(event) for event in events] for seed, events in by_seed(run).items()}
    best = {seed.get("seed"): seed.get("best_epoch") for seed in run.seeds}
    found = []
    for key, title, style in wanted:
        drawn = []
        for place, (seed, events) in enumerate(seeds.items()):
            x, y = points(events, key)
            if not x:
                continue
            color = plots.COLORS[place % len(plots.COLORS)]
            if style == "line" and len(seeds) == 1 and key != "learning_rate":
                drawn.append(plots.Curve("", x, y, color, "faint"))
                x, y = plots.binned(x, y, 40)
            elif style == "line":
                x, y = plots.binned(x, y, 60)
            epoch = best.get(seed)
            is_marked = key == f"dev_{metric}" and isinstance(epoch, int) and 0 < epoch <= len(x)
            drawn.append(plots.Curve("", x, y, color, style, x[epoch - 1] if is_marked and epoch else None))
        if drawn:
            found.append(
                plots.curves(title, drawn, "step", bottom=0.0 if key == "tokens_per_second" else None)
            )
    return found


def _with_speed(event: Event) -> Event:
    seconds, tokens = event.get("seconds"), event.get("tokens")
    if isinstance(seconds, float) and isinstance(tokens, int) and seconds > 0:
        return event | {"tokens_per_second": tokens / seconds}
    return event


def _seeds(run: Run) -> Table:
    """Return every seed's result, and their mean and deviation."""
    metrics = list(run.metrics.get("dev") or run.metrics.get("mean") or {})
    lines = []
    for seed in run.seeds:
        dev = seed.get("dev") or {}
        values = [shown.number(dev.get(name)) for name in metrics]
        kept = " (kept)" if seed.get("seed") == run.metrics.get("best_seed") else ""
        facts = [shown.number(seed.get("best_epoch") or None), shown.duration(seed.get("train_seconds"))]
        lines.append([f"seed {seed.get('seed')}{kept}", *values, *facts, shown.text(seed.get("status", "–"))])
    for name, key in (("mean", "mean"), ("standard deviation", "std")):
        over_seeds = run.metrics.get(key) or {}
        if len(run.seeds) > 1 and over_seeds:
            lines.append([name, *(shown.number(over_seeds.get(metric)) for metric in metrics), "", "", ""])
    return Table(["run", *map(shown.text, metrics), "best epoch", "time", "state"], lines)


def _grid(run: Run) -> Table | None:
    """Return the points of a grid, the kept one marked; ``None`` where there is one point."""
    points = run.metrics.get("grid") or []
    metric, kept = main_metric(run), run.metrics.get("grid_settings")
    if len(points) < 2:
        return None
    names = list(points[0]["settings"])
    lines = []
    for point in points:
        values = [(point.get(name) or {}).get(metric) for name in _STATISTICS]
        settings = [shown.text(point["settings"].get(name)) for name in names]
        state = "kept" if point["settings"] == kept else ""
        counts = [str(len(point["seeds"])), str(point["failed"])]
        lines.append([*settings, *map(shown.number, values), *counts, state])
    return Table([*map(shown.text, names), *_STATISTICS, "runs", "failed", ""], lines)


def _confusion(rows: Sequence[Judged], labels: list[str]) -> Confusion:
    names = list(dict.fromkeys([*labels, *(row.gold for row in rows), *(row.predicted for row in rows)]))
    counts = metrics.confusion([row.gold for row in rows], [row.predicted for row in rows], names)
    shown_names = [shown.text(name, 60) for name in names]
    return Confusion(
        labels=shown_names,
        counts=counts.tolist() if len(names) <= _MOST_LABELS else [],
        each=metrics.label_scores(counts, shown_names),
        frequent=judged.confusions(counts.tolist(), shown_names, _MOST_CONFUSIONS) if len(names) > 2 else [],
    )


def _of_items(rows: Sequence[Judged]) -> Confusion | None:
    """Return the scores of labels or entities, of which a row may have several: none stands for another."""
    each = [replace(one, name=shown.text(one.name, 60)) for one in judged.item_scores(rows)]
    return Confusion([one.name for one in each], [], each, []) if each else None


def _calibration(run: Run, labels: list[str]) -> Calibration | None:
    """Return the calibration, as far as the run holds probabilities of all labels."""
    numbers = {name: number for number, name in enumerate(labels)}
    temperature = run.tuned.get("temperature", 1.0)
    try:
        table = [[line["probabilities"][name] for name in labels] for line in run.predictions]
        gold = np.array([numbers[str(line["gold"])] for line in run.predictions])
        shares = np.array(table, dtype=np.float64)
    except (KeyError, TypeError, ValueError):
        return None
    is_sound = isinstance(temperature, float) and 0.0 < temperature < math.inf
    return calibration_of(shares, gold, temperature) if is_sound and np.isfinite(shares).all() else None


def _reliability(found: Calibration | None) -> str:
    if found is None:
        return ""
    return plots.reliability(found.bins_before, found.bins_after if found.temperature != 1.0 else [])


def _scatter(run: Run) -> str:
    pairs = [(line.get("gold"), line.get("value")) for line in run.predictions]
    numbers = [pair for pair in pairs if all(isinstance(value, int | float) for value in pair)]
    values = np.array(numbers, dtype=np.float64).reshape(-1, 2)  # (rows, 2)
    values = values[np.isfinite(values).all(axis=1)]
    return plots.scatter(values[:, 0], values[:, 1]) if len(values) else ""


def _splits(run: Run) -> list[str]:
    return list(run.metrics.get("truncated") or ("train", "dev"))


def _data(run: Run) -> Table:
    """Return what was read of each split."""
    figures, splits = run.metrics, _splits(run)
    wanted: dict[str, list[Any]] = {"rows": [rows_of(figures, split) for split in splits]}
    for name, key in (
        ("cut to the model's length", "truncated"),
        ("left out, a value is missing", "missing_rows"),
        ("blank lines", "blank_lines"),
    ):
        wanted[name] = [(figures.get(key) or {}).get(split) for split in splits]
    hashes = figures.get("data_sha256") or {}
    wanted["SHA-256 of the file"] = [str(hashes[split])[:12] if split in hashes else None for split in splits]
    lines = [[name, *map(shown.number, values)] for name, values in wanted.items() if any(values)]
    return Table(["", *map(shown.text, splits)], lines)


def _labels(run: Run, rows: Sequence[Judged]) -> Table | None:
    """Return how many rows have each label; of an earlier version's run those of dev."""
    counts: dict[str, dict[str, int]] = run.metrics.get("label_counts") or {}
    if not counts and label_names(run) and rows:
        counts = {"dev": Counter(row.gold for row in rows)}
    names = list(dict.fromkeys(name for found in counts.values() for name in found))
    totals = {split: sum(found.values()) for split, found in counts.items()}
    lines = [
        [
            shown.text(name, 60),
            *(shown.share(found.get(name, 0), totals[split]) for split, found in counts.items()),
        ]
        for name in names
    ]
    return Table(["label", *map(shown.text, counts)], lines) if lines else None
