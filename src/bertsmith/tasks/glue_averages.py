"""The three averages that are all called "GLUE score", each under its own name.

Source: the GLUE benchmark's leaderboard; the paper, Table 1 and section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

Metrics = Mapping[str, float]

_PAPER_METRIC = {
    "sst2": "accuracy",
    "cola": "matthews",
    "mrpc": "f1",
    "stsb": "spearman",
    "qqp": "f1",
    "qnli": "accuracy",
    "rte": "accuracy",
}
_MNLI = ("accuracy", "mismatched_accuracy")
_LEADERBOARD_METRICS = {
    **{task: (metric,) for task, metric in _PAPER_METRIC.items()},
    "mrpc": ("f1", "accuracy"),
    "qqp": ("f1", "accuracy"),
    "stsb": ("pearson", "spearman"),
    "mnli": _MNLI,
    "wnli": ("accuracy",),
}


def averages(tasks: Mapping[str, Metrics]) -> dict[str, float | None]:
    """Return the three averages, ``None`` where a task or a metric of one is not there.

    Args:
        tasks: metrics by task, as ``finetune`` and ``evaluate`` report them.

    Returns:
        ``leaderboard_nine_tasks``: nine tasks with WNLI; a task with two metrics or two sets is their mean.
        ``paper_nine_columns``: the paper's "Average": MNLI counts twice, F1 alone for MRPC and QQP, Spearman
        alone for STS-B, no WNLI.
        ``eight_tasks``: the paper's metrics with MNLI counted once, as the mean of its two sets; no WNLI.
    """
    single = [tasks.get(task, {}).get(metric) for task, metric in _PAPER_METRIC.items()]
    both = [tasks.get("mnli", {}).get(name) for name in _MNLI]
    return {
        "leaderboard_nine_tasks": _mean(
            [
                _mean([tasks.get(task, {}).get(name) for name in names])
                for task, names in _LEADERBOARD_METRICS.items()
            ]
        ),
        "paper_nine_columns": _mean([*both, *single]),
        "eight_tasks": _mean([_mean(both), *single]),
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None
