"""Metrics over whole evaluation sets, never averages of batches.

Every metric takes the gold values and the predictions of all rows: label numbers (int64 ``(rows,)``) for
classification, values (float64 ``(rows,)``) for regression, and 0 or 1 for each label (int64
``(rows, labels)``) where a row may have several. Where a metric is undefined (a correlation with a
constant) it is 0.0, as scikit-learn and the GLUE scripts do for Matthews; the recipes name such runs.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Values = NDArray[Any]


def accuracy(gold: Values, predicted: Values) -> float:
    """Return the share of rows whose label is right."""
    return float(np.mean(gold == predicted))


def f1(gold: Values, predicted: Values) -> float:
    """Return the F1 of label number 1, the positive class of MRPC and QQP."""
    from sklearn.metrics import f1_score

    return float(f1_score(gold, predicted, pos_label=1, average="binary", zero_division=0.0))


def macro_f1(gold: Values, predicted: Values) -> float:
    """Return the mean over the labels that occur (where a row may have several: of all) of each one's F1."""
    from sklearn.metrics import f1_score

    if gold.ndim == 2:  # by hand, as scikit-learn would take a single column for two classes
        return float(np.mean([f1(*column) for column in zip(gold.T, predicted.T, strict=True)]))
    return float(f1_score(gold, predicted, average="macro", zero_division=0.0))


def micro_f1(gold: Values, predicted: Values) -> float:
    """Return the F1 over all pairs of a row and a label, of ``(rows, labels)``."""
    return f1(gold.ravel(), predicted.ravel())


def exact_match(gold: Values, predicted: Values) -> float:
    """Return the share of rows whose labels are all right, of ``(rows, labels)``."""
    return float(np.mean((gold == predicted).all(axis=1)))


def matthews(gold: Values, predicted: Values) -> float:
    """Return Matthews' correlation (CoLA); 0 when all predictions or all labels are the same."""
    from sklearn.metrics import matthews_corrcoef

    if _is_one_value(gold) or _is_one_value(predicted):
        return 0.0
    return float(matthews_corrcoef(gold, predicted))


def pearson(gold: Values, predicted: Values) -> float:
    """Return Pearson's correlation; 0 when it is undefined."""
    from scipy.stats import NearConstantInputWarning, pearsonr

    if _is_one_value(gold) or _is_one_value(predicted):
        return 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NearConstantInputWarning)  # is_constant says it
        return float(pearsonr(gold, predicted)[0])


def spearman(gold: Values, predicted: Values) -> float:
    """Return Spearman's rank correlation, ties averaged; 0 when it is undefined."""
    from scipy.stats import spearmanr

    if _is_one_value(gold) or _is_one_value(predicted):
        return 0.0
    return float(spearmanr(gold, predicted)[0])


def rmse(gold: Values, predicted: Values) -> float:
    """Return the root of the mean squared error, in the unit of the labels."""
    return math.sqrt(float(np.mean((gold - predicted) ** 2)))


Metric = Callable[[Values, Values], float]

METRICS: Mapping[str, Metric] = {
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


def is_constant(values: Values) -> bool:
    """Say whether all rows hold the same value, up to float32's rounding."""
    spread = float(np.max(values) - np.min(values))
    return spread <= 1e-6 * float(np.max(np.abs(values)))


def _is_one_value(values: Values) -> bool:
    return bool(np.max(values) == np.min(values))


def compute(names: Sequence[str], gold: Values, predicted: Values) -> dict[str, float]:
    """Return the named metrics over all rows, in the order of the names."""
    assert len(gold) == len(predicted) > 0, "a metric needs one prediction for every row"
    return {name: METRICS[name](gold, predicted) for name in names}


def classification_loss(logits: Values, gold: Values) -> float:
    """Return the mean cross entropy over all rows, in nats.

    Args:
        logits: float ``(rows, labels)``.
        gold: int64 ``(rows,)``.
    """
    scores = logits.astype(np.float64)
    scores = scores - scores.max(axis=1, keepdims=True)
    log_sums = np.log(np.exp(scores).sum(axis=1))  # (rows,)
    return float(np.mean(log_sums - scores[np.arange(len(gold)), gold]))


def multi_label_loss(logits: Values, gold: Values) -> float:
    """Return the mean binary cross-entropy over all pairs of a row and a label, in nats.

    Args:
        logits: float ``(rows, labels)``.
        gold: int64 ``(rows, labels)``, 0 or 1.
    """
    scores = logits.astype(np.float64)
    return float(np.mean(np.logaddexp(0.0, scores) - scores * gold))


def probabilities_of(logits: Values) -> Values:
    """Return the softmax of logits ``(rows, labels)`` as float64."""
    scores = logits.astype(np.float64)
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Values = scores / scores.sum(axis=1, keepdims=True)
    return probabilities


def mean_and_deviation(runs: Sequence[Mapping[str, float]]) -> tuple[dict[str, float], dict[str, float]]:
    """Return mean and sample standard deviation (n-1; 0.0 for one run) of each metric over the runs."""
    names = list(runs[0])
    columns = {name: np.array([run[name] for run in runs], dtype=np.float64) for name in names}
    deviations = {name: float(v.std(ddof=1)) if len(runs) > 1 else 0.0 for name, v in columns.items()}
    return {name: float(v.mean()) for name, v in columns.items()}, deviations


@dataclass(frozen=True)
class LabelScore:
    """How well one label was found.

    Attributes:
        name: the label.
        rows: that have it.
        predicted: rows that the model gave it.
        precision: share of these that have it; ``None`` where the model gave it to none.
        recall: share of its rows that were found; ``None`` where no row has it.
        f1: harmonic mean of both, 0.0 where one is missing.
    """

    name: str
    rows: int
    predicted: int
    precision: float | None
    recall: float | None
    f1: float


def confusion(gold: Sequence[str], predicted: Sequence[str], labels: Sequence[str]) -> NDArray[np.int64]:
    """Return how many rows of each label (lines) got which label (columns), int64 ``(labels, labels)``.

    Args:
        gold: the label of each row.
        predicted: the label that the model gave it.
        labels: names, all that occur among them.
    """
    numbers = {name: number for number, name in enumerate(labels)}
    counts = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(counts, ([numbers[name] for name in gold], [numbers[name] for name in predicted]), 1)
    return counts


def label_scores(counts: NDArray[np.int64], labels: Sequence[str]) -> list[LabelScore]:
    """Return precision, recall and F1 of each label.

    Args:
        counts: of ``confusion``.
        labels: names, in the same order.
    """
    sides = (counts.diagonal().tolist(), counts.sum(axis=1).tolist(), counts.sum(axis=0).tolist())
    return [score_of(*one) for one in zip(labels, *sides, strict=True)]


def score_of(name: str, both: int, rows: int, predicted: int) -> LabelScore:
    """Return the score of a label of ``rows``, given by the model to ``predicted``, rightly to ``both``."""
    precision, recall = (both / total if total else None for total in (predicted, rows))
    f1 = 2 * both / (rows + predicted) if rows + predicted else 0.0
    return LabelScore(name, rows, predicted, precision, recall, f1)
