"""Tags from the states of a frozen encoder: computed once, kept on disk, read by a BiLSTM over sentences.

Source: the paper, section 5.3, "feature-based approach", and table 7.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith.bundle import Bundle, load_encoder, load_task_model
from bertsmith.data.batch import tokens_of
from bertsmith.errors import InputError
from bertsmith.features import choose_layers
from bertsmith.files import atomic_file
from bertsmith.layout import Tokens, moved
from bertsmith.model.bert import Bert
from bertsmith.model.task_heads import FeatureTagger
from bertsmith.tasks.inference import Inference, evaluation_mode, in_batches, lengths_of
from bertsmith.tasks.kind import Encoding, Labels, Outputs, Split, Task
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.tagging import TAGGING, TaggedWords, TaggingBatch, encode_words

States = Sequence[NDArray[np.float16]]
"""One array a layer, float16 ``(words, hidden)``: the layer's output at the first piece of each word."""


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
class StateCache:
    """Where states are kept between epochs and runs.

    Attributes:
        encoder: frozen, in evaluation mode.
        layers: the layers whose outputs are read.
        directory: of the files, one a layer, named by the weights and the words that they belong to.
        inference: how they are computed.
    """

    encoder: Bert
    layers: tuple[int, ...]
    directory: Path
    inference: Inference

    @cached_property
    def _weights(self) -> bytes:
        digest = hashlib.sha256()
        for name, value in self.encoder.state_dict().items():
            digest.update(name.encode() + value.detach().cpu().numpy().tobytes())
        return digest.digest()

    def states(self, words: TaggedWords) -> States:
        """Return the states of a split, memory-mapped; those that no file holds are computed.

        Raises:
            InputError: a file is damaged.
            OSError: the disk is full.
        """
        digest = hashlib.sha256(self._weights)
        for window in words.encoded:
            for part in (window.ids, window.picks, window.words):
                digest.update(part.tobytes() + b";")
        paths = {
            layer: self.directory / f"{digest.hexdigest()[:32]}-layer-{layer}.npy" for layer in self.layers
        }
        missing = [layer for layer, path in paths.items() if not path.is_file()]
        if missing:
            self._compute(words, {layer: paths[layer] for layer in missing})
        return [_mapped(path) for path in paths.values()]

    def _compute(self, words: TaggedWords, paths: Mapping[int, Path]) -> None:
        shape = (len(words.gold), self.encoder.config.hidden_size)
        header = {"descr": "<f2", "fortran_order": False, "shape": shape}
        with contextlib.ExitStack() as stack:
            files = []
            for path in paths.values():
                files.append(stack.enter_context(open(stack.enter_context(atomic_file(path)), "wb")))
                np.lib.format.write_array_header_1_0(files[-1], header)
            begin = files[0].tell() if files else 0
            for numbers, states in states_of(self.encoder, words, tuple(paths), self.inference):
                for place, number in enumerate(numbers.tolist()):
                    for layer, file in enumerate(files):
                        file.seek(begin + number * shape[1] * 2)
                        file.write(states[place, layer].tobytes())


def _mapped(path: Path) -> NDArray[np.float16]:
    try:
        states: NDArray[np.float16] = np.load(path, mmap_mode="r")
    except ValueError as error:
        raise InputError(f"{path}: no whole file of features ({error}); remove it") from None
    return states


def states_of(
    encoder: Bert, words: TaggedWords, layers: tuple[int, ...], inference: Inference
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float16]]]:
    """Yield numbers of words with their states, float16 ``(words, layers, hidden)``; each word once."""

    def read(batch: TaggingBatch) -> torch.Tensor:
        outputs = encoder.hidden_states(batch.tokens)
        return torch.stack([outputs[layer][batch.picks] for layer in layers], dim=1)

    for batch, states in in_batches(
        lengths_of(words.encoded), partial(TaggedWords.batch, words), read, inference
    ):
        yield batch.words, states.half().cpu().numpy()


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
        return self.cache.states(self)

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


def _encode(
    cache: StateCache | None, task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding
) -> FeatureWords:
    words = encode_words(task, rows, labels, encoding)
    return FeatureWords(
        **{field.name: getattr(words, field.name) for field in dataclasses.fields(words)}, cache=cache
    )


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
    for numbers, found in states_of(model.bert, split, model.layers, inference):
        states[:, numbers] = found.swapaxes(0, 1)  # (layers, words, hidden)
    return list(states)


def _load(features: str | None, bundle: Bundle, num_outputs: int | None) -> nn.Module:
    """Return the encoder, frozen, with a BiLSTM.

    Raises:
        InputError: the stored head is asked for and there is none, or it was stored without its layers.
    """
    name = features or ((bundle.task or {}).get("settings") or {}).get("features")
    if name is None:
        raise InputError(f"{bundle.directory}: task.json does not say which layers' features the head reads")
    choice = choose_layers(name, bundle.config.num_layers)
    make = partial(FeatureTagger, layers=choice.layers, weighted=choice.weighted)
    return load_task_model(bundle, make, num_outputs, parts=("lstm", "mix"))


FEATURE_TAGGING = dataclasses.replace(
    TAGGING,
    name="feature-tagging",
    load_model=partial(_load, None),
    encode=partial(_encode, None),
    outputs=_outputs,
)


def with_frozen_encoder(
    task: Task, bundle: Bundle, features: str, directory: Path, inference: Inference
) -> Task:
    """Return a tagging task whose encoder is not trained.

    Args:
        task: of the kind TAGGING.
        bundle: the encoder.
        features: which layers are read, a key of ``features.LAYER_CHOICES``.
        directory: where states are kept.
        inference: how states are computed.

    Raises:
        InputError: the name is unknown, the model has too few layers, or its weights are to be random.
    """
    if not bundle.state:
        raise InputError(f"--features {features} needs trained weights; leave out --random-weights")
    layers = choose_layers(features, bundle.config.num_layers).layers
    encoder = load_encoder(bundle).to(inference.device)
    cache = StateCache(encoder, layers, directory, inference)
    kind = dataclasses.replace(
        FEATURE_TAGGING, load_model=partial(_load, features), encode=partial(_encode, cache)
    )
    return dataclasses.replace(task, kind=kind)
