"""Thresholds of labels: the best there is, by trying them all."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

from bertsmith.tasks.thresholds import best_thresholds, given_labels, sigmoid

ROWS = st.lists(
    st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.5000001, 0.8, 1.0]) | st.floats(0, 1), st.booleans()),
    min_size=1,
    max_size=30,
)


def f1_of(gold: np.ndarray, given: np.ndarray) -> float:
    both = int((gold & given).sum())
    return 2 * both / int(gold.sum() + given.sum()) if both else 0.0


@given(ROWS)
def test_no_other_threshold_has_a_higher_f1(rows: list[tuple[float, bool]]) -> None:
    probabilities = np.array([[value] for value, _ in rows])
    gold = np.array([[int(truth)] for _, truth in rows])
    thresholds = best_thresholds(probabilities, gold)
    tried = [0.5, *probabilities[probabilities > 0].tolist()]
    best = max(f1_of(gold, (probabilities >= value).astype(int)) for value in tried)
    assert f1_of(gold, given_labels(probabilities, thresholds)) == pytest.approx(best)


def test_of_equally_good_thresholds_the_one_nearest_to_a_half_is_taken() -> None:
    probabilities = np.array([[0.9, 0.3], [0.2, 0.2], [0.1, 0.1]])
    gold = np.array([[1, 1], [0, 0], [0, 0]])
    assert best_thresholds(probabilities, gold) == [0.5, 0.25]


def test_labels_are_tuned_each_by_itself_and_unseen_ones_keep_a_half() -> None:
    draw = np.random.default_rng(0)
    gold = (draw.random((200, 4)) < [0.5, 0.1, 0.02, 0.0]).astype(np.int64)
    logits = draw.normal(size=gold.shape) + 2 * gold - [0, 2, 4, 4]
    thresholds = best_thresholds(sigmoid(logits), gold)
    assert thresholds[3] == 0.5
    tuned = f1_score(gold, given_labels(sigmoid(logits), thresholds), average="macro", zero_division=0.0)
    plain = f1_score(gold, (logits >= 0).astype(int), average="macro", zero_division=0.0)
    assert tuned > plain
    alone = [best_thresholds(sigmoid(logits[:, [n]]), gold[:, [n]])[0] for n in range(4)]
    assert alone == thresholds


def test_sigmoid_of_any_number_is_a_probability_without_a_warning() -> None:
    logits = np.array([-1e4, -30.0, 0.0, 30.0, 1e4], dtype=np.float32)
    assert sigmoid(logits)[[0, 2, 4]].tolist() == [0.0, 0.5, 1.0]
    assert sigmoid(logits)[1] == pytest.approx(1 / (1 + np.exp(30.0)))
