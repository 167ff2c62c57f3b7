"""Vectors of texts and of pieces, and attention, for any number of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bertsmith import features
from bertsmith.model.bert import Bert
from bertsmith.tasks.encode import EncodedRow, RowBatch
from bertsmith.tasks.inference import Inference, rows_in_batches, run_rows


@dataclass(frozen=True)
class VectorChoice:
    """Which vectors are wanted.

    Attributes:
        pooling: a key of ``features.POOLINGS``.
        layers: numbers of the layers whose outputs stand side by side.
    """

    pooling: str
    layers: tuple[int, ...]


def choose(encoder: Bert, pooling: str, layer: int | str) -> VectorChoice:
    """Return which vectors a pooling and a layer of a model mean.

    Raises:
        InputError: a pooling or layer does not exist.
    """
    features.check_pooling(pooling, encoder.config)
    return VectorChoice(pooling, features.layers_read(layer, encoder.config.num_layers))


def embed_rows(
    encoder: Bert, rows: Sequence[EncodedRow], choice: VectorChoice, inference: Inference
) -> NDArray[np.float32]:
    """Return one vector a row, float32 ``(rows, layers * hidden)``."""

    def pooled(batch: RowBatch) -> Tensor:
        hidden = features.layers_output(encoder, batch.tokens, choice.layers)
        return features.pool(hidden, batch.tokens.layout, choice.pooling)

    return run_rows(rows, pooled, len(choice.layers) * encoder.config.hidden_size, inference)


def embed_pieces(
    encoder: Bert, rows: Sequence[EncodedRow], choice: VectorChoice, inference: Inference
) -> list[NDArray[np.float32]]:
    """Return the vectors of each row's pieces, float32 ``(pieces, layers * hidden)`` each."""

    def pieces(batch: RowBatch) -> list[Tensor]:
        hidden = features.layers_output(encoder, batch.tokens, choice.layers)
        return features.rows_of(hidden, batch.tokens.layout)

    return _tensor_a_row(rows, pieces, inference)


def attention_of(
    encoder: Bert, rows: Sequence[EncodedRow], inference: Inference
) -> list[NDArray[np.float32]]:
    """Return the attention of each row, float32 ``(layers, heads, pieces, pieces)`` each."""
    return _tensor_a_row(rows, lambda batch: encoder.attention_weights(batch.tokens), inference)


def _tensor_a_row(
    rows: Sequence[EncodedRow], compute: Callable[[RowBatch], list[Tensor]], inference: Inference
) -> list[NDArray[np.float32]]:
    found: dict[int, NDArray[np.float32]] = {}
    for batch, tensors in rows_in_batches(rows, compute, inference):
        for row, tensor in zip(batch.rows.tolist(), tensors, strict=True):
            found[row] = tensor.float().cpu().numpy()
    return [found[row] for row in range(len(rows))]


def normalized(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return vectors scaled to length 1; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: NDArray[np.float32] = vectors / np.maximum(lengths, 1e-12)
    return scaled
