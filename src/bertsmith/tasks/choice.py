"""One right choice of several for each row: SWAG, CODAH, own questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith import metrics
from bertsmith.bundle import Bundle, load_task_model
from bertsmith.layout import Tokens, moved
from bertsmith.model.bert import BertForChoice
from bertsmith.objectives import ChoiceObjective
from bertsmith.significance import MANY, Sample
from bertsmith.tasks.choice_rows import ChoiceRow
from bertsmith.tasks.classification import stacked
from bertsmith.tasks.encode import EncodedRow, batch_of, encode_rows
from bertsmith.tasks.inference import Inference, head_outputs
from bertsmith.tasks.kind import Encoding, Kind, Labels, Outputs, Score, Split, Task
from bertsmith.tasks.source import RowSet


@dataclass(frozen=True)
class ChoiceBatch:
    """Rows of choices for one forward pass.

    Attributes:
        tokens: an input for each choice, sorted by length.
        places: int64 ``(rows, choices)``, which input each choice is; -1 where a row has fewer choices.
        labels: int64 ``(rows,)``, the right choice.
    """

    tokens: Tokens
    places: torch.Tensor
    labels: torch.Tensor

    def to(self, device: torch.device | str) -> ChoiceBatch:
        """Return the same batch on another device."""
        return ChoiceBatch(self.tokens.to(device), moved(self.places, device), moved(self.labels, device))


@dataclass(frozen=True)
class ChoiceSplit:
    """A split of rows with several choices: the context with each of them is an input.

    Attributes:
        rows: what was read.
        encoded: the inputs, those of a row side by side.
        starts: int64 ``(rows + 1,)``, the first input of each row, and how many there are.
    """

    rows: RowSet[ChoiceRow]
    encoded: list[EncodedRow]
    starts: NDArray[np.int64]

    @property
    def truncated(self) -> list[bool]:
        """Whether one of a row's inputs lost pieces."""
        spans = zip(self.starts[:-1], self.starts[1:], strict=True)
        return [any(row.truncated for row in self.encoded[start:end]) for start, end in spans]

    @property
    def gold_objects(self) -> list[Any]:
        """The number of each row's right choice, from 0."""
        return [row.label for row in self.rows.rows]

    @property
    def num_units(self) -> int:
        """Rows."""
        return len(self.rows.rows)

    def batch(self, units: Sequence[int]) -> ChoiceBatch:
        """Return rows as one batch."""
        inputs = np.concatenate([np.arange(self.starts[unit], self.starts[unit + 1]) for unit in units])
        batch = batch_of(self.encoded, inputs.tolist())
        place_of = {int(number): place for place, number in enumerate(batch.rows)}
        places = np.full((len(units), self._most(units)), -1, dtype=np.int64)
        for row, unit in enumerate(units):
            found = [place_of[number] for number in range(self.starts[unit], self.starts[unit + 1])]
            places[row, : len(found)] = found
        labels = [self.rows.rows[unit].label for unit in units]
        return ChoiceBatch(batch.tokens, torch.from_numpy(places), torch.tensor(labels))

    def _most(self, units: Sequence[int]) -> int:
        return int(max(self.starts[unit + 1] - self.starts[unit] for unit in units))

    def table(self, outputs: Outputs) -> NDArray[np.float32]:
        """Return the scores of each row's choices, float32 ``(rows, most choices)``; -inf where none is."""
        sizes = np.diff(self.starts)
        scores = np.full((len(sizes), int(sizes.max(initial=1))), -np.inf, dtype=np.float32)
        scores[np.arange(scores.shape[1]) < sizes[:, np.newaxis]] = stacked(outputs)[:, 0]
        return scores


def encode_choices(
    rows: RowSet[ChoiceRow], encoding: Encoding, where: Callable[[int], str] | None = None
) -> ChoiceSplit:
    """Encode the context of each row with each of its choices as a pair.

    Args:
        rows: what was read.
        encoding: how rows become pieces.
        where: says where a row stands; default: its line.

    Raises:
        InputError: a row is too long under "error"; the line is named.
    """
    texts = [(row.context, choice) for row in rows.rows for choice in row.choices]
    sizes = np.array([len(row.choices) for row in rows.rows], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    encoded = encode_rows(
        texts,
        encoding.tokenizer,
        encoding.seq_len,
        encoding.truncation,
        lambda number: (where or rows.where)(int(owners[number])),
    )
    return ChoiceSplit(rows, encoded, starts)


def _encode(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> ChoiceSplit:
    return encode_choices(rows, encoding)


def _load(bundle: Bundle, num_outputs: int | None) -> nn.Module:
    return load_task_model(bundle, lambda config, _: BertForChoice(config), num_outputs)


def _outputs(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the score of each choice, float32 ``(inputs, 1)``."""
    return head_outputs(model, 1, split.encoded, inference)


def _choices(split: Split) -> ChoiceSplit:
    assert isinstance(split, ChoiceSplit), "a split of choices"
    return split


def _score(task: Task, split: Split, outputs: Outputs, tuned: Mapping[str, Any]) -> Score:
    scores = _choices(split).table(outputs)
    gold = np.array(split.gold_objects, dtype=np.int64)
    predicted = scores.argmax(axis=1)  # (rows,)
    loss = metrics.classification_loss(scores, gold)
    constant = len(predicted) > 1 and metrics.is_constant(predicted)
    return Score(metrics.compute(task.metrics, gold, predicted), loss, constant)


def _answers(
    split: Split, outputs: Outputs, labels: Labels, tuned: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the number of the ``choice``, its ``text``, ``probability`` and all ``probabilities``."""
    scores = _choices(split).table(outputs)
    answers = []
    for row, shares in zip(split.rows.rows, metrics.probabilities_of(scores).tolist(), strict=True):
        best = int(np.argmax(shares))
        answers.append(
            {
                "choice": best,
                "text": row.choices[best],
                "probability": shares[best],
                "probabilities": shares[: len(row.choices)],
            }
        )
    return answers


def _baseline(task: Task, split: Split) -> float | None:
    """Return the accuracy of always taking the same place."""
    return float(np.bincount(split.gold_objects).max() / split.num_units)


def _sample(
    metric: str, gold: Sequence[Any], answers: Sequence[Mapping[str, Any]], labels: Labels
) -> Sample | None:
    return Sample(MANY[metric], np.array(gold), np.array([answer["choice"] for answer in answers]))


CHOICE = Kind(
    name="choice",
    verb="choose",
    labels=lambda task, rows: None,
    num_outputs=lambda labels: 1,
    load_model=_load,
    encode=_encode,
    objective=lambda split: ChoiceObjective(),
    outputs=_outputs,
    score=_score,
    answers=_answers,
    example='("a context", ["a choice", "another"])',
    baseline=_baseline,
    sample=_sample,
)
