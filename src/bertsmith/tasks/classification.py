"""One label for each row."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bertsmith import metrics
from bertsmith.bundle import Bundle, load_classification_model
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForClassification
from bertsmith.objectives import ClassificationObjective
from bertsmith.tasks.encode import EncodedRow, RowBatch, batch_of, encode_rows
from bertsmith.tasks.inference import Inference, head_outputs
from bertsmith.tasks.kind import Encoding, Kind, Labels, Outputs, Score, Split, Task
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import RowSet

_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,100}")


@dataclass(frozen=True)
class LabelledRows:
    """A split with one gold answer a row.

    Attributes:
        rows: what was read.
        encoded: pieces of each row.
        gold: label numbers int64 ``(rows,)``, or values float64 ``(rows,)``.
        center: the value that training takes as 0.
        scale: the value's distance from it that training takes as 1.
    """

    rows: RowSet[Row]
    encoded: list[EncodedRow]
    gold: NDArray[Any]
    center: float = 0.0
    scale: float = 1.0

    @property
    def truncated(self) -> list[bool]:
        """Whether each row lost pieces."""
        return [row.truncated for row in self.encoded]

    @property
    def gold_objects(self) -> list[Any]:
        """The label of each row, or its value as a number."""
        if self.gold.dtype == np.int64:
            return [row.label for row in self.rows.rows]
        return list(self.gold.tolist())

    @property
    def num_units(self) -> int:
        """Rows."""
        return len(self.encoded)

    @property
    def targets(self) -> NDArray[Any]:
        """What training aims at: label numbers, or values measured by center and scale."""
        if self.gold.dtype == np.int64:
            return self.gold
        scaled: NDArray[Any] = (self.gold - self.center) / self.scale
        return scaled

    def batch(self, units: Sequence[int]) -> RowBatch:
        """Return rows as one batch."""
        return batch_of(self.encoded, units, self.targets)


def labelled(split: Split) -> LabelledRows:
    """Return a split of this kind as what it is."""
    assert isinstance(split, LabelledRows), "a split of single answers"
    return split


def stacked(outputs: Outputs) -> NDArray[np.float32]:
    """Return outputs that are of one shape as what they are."""
    assert isinstance(outputs, np.ndarray), "as many outputs for every row"
    return outputs


def encode_texts(rows: RowSet[Row], encoding: Encoding) -> list[EncodedRow]:
    """Encode the texts of rows.

    Raises:
        InputError: a row is too long under "error"; the line is named.
    """
    texts = [row.texts for row in rows.rows]
    return encode_rows(texts, encoding.tokenizer, encoding.seq_len, encoding.truncation, rows.where)


def single_head_outputs(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the outputs of a head with one vector a row, float32 ``(rows, outputs)``."""
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
        if row.label not in numbers:
            shown = ", ".join(labels[:10]) + (", …" if len(labels) > 10 else "")
            raise InputError(
                f"{path}, line {row.line}: label {row.label!r} is unknown to the model (it knows {shown}); "
                "mend the label or train with rows of it"
            )
    return np.array([numbers[str(row.label)] for row in rows], dtype=np.int64)


def _labels(task: Task, rows: RowSet[Any]) -> Labels:
    return task.labels or labels_of(rows.rows, rows.path)


def _encode(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> LabelledRows:
    assert labels is not None, "a classifier has labels"
    return LabelledRows(rows, encode_texts(rows, encoding), label_numbers(rows.rows, labels, rows.path))


def _score(task: Task, split: Split, outputs: Outputs, tuned: Mapping[str, Any]) -> Score:
    logits, gold = stacked(outputs), labelled(split).gold
    predicted = logits.argmax(axis=1)  # (rows,)
    constant = len(predicted) > 1 and metrics.is_constant(predicted)
    loss = metrics.classification_loss(logits, gold)
    return Score(metrics.compute(task.metrics, gold, predicted), loss, constant)


def _answers(
    split: Split, outputs: Outputs, labels: Labels, tuned: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return ``label``, its ``probability`` and all ``probabilities`` of each row."""
    assert labels is not None, "a classifier has labels"
    logits = stacked(outputs)
    shares = metrics.probabilities_of(logits).tolist()
    return [
        {
            "label": labels[number],
            "probability": row[number],
            "probabilities": dict(zip(labels, row, strict=True)),
        }
        for number, row in zip(logits.argmax(axis=1).tolist(), shares, strict=True)
    ]


CLASSIFICATION = Kind(
    name="classification",
    labels=_labels,
    num_outputs=lambda labels: len(labels or ()),
    load_model=load_single_head,
    encode=_encode,
    objective=lambda split: ClassificationObjective(),
    outputs=single_head_outputs,
    score=_score,
    answers=_answers,
)
