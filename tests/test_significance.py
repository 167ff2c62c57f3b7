"""Intervals and tests: equal to enumeration and closed forms, and right about as often as they say."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest

from bertsmith import metrics, significance
from bertsmith.significance import (
    MANY,
    bootstrap_interval,
    counted_f1,
    detectable_difference,
    mcnemar,
    mean_score,
    paired_interval,
    randomization_p,
    welch_p,
)

LABEL_METRICS = ["accuracy", "f1", "macro_f1", "matthews"]


def labels(rows: int, right: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Gold labels and predictions of which that share is right."""
    draw = np.random.default_rng(seed)
    gold = draw.integers(2, size=rows)
    return gold, np.where(draw.random(rows) < right, gold, 1 - gold)


@pytest.mark.parametrize("name", metrics.METRICS)
def test_metrics_of_many_sets_are_those_of_each(name: str) -> None:
    """The other way is scikit-learn's and scipy's; among the sets are those where a metric is undefined."""
    draw = np.random.default_rng(7)
    if name in ("pearson", "spearman", "rmse"):
        gold, predicted = draw.normal(size=(2, 16, 12)).round(1)
        gold[3], predicted[4] = 0.1, 0.7
        gold[5], predicted[5] = 1.0, 1.0
    elif name in ("micro_f1", "exact_match"):
        gold, predicted = draw.integers(2, size=(2, 16, 12, 3))
        gold[3], predicted[4] = 0, 0
        gold[5], predicted[5] = 0, 0
        predicted[6] = gold[6]
    else:
        labels = 2 if name == "f1" else 4
        gold, predicted = draw.integers(labels, size=(2, 16, 12))
        for at, (constant, other) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1)]):
            gold[at], predicted[at] = constant, other
        gold[4], predicted[5] = 1, 1
    found = MANY[name](gold, predicted)
    assert found.shape == (16,)
    for index in range(16):
        assert found[index] == pytest.approx(metrics.METRICS[name](gold[index], predicted[index]), abs=1e-12)
        assert float(MANY[name](gold[index], predicted[index])) == found[index]


def test_rows_with_several_answers_are_drawn_whole() -> None:
    draw = np.random.default_rng(8)
    gold, predicted = draw.integers(2, size=(2, 5, 30, 3))
    found = MANY["micro_f1"](gold, predicted)
    for index in range(5):
        assert found[index] == pytest.approx(metrics.micro_f1(gold[index], predicted[index]))
    # The counts of what is gold, predicted and right tell the same.
    counts = np.stack([part.sum(axis=-1) for part in (gold, predicted, gold * predicted)], axis=-1)
    assert counted_f1(gold, counts) == pytest.approx(found)
    assert counted_f1(gold[:, :2], np.zeros((5, 2, 3))).tolist() == [0.0] * 5
    one, other = (
        bootstrap_interval(metric, gold[0], values)
        for metric, values in ((MANY["micro_f1"], predicted[0]), (counted_f1, counts[0]))
    )
    assert one == other
    p_values = [
        randomization_p(metric, gold[0], first, second)
        for metric, first, second in (
            (MANY["micro_f1"], predicted[0], gold[0]),
            (counted_f1, counts[0], np.stack([gold[0].sum(axis=-1)] * 3, axis=-1)),
        )
    ]
    assert p_values[0] == p_values[1] < 0.01
    scores = draw.random(30)
    mean = bootstrap_interval(mean_score, np.zeros(30), scores)
    assert mean is not None
    half = 1.96 * scores.std() / math.sqrt(30)
    assert [mean.low, mean.high] == pytest.approx([scores.mean() - half, scores.mean() + half], abs=0.02)


def test_the_interval_of_accuracy_is_the_binomial_one() -> None:
    gold, predicted = labels(1000, 0.8)
    share = float(np.mean(gold == predicted))
    found = bootstrap_interval(MANY["accuracy"], gold, predicted)
    assert found is not None
    half = 1.96 * math.sqrt(share * (1 - share) / 1000)
    assert found.low == pytest.approx(share - half, abs=0.003)
    assert found.high == pytest.approx(share + half, abs=0.003)
    assert (found.confidence, found.resamples) == (0.95, significance.RESAMPLES)


@pytest.mark.parametrize("name", LABEL_METRICS)
def test_the_interval_is_that_of_resampling_by_hand(name: str) -> None:
    gold, predicted = labels(60, 0.7, seed=1)
    metric = metrics.METRICS[name]
    draw = np.random.default_rng(5)
    values = []
    for _ in range(200):
        rows = draw.integers(60, size=60)
        values.append(metric(gold[rows], predicted[rows]))
    found = bootstrap_interval(MANY[name], gold, predicted)
    assert found is not None
    assert [found.low, found.high] == pytest.approx(np.quantile(values, [0.025, 0.975]), abs=0.06)


def test_the_interval_of_a_correlation_is_fishers() -> None:
    draw = np.random.default_rng(3)
    gold = draw.normal(size=400)
    predicted = gold + draw.normal(size=400)
    r = metrics.pearson(gold, predicted)
    found = bootstrap_interval(MANY["pearson"], gold, predicted)
    assert found is not None
    low, high = (math.tanh(math.atanh(r) + sign * 1.96 / math.sqrt(397)) for sign in (-1, 1))
    assert [found.low, found.high] == pytest.approx([low, high], abs=0.012)


def test_about_nineteen_of_twenty_intervals_hold_the_true_value() -> None:
    held = 0
    for seed in range(60):
        gold, predicted = labels(200, 0.75, seed)
        found = bootstrap_interval(MANY["accuracy"], gold, predicted, seed)
        assert found is not None
        held += found.low <= 0.75 <= found.high
    assert 52 <= held <= 60  # binomial(60, 0.95) is below with probability 0.005


@pytest.mark.parametrize("name", LABEL_METRICS)
def test_of_few_rows_every_exchange_is_tried(name: str) -> None:
    gold, first = labels(9, 0.9, seed=2)
    second = np.where(np.arange(9) % 2, first, 1 - gold)
    metric = lambda gold, predicted: float(MANY[name](gold, predicted))  # noqa: E731 (one set)
    observed = metric(gold, second) - metric(gold, first)
    differences = []
    for exchange in product([False, True], repeat=9):
        ours, theirs = np.where(exchange, second, first), np.where(exchange, first, second)
        differences.append(metric(gold, theirs) - metric(gold, ours))
    sides = [
        np.mean(np.array(differences) >= observed - 1e-9),
        np.mean(np.array(differences) <= observed + 1e-9),
    ]
    assert randomization_p(MANY[name], gold, first, second) == pytest.approx(min(1.0, 2 * min(sides)))


def test_mcnemar_is_the_sum_over_the_binomial_distribution() -> None:
    gold = np.zeros(30, dtype=np.int64)
    first, second = gold.copy(), gold.copy()
    first[:11] = 1  # eleven that the second alone has right
    second[11:14] = 1  # three that the first alone has right
    first[20:], second[20:] = 1, 1
    found = mcnemar(gold, first, second)
    assert (found.only_first, found.only_second) == (3, 11)
    assert found.p_value == pytest.approx(2 * sum(math.comb(14, k) for k in range(4)) / 2**14)
    # For accuracy the exchange test asks the same question.
    assert randomization_p(MANY["accuracy"], gold, first, second) == pytest.approx(found.p_value, abs=0.02)


def test_predictions_of_any_type_can_be_compared() -> None:
    gold, first = labels(300, 0.9, seed=4)
    _, second = labels(300, 0.6, seed=4)
    names = np.array(["no", "yes"], dtype=object)
    p = randomization_p(MANY["accuracy"], names[gold], names[first], names[second])
    assert p == randomization_p(MANY["accuracy"], gold, first, second) < 0.01
    found = paired_interval(MANY["accuracy"], names[gold], names[first], names[second])
    assert found is not None
    assert found.high < 0


def test_what_is_equal_does_not_differ() -> None:
    gold, first = labels(80, 0.8)
    assert randomization_p(MANY["f1"], gold, first, first) == 1.0
    assert mcnemar(gold, first, first).p_value == 1.0
    found = paired_interval(MANY["f1"], gold, first, first)
    assert found is not None
    assert (found.low, found.high) == (0.0, 0.0)


def test_without_a_difference_small_p_are_as_rare_as_they_should_be() -> None:
    values = []
    for seed in range(60):
        draw = np.random.default_rng(seed)
        gold = draw.integers(2, size=150)
        first, second = (np.where(draw.random(150) < 0.8, gold, 1 - gold) for _ in range(2))
        values.append(randomization_p(MANY["accuracy"], gold, first, second, seed))
    assert sum(value < 0.05 for value in values) <= 8  # binomial(60, 0.05) is above with probability 0.004
    assert 0.3 < np.median(values) < 0.8


def test_one_row_says_nothing() -> None:
    one, other = np.array([1]), np.array([0])
    assert bootstrap_interval(MANY["accuracy"], one, one) is None
    assert paired_interval(MANY["accuracy"], one, one, other) is None
    assert randomization_p(MANY["accuracy"], one, one, other) == 1.0
    assert mcnemar(one, one, other).p_value == 1.0


def test_the_same_seed_gives_the_same_figures_and_draws_nothing_from_global_randomness() -> None:
    gold, predicted = labels(100, 0.7)
    first = bootstrap_interval(MANY["f1"], gold, predicted, 3)
    np.random.seed(12)
    assert bootstrap_interval(MANY["f1"], gold, predicted, 3) == first
    assert bootstrap_interval(MANY["f1"], gold, predicted, 4) != first


def test_welch_is_the_formula_and_silent_where_it_has_no_answer() -> None:
    from scipy.stats import t

    first, second = [0.70, 0.72, 0.69, 0.71], [0.66, 0.73, 0.64]
    errors = [np.var(values, ddof=1) / len(values) for values in (first, second)]
    degrees = sum(errors) ** 2 / sum(
        e**2 / (len(v) - 1) for e, v in zip(errors, (first, second), strict=True)
    )
    statistic = abs(np.mean(first) - np.mean(second)) / math.sqrt(sum(errors))
    assert welch_p(first, second) == pytest.approx(2 * t.sf(statistic, degrees))
    assert welch_p([0.7], second) is None
    assert welch_p([1.0, 1.0, 1.0], second) == pytest.approx(welch_p([1.0, 1.0, 1.0 + 1e-9], second))
    assert welch_p([0.7, 0.7], [0.6, 0.6]) is None


def test_a_difference_as_large_as_the_detectable_one_has_the_level_of_welchs_test() -> None:
    start = [0.1, 0.4, 0.7]
    least = detectable_difference([start, [5.0 + value for value in start], [3.0]], tests=4, level=0.05)
    assert least is not None
    assert welch_p(start, [value + least for value in start]) == pytest.approx(0.05 / 4)
    assert detectable_difference([start, [0.2]], tests=4, level=0.05) is None
    assert detectable_difference([start, start], tests=0, level=0.05) is None
