"""Calibration beside a second way to each number: loops over rows, scikit-learn, a search by torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.calibration import calibration_curve

from bertsmith import calibration
from bertsmith.metrics import classification_loss, probabilities_of


def rows(number: int, labels: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Scores whose probabilities are true at a temperature: gold labels are drawn from them."""
    draw = np.random.default_rng(seed)
    logits = draw.normal(size=(number, labels)) * 3
    shares = probabilities_of(logits / temperature)
    gold = np.array([draw.choice(labels, p=share) for share in shares])
    return logits.astype(np.float32), gold


def test_the_error_is_that_of_a_loop_over_rows() -> None:
    logits, gold = rows(500, 4, 2.0)
    confidence, right = calibration.confidence_of(probabilities_of(logits), gold)
    total = 0.0
    for low in range(15):
        inside = [(c, r) for c, r in zip(confidence, right, strict=True) if low / 15 < c <= (low + 1) / 15]
        total += abs(sum(c for c, _ in inside) - sum(r for _, r in inside))
    assert calibration.expected_error(confidence, right) == pytest.approx(total / 500)
    assert sum(found.count for found in calibration.reliability(confidence, right)) == 500


def test_the_bins_are_those_of_scikit_learn() -> None:
    logits, gold = rows(2000, 3, 1.5)
    confidence, right = calibration.confidence_of(probabilities_of(logits), gold)
    accuracies, means = calibration_curve(right, confidence, n_bins=calibration.NUM_BINS)
    found = calibration.reliability(confidence, right)
    assert [one.accuracy for one in found] == pytest.approx(list(accuracies))
    assert [one.confidence for one in found] == pytest.approx(list(means))


def test_certain_rows_fall_into_the_last_bin_and_impossible_ones_into_the_first() -> None:
    found = calibration.reliability(np.array([1.0, 1.0, 0.0]), np.array([True, False, False]))
    assert found == [calibration.Bin(1, 0.0, 0.0), calibration.Bin(2, 1.0, 0.5)]


@pytest.mark.parametrize(("temperature", "labels"), [(0.5, 2), (1.0, 3), (2.5, 2), (4.0, 10)])
def test_the_temperature_is_found_again_and_is_that_of_a_search_by_torch(
    temperature: float, labels: int
) -> None:
    logits, gold = rows(4000, labels, temperature)
    found = calibration.fit_temperature(logits, gold)
    assert found == pytest.approx(temperature, rel=0.15)
    scores, targets = torch.tensor(logits, dtype=torch.float64), torch.tensor(gold)
    inverse = torch.ones((), dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS(
        [inverse], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        search.zero_grad()
        value = torch.nn.functional.cross_entropy(scores * inverse, targets)
        value.backward()
        return value

    search.step(loss)
    assert found == pytest.approx(1 / inverse.item(), rel=1e-4)


def test_the_temperature_lowers_loss_and_error_and_changes_no_label() -> None:
    logits, gold = rows(3000, 4, 2.5)
    temperature = calibration.fit_temperature(logits, gold)
    scaled = calibration.with_temperature(logits, temperature)
    assert (scaled.argmax(axis=1) == logits.argmax(axis=1)).all()
    assert scaled.sum(axis=1) == pytest.approx(np.ones(3000))
    assert classification_loss(logits / temperature, gold) < classification_loss(logits, gold)
    before, after = (
        calibration.expected_error(*calibration.confidence_of(shares, gold))
        for shares in (probabilities_of(logits), scaled)
    )
    assert after < 0.05 < before


def test_scores_and_logarithms_of_probabilities_are_the_same() -> None:
    logits, _ = rows(50, 3, 1.0)
    logarithms = np.log(probabilities_of(logits))
    expected = calibration.with_temperature(logits, 1.7)
    assert calibration.with_temperature(logarithms, 1.7) == pytest.approx(expected)


@pytest.mark.parametrize(
    "logits",
    [
        np.array([[2.0, 0.0], [0.0, 1.0]] * 20),  # every label is right: the surer the better
        np.array([[0.0, 2.0], [1.0, 0.0]] * 20),  # every label is wrong: the less sure the better
        np.zeros((40, 2)),
        np.array([[1e4, 0.0], [0.0, 1e4]] * 20),
    ],
)
def test_rows_that_choose_no_temperature_leave_the_probabilities(logits: np.ndarray) -> None:
    assert calibration.fit_temperature(logits, np.array([0, 1] * 20)) == 1.0


def test_cross_fitting_never_shows_a_row_to_its_own_temperature() -> None:
    logits, gold = rows(40, 3, 2.0)
    found = calibration.cross_fitted(logits, gold)
    changed = gold.copy()
    changed[7] = (changed[7] + 1) % 3
    again = calibration.cross_fitted(logits, changed)
    same_fold = np.arange(40) % 5 == 7 % 5
    assert (found[same_fold] == again[same_fold]).all()
    assert (found[~same_fold] != again[~same_fold]).any()
    assert (calibration.cross_fitted(logits[:4], gold[:4]) == probabilities_of(logits[:4])).all()


def test_a_temperature_is_kept_only_if_it_helps_rows_that_did_not_choose_it() -> None:
    logits, gold = rows(300, 3, 2.5)
    assert calibration.chosen_temperature(logits, gold) == calibration.fit_temperature(logits, gold)
    kept = []
    for seed in range(40):  # true probabilities on ten rows: what they choose is chance
        logits, gold = rows(10, 3, 1.0, seed)
        kept.append(calibration.chosen_temperature(logits, gold))
    assert np.mean([temperature == 1.0 for temperature in kept]) > 0.6
    assert calibration.chosen_temperature(logits[:3], gold[:3]) == 1.0
