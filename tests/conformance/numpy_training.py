"""The original's optimiser and schedule in float64 NumPy: the training's reference.

Source: optimization.py, create_optimizer and AdamWeightDecayOptimizer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tests.conformance.numpy_bert import Array

BETA1, BETA2, EPS, DECAY = 0.9, 0.999, 1e-6, 0.01


def learning_rate(step: int, peak: float, steps: int, warmup_steps: int) -> float:
    """Return the rate of the update that follows so many."""
    decayed = peak * (1 - min(step, steps) / steps)
    return peak * step / warmup_steps if step < warmup_steps else decayed


def is_decayed(variable: str) -> bool:
    return not re.search("LayerNorm|layer_norm|bias", variable)


def clipped(gradients: Sequence[Array], most: float = 1.0) -> list[Array]:
    """Scale all gradients alike, so that together they are at most so long."""
    length = np.sqrt(sum((gradient**2).sum() for gradient in gradients))
    return [gradient * most / max(length, most) for gradient in gradients]


class Adam:
    """Adam without correction of the moments, with decoupled decay, for some variables."""

    def __init__(self, weights: dict[str, Array]) -> None:
        self.weights = {name: weight.copy() for name, weight in weights.items()}
        self._first = {name: np.zeros_like(weight) for name, weight in weights.items()}
        self._second = {name: np.zeros_like(weight) for name, weight in weights.items()}

    def step(self, gradients: dict[str, Array], rate: float) -> None:
        for name, gradient in zip(gradients, clipped(list(gradients.values())), strict=True):
            self._first[name] = BETA1 * self._first[name] + (1 - BETA1) * gradient
            self._second[name] = BETA2 * self._second[name] + (1 - BETA2) * gradient**2
            update = self._first[name] / (np.sqrt(self._second[name]) + EPS)
            if is_decayed(name):
                update = update + DECAY * self.weights[name]
            self.weights[name] = self.weights[name] - rate * update
