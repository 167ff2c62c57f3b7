"""Tags from the states of a frozen encoder, which a BiLSTM over sentences reads.

Source: the paper, section 5.3, "feature-based approach", and table 7.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith.bundle import Bundle, load_task_model
from bertsmith.data.batch import tokens_of
from bertsmith.layout import Tokens, moved
from bertsmith.model.task_heads import FeatureTagger
from bertsmith.stored_task import FROZEN
from bertsmith.tasks.frozen_encoder import StateCache, States, states_of, stored_choice
from bertsmith.tasks.inference import Inference, evaluation_mode, in_batches
from bertsmith.tasks.kind import Encoding, Labels, Outputs, Split, Task
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.tagging import TAGGING, TaggedWords, encode_words


@dataclass(frozen=True)
class FeatureBatch:
    """Sentences of one forward pass of the head.

    Attributes:
        tokens: one a word; only their layout is read.
        states: float32 ``(words, layers, hidden)``.
        labels: int64 ``(words,)``.
        words: int64 ``(words,)``, on the host: which words of the split these are.
    """

    tokens: Tokens
    states: torch.Tensor
    labels: torch.Tensor
    words: NDArray[np.int64]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What ``FeatureTagger`` takes."""
        return self.states, self.tokens.layout

    def to(self, device: torch.device | str) -> FeatureBatch:
        """Return the same batch on another device."""
        return dataclasses.replace(
            self,
            tokens=self.tokens.to(device),
            states=moved(self.states, device),
            labels=moved(self.labels, device),
        )


@dataclass(frozen=True)
class FeatureWords(TaggedWords):
    """A split whose units are sentences; its words' states come from a cache, or from the model itself.

    Attributes:
        cache: of the states; ``None``: the model computes them when outputs are wanted.
    """

    cache: StateCache | None = None

    @cached_property
    def units(self) -> NDArray[np.int64]:
        """Rows that have words, int64 ``(units,)``."""
        return np.flatnonzero(np.diff(self.starts))

    @property
    def num_units(self) -> int:
        """Sentences."""
        return len(self.units)

    @cached_property
    def states(self) -> States:
        """The states of all words, from the cache."""
        assert self.cache is not None, "a split to train on has a cache"
        return self.cache.states(self.encoded)

    def batch(self, units: Sequence[int]) -> FeatureBatch:  # type: ignore[override]
        """Return sentences as one batch."""
        return self.sentences(self.states, units)

    def sentences(self, states: States, units: Sequence[int]) -> FeatureBatch:
        """Return sentences as one batch, the longest last."""
        rows = self.units[np.asarray(units, dtype=np.int64)]
        sizes = np.diff(self.starts)[rows]
        rows = rows[np.argsort(sizes, kind="stable")]
        parts = [np.arange(self.starts[row], self.starts[row + 1]) for row in rows]
        words = np.concatenate(parts)
        tokens = tokens_of([np.zeros_like(part) for part in parts], [len(part) for part in parts])
        read = np.stack([layer[words] for layer in states], axis=1).astype(np.float32)
        return FeatureBatch(tokens, torch.from_numpy(read), torch.from_numpy(self.gold[words]), words)


def _encode(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> FeatureWords:
    words = encode_words(task, rows, labels, encoding)
    return FeatureWords(**{field.name: getattr(words, field.name) for field in dataclasses.fields(words)})


def _outputs(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the scores of the words of each window, float32 ``(words, tags)`` each."""
    assert isinstance(model, FeatureTagger), "a head on a frozen encoder"
    assert isinstance(split, FeatureWords), "words with states"
    scores = np.zeros((len(split.gold), model.num_outputs), dtype=np.float32)
    sizes = np.diff(split.starts)[split.units].tolist()
    with evaluation_mode(model):
        states = split.states if split.cache is not None else _own_states(model, split, inference)
        for batch, found in in_batches(
            sizes, partial(split.sentences, states), lambda batch: model(*batch.inputs), inference
        ):
            scores[batch.words] = found.float().cpu().numpy()
    return [scores[window.words] for window in split.encoded]


def _own_states(model: FeatureTagger, split: FeatureWords, inference: Inference) -> States:
    states = np.zeros((len(model.layers), len(split.gold), model.config.hidden_size), dtype=np.float16)
    for numbers, found in states_of(model.bert, split.encoded, model.layers, inference):
        states[:, numbers] = found.swapaxes(0, 1)  # (layers, words, hidden)
    return list(states)


def _load(bundle: Bundle, num_outputs: int | None) -> nn.Module:
    """Return the encoder, frozen, with a BiLSTM.

    Raises:
        InputError: the stored head is asked for and there is none, or task.json does not name its layers.
    """
    choice = stored_choice(bundle)
    make = partial(FeatureTagger, layers=choice.layers, weighted=choice.weighted)
    return load_task_model(bundle, make, num_outputs, parts=("lstm", "mix"))


FEATURE_TAGGING = dataclasses.replace(
    TAGGING, name=FROZEN + TAGGING.name, load_model=_load, encode=_encode, outputs=_outputs
)
