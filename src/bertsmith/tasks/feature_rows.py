"""Whole rows from the states of a frozen encoder: one label, any number of labels, or a value.

The encoder reads each sentence of a pair alone, as [CLS] A [SEP] and [CLS] B [SEP]. Side by side, a frozen
language model would mix into each what helps to guess words of running text, as if B followed A, and no
training could take it out again. So, as in the original, features are of one sentence, which side it is on is
the head's knowledge, and comparing is the head's part, which is trained. A sentence that many rows share is
computed once.

Source: arXiv 1804.07461 (GLUE), the section on baselines; the paper's table 1, "BiLSTM+ELMo+Attn".
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.bundle import Bundle, load_task_model
from bertsmith.data.batch import tokens_of
from bertsmith.layout import moved
from bertsmith.model.task_heads import FeatureClassifier
from bertsmith.stored_task import FROZEN
from bertsmith.tasks.classification import CLASSIFICATION, LabelledRows, labelled
from bertsmith.tasks.encode import EncodedRow, RowBatch, batch_of
from bertsmith.tasks.frozen_encoder import StateCache, States, stored_choice, stored_settings
from bertsmith.tasks.inference import Inference, evaluation_mode, in_batches, lengths_of
from bertsmith.tasks.kind import Encoding, Kind, Labels, Outputs, Split, Task
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.regression import REGRESSION, in_unit
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.tagging import EncodedWindow

LSTM_SIZE = 128
"""Cells of each LSTM in each direction; the original has 1,500."""


@dataclass(frozen=True)
class FeatureRowBatch(RowBatch):
    """Rows for one forward pass of the head.

    Attributes:
        tokens: the sentences, each an input of its own; of pairs all first ones, then all second ones.
        states: float32 ``(places, layers, hidden)``, of all places of the sentences.
    """

    states: Tensor = dataclasses.field(default_factory=lambda: torch.zeros(0))

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What ``FeatureClassifier`` takes."""
        return self.states, self.tokens.layout

    def to(self, device: torch.device | str) -> Self:
        """Return the same batch on another device."""
        return dataclasses.replace(super().to(device), states=moved(self.states, device))


@dataclass(frozen=True)
class Sentences:
    """The sentences of some rows, each different one once.

    Attributes:
        windows: the sentences as inputs of the encoder; all places of them are numbered and read.
        numbers: int64 ``(rows, 1 or 2)``, which sentences each row has.
    """

    windows: list[EncodedWindow]
    numbers: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[EncodedRow]) -> Sentences:
        """Return the sentences of rows that are all single texts, or all pairs."""
        known: dict[bytes, int] = {}
        windows: list[EncodedWindow] = []
        numbers = []
        places = 0
        for row in rows:
            for ids in sentences_of(row):
                number = known.setdefault(ids.tobytes(), len(windows))
                if number == len(windows):
                    own = np.arange(len(ids))
                    windows.append(EncodedWindow(ids, len(ids), row.truncated, own, places + own))
                    places += len(ids)
                numbers.append(number)
        return cls(windows, np.array(numbers, dtype=np.int64).reshape(max(1, len(rows)), -1)[: len(rows)])

    def chosen(self, rows: NDArray[np.int64]) -> list[EncodedWindow]:
        """Return the sentences of rows: all first ones, then all second ones."""
        return [self.windows[number] for number in self.numbers[rows].T.ravel()]


def sentences_of(row: EncodedRow) -> list[NDArray[np.int64]]:
    """Return the texts of a row, each between [CLS] and [SEP]."""
    cls_id, sep_id = row.ids[0], row.ids[-1]
    first = row.ids[: 1 + int(np.argmax(row.ids == sep_id))]  # of two [SEP] between texts, as in RoBERTa, one
    if row.second_start == len(row.ids):
        return [first]
    return [first, np.concatenate([[cls_id], row.ids[row.second_start :]])]


@dataclass(frozen=True)
class FeatureRows(LabelledRows):
    """A split whose sentences' states come from a cache, or from the model itself.

    Attributes:
        cache: of the states; ``None``: the model computes them when outputs are wanted.
    """

    cache: StateCache | None = None

    @cached_property
    def sentences(self) -> Sentences:
        """The different sentences of all inputs."""
        return Sentences.of(self.encoded)

    @cached_property
    def states(self) -> States:
        """The states of all sentences, from the cache."""
        assert self.cache is not None, "a split to train on has a cache"
        return self.cache.states(self.sentences.windows)

    def batch(self, units: Sequence[int]) -> FeatureRowBatch:
        """Return inputs as one batch, with their states."""
        rows = batch_of(self.encoded, units, self.targets, self.weights)
        windows = self.sentences.chosen(rows.rows)
        places = np.concatenate([window.words for window in windows])
        states = np.stack([layer[places] for layer in self.states], axis=1).astype(np.float32)
        rows = _of_sentences(rows, windows)
        return FeatureRowBatch(rows.tokens, rows.labels, rows.rows, rows.weights, torch.from_numpy(states))


def _of_sentences(batch: RowBatch, windows: Sequence[EncodedWindow]) -> RowBatch:
    """Return a batch with sentences as its tokens."""
    tokens = tokens_of([window.ids for window in windows], [window.second_start for window in windows])
    return dataclasses.replace(batch, tokens=tokens)


def feature_outputs(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the outputs of the head for each input, float32 ``(inputs, outputs)``."""
    assert isinstance(model, FeatureClassifier), "a head on a frozen encoder"
    rows = labelled(split)
    found = np.zeros((len(rows.encoded), model.num_outputs), dtype=np.float32)
    is_cached = isinstance(rows, FeatureRows) and rows.cache is not None
    make, compute = (rows.batch, _scores) if is_cached else (_maker(rows.encoded), _scores_of_tokens)
    with evaluation_mode(model):
        for batch, scores in in_batches(lengths_of(rows.encoded), make, partial(compute, model), inference):
            found[batch.rows] = scores.float().cpu().numpy()
    return found


def _maker(encoded: Sequence[EncodedRow]) -> Callable[[Sequence[int]], RowBatch]:
    """Return what makes batches of sentences without their states."""
    sentences = Sentences.of(encoded)

    def make(units: Sequence[int]) -> RowBatch:
        rows = batch_of(encoded, units)
        return _of_sentences(rows, sentences.chosen(rows.rows))

    return make


def _scores(model: FeatureClassifier, batch: RowBatch) -> Tensor:
    scores: Tensor = model(*batch.inputs)
    return scores


def _scores_of_tokens(model: FeatureClassifier, batch: RowBatch) -> Tensor:
    outputs = model.bert.hidden_states(batch.tokens)
    states = torch.stack([outputs[layer] for layer in model.layers], dim=1)  # (places, layers, hidden)
    scores: Tensor = model(states.half().float(), batch.tokens.layout)  # as exact as in the cache
    return scores


def _encode(kind: Kind, task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> FeatureRows:
    split = labelled(kind.encode(task, rows, labels, encoding))
    return FeatureRows(**{field.name: getattr(split, field.name) for field in dataclasses.fields(split)})


def _load(bundle: Bundle, num_outputs: int | None) -> nn.Module:
    """Return the encoder, frozen, with the head that task.json describes.

    Raises:
        InputError: the stored head is asked for and there is none, or task.json does not name its layers.
    """
    choice = stored_choice(bundle)
    columns = (bundle.task or {}).get("columns") or {}
    make = partial(
        FeatureClassifier,
        layers=choice.layers,
        weighted=choice.weighted,
        lstm_size=stored_settings(bundle).get("lstm_size", LSTM_SIZE),
        pairs=columns.get("second_text") is not None,
    )
    return load_task_model(bundle, make, num_outputs, parts=("lstm", "mix", "reading", "hidden"))


def _on_frozen_encoder(kind: Kind) -> Kind:
    return dataclasses.replace(
        kind,
        name=FROZEN + kind.name,
        load_model=_load,
        encode=partial(_encode, kind),
        outputs=feature_outputs,
        settings={**kind.settings, "features": None, "lstm_size": LSTM_SIZE},
    )


def _values(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the values in the unit of the labels, float32 ``(inputs, 1)``."""
    return in_unit(split, feature_outputs(model, split, inference))


FEATURE_CLASSIFICATION = _on_frozen_encoder(CLASSIFICATION)
FEATURE_MULTI_LABEL = _on_frozen_encoder(MULTI_LABEL)
FEATURE_REGRESSION = dataclasses.replace(_on_frozen_encoder(REGRESSION), outputs=_values)
