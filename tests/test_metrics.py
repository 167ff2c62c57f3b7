"""Metrics: on whole sets, equal to hand-computed values and to independent formulas."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bertsmith import metrics

GOLD = np.array([1, 1, 0, 0, 1, 0, 0, 0])
PREDICTED = np.array([1, 0, 0, 0, 1, 1, 0, 0])


def test_c046_values_over_the_whole_set() -> None:
    values = metrics.compute(("accuracy", "f1", "matthews"), GOLD, PREDICTED)
    assert values["accuracy"] == 0.75
    assert values["f1"] == pytest.approx(2 / 3)
    assert values["matthews"] == pytest.approx(7 / 15)
    per_batch = [metrics.f1(GOLD[at : at + 3], PREDICTED[at : at + 3]) for at in (0, 3, 6)]
    assert np.mean(per_batch) == pytest.approx(4 / 9), "the fault: the mean of batches is another number"


def test_matthews_is_the_formula() -> None:
    generator = np.random.default_rng(1)
    gold, predicted = generator.integers(2, size=(2, 500))
    tp = np.sum((gold == 1) & (predicted == 1)) * 1.0
    tn = np.sum((gold == 0) & (predicted == 0)) * 1.0
    fp = np.sum((gold == 0) & (predicted == 1)) * 1.0
    fn = np.sum((gold == 1) & (predicted == 0)) * 1.0
    formula = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert metrics.matthews(gold, predicted) == pytest.approx(formula)


def test_correlations_are_the_formulas_and_spearman_averages_ties() -> None:
    gold = np.array([1.0, 2.0, 2.0, 4.0, 5.0])
    predicted = np.array([10.0, 30.0, 20.0, 30.0, 100.0])
    assert metrics.pearson(gold, predicted) == pytest.approx(np.corrcoef(gold, predicted)[0, 1])
    ranks = np.corrcoef([1, 2.5, 2.5, 4, 5], [1, 3.5, 2, 3.5, 5])[0, 1]
    assert metrics.spearman(gold, predicted) == pytest.approx(ranks)
    assert metrics.rmse(gold, gold + 3) == pytest.approx(3)


@pytest.mark.parametrize("name", ["matthews", "pearson", "spearman"])
def test_a_constant_has_no_correlation_and_no_warning(name: str) -> None:
    assert metrics.METRICS[name](GOLD, np.zeros(8, dtype=np.int64)) == 0.0
    assert metrics.METRICS[name](np.ones(8, dtype=np.int64), PREDICTED) == 0.0


def test_f1_without_a_positive_is_zero_without_a_warning() -> None:
    assert metrics.f1(GOLD, np.zeros(8, dtype=np.int64)) == 0.0
    assert metrics.macro_f1(np.array([0, 1, 2]), np.array([0, 1, 1])) == pytest.approx((1 + 2 / 3 + 0) / 3)


def test_the_loss_is_the_mean_over_rows_and_stands_large_scores() -> None:
    logits = np.array([[1000.0, 0.0], [0.0, 0.0], [math.log(3), 0.0]])
    gold = np.array([0, 1, 0])
    expected = (0 + math.log(2) - math.log(0.75)) / 3
    assert metrics.classification_loss(logits, gold) == pytest.approx(expected)
    assert metrics.probabilities_of(logits)[2] == pytest.approx([0.75, 0.25])


def test_mean_and_sample_deviation() -> None:
    means, deviations = metrics.mean_and_deviation([{"f1": 0.5}, {"f1": 0.7}, {"f1": 0.9}])
    assert means["f1"] == pytest.approx(0.7)
    assert deviations["f1"] == pytest.approx(0.2)
    assert metrics.mean_and_deviation([{"f1": 0.5}]) == ({"f1": 0.5}, {"f1": 0.0})


def test_constants_are_told_from_numbers_that_differ() -> None:
    assert metrics.is_constant(np.array([3.0, 3.0 + 1e-7]))
    assert not metrics.is_constant(np.array([0.001, 0.002]))
    assert not metrics.is_constant(np.array([1e-9, 2e-9])), "small values differ too"
    assert metrics.is_constant(np.zeros(3))


def test_several_labels_a_row_are_counted_label_by_label() -> None:
    """By hand: 4 of 5 given labels are right, 4 of 6 true ones found; and as scikit-learn counts."""
    gold = np.array([[1, 0, 1], [0, 1, 0], [1, 1, 1], [0, 0, 0]])
    given = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 0, 0]])
    assert metrics.micro_f1(gold, given) == pytest.approx(2 * 4 / (5 + 6))
    assert metrics.macro_f1(gold, given) == pytest.approx((2 * 2 / (3 + 2) + 1.0 + 0.0) / 3)
    assert metrics.exact_match(gold, given) == 0.25
    empty = np.zeros_like(gold)
    assert metrics.compute(["micro_f1", "macro_f1", "exact_match"], empty, empty) == {
        "micro_f1": 0.0,
        "macro_f1": 0.0,
        "exact_match": 1.0,
    }
    draw = np.random.default_rng(1)
    gold, given = draw.integers(0, 2, (2, 50, 5))
    f1_score = pytest.importorskip("sklearn.metrics").f1_score
    for average, ours in (("micro", metrics.micro_f1), ("macro", metrics.macro_f1)):
        assert ours(gold, given) == pytest.approx(f1_score(gold, given, average=average))
        single = f1_score(gold[:, 0], given[:, 0])
        assert ours(gold[:, :1], given[:, :1]) == pytest.approx(single), "one label is no two classes"
