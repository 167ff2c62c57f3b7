"""How far a metric can be trusted, and whether two runs differ by more than chance, as far as the rows tell.

All of it is about the rows: another sample of them would have given other figures. How much another seed
would change them is not in here; that needs runs of several seeds.

A metric is computed for thousands of drawn sets of rows, so it comes as a function of many sets at once:
arrays ``(..., rows)`` in, ``(...)`` out. ``MANY`` holds those of ``metrics.METRICS``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.randomness import generator

Values = NDArray[Any]
ManyMetric = Callable[[Values, Values], Values]
"""From gold values and predictions, ``(..., rows)`` each, to a metric of each set of rows, ``(...)``."""

RESAMPLES = 2000
CONFIDENCE = 0.95
_VALUES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Sample:
    """Rows that can be drawn anew.

    Attributes:
        metric: of many sets of rows.
        gold: ``(rows,)``, or more axes after the first.
        predicted: ``(rows,)``, or more axes after the first.
    """

    metric: ManyMetric
    gold: Values
    predicted: Values


@dataclass(frozen=True)
class Interval:
    """A bootstrap interval.

    Attributes:
        low: its lower end.
        high: its upper end.
        confidence: share of such intervals that hold the true value.
        resamples: how often the rows were drawn.
    """

    low: float
    high: float
    confidence: float = CONFIDENCE
    resamples: int = RESAMPLES


@dataclass(frozen=True)
class McNemar:
    """McNemar's exact test of two classifiers.

    Attributes:
        only_first: rows that the first alone has right.
        only_second: rows that the second alone has right.
        p_value: two-sided; of rows that one alone has right, either is as likely to have it.
    """

    only_first: int
    only_second: int
    p_value: float


def accuracy(gold: Values, predicted: Values) -> Values:
    """Return ``metrics.accuracy`` of many sets."""
    return np.asarray(np.mean(gold == predicted, axis=-1))


def f1(gold: Values, predicted: Values) -> Values:
    """Return ``metrics.f1`` of many sets."""
    return _f1_of(gold == 1, predicted == 1)[0]


def macro_f1(gold: Values, predicted: Values) -> Values:
    """Return ``metrics.macro_f1`` of many sets: of each the mean over the labels that occur in it."""
    found = [_f1_of(gold == label, predicted == label) for label in _labels(gold, predicted)]
    total, occurring = sum(score for score, _ in found), sum(occurs * 1.0 for _, occurs in found)
    return np.asarray(total / occurring)


def _f1_of(is_gold: Values, is_predicted: Values) -> tuple[Values, Values]:
    """Return a label's F1, 0 where it does not occur, and whether it occurs."""
    both = 2.0 * np.sum(is_gold & is_predicted, axis=-1)
    total = np.sum(is_gold, axis=-1) + np.sum(is_predicted, axis=-1)
    return both / np.maximum(total, 1), total > 0


def micro_f1(gold: Values, predicted: Values) -> Values:
    """Return ``metrics.micro_f1`` of many sets, ``(..., rows, labels)`` each."""
    both = 2.0 * np.sum(gold & predicted, axis=(-2, -1))
    total = np.sum(gold, axis=(-2, -1)) + np.sum(predicted, axis=(-2, -1))
    return np.asarray(both / np.maximum(total, 1))


def exact_match(gold: Values, predicted: Values) -> Values:
    """Return ``metrics.exact_match`` of many sets, ``(..., rows, labels)`` each."""
    return np.asarray(np.mean((gold == predicted).all(axis=-1), axis=-1))


def _labels(gold: Values, predicted: Values) -> Values:
    return np.unique(np.concatenate([gold.ravel(), predicted.ravel()]))


def mean_score(gold: Values, scores: Values) -> Values:
    """Return the mean of what each row was given, whatever is gold."""
    return np.asarray(scores.mean(axis=-1))


def counted_f1(gold: Values, counts: Values) -> Values:
    """Return the F1 of what rows have several of, whatever is gold.

    Args:
        gold: not read.
        counts: ``(..., rows, 3)``, how many are gold, predicted, and right.
    """
    total = counts.sum(axis=-2).astype(np.float64)
    right, both = 2.0 * total[..., 2], total[..., 0] + total[..., 1]
    return np.asarray(right / np.maximum(both, 1.0))


def matthews(gold: Values, predicted: Values) -> Values:
    """Return ``metrics.matthews`` of many sets. Source: Gorodkin (2004), for any number of labels."""
    rows = float(gold.shape[-1])
    labels = _labels(gold, predicted)
    golds = np.stack([np.sum(gold == label, axis=-1) for label in labels]).astype(np.float64)
    guesses = np.stack([np.sum(predicted == label, axis=-1) for label in labels]).astype(np.float64)
    covariance = np.sum(gold == predicted, axis=-1) * rows - (golds * guesses).sum(axis=0)
    squares = (rows**2 - (golds**2).sum(axis=0)) * (rows**2 - (guesses**2).sum(axis=0))
    return np.asarray(np.where(squares > 0, covariance / np.sqrt(np.where(squares > 0, squares, 1.0)), 0.0))


def pearson(gold: Values, predicted: Values) -> Values:
    """Return ``metrics.pearson`` of many sets."""
    a, b = (values - values.mean(axis=-1, keepdims=True) for values in (gold, predicted))
    lengths = np.sqrt((a**2).sum(axis=-1)) * np.sqrt((b**2).sum(axis=-1))
    varies = (np.ptp(gold, axis=-1) > 0) & (np.ptp(predicted, axis=-1) > 0) & (lengths > 0)
    return np.asarray(np.where(varies, (a * b).sum(axis=-1) / np.where(varies, lengths, 1.0), 0.0))


def spearman(gold: Values, predicted: Values) -> Values:
    """Return ``metrics.spearman`` of many sets."""
    from scipy.stats import rankdata

    return pearson(rankdata(gold, axis=-1), rankdata(predicted, axis=-1))


def rmse(gold: Values, predicted: Values) -> Values:
    """Return ``metrics.rmse`` of many sets."""
    return np.asarray(np.sqrt(np.mean((gold - predicted) ** 2, axis=-1)))


MANY: Mapping[str, ManyMetric] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "micro_f1": micro_f1,
    "exact_match": exact_match,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "rmse": rmse,
}


def bootstrap_interval(metric: ManyMetric, gold: Values, predicted: Values, seed: int = 0) -> Interval | None:
    """Return the percentile interval of a metric over rows drawn with replacement; ``None`` for a single row.

    Args:
        metric: of many sets of rows.
        gold: ``(rows,)``.
        predicted: ``(rows,)``.
        seed: of the draws.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), chapter 13.
    """
    return _bootstrapped(lambda rows: metric(gold[rows], predicted[rows]), predicted, seed)


def paired_interval(
    metric: ManyMetric, gold: Values, first: Values, second: Values, seed: int = 0
) -> Interval | None:
    """Return the percentile interval of the second's metric minus the first's, both on the same drawn rows.

    Args:
        metric: of many sets of rows.
        gold: ``(rows,)``.
        first: predictions ``(rows,)``.
        second: predictions ``(rows,)``.
        seed: of the draws.
    """
    return _bootstrapped(
        lambda rows: metric(gold[rows], second[rows]) - metric(gold[rows], first[rows]), first, seed
    )


def _bootstrapped(
    statistic: Callable[[NDArray[np.int64]], Values], predicted: Values, seed: int
) -> Interval | None:
    from scipy.stats import bootstrap

    if len(predicted) < 2:
        return None
    found = bootstrap(
        (np.arange(len(predicted)),),
        lambda drawn, axis: statistic(drawn),
        n_resamples=RESAMPLES,
        batch=max(1, _VALUES_AT_ONCE // predicted.size),
        vectorized=True,
        axis=-1,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=generator(seed, "bootstrap"),
    ).confidence_interval
    return Interval(float(found.low), float(found.high))


def randomization_p(metric: ManyMetric, gold: Values, first: Values, second: Values, seed: int = 0) -> float:
    """Return how likely a difference as large as this would be if it did not matter whose a prediction is.

    Of each row both predictions change places or not, at random (all ways are tried where there are few).
    Two-sided; right for every metric, also for those that are no mean over rows, such as F1.

    Args:
        metric: of many sets of rows.
        gold: ``(rows,)``.
        first: predictions ``(rows,)``.
        second: predictions ``(rows,)``.
        seed: of the changes.

    Source: approximate randomisation: Noreen (1989); Yeh, arXiv cs/0008005.
    """
    from scipy.stats import permutation_test

    rows = len(gold)
    if rows < 2:
        return 1.0
    # What changes places are numbers of predictions: the predictions may be of any type.
    both = np.concatenate([first, second])

    def difference(ours: NDArray[np.int64], theirs: NDArray[np.int64], axis: int) -> Values:
        # The k-th prediction of a set is of row k, whoever made it.
        golds = gold[np.broadcast_to(np.arange(rows), ours.shape)]
        return metric(golds, both[theirs]) - metric(golds, both[ours])

    found = permutation_test(
        (np.arange(rows), np.arange(rows, 2 * rows)),
        difference,
        permutation_type="samples",
        vectorized=True,
        axis=-1,
        n_resamples=RESAMPLES,
        batch=max(1, _VALUES_AT_ONCE // first.size),
        rng=generator(seed, "randomization"),
    )
    return float(found.pvalue)


def mcnemar(gold: Values, first: Values, second: Values) -> McNemar:
    """Return McNemar's exact test: the rows that one alone has right, as throws of a fair coin.

    Args:
        gold: labels ``(rows,)``.
        first: labels ``(rows,)``.
        second: labels ``(rows,)``.

    Source: McNemar, Psychometrika 12 (1947); Dietterich, Neural Computation 10 (1998), section 3.1.
    """
    from scipy.stats import binomtest

    right, other_right = first == gold, second == gold
    only_first, only_second = int(np.sum(right & ~other_right)), int(np.sum(other_right & ~right))
    either = only_first + only_second
    return McNemar(only_first, only_second, float(binomtest(only_first, either).pvalue) if either else 1.0)


def welch_p(first: list[float], second: list[float]) -> float | None:
    """Return Welch's two-sided p of the means of two groups of runs; ``None`` where it has no answer.

    It has none with fewer than two runs on a side, or when neither side varies.
    """
    from scipy.stats import ttest_ind_from_stats

    if min(len(first), len(second)) < 2:
        return None
    if len(set(first)) == len(set(second)) == 1:
        return None
    sides = [(float(np.mean(side)), float(np.std(side, ddof=1)), len(side)) for side in (first, second)]
    return float(ttest_ind_from_stats(*sides[0], *sides[1], equal_var=False).pvalue)


def detectable_difference(groups: Sequence[Sequence[float]], tests: int, level: float) -> float | None:
    """Return how far two groups' means have to be apart for Welch's test to see it; ``None``: nobody can say.

    The groups are taken to vary alike, by their pooled deviation, and the p value to be corrected for the
    number of tests as the smallest one is by Holm. Groups of fewer than two runs say nothing.

    Args:
        groups: what was measured, run by run.
        tests: how many differences are tested together.
        level: below which a corrected p value counts.
    """
    from scipy.stats import t

    repeated = [group for group in groups if len(group) > 1]
    if len(repeated) < 2 or tests < 1:
        return None
    freedom = sum(len(group) - 1 for group in repeated)
    variance = sum(float(np.var(group, ddof=1)) * (len(group) - 1) for group in repeated) / freedom
    runs = min(map(len, repeated))
    return float(t.isf(level / (2 * tests), 2 * runs - 2)) * math.sqrt(2 * variance / runs)
