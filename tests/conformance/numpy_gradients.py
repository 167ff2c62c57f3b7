"""Gradients of the pretraining loss in float64 NumPy, by hand: what is needed to train the reference.

Each function returns its value and what turns the gradient of the value into that of its input; on the way
the gradients of weights are added to a table.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import numpy as np
from scipy.special import ndtr

from tests.conformance.numpy_bert import (
    GELUS,
    Array,
    Batch,
    Ids,
    Shape,
    Weights,
    log_softmax,
    softmax,
)

Back = Callable[[Array], Array]
Table = defaultdict[str, Array]


def _over_rows(x: Array) -> Array:
    return x.reshape(-1, x.shape[-1])


def dense(x: Array, weights: Weights, name: str, table: Table) -> tuple[Array, Back]:
    kernel, bias = f"{name}/kernel", f"{name}/bias"

    def back(gradient: Array) -> Array:
        table[kernel] = table[kernel] + _over_rows(x).T @ _over_rows(gradient)
        table[bias] = table[bias] + _over_rows(gradient).sum(0)
        return gradient @ weights[kernel].T

    return x @ weights[kernel] + weights[bias], back


def norm(x: Array, weights: Weights, name: str, eps: float, table: Table) -> tuple[Array, Back]:
    gamma, beta = f"{name}/gamma", f"{name}/beta"
    centred = x - x.mean(-1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(-1, keepdims=True) + eps)
    unit = centred / deviation

    def back(gradient: Array) -> Array:
        table[gamma] = table[gamma] + _over_rows(gradient * unit).sum(0)
        table[beta] = table[beta] + _over_rows(gradient).sum(0)
        scaled = gradient * weights[gamma]
        along = (scaled * unit).mean(-1, keepdims=True)
        return (scaled - scaled.mean(-1, keepdims=True) - unit * along) / deviation

    return unit * weights[gamma] + weights[beta], back


def gelu(x: Array, form: str) -> tuple[Array, Back]:
    if form == "tanh":
        root = math.sqrt(2 / math.pi)
        bend = np.tanh(root * (x + 0.044715 * x**3))
        slope = 0.5 * (1 + bend) + 0.5 * x * (1 - bend**2) * root * (1 + 3 * 0.044715 * x**2)
    else:
        slope = ndtr(x) + x * np.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)
    return GELUS[form](x), lambda gradient: gradient * slope


def attend(
    x: Array, weights: Weights, name: str, num_heads: int, key_bias: Array, table: Table
) -> tuple[Array, Back]:
    batch, seq, hidden = x.shape
    size = hidden // num_heads

    def split(flat: Array) -> Array:
        return flat.reshape(batch, seq, num_heads, size).transpose(0, 2, 1, 3)

    def merge(heads: Array) -> Array:
        return heads.transpose(0, 2, 1, 3).reshape(batch, seq, hidden)

    parts = [dense(x, weights, f"{name}/self/{part}", table) for part in ("query", "key", "value")]
    query, key, value = (split(flat) for flat, _ in parts)
    shares = softmax(query @ key.swapaxes(2, 3) / math.sqrt(size) + key_bias[:, None, None, :])
    output, back_output = dense(merge(shares @ value), weights, f"{name}/output/dense", table)

    def back(gradient: Array) -> Array:
        mixed = split(back_output(gradient))
        wanted = mixed @ value.swapaxes(2, 3)
        scores = shares * (wanted - (wanted * shares).sum(-1, keepdims=True)) / math.sqrt(size)
        gradients = (scores @ key, scores.swapaxes(2, 3) @ query, shares.swapaxes(2, 3) @ mixed)
        backs = (back_part for _, back_part in parts)
        return sum(back_part(merge(one)) for back_part, one in zip(backs, gradients, strict=True))

    return output, back


def layer(
    x: Array, weights: Weights, name: str, shape: Shape, key_bias: Array, table: Table
) -> tuple[Array, Back]:
    attended, back_attended = attend(x, weights, f"{name}/attention", shape.num_heads, key_bias, table)
    middle, back_middle = norm(x + attended, weights, f"{name}/attention/output/LayerNorm", shape.eps, table)
    wide, back_wide = dense(middle, weights, f"{name}/intermediate/dense", table)
    bent, back_bent = gelu(wide, shape.gelu)
    narrow, back_narrow = dense(bent, weights, f"{name}/output/dense", table)
    output, back_output = norm(middle + narrow, weights, f"{name}/output/LayerNorm", shape.eps, table)

    def back(gradient: Array) -> Array:
        gradient = back_output(gradient)
        gradient = back_middle(gradient + back_wide(back_bent(back_narrow(gradient))))
        return gradient + back_attended(gradient)

    return output, back


def embed(weights: Weights, shape: Shape, ids: Ids, segments: Ids, table: Table) -> tuple[Array, Back]:
    place = "bert/embeddings"
    words, types, positions = (f"{place}/{kind}_embeddings" for kind in ("word", "token_type", "position"))
    places = np.broadcast_to(np.arange(ids.shape[1]), ids.shape)
    summed = weights[words][ids] + weights[types][segments] + weights[positions][places]
    output, back_norm = norm(summed, weights, f"{place}/LayerNorm", shape.eps, table)

    def back(gradient: Array) -> Array:
        gradient = back_norm(gradient)
        for name, index in ((words, ids), (types, segments), (positions, places)):
            found = np.zeros_like(weights[name])
            np.add.at(found, index, gradient)
            table[name] = table[name] + found
        return gradient

    return output, back


def words_loss(
    picked: Array, weights: Weights, shape: Shape, labels: Ids, table: Table
) -> tuple[float, Array]:
    """Return the loss and the gradient of the encoder's output at the picks."""
    place, decoder = "cls/predictions", "bert/embeddings/word_embeddings"
    wide, back_dense = dense(picked, weights, f"{place}/transform/dense", table)
    bent, back_bent = gelu(wide, shape.gelu)
    read, back_norm = norm(bent, weights, f"{place}/transform/LayerNorm", shape.eps, table)
    scores = read @ weights[decoder].T + weights[f"{place}/output_bias"]
    rows, count = np.arange(len(labels)), len(labels) + 1e-5
    gradient = softmax(scores)
    gradient[rows, labels] -= 1
    gradient /= count
    table[decoder] = table[decoder] + gradient.T @ read
    table[f"{place}/output_bias"] = gradient.sum(0)
    loss = float(-log_softmax(scores)[rows, labels].sum() / count)
    return loss, back_dense(back_bent(back_norm(gradient @ weights[decoder])))


def pairs_loss(first: Array, weights: Weights, labels: Ids, table: Table) -> tuple[float, Array]:
    """Return the loss and the gradient of the encoder's output at [CLS]."""
    place = "cls/seq_relationship"
    flat, back_dense = dense(first, weights, "bert/pooler/dense", table)
    pooled = np.tanh(flat)
    scores = pooled @ weights[f"{place}/output_weights"].T + weights[f"{place}/output_bias"]
    rows = np.arange(len(labels))
    gradient = softmax(scores)
    gradient[rows, labels] -= 1
    gradient /= len(labels)
    table[f"{place}/output_weights"] = gradient.T @ pooled
    table[f"{place}/output_bias"] = gradient.sum(0)
    loss = float(-log_softmax(scores)[rows, labels].mean())
    return loss, back_dense(gradient @ weights[f"{place}/output_weights"] * (1 - pooled**2))


def losses_and_gradients(
    weights: Weights, shape: Shape, batch: Batch
) -> tuple[tuple[float, float], dict[str, Array]]:
    """Return the losses of words and of pairs, and the gradients of their sum."""
    table: Table = defaultdict(lambda: np.zeros(()))
    x, back = embed(weights, shape, batch.ids, batch.segments, table)
    backs = [back]
    for number in range(shape.num_layers):
        x, back = layer(
            x, weights, f"bert/encoder/layer_{number}", shape, (1.0 - batch.mask) * -10000.0, table
        )
        backs.append(back)
    words, words_gradient = words_loss(x[batch.picks], weights, shape, batch.words, table)
    pairs, pairs_gradient = pairs_loss(x[:, 0], weights, batch.next_labels, table)
    gradient = np.zeros_like(x)
    np.add.at(gradient, batch.picks, words_gradient)
    gradient[:, 0] += pairs_gradient
    for back in reversed(backs):
        gradient = back(gradient)
    return (words, pairs), dict(table)
