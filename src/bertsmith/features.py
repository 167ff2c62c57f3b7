"""Vectors of texts: a layer's output, pooled over the places of each row.

Padding never counts, nor do the other rows of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from bertsmith.errors import InputError
from bertsmith.layout import Layout, Tokens
from bertsmith.model.bert import Bert


def _mean(row: Tensor) -> Tensor:
    return row.mean(dim=0)


def _max(row: Tensor) -> Tensor:
    return row.amax(dim=0)


def _cls(row: Tensor) -> Tensor:
    return row[0]


POOLINGS: Mapping[str, Callable[[Tensor], Tensor]] = {"mean": _mean, "max": _max, "cls": _cls}


def check(encoder: Bert, pooling: str, layer: int) -> None:
    """Refuse a pooling or a layer that does not exist.

    Raises:
        InputError: the message names what there is.
    """
    if pooling not in POOLINGS:
        raise InputError(f"pooling is {pooling!r}; take one of {', '.join(POOLINGS)}")
    states = encoder.config.num_layers + 1
    if not -states <= layer < states:
        raise InputError(
            f"layer is {layer}; this model has 0 (the embeddings) to {states - 1}, "
            f"or -1 (the last) to {-states}"
        )


def layer_output(encoder: Bert, tokens: Tokens, layer: int) -> Tensor:
    """Return one layer's output, float ``(places, hidden)``.

    Args:
        encoder: in evaluation mode, so that dropout is off.
        tokens: the inputs.
        layer: 0 is the embeddings' output, 1 the first layer's; -1 the last layer's, -2 that before it.
    """
    if layer in (-1, encoder.config.num_layers):
        output: Tensor = encoder(tokens)
        return output
    return encoder.hidden_states(tokens)[layer]


def rows_of(hidden: Tensor, layout: Layout) -> list[Tensor]:
    """Return each row's places without padding: float ``(length, hidden)`` each."""
    return [
        hidden[start : start + length] for start, length in zip(layout.starts, layout.lengths, strict=True)
    ]


def pool(hidden: Tensor, layout: Layout, pooling: str) -> Tensor:
    """Return one vector a row, float32 ``(batch, hidden)``.

    "mean" and "max" run over all places of the row, [CLS] and [SEP] included, as in sentence-transformers;
    "cls" takes the place of [CLS].

    Args:
        hidden: float ``(places, hidden)``.
        layout: where the rows lie.
        pooling: a key of ``POOLINGS``.
    """
    function = POOLINGS[pooling]
    return torch.stack([function(row.float()) for row in rows_of(hidden, layout)])  # (batch, hidden)
