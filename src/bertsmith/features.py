"""Vectors of texts: a layer's output, pooled over the places of each row.

Padding never counts, nor do the other rows of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bertsmith.errors import InputError
from bertsmith.layout import Layout, Tokens
from bertsmith.model.bert import Bert
from bertsmith.model.config import BertConfig


def _mean(row: Tensor) -> Tensor:
    return row.mean(dim=0)


def _max(row: Tensor) -> Tensor:
    return row.amax(dim=0)


def _cls(row: Tensor) -> Tensor:
    return row[0]


POOLINGS: Mapping[str, Callable[[Tensor], Tensor]] = {"mean": _mean, "max": _max, "cls": _cls}


@dataclass(frozen=True)
class LayerChoice:
    """Which layers' outputs are features of a word.

    Attributes:
        layers: numbers of layers; 0 is the embeddings' output.
        weighted: they are summed with learned weights; else they are concatenated.
    """

    layers: tuple[int, ...]
    weighted: bool


LAYER_CHOICES: Mapping[str, Callable[[int], LayerChoice]] = {
    "embeddings": lambda last: LayerChoice((0,), False),
    "second-to-last": lambda last: LayerChoice((last - 1,), False),
    "last": lambda last: LayerChoice((last,), False),
    "weighted-last-4": lambda last: LayerChoice(tuple(range(last - 3, last + 1)), True),
    "concat-last-4": lambda last: LayerChoice(tuple(range(last - 3, last + 1)), False),
    "weighted-all": lambda last: LayerChoice(tuple(range(1, last + 1)), True),
}
"""From the number of layers to what is read. Source: the paper, table 7."""


def choose_layers(name: str, num_layers: int) -> LayerChoice:
    """Return which layers a name of the paper's table 7 means in a model.

    Raises:
        InputError: the name is unknown, or the model has fewer layers than it takes.
    """
    if not isinstance(name, str) or name not in LAYER_CHOICES:
        raise InputError(f"features is {name!r}; take one of {', '.join(LAYER_CHOICES)}")
    choice = LAYER_CHOICES[name](num_layers)
    if len(choice.layers) > num_layers:
        raise InputError(f"features {name} takes more layers than the model's {num_layers}; take last")
    return choice


def check_pooling(pooling: str, config: BertConfig) -> None:
    """Refuse a pooling that does not exist, or means nothing in a model of this architecture.

    Raises:
        InputError: the message names what there is.
    """
    if pooling not in POOLINGS:
        raise InputError(f"pooling is {pooling!r}; take one of {', '.join(POOLINGS)}")
    if pooling == "cls" and config.context == "left":
        raise InputError(
            "pooling is 'cls', but in a left-to-right model [CLS] sees nothing; take mean or max"
        )


def layers_read(layer: int | str, num_layers: int) -> tuple[int, ...]:
    """Return the layers whose outputs, side by side, are meant by a number or a name.

    Args:
        layer: 0 is the embeddings' output, 1 the first layer's; -1 the last layer's, -2 that before it; or a
            name of ``LAYER_CHOICES``.
        num_layers: of the encoder.

    Raises:
        InputError: there is no such layer or name, or the name is of a sum with learned weights.
    """
    if isinstance(layer, str):
        choice = choose_layers(layer, num_layers)
        if choice.weighted:
            plain = [name for name in LAYER_CHOICES if "weighted" not in name]
            raise InputError(
                f"layers {layer} has weights that only a head on frozen features learns; "
                f"take one of {', '.join(plain)}"
            )
        return choice.layers
    states = num_layers + 1
    if not -states <= layer < states:
        raise InputError(
            f"layer is {layer}; this model has 0 (the embeddings) to {states - 1}, "
            f"or -1 (the last) to {-states}"
        )
    return (layer % states,)


def layers_output(encoder: Bert, tokens: Tokens, layers: tuple[int, ...]) -> Tensor:
    """Return outputs of layers side by side, float ``(places, layers * hidden)``; see ``layer_output``."""
    if len(layers) == 1:
        return layer_output(encoder, tokens, layers[0])
    states = encoder.hidden_states(tokens)
    return torch.cat([states[layer] for layer in layers], dim=-1)


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
