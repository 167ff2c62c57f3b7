"""From how probable on a label is given: one threshold a label, chosen on dev."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEFAULT_THRESHOLD = 0.5


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float64]:
    """Return the probability of each label by itself, float64, of the shape of the logits."""
    from scipy.special import expit

    probabilities: NDArray[np.float64] = expit(logits.astype(np.float64))
    return probabilities


def best_thresholds(probabilities: NDArray[np.float64], gold: NDArray[np.int64]) -> list[float]:
    """Return the threshold of each label with which its F1 is highest; so macro F1 is the highest there is.

    A threshold lies half-way between two neighbouring probabilities. Of thresholds with the same F1 the one
    nearest to 0.5 is taken; a label that no row has, or that no threshold finds, keeps 0.5.

    Args:
        probabilities: ``(rows, labels)``.
        gold: 0 or 1, ``(rows, labels)``.
    """
    return [
        _best_threshold(column, truth.astype(bool))
        for column, truth in zip(probabilities.T, gold.T, strict=True)
    ]


def _best_threshold(probabilities: NDArray[np.float64], gold: NDArray[np.bool_]) -> float:
    if not gold.any():
        return DEFAULT_THRESHOLD
    order = np.argsort(-probabilities, kind="stable")
    values = probabilities[order]
    found = np.cumsum(gold[order])  # right ones among the first n + 1 rows
    given = np.arange(1, len(values) + 1)
    scores = 2.0 * found / (given + gold.sum())
    lower = np.append(values[1:], 0.0)
    middles = (values + lower) / 2
    middles = np.where(middles > lower, middles, values)  # no number lies between two neighbours
    possible = values > lower  # equal probabilities cannot be parted
    # A threshold of 0.5 is itself a candidate wherever it parts the rows as a middle does.
    middles = np.where(
        (lower < DEFAULT_THRESHOLD) & (values >= DEFAULT_THRESHOLD), DEFAULT_THRESHOLD, middles
    )
    best = scores[possible].max(initial=0.0)
    if best <= 0.0:
        return DEFAULT_THRESHOLD
    ties = middles[possible & (scores >= best - 1e-12)]
    return float(ties[np.abs(ties - DEFAULT_THRESHOLD).argmin()])


def given_labels(probabilities: NDArray[np.float64], thresholds: Sequence[float]) -> NDArray[np.int64]:
    """Return 1 where a label is given, its probability being at least its threshold; ``(rows, labels)``."""
    return (probabilities >= np.asarray(thresholds)).astype(np.int64)
