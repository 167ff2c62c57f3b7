"""BERT in float64 NumPy, from the paper and modeling.py, as plain as possible: the model's reference.

Rectangles of padded rows, one weight at a time, every position scored: nothing of how the model itself is
made. Weights are looked up by the names of their variables in the original.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf

Array = NDArray[np.float64]
Ids = NDArray[np.int64]
Weights = Mapping[str, Array]


@dataclass(frozen=True)
class Shape:
    """What weights do not say by themselves."""

    num_layers: int
    num_heads: int
    gelu: str = "tanh"
    eps: float = 1e-12


def gelu_tanh(x: Array) -> Array:
    """modeling.py, gelu, since February 2019."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: Array) -> Array:
    """modeling.py, gelu, before February 2019: x times the normal's distribution function."""
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


GELUS = {"tanh": gelu_tanh, "erf": gelu_erf}


def layer_norm(x: Array, scale: Array, shift: Array, eps: float) -> Array:
    mean = x.mean(-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + eps) * scale + shift


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def log_softmax(x: Array) -> Array:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def dense(x: Array, weights: Weights, name: str) -> Array:
    return x @ weights[f"{name}/kernel"] + weights[f"{name}/bias"]


def norm(x: Array, weights: Weights, name: str, eps: float) -> Array:
    return layer_norm(x, weights[f"{name}/gamma"], weights[f"{name}/beta"], eps)


def embed(weights: Weights, shape: Shape, ids: Ids, segments: Ids) -> Array:
    """Return ``(batch, seq, hidden)``: three embeddings, summed and normalised."""
    place = "bert/embeddings"
    x = weights[f"{place}/word_embeddings"][ids] + weights[f"{place}/token_type_embeddings"][segments]
    x = x + weights[f"{place}/position_embeddings"][: ids.shape[1]]
    return norm(x, weights, f"{place}/LayerNorm", shape.eps)


def attend(x: Array, weights: Weights, name: str, num_heads: int, key_bias: Array) -> Array:
    batch, seq, hidden = x.shape
    size = hidden // num_heads
    query, key, value = (
        dense(x, weights, f"{name}/self/{part}").reshape(batch, seq, num_heads, size).transpose(0, 2, 1, 3)
        for part in ("query", "key", "value")
    )  # each (batch, heads, seq, size)
    scores = query @ key.transpose(0, 1, 3, 2) / math.sqrt(size) + key_bias[:, None, None, :]
    mixed = (softmax(scores) @ value).transpose(0, 2, 1, 3).reshape(batch, seq, hidden)
    return dense(mixed, weights, f"{name}/output/dense")


def encode(weights: Weights, shape: Shape, ids: Ids, segments: Ids, mask: Ids) -> list[Array]:
    """Return the outputs of embeddings and layers, each ``(batch, seq, hidden)``; ``mask``: 1 for tokens."""
    key_bias = (1.0 - mask) * -10000.0
    states = [embed(weights, shape, ids, segments)]
    for layer in range(shape.num_layers):
        name = f"bert/encoder/layer_{layer}"
        x = states[-1]
        attended = attend(x, weights, f"{name}/attention", shape.num_heads, key_bias)
        x = norm(x + attended, weights, f"{name}/attention/output/LayerNorm", shape.eps)
        inner = GELUS[shape.gelu](dense(x, weights, f"{name}/intermediate/dense"))
        outer = dense(inner, weights, f"{name}/output/dense")
        states.append(norm(x + outer, weights, f"{name}/output/LayerNorm", shape.eps))
    return states


def pool(weights: Weights, last: Array) -> Array:
    """Return ``(batch, hidden)`` from the encoder's output."""
    return np.tanh(dense(last[:, 0], weights, "bert/pooler/dense"))


def score_words(weights: Weights, shape: Shape, picked: Array) -> Array:
    """Return ``(picks, vocab)`` from the encoder's output at the picks."""
    place = "cls/predictions"
    x = GELUS[shape.gelu](dense(picked, weights, f"{place}/transform/dense"))
    x = norm(x, weights, f"{place}/transform/LayerNorm", shape.eps)
    return x @ weights["bert/embeddings/word_embeddings"].T + weights[f"{place}/output_bias"]


def score_next(weights: Weights, pooled: Array) -> Array:
    """Return ``(batch, 2)``: is next, is random."""
    place = "cls/seq_relationship"
    return pooled @ weights[f"{place}/output_weights"].T + weights[f"{place}/output_bias"]


@dataclass(frozen=True)
class Batch:
    """Padded rows with what is to be predicted: ``picks`` are (row, place) pairs."""

    ids: Ids
    segments: Ids
    mask: Ids
    picks: tuple[Ids, Ids]
    words: Ids
    next_labels: Ids


def scores(weights: Weights, shape: Shape, batch: Batch) -> tuple[Array, Array]:
    """Return the scores of words at the picks and of both classes of pairs."""
    last = encode(weights, shape, batch.ids, batch.segments, batch.mask)[-1]
    return score_words(weights, shape, last[batch.picks]), score_next(weights, pool(weights, last))


def losses(weights: Weights, shape: Shape, batch: Batch) -> tuple[float, float]:
    """Return the mean loss of words (divided as in the original) and of pairs."""
    words, pairs = scores(weights, shape, batch)
    word_losses = -log_softmax(words)[np.arange(len(words)), batch.words]
    pair_losses = -log_softmax(pairs)[np.arange(len(pairs)), batch.next_labels]
    return float(word_losses.sum() / (len(word_losses) + 1e-5)), float(pair_losses.mean())
