"""Predictions on dev in one form for every kind of task: what was right, what was wrong and how badly."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from bertsmith.experiments.plots import Bar

_MOST_BINS = 6
_FEWEST_ROWS = 10  # of a bin: fewer say nothing

_FACTS = ("line", "gold", "truncated", "pieces", "texts")  # every line may hold them

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Judged:
    """One row of dev.

    Attributes:
        line: of the file.
        texts: its texts; empty where the run does not hold them.
        gold: what the data says.
        predicted: what the model says.
        right: both are the same; ``None`` where a row is more or less right.
        badness: what errors are ordered by, the worst first.
        note: how sure the model was, or how far off.
        pieces: that the model read; ``None`` where the run does not say.
        truncated: the row was cut.
    """

    line: int
    texts: tuple[str, ...]
    gold: str
    predicted: str
    right: bool | None
    badness: float
    note: str
    pieces: int | None = None
    truncated: bool = False


def judge(kind: str, lines: Sequence[Line]) -> tuple[list[Judged], int]:
    """Return the rows that can be judged, and how many lines cannot.

    Args:
        kind: of the task, as ``head`` in task.json.
        lines: of predictions-dev.jsonl.
    """
    of_kind = _JUDGES.get(kind, _judge_any)
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


def _judge_label(line: Line) -> Judged:
    gold, label = str(line["gold"]), str(line["label"])
    shares = line["probabilities"]
    sure, of_gold = float(shares[line["label"]]), float(shares.get(line["gold"], 0.0))
    note = f"{sure:.1%} sure; {of_gold:.1%} for {gold}" if gold != label else f"{sure:.1%} sure"
    return Judged(0, (), gold, label, gold == label, sure - of_gold, note)


def _judge_value(line: Line) -> Judged:
    gold, value = float(line["gold"]), float(line["value"])
    return Judged(
        0, (), f"{gold:.6g}", f"{value:.6g}", None, abs(value - gold), f"off by {value - gold:+.4g}"
    )


def _judge_any(line: Line) -> Judged:
    """Judge a row of a kind that this page does not know: the same answer or not."""
    gold = line["gold"]
    answer = next(value for name, value in line.items() if name not in _FACTS)
    right = answer == gold or (isinstance(gold, list) and answer in gold)
    return Judged(0, (), _as_text(gold), _as_text(answer), right, float(not right), "")


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_JUDGES: Mapping[str, Callable[[Line], Judged]] = {
    "classification": _judge_label,
    "regression": _judge_value,
}


def worst(judged: Sequence[Judged], most: int) -> list[Judged]:
    """Return the rows that are wrong, or of which none is simply right or wrong, the worst first."""
    wrong = [row for row in judged if not row.right and row.badness > 0]
    return sorted(wrong, key=lambda row: (-row.badness, row.line))[:most]


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
        name = f"{low}\n{len(right)} rows" if high == low + 1 else f"{low}-{high - 1}\n{len(right)} rows"
        bars.append(
            Bar(name, sum(map(bool, right)) / len(right), *interval(sum(map(bool, right)), len(right)))
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
