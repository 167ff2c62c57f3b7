"""Facts 1 to 5: the model, against float64 NumPy."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tests.conformance import numpy_bert
from tests.conformance.models import CONFIG, SHAPE, batch_of, original_names, small_model


def largest(ours: torch.Tensor, theirs: np.ndarray) -> float:
    assert tuple(ours.shape) == theirs.shape
    return float(np.abs(ours.detach().double().numpy() - theirs).max())


def test_fact_01_every_layers_output(fact):
    line = fact(1, "output of the embeddings and of every layer, float64", "float64 NumPy")
    model = small_model()
    tokens, _, batch = batch_of()
    weights = original_names(model.state_dict())
    theirs = numpy_bert.encode(weights, SHAPE, batch.ids, batch.segments, batch.mask)
    ours = model.bert.hidden_states(tokens)
    is_token = batch.mask.astype(bool)
    differences = [largest(one, other[is_token]) for one, other in zip(ours, theirs, strict=True)]
    line.difference(max(differences), 1e-12)


def test_fact_01_every_layers_output_in_float32(fact):
    line = fact(1, "the same in float32", "float64 NumPy")
    model = small_model()
    tokens, _, batch = batch_of()
    weights = original_names(model.float().state_dict())
    theirs = numpy_bert.encode(weights, SHAPE, batch.ids, batch.segments, batch.mask)
    is_token = batch.mask.astype(bool)
    pairs = zip(model.bert.hidden_states(tokens), theirs, strict=True)
    line.difference(max(largest(one, other[is_token]) for one, other in pairs), 1e-4)


def test_fact_01_layer_norm_eps(fact):
    line = fact(1, "LayerNorm of rows that hardly vary: eps is 1e-12, inside the root", "float64 NumPy")
    model = small_model().double()
    rows = torch.randn(4, CONFIG.hidden_size, dtype=torch.float64) * 1e-6
    differences = []
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm):
            assert module.eps == 1e-12, name
            scale, shift = module.weight.detach().numpy(), module.bias.detach().numpy()
            differences.append(
                largest(module(rows), numpy_bert.layer_norm(rows.numpy(), scale, shift, 1e-12))
            )
    assert len(differences) == 2 + 2 * CONFIG.num_layers
    line.difference(max(differences), 1e-12)


def test_fact_01_pooler(fact):
    line = fact(1, "pooler: dense and tanh on [CLS]", "float64 NumPy")
    model = small_model()
    tokens, _, batch = batch_of()
    weights = original_names(model.state_dict())
    theirs = numpy_bert.pool(
        weights, numpy_bert.encode(weights, SHAPE, batch.ids, batch.segments, batch.mask)[-1]
    )
    line.difference(largest(model.pooler(model.bert(tokens)[list(tokens.layout.starts)]), theirs), 1e-12)
