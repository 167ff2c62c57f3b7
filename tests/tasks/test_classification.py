"""Kinds with one answer a row: what they answer and how they score."""

from __future__ import annotations

import numpy as np
import pytest

from bertsmith.tasks.classification import CLASSIFICATION, LabelledRows
from bertsmith.tasks.encode import EncodedRow
from bertsmith.tasks.regression import REGRESSION
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.task import TASKS
from bertsmith.tasks.text_windows import Inputs


def split(*labels: str, gold: list[float]) -> LabelledRows:
    """Return a split without texts."""
    rows = [Row((f"text {n}", None), label, n + 2) for n, label in enumerate(labels)]
    encoded = [EncodedRow(np.array([1, 2]), 2, False) for _ in rows]
    inputs = Inputs(encoded, np.arange(len(rows)), np.ones(len(rows)))
    return LabelledRows(RowSet(rows, "dev.csv"), inputs, np.array(gold))


def test_a_classifier_answers_with_the_most_probable_label() -> None:
    outputs = np.array([[0.0, np.log(3.0)], [0.0, 0.0]], dtype=np.float32)
    rows = split("yes", "no", gold=[1, 0])
    first, second = CLASSIFICATION.answers(rows, outputs, ("no", "yes"), {})
    assert (first["label"], first["probability"]) == ("yes", pytest.approx(0.75))
    assert first["probabilities"] == {"no": pytest.approx(0.25), "yes": pytest.approx(0.75)}
    assert second["label"] == "no", "of equal ones the first"
    assert rows.gold_objects == ["yes", "no"]
    found = CLASSIFICATION.score(TASKS["classify"], rows, outputs, {})
    assert found.metrics["accuracy"] == 1.0
    assert found.loss == pytest.approx((-np.log(0.75) - np.log(0.5)) / 2)
    assert not found.constant


def test_a_regression_answers_with_a_number() -> None:
    outputs = np.array([[1.5], [2.5]], dtype=np.float32)
    rows = split("1", "2.0", gold=[1.0, 2.0])
    assert REGRESSION.answers(rows, outputs, None, {}) == [{"value": 1.5}, {"value": 2.5}]
    assert rows.gold_objects == [1.0, 2.0]
    found = REGRESSION.score(TASKS["regress"], rows, outputs, {})
    assert found.metrics["pearson"] == pytest.approx(1.0)
    assert found.loss == pytest.approx(0.25)
