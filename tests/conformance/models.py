"""A small model with weights of visible size, and the same for the reference in NumPy."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from bertsmith.layout import Tokens
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from tests.conformance.numpy_bert import Array, Batch, Shape
from tests.model.rows import VOCAB_SIZE, places_of, random_ids, rows_of

LENGTHS = (5, 9, 9, 3, 40, 12)
CONFIG = BertConfig(VOCAB_SIZE, 48, 3, 4, 80, 40, activation="gelu_tanh")
SHAPE = Shape(num_layers=3, num_heads=4)

# Our module and the original's; a linear layer's weight is its kernel, transposed.
_MODULES = {
    "bert.embeddings.norm": "bert/embeddings/LayerNorm",
    "pooler.dense": "bert/pooler/dense",
    "mlm_head.dense": "cls/predictions/transform/dense",
    "mlm_head.norm": "cls/predictions/transform/LayerNorm",
}
_LAYER_MODULES = {
    "attention.output": "attention/output/dense",
    "attention_norm": "attention/output/LayerNorm",
    "intermediate": "intermediate/dense",
    "output": "output/dense",
    "output_norm": "output/LayerNorm",
}
_OTHERS = {
    "bert.embeddings.word.weight": "bert/embeddings/word_embeddings",
    "bert.embeddings.segment.weight": "bert/embeddings/token_type_embeddings",
    "bert.embeddings.position.weight": "bert/embeddings/position_embeddings",
    "mlm_head.bias": "cls/predictions/output_bias",
    "nsp_head.weight": "cls/seq_relationship/output_weights",
    "nsp_head.bias": "cls/seq_relationship/output_bias",
}


def small_model(config: BertConfig = CONFIG) -> BertForPreTraining:
    """Return a float64 model, not training; biases and LayerNorm are drawn as well."""
    torch.manual_seed(0)
    model = BertForPreTraining(config).double().eval()
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.2)
    return model


def original_names(state: dict[str, Tensor]) -> dict[str, Array]:
    """Return weights, or gradients, of our names under the original's."""
    left = {name: value.detach().double().numpy() for name, value in state.items()}
    found = {theirs: left.pop(ours) for ours, theirs in _OTHERS.items()}
    layers = 1 + max(int(name.split(".")[2]) for name in left if name.startswith("bert.layers."))
    modules = dict(_MODULES)
    for layer in range(layers):
        ours, theirs = f"bert.layers.{layer}", f"bert/encoder/layer_{layer}"
        modules |= {f"{ours}.{key}": f"{theirs}/{value}" for key, value in _LAYER_MODULES.items()}
        weights, biases = (
            np.split(left.pop(f"{ours}.attention.qkv.{kind}"), 3) for kind in ("weight", "bias")
        )
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            place = f"{theirs}/attention/self/{part}"
            found |= {f"{place}/kernel": weight.T, f"{place}/bias": bias}
    for ours, theirs in modules.items():
        weight, bias = left.pop(f"{ours}.weight"), left.pop(f"{ours}.bias")
        if weight.ndim == 1:
            found |= {f"{theirs}/gamma": weight, f"{theirs}/beta": bias}
        else:
            found |= {f"{theirs}/kernel": weight.T, f"{theirs}/bias": bias}
    assert not left, f"weights without a name in the original: {sorted(left)}"
    return found


def batch_of(lengths: tuple[int, ...] = LENGTHS) -> tuple[Tokens, Tensor, Batch]:
    """Return rows end to end, the places of their predictions, and all that for the reference.

    The rows' second halves are their second segments; every third token is predicted.
    """
    ids = random_ids(lengths)
    tokens, rectangle = rows_of(ids), rows_of(ids, max(lengths))
    picks = torch.arange(0, tokens.layout.num_tokens, 3)
    shape = (len(lengths), max(lengths))
    mask = torch.zeros(rectangle.layout.places, dtype=torch.int64)
    mask[places_of(rectangle.layout)] = 1
    picked = places_of(rectangle.layout)[picks].numpy()
    return (
        tokens,
        picks,
        Batch(
            rectangle.input_ids.view(shape).numpy(),
            rectangle.segment_ids.view(shape).numpy(),
            mask.view(shape).numpy(),
            (picked // shape[1], picked % shape[1]),
            np.arange(len(picks)) * 7 % VOCAB_SIZE,
            np.arange(len(lengths)) % 2,
        ),
    )
