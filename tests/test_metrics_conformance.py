"""Metrics beside scikit-learn, scipy and their definitions, on random and on adversarial inputs."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats
from sklearn import metrics as theirs

from bertsmith import metrics

Labels = NDArray[np.int64]
Pairs = list[tuple[int, int]]

ADVERSARIAL: dict[str, Pairs] = {
    "one row, right": [(1, 1)],
    "one row, wrong": [(1, 0)],
    "no positive in gold": [(0, 1), (0, 0), (0, 0)],
    "no positive anywhere": [(0, 0), (0, 0)],
    "no positive predicted": [(1, 0), (0, 0)],
    "all positive": [(1, 1), (1, 1)],
    "all wrong": [(1, 0), (0, 1)] * 7,
    "one positive in ten thousand": [(0, 0)] * 9999 + [(1, 1)],
    "majority answers": [(0, 0)] * 900 + [(1, 0)] * 100,
    "case C046": list(zip([1, 1, 0, 0, 1, 0, 0, 0], [1, 0, 0, 0, 1, 1, 0, 0], strict=True)),
    "a million rows": [(0, 0), (1, 1), (1, 0), (0, 0), (0, 1)] * 200_000,  # products beyond 2 ** 63
}


def arrays(pairs: Pairs) -> tuple[Labels, Labels]:
    gold, predicted = np.array(pairs, dtype=np.int64).T
    return gold, predicted


def defined(pairs: Pairs) -> dict[str, float]:
    """Return the metrics of two labels by their definitions, in whole numbers and fractions."""
    counts = Counter(pairs)
    tp, tn, fp, fn = (counts[cell] for cell in ((1, 1), (0, 0), (0, 1), (1, 0)))
    under_root = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    return {
        "accuracy": float(Fraction(tp + tn, len(pairs))),
        "f1": float(Fraction(2 * tp, 2 * tp + fp + fn)) if tp else 0.0,
        "matthews": (tp * tn - fp * fn) / math.sqrt(under_root) if under_root else 0.0,
    }


SCIKIT_LEARN = {
    "accuracy": theirs.accuracy_score,
    "f1": partial(theirs.f1_score, zero_division=0.0),
    "macro_f1": partial(theirs.f1_score, average="macro", zero_division=0.0),
    "matthews": theirs.matthews_corrcoef,
}


def assert_scikit_learn_agrees(found: dict[str, float], gold: Labels, predicted: Labels) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a single label
        assert found == {name: SCIKIT_LEARN[name](gold, predicted) for name in found}


@pytest.mark.parametrize("name", list(ADVERSARIAL))
def test_two_labels_adversarial(name: str) -> None:
    gold, predicted = arrays(ADVERSARIAL[name])
    found = metrics.compute(("accuracy", "f1", "matthews"), gold, predicted)
    assert found == pytest.approx(defined(ADVERSARIAL[name]), abs=1e-12)
    assert_scikit_learn_agrees(found, gold, predicted)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60))
def test_two_labels_random(pairs: Pairs) -> None:
    gold, predicted = arrays(pairs)
    found = metrics.compute(("accuracy", "f1", "matthews"), gold, predicted)
    assert found == pytest.approx(defined(pairs), abs=1e-12)
    assert_scikit_learn_agrees(found, gold, predicted)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=60))
def test_many_labels_random(pairs: Pairs) -> None:
    gold, predicted = arrays(pairs)
    found = metrics.compute(("accuracy", "macro_f1", "matthews"), gold, predicted)
    assert_scikit_learn_agrees(found, gold, predicted)
    scores = []
    for label in {label for pair in pairs for label in pair}:
        as_two = [(int(a == label), int(b == label)) for a, b in pairs]
        scores.append(defined(as_two)["f1"])
    assert found["macro_f1"] == pytest.approx(math.fsum(scores) / len(scores), abs=1e-12)


def correlation(first: list[Fraction], second: list[Fraction]) -> float:
    """Return Pearson's correlation with exact sums."""
    n = len(first)
    mean_first, mean_second = sum(first, Fraction()) / n, sum(second, Fraction()) / n
    a, b = [value - mean_first for value in first], [value - mean_second for value in second]
    product = sum((x * y for x, y in zip(a, b, strict=True)), Fraction())
    squares = sum((x * x for x in a), Fraction()) * sum((y * y for y in b), Fraction())
    if not squares:
        return 0.0
    square = product * product / squares  # a fraction within 0..1, whatever the size of the values
    return math.sqrt(square) if product > 0 else -math.sqrt(square)


def ranks(values: list[float]) -> list[Fraction]:
    """Return ranks from 1; equal values share the mean of their ranks."""
    below = [sum(other < value for other in values) for value in values]
    return [Fraction(2 * low + values.count(value) + 1, 2) for low, value in zip(below, values, strict=True)]


VALUES: dict[str, tuple[list[float], list[float]]] = {
    "two rows": ([1.0, 2.0], [5.0, 4.0]),
    "ties everywhere": ([0.0, 0.0, 1.0, 1.0, 2.0, 2.0], [3.0, 3.0, 3.0, 1.0, 1.0, 1.0]),
    "all but one equal": ([0.0] * 30 + [5.0], [1.0] * 15 + [2.0] + [1.0] * 15),
    "tiny values": ([1e-9, 3e-9, 2e-9, 7e-9], [2e-9, 5e-9, 9e-9, 8e-9]),
    "huge values": ([1e200, 3e200, 2e200], [-1e150, 4e150, 4e150]),
    "an outlier": ([*map(float, range(20)), 1e12], [*map(float, range(20, 0, -1)), 1e12]),
    "a large offset": ([1e9 + n for n in range(9)], [1e9 + n * n for n in range(9)]),
    "perfect": ([0.1 * n for n in range(50)], [0.1 * n + 2 for n in range(50)]),
    "opposite": ([0.1 * n for n in range(50)], [-0.7 * n for n in range(50)]),
}


def assert_correlations(gold: list[float], predicted: list[float]) -> None:
    arrays = np.array(gold), np.array(predicted)
    found = metrics.compute(("pearson", "spearman"), *arrays)
    exact = correlation([*map(Fraction, gold)], [*map(Fraction, predicted)])
    assert found["pearson"] == pytest.approx(exact, abs=1e-6)
    assert found["spearman"] == pytest.approx(correlation(ranks(gold), ranks(predicted)), abs=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = float(stats.pearsonr(*arrays)[0]), float(stats.spearmanr(*arrays)[0])
    for value, official in zip(found.values(), expected, strict=True):
        assert value == (0.0 if math.isnan(official) else official)


@pytest.mark.parametrize("name", list(VALUES))
def test_correlations_adversarial(name: str) -> None:
    assert_correlations(*VALUES[name])
    assert_correlations(*reversed(VALUES[name]))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.floats(0, 5, width=32, allow_subnormal=False),
            st.one_of(st.integers(0, 5).map(float), st.floats(-10, 10, width=32, allow_subnormal=False)),
        ).map(lambda pair: (round(pair[0], 3), round(pair[1], 3))),
        min_size=2,
        max_size=50,
    )
)
def test_correlations_random(pairs: list[tuple[float, float]]) -> None:
    gold, predicted = zip(*pairs, strict=True)
    assert_correlations(list(gold), list(predicted))


@pytest.mark.parametrize("name", ["pearson", "spearman", "matthews"])
@pytest.mark.parametrize("value", [0.0, 0.1, -7.0, 1e30])
def test_what_is_undefined_is_zero(name: str, value: float) -> None:
    constant, varied = np.full(9, value), np.arange(9.0)
    if name == "matthews":
        constant, varied = np.zeros(9, dtype=np.int64), np.arange(9) % 2
    for gold, predicted in ((constant, varied), (varied, constant), (constant, constant)):
        assert metrics.METRICS[name](gold, predicted) == 0.0
    assert metrics.METRICS[name](varied[:1], varied[:1]) == 0.0


@pytest.mark.parametrize("name", list(metrics.METRICS))
def test_c046_no_metric_is_a_mean_of_batches_and_none_depends_on_the_order(name: str) -> None:
    draw = np.random.default_rng(3)
    of_labels = (3,) if name in ("micro_f1", "macro_f1", "exact_match") else ()  # several labels a row
    gold, predicted = draw.integers(2, size=(2, 999, *of_labels))
    whole = metrics.METRICS[name](gold, predicted)
    order = draw.permutation(999)
    assert metrics.METRICS[name](gold[order], predicted[order]) == pytest.approx(whole, abs=1e-12)


def test_the_loss_is_scikit_learns_log_loss() -> None:
    draw = np.random.default_rng(5)
    logits, gold = draw.normal(size=(200, 4)) * 3, draw.integers(4, size=200)
    shares = metrics.probabilities_of(logits)
    expected = theirs.log_loss(gold, shares, labels=[0, 1, 2, 3])
    assert metrics.classification_loss(logits, gold) == pytest.approx(expected)
