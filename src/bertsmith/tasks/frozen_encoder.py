"""States of a frozen encoder: computed once, kept on disk, read by heads on it.

Source: the paper, section 5.3, "feature-based approach", and table 7.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import itertools
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.bundle import Bundle, load_encoder
from bertsmith.errors import InputError
from bertsmith.features import LayerChoice, choose_layers
from bertsmith.files import atomic_file
from bertsmith.model.bert import Bert
from bertsmith.tasks.inference import Inference, in_batches, lengths_of
from bertsmith.tasks.kind import Encoding, Labels, Split, Task
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.tagging import EncodedWindow, TaggingBatch, windows_batch

States = Sequence[NDArray[np.float16]]
"""One array a layer, float16 ``(places, hidden)``: the layer's output at the places that are read."""


@dataclass(frozen=True)
class StateCache:
    """Where states are kept between epochs and runs.

    Attributes:
        encoder: frozen, in evaluation mode.
        layers: the layers whose outputs are read.
        directory: of the files, one a layer, named by the weights and the inputs that they belong to.
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

    def states(self, windows: Sequence[EncodedWindow]) -> States:
        """Return the states of a split, memory-mapped; those that no file holds are computed.

        Args:
            windows: inputs of the encoder; together they read each numbered place once.

        Raises:
            InputError: a file is damaged, or the disk has too little space.
            OSError: the disk is full.
        """
        digest = hashlib.sha256(self._weights)
        for window in windows:
            for part in (window.ids, window.picks, window.words):
                digest.update(part.tobytes() + b";")
        paths = {
            layer: self.directory / f"{digest.hexdigest()[:32]}-layer-{layer}.npy" for layer in self.layers
        }
        missing = [layer for layer, path in paths.items() if not path.is_file()]
        if missing:
            self._compute(windows, {layer: paths[layer] for layer in missing})
        return [_mapped(path) for path in paths.values()]

    def _compute(self, windows: Sequence[EncodedWindow], paths: Mapping[int, Path]) -> None:
        shape = (sum(len(window.words) for window in windows), self.encoder.config.hidden_size)
        self._require_space(2 * shape[0] * shape[1] * len(paths))
        header = {"descr": "<f2", "fortran_order": False, "shape": shape}
        with contextlib.ExitStack() as stack:
            files = []
            for path in paths.values():
                files.append(stack.enter_context(open(stack.enter_context(atomic_file(path)), "wb")))
                np.lib.format.write_array_header_1_0(files[-1], header)
            begin = files[0].tell() if files else 0
            for numbers, states in states_of(self.encoder, windows, tuple(paths), self.inference):
                for start, end in _runs(numbers):
                    for layer, file in enumerate(files):
                        file.seek(begin + int(numbers[start]) * shape[1] * 2)
                        file.write(states[start:end, layer].tobytes())

    def _require_space(self, needed: int) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(self.directory).free
        if needed > free:
            raise InputError(
                f"{self.directory}: the features take {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free; "
                "take fewer layers (--features last) or rows (--limit-rows), or another --out"
            )


def _runs(numbers: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """Yield begin and end of each part in which numbers follow one another."""
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    edges = [0, *breaks.tolist(), len(numbers)]
    return itertools.pairwise(edges)


def _mapped(path: Path) -> NDArray[np.float16]:
    try:
        states: NDArray[np.float16] = np.load(path, mmap_mode="r")
    except ValueError as error:
        raise InputError(f"{path}: no whole file of features ({error}); remove it") from None
    return states


def states_of(
    encoder: Bert, windows: Sequence[EncodedWindow], layers: tuple[int, ...], inference: Inference
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float16]]]:
    """Yield numbers of places with their states, float16 ``(places, layers, hidden)``; each place once."""

    def read(batch: TaggingBatch) -> torch.Tensor:
        outputs = encoder.hidden_states(batch.tokens)
        return torch.stack([outputs[layer][batch.picks] for layer in layers], dim=1)

    for batch, states in in_batches(lengths_of(windows), partial(windows_batch, windows), read, inference):
        yield batch.words, states.half().cpu().numpy()


def stored_settings(bundle: Bundle) -> Mapping[str, Any]:
    """Return the settings of a head, as task.json has them."""
    return (bundle.task or {}).get("settings") or {}


def stored_choice(bundle: Bundle) -> LayerChoice:
    """Return which layers the head on a frozen encoder reads.

    Raises:
        InputError: task.json does not say, or the model has no such layers.
    """
    name = stored_settings(bundle).get("features")
    if name is None:
        raise InputError(f"{bundle.directory}: task.json does not say which layers' features the head reads")
    return choose_layers(name, bundle.config.num_layers)


def with_frozen_encoder(
    task: Task, bundle: Bundle, features: str, directory: Path, inference: Inference
) -> Task:
    """Return a task whose encoder is not trained.

    Args:
        task: of a kind that is trained as a whole.
        bundle: the encoder.
        features: which layers are read, a key of ``features.LAYER_CHOICES``.
        directory: where states are kept.
        inference: how states are computed.

    Raises:
        InputError: the task has no head on a frozen encoder, the name is unknown, the model has too few
            layers, or its weights are to be random.
    """
    kind = task.frozen_kind
    if kind is None:
        raise InputError(
            f"--features {features} would be ignored: it is for tasks of labels, values or tags, not for "
            f"{task.name}; leave it out"
        )
    if not bundle.state:
        raise InputError(f"--features {features} needs trained weights; leave out --random-weights")
    layers = choose_layers(features, bundle.config.num_layers).layers
    encoder = load_encoder(bundle).to(inference.device)
    cache = StateCache(encoder, layers, directory, inference)

    def encode(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> Split:
        split: Any = kind.encode(task, rows, labels, encoding)
        return cast(Split, dataclasses.replace(split, cache=cache))

    return dataclasses.replace(task, kind=dataclasses.replace(kind, encode=encode))
