"""One label for each row."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bertsmith import calibration, metrics
from bertsmith.bundle import Bundle, load_classification_model
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForClassification
from bertsmith.objectives import ClassificationObjective
from bertsmith.significance import MANY, Sample
from bertsmith.tasks.encode import TRUNCATIONS, EncodedRow, RowBatch, batch_of
from bertsmith.tasks.inference import Inference, head_outputs
from bertsmith.tasks.kind import Encoding, Kind, Labels, Outputs, Score, Split, Task
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.text_windows import Inputs, encode_inputs

BALANCED = "balanced"
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,100}")


@dataclass(frozen=True)
class LabelledRows:
    """A split with one gold answer a row, or one a row and label.

    Attributes:
        rows: what was read.
        inputs: pieces of each row, or of each window of a row.
        gold: label numbers int64 ``(rows,)``, values float64 ``(rows,)``, or 0 and 1, int64
            ``(rows, labels)``.
        center: the value that training takes as 0.
        scale: the value's distance from it that training takes as 1.
        gold_weights: of the shape of ``gold``, how much each counts in training; ``None``: all the same.
    """

    rows: RowSet[Row]
    inputs: Inputs
    gold: NDArray[Any]
    center: float = 0.0
    scale: float = 1.0
    gold_weights: NDArray[np.float64] | None = None

    @property
    def encoded(self) -> list[EncodedRow]:
        """Pieces of each input."""
        return self.inputs.encoded

    @property
    def truncated(self) -> list[bool]:
        """Whether each row lost pieces."""
        return self.inputs.truncated

    @property
    def gold_objects(self) -> list[Any]:
        """The label or labels of each row, or its value as a number."""
        if self.gold.dtype == np.int64:
            return [row.label for row in self.rows.rows]
        return list(self.gold.tolist())

    @property
    def num_units(self) -> int:
        """Rows, or windows of rows."""
        return len(self.encoded)

    @cached_property
    def targets(self) -> NDArray[Any]:
        """What training aims at for each input: labels, or values measured by center and scale."""
        if self.gold.dtype == np.int64:
            return self.gold[self.inputs.owners]
        scaled: NDArray[Any] = (self.gold - self.center) / self.scale
        return scaled[self.inputs.owners]

    @cached_property
    def weights(self) -> NDArray[np.float64] | None:
        """How much each target counts in training: a row as much as any other, whatever its windows.

        ``None`` where all count the same.
        """
        if self.gold_weights is None and len(self.encoded) == self.inputs.num_rows:
            return None
        weights = np.ones(self.gold.shape) if self.gold_weights is None else self.gold_weights
        shares = self.inputs.weights().reshape(-1, *[1] * (self.gold.ndim - 1))
        product: NDArray[np.float64] = weights[self.inputs.owners] * shares
        return product

    def batch(self, units: Sequence[int]) -> RowBatch:
        """Return inputs as one batch."""
        return batch_of(self.encoded, units, self.targets, self.weights)


def labelled(split: Split) -> LabelledRows:
    """Return a split of this kind as what it is."""
    assert isinstance(split, LabelledRows), "a split of single answers"
    return split


def stacked(outputs: Outputs) -> NDArray[np.float32]:
    """Return outputs that are of one shape as what they are."""
    assert isinstance(outputs, np.ndarray), "as many outputs for every row"
    return outputs


def of_rows(split: Split, outputs: Outputs) -> NDArray[np.float32]:
    """Return one vector a row, float32 ``(rows, outputs)``, from one an input."""
    return labelled(split).inputs.of_rows(stacked(outputs))


def encode_texts(rows: RowSet[Row], encoding: Encoding) -> Inputs:
    """Encode the texts of rows.

    Raises:
        InputError: a row is too long under "error"; the line is named.
    """
    texts = [row.texts for row in rows.rows]
    return encode_inputs(texts, encoding.tokenizer, encoding.seq_len, encoding.truncation, rows.where)


def single_head_outputs(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the outputs of a head with one vector an input, float32 ``(inputs, outputs)``."""
    assert isinstance(model, BertForClassification), "a head for whole rows"
    return head_outputs(model, model.num_outputs, split.encoded, inference)


def load_single_head(bundle: Bundle, num_outputs: int | None) -> nn.Module:
    """Return the encoder with a head for whole rows.

    Raises:
        InputError: the stored head is asked for and there is none.
    """
    return load_classification_model(bundle, num_outputs)


def labels_of(rows: Sequence[Row], path: str) -> tuple[str, ...]:
    """Return the label names of training rows, sorted: by value if all are whole numbers, else as text.

    Raises:
        InputError: there are fewer than two labels: nothing can be learnt.
    """
    names = {str(row.label) for row in rows}
    if len(names) < 2:
        raise InputError(f"{path}: every row has the label {min(names)!r}; a classifier needs at least two")
    return in_order(names)


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Return names sorted: by value if all are whole numbers, else as text."""
    names = list(names)
    if all(_WHOLE_NUMBER.fullmatch(name) for name in names):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))


def label_numbers(rows: Sequence[Row], labels: Sequence[str], path: str) -> NDArray[np.int64]:
    """Return the number of each row's label, int64 ``(rows,)``.

    Raises:
        InputError: a label is not among the model's; label and line are named.
    """
    numbers = {name: number for number, name in enumerate(labels)}
    for row in rows:
        require_known(row.label, numbers, f"{path}, line {row.line}:")
    return np.array([numbers[str(row.label)] for row in rows], dtype=np.int64)


def require_known(label: Any, numbers: Mapping[str, int], where: str) -> None:
    """Refuse a label that the model does not know.

    Raises:
        InputError: it names the label, where it stands and what is known.
    """
    if label not in numbers:
        shown = ", ".join(list(numbers)[:10]) + (", …" if len(numbers) > 10 else "")
        raise InputError(
            f"{where} label {label!r} is unknown to the model (it knows {shown}); "
            "mend the label or train with rows of it"
        )


def temperature_of(tuned: Mapping[str, Any]) -> float:
    """Return the temperature that was chosen on dev; 1.0 where none was."""
    return float(tuned.get("temperature", 1.0))


def _labels(task: Task, rows: RowSet[Any]) -> Labels:
    return task.labels or labels_of(rows.rows, rows.path)


def _encode(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> LabelledRows:
    assert labels is not None, "a classifier has labels"
    gold = label_numbers(rows.rows, labels, rows.path)
    weights = balanced_weights(gold) if is_balanced(encoding) else None
    return LabelledRows(rows, encode_texts(rows, encoding), gold, gold_weights=weights)


def is_balanced(encoding: Encoding) -> bool:
    """Say whether labels are to be weighed.

    Raises:
        InputError: there are no such weights.
    """
    named = encoding.settings.get("class_weights")
    if named not in (None, BALANCED):
        raise InputError(f"class-weights is {named!r}; the weights there are: {BALANCED}")
    return named is not None


def balanced_weights(gold: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a weight for each row, so that all labels weigh the same and the mean is 1.

    Source: scikit-learn, compute_class_weight("balanced").
    """
    counts = np.bincount(gold)
    weights = len(gold) / ((counts > 0).sum() * np.maximum(counts, 1))
    chosen: NDArray[np.float64] = weights[gold]
    return chosen


def _score(task: Task, split: Split, outputs: Outputs, tuned: Mapping[str, Any]) -> Score:
    logits, gold = of_rows(split, outputs), labelled(split).gold
    predicted = logits.argmax(axis=1)  # (rows,)
    constant = len(predicted) > 1 and metrics.is_constant(predicted)
    loss = metrics.classification_loss(logits, gold)
    return Score(metrics.compute(task.metrics, gold, predicted), loss, constant)


def _answers(
    split: Split, outputs: Outputs, labels: Labels, tuned: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return ``label``, its ``probability`` and all ``probabilities`` of each row, at the temperature."""
    assert labels is not None, "a classifier has labels"
    logits = of_rows(split, outputs)
    shares = calibration.with_temperature(logits, temperature_of(tuned)).tolist()
    return [
        {
            "label": labels[number],
            "probability": row[number],
            "probabilities": dict(zip(labels, row, strict=True)),
        }
        for number, row in zip(logits.argmax(axis=1).tolist(), shares, strict=True)
    ]


def _tune(task: Task, split: Split, outputs: Outputs) -> dict[str, Any]:
    """Choose the temperature of the probabilities, which changes neither labels nor metrics."""
    return {"temperature": calibration.chosen_temperature(of_rows(split, outputs), labelled(split).gold)}


def _baseline(task: Task, split: Split) -> float | None:
    gold = labelled(split).gold
    metric = metrics.METRICS[task.main_metric]
    return max(metric(gold, np.full_like(gold, label)) for label in np.unique(gold))


def _sample(
    metric: str, gold: Sequence[Any], answers: Sequence[Mapping[str, Any]], labels: Labels
) -> Sample | None:
    numbers = {name: number for number, name in enumerate(labels or ())}
    predicted = [numbers[answer["label"]] for answer in answers]
    return Sample(MANY[metric], np.array([numbers[label] for label in gold]), np.array(predicted))


CLASSIFICATION = Kind(
    name="classification",
    verb="classify",
    labels=_labels,
    num_outputs=lambda labels: len(labels or ()),
    load_model=load_single_head,
    encode=_encode,
    objective=lambda split: ClassificationObjective(),
    outputs=single_head_outputs,
    score=_score,
    answers=_answers,
    truncations=TRUNCATIONS,
    settings={"class_weights": None},
    tune=_tune,
    baseline=_baseline,
    sample=_sample,
)
