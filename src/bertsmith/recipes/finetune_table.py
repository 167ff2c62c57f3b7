"""What many runs say together: statistics of each point of the grid, as JSON and as a table for people."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bertsmith.recipes.finetune_run import LEARNED, SeedRun, named
from bertsmith.recipes.finetune_runs import Slot

_STATISTICS: Mapping[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "std": lambda values: statistics.stdev(values) if len(values) > 1 else 0.0,
    "max": max,
}
"""Of each metric over the runs that count; the sample standard deviation, 0 for one run."""


def spread(runs: Sequence[SeedRun]) -> dict[str, dict[str, float] | None]:
    """Return mean, median, std and max of each metric over the runs that have one; ``None`` if none has."""
    found = [run.best.metrics for run in runs if run.best is not None]
    if not found:
        return dict.fromkeys(_STATISTICS)
    return {
        name: {metric: function([one[metric] for one in found]) for metric in found[0]}
        for name, function in _STATISTICS.items()
    }


def grid_summary(slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """Return each point of the grid: its settings, its statistics, its runs."""
    cells = {id(slot.cell): slot.cell for slot in slots}
    points = []
    for cell in cells.values():
        runs = [slot.run for slot in slots if slot.cell is cell]
        best = max(runs, key=lambda run: run.value)
        points.append(
            {
                "settings": cell.values,
                **spread(runs),
                "best_seed": best.seed if best.best else None,
                "failed": sum(run.status != LEARNED for run in runs),
                "seeds": [run.to_dict() for run in runs],
            }
        )
    return points


def failures(slots: Sequence[Slot]) -> list[dict[str, Any]]:
    """Return the runs that failed, and which one that learnt counts instead, if one did."""
    return [
        {
            "seed": run.seed,
            "settings": run.settings,
            "why": run.status,
            "replaced_by": slot.run.seed if slot.run.status == LEARNED else None,
        }
        for slot in slots
        for run in slot.runs
        if run.status != LEARNED
    ]


def table(summary: Mapping[str, Any]) -> str:
    """Return the grid as lines of text: a row a point, the kept run's marked; below it, what failed."""
    metric = summary["main_metric"]
    paths = list(summary["grid"][0]["settings"])
    header = [*(path.rpartition(".")[2] for path in paths), "runs", *_STATISTICS, "best seed", "failed", ""]
    rows = [header]
    for point in summary["grid"]:
        values = [f"{point[name][metric]:.4f}" if point[name] else "-" for name in _STATISTICS]
        is_kept = point["settings"] == summary["grid_settings"]
        rows.append(
            [
                *(str(point["settings"][path]) for path in paths),
                str(len(point["seeds"])),
                *values,
                "-" if point["best_seed"] is None else str(point["best_seed"]),
                str(point["failed"]),
                "best" if is_kept else "",
            ]
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    lines = [f"{summary['task']}, dev {metric}", *(line.rstrip() for line in lines)]
    for run in summary["failed_runs"]:
        after = "" if run["replaced_by"] is None else f"; replaced by seed {run['replaced_by']}"
        lines.append(f"failed: {named(run['settings'])}seed {run['seed']}: {run['why']}{after}")
    return "\n".join(lines)
