"""Predictions on dev in one form for every kind of task: what was right, what was wrong and how badly."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from bertsmith.experiments.judges import JUDGES, Judged, Line, judge_any
from bertsmith.experiments.plots import Bar
from bertsmith.metrics import LabelScore, score_of
from bertsmith.stored_task import plain_head

_MOST_BINS = 6
_FEWEST_ROWS = 10  # of a bin: fewer say nothing


def judge(kind: str, lines: Sequence[Line]) -> tuple[list[Judged], int]:
    """Return the rows that can be judged, and how many lines cannot.

    Args:
        kind: of the task, as ``head`` in task.json.
        lines: of predictions-dev.jsonl.
    """
    of_kind = JUDGES.get(plain_head(kind), judge_any)
    judged = []
    for line in lines:
        try:
            found = of_kind(line)
        except (KeyError, TypeError, ValueError, IndexError, StopIteration):
            continue
        if math.isnan(found.badness):
            continue
        judged.append(_with_facts(found, line))
    return judged, len(lines) - len(judged)


def _with_facts(found: Judged, line: Line) -> Judged:
    """Add what lines of every kind may hold."""
    texts = line.get("texts")
    pieces = line.get("pieces")
    return replace(
        found,
        line=line["line"] if isinstance(line.get("line"), int) else 0,
        texts=tuple(map(str, texts)) if isinstance(texts, list) else (),
        pieces=pieces if isinstance(pieces, int) else None,
        truncated=line.get("truncated") is True,
    )


def worst(judged: Sequence[Judged], most: int) -> list[Judged]:
    """Return the rows that are wrong, or of which none is simply right or wrong, the worst first."""
    wrong = [row for row in judged if not row.right and row.badness > 0]
    return sorted(wrong, key=lambda row: (-row.badness, row.line))[:most]


def item_scores(judged: Sequence[Judged]) -> list[LabelScore]:
    """Return precision, recall and F1 of each label of rows that have several labels or entities."""
    gold, given, both = Counter[str](), Counter[str](), Counter[str]()
    for row in judged:
        if row.items is not None:
            first, second = set(row.items[0]), set(row.items[1])
            for counts, items in ((gold, first), (given, second), (both, first & second)):
                counts.update(str(item[0]) for item in items)
    return [score_of(name, both[name], gold[name], given[name]) for name in sorted({*gold, *given})]


def confusions(
    counts: Sequence[Sequence[int]], labels: Sequence[str], most: int
) -> list[tuple[str, str, int]]:
    """Return the most frequent errors as (label of the data, label of the model, rows)."""
    pairs = [
        (gold, predicted, counts[row][column])
        for row, gold in enumerate(labels)
        for column, predicted in enumerate(labels)
        if row != column and counts[row][column]
    ]
    return sorted(pairs, key=lambda pair: -pair[2])[:most]


def interval(right: int, total: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share."""
    from scipy.stats import binomtest

    found = binomtest(right, total).proportion_ci(0.95, method="wilson")
    return float(found.low), float(found.high)


def by_length(judged: Sequence[Judged]) -> tuple[list[Bar], str]:
    """Return the accuracy of rows of similar length, and what lengths are counted in.

    At most six groups with about as many rows each, none of fewer than ten; no group where rows are not
    simply right or wrong.
    """
    known = [row for row in judged if row.right is not None]
    if known and all(row.pieces is not None for row in known):
        unit, lengths = "pieces", [row.pieces or 0 for row in known]
    elif known and all(row.texts for row in known):
        unit, lengths = "characters", [sum(map(len, row.texts)) for row in known]
    else:
        return [], ""
    edges = _edges(lengths)
    bars = []
    for low, high in pairwise(edges):
        right = [row.right for row, length in zip(known, lengths, strict=True) if low <= length < high]
        name = f"{low}" if high == low + 1 else f"{low}-{high - 1}"
        bars.append(
            Bar(
                f"{name}\n({len(right)})",
                sum(map(bool, right)) / len(right),
                *interval(sum(map(bool, right)), len(right)),
            )
        )
    return bars, unit


def _edges(lengths: Sequence[int]) -> list[int]:
    """Return where groups of lengths begin, and behind the last one its end."""
    order = sorted(lengths)
    wanted = max(1, min(_MOST_BINS, len(order) // _FEWEST_ROWS))
    begins = [order[0]]
    for part in range(1, wanted):
        begin = order[part * len(order) // wanted]
        enough = sum(begins[-1] <= length < begin for length in order) >= _FEWEST_ROWS
        if enough and sum(length >= begin for length in order) >= _FEWEST_ROWS:
            begins.append(begin)
    return [*begins, order[-1] + 1]
