"""Outputs of a head as JSON objects, one a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.metrics import probabilities_of


def answer_objects(outputs: NDArray[np.float32], labels: Sequence[str] | None) -> list[dict[str, Any]]:
    """Return ``{"label", "probabilities"}`` for each row of a classifier, ``{"value"}`` for a regression.

    Args:
        outputs: of the head, float32 ``(rows, outputs)``.
        labels: names of the labels; ``None`` in a regression.
    """
    if labels is None:
        return [{"value": float(value)} for value in outputs[:, 0]]
    best = outputs.argmax(axis=1)  # (rows,)
    shares = probabilities_of(outputs).tolist()
    return [
        {"label": labels[number], "probabilities": dict(zip(labels, row, strict=True))}
        for number, row in zip(best, shares, strict=True)
    ]
