"""How far a classifier's probabilities can be trusted, and the temperature that mends them.

Dividing all scores by one number, the temperature, changes no label, only how sure the model says it is.

Source: Guo et al., On Calibration of Modern Neural Networks, arXiv 1706.04599, sections 2 and 4.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.metrics import probabilities_of

NUM_BINS = 15
_RANGE = (0.05, 20.0)  # beyond it the rows say no more than "all right" or "all guessed"
_FOLDS = 5

Values = NDArray[Any]


@dataclass(frozen=True)
class Bin:
    """The rows whose probability of the predicted label lies in one range.

    Attributes:
        count: rows.
        confidence: mean probability of the predicted label.
        accuracy: share of rows whose label is right.
    """

    count: int
    confidence: float
    accuracy: float


def reliability(confidence: Values, right: Values) -> list[Bin]:
    """Return the bins that hold rows, in fifteen ranges of equal width.

    Args:
        confidence: probability of the predicted label, float ``(rows,)``.
        right: whether that label is right, bool ``(rows,)``.
    """
    places = np.clip(np.ceil(confidence * NUM_BINS).astype(np.int64) - 1, 0, NUM_BINS - 1)  # (rows,)
    members = [places == place for place in range(NUM_BINS)]
    return [
        Bin(int(some.sum()), float(confidence[some].mean()), float(right[some].mean()))
        for some in members
        if some.any()
    ]


def expected_error(confidence: Values, right: Values) -> float:
    """Return the expected calibration error: the mean distance of confidence and accuracy over the bins.

    Args:
        confidence: probability of the predicted label, float ``(rows,)``.
        right: whether that label is right, bool ``(rows,)``.
    """
    gaps = [found.count * abs(found.confidence - found.accuracy) for found in reliability(confidence, right)]
    return sum(gaps) / len(confidence)


def confidence_of(probabilities: Values, gold: Values) -> tuple[Values, Values]:
    """Return the probability of the predicted label and whether it is right, both ``(rows,)``.

    Args:
        probabilities: float ``(rows, labels)``.
        gold: int64 ``(rows,)``.
    """
    return probabilities.max(axis=1), probabilities.argmax(axis=1) == gold


def with_temperature(scores: Values, temperature: float) -> Values:
    """Return the probabilities of scores, or of the logarithms of probabilities, at a temperature.

    Args:
        scores: float ``(rows, labels)``.
        temperature: above 0; above 1 the model becomes less sure.
    """
    return probabilities_of(scores.astype(np.float64) / temperature)


def fit_temperature(logits: Values, gold: Values) -> float:
    """Return the temperature at which the rows' cross entropy is least; 1.0 where there is none.

    There is none between 0.05 and 20 when every label is right (the surer the better) or the scores say
    nothing (the less sure the better).

    Args:
        logits: float ``(rows, labels)``.
        gold: int64 ``(rows,)``.
    """
    from scipy.optimize import brentq

    scores = logits.astype(np.float64)
    scores = scores - scores.max(axis=1, keepdims=True)
    of_gold = scores[np.arange(len(gold)), gold]  # (rows,)

    def slope(inverse: float) -> float:
        """Return the derivative of the cross entropy, which rises with the inverse temperature."""
        expected = (probabilities_of(scores * inverse) * scores).sum(axis=1)  # (rows,)
        return float(np.mean(expected - of_gold))

    least, greatest = 1.0 / _RANGE[1], 1.0 / _RANGE[0]
    if not slope(least) < 0.0 < slope(greatest):
        return 1.0
    return 1.0 / float(brentq(slope, least, greatest))


def chosen_temperature(logits: Values, gold: Values) -> float:
    """Return the temperature to keep: the fitted one if it also helps rows that did not choose it, else 1.0.

    A few rows choose one by chance; five folds tell.

    Args:
        logits: float ``(rows, labels)``.
        gold: int64 ``(rows,)``.
    """
    numbers = np.arange(len(gold))
    as_trained, others = (
        np.log(np.maximum(shares[numbers, gold], 1e-300)).mean()
        for shares in (probabilities_of(logits), cross_fitted(logits, gold))
    )
    return fit_temperature(logits, gold) if others > as_trained else 1.0


def cross_fitted(logits: Values, gold: Values) -> Values:
    """Return probabilities ``(rows, labels)``, each row's temperature fitted on four fifths without it.

    What the temperature does for rows that did not choose it; fewer than five rows stay as they are.

    Args:
        logits: float ``(rows, labels)``.
        gold: int64 ``(rows,)``.
    """
    folds = np.arange(len(gold)) % _FOLDS  # (rows,)
    probabilities = probabilities_of(logits)
    if len(gold) < _FOLDS:
        return probabilities
    for fold in range(_FOLDS):
        kept = folds != fold
        temperature = fit_temperature(logits[kept], gold[kept])
        probabilities[~kept] = with_temperature(logits[~kept], temperature)
    return probabilities


@dataclass(frozen=True)
class Calibration:
    """How far a model's probabilities can be trusted on some rows.

    Attributes:
        temperature: of the probabilities; 1.0: they are as trained.
        before: expected calibration error as trained.
        after: at the temperature.
        cross_fitted: with temperatures fitted on other rows than those scored.
        bins_before: as trained.
        bins_after: at the temperature.
    """

    temperature: float
    before: float
    after: float
    cross_fitted: float
    bins_before: list[Bin]
    bins_after: list[Bin]


def calibration_of(probabilities: Values, gold: Values, temperature: float) -> Calibration:
    """Return the calibration of probabilities at a temperature.

    Args:
        probabilities: at the temperature, float ``(rows, labels)``.
        gold: int64 ``(rows,)``.
        temperature: that was chosen on the same rows, or 1.0.
    """
    # The logits, but for a constant of each row, which no probability depends on.
    scores = np.log(np.maximum(probabilities, 1e-300)) * temperature  # (rows, labels)
    before, after, others = (
        confidence_of(shares, gold)
        for shares in (with_temperature(scores, 1.0), probabilities, cross_fitted(scores, gold))
    )
    return Calibration(
        temperature,
        expected_error(*before),
        expected_error(*after),
        expected_error(*others),
        reliability(*before),
        reliability(*after),
    )
