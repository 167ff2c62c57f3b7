"""8-bit layers: near the float32 ones, no token depends on another, channels of large values do no harm."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from bertsmith.model.bert import Bert
from bertsmith.model.config import BertConfig
from bertsmith.model.quantized import Int8AboveLinear, Int8Linear, quantize
from tests.model.rows import VOCAB_SIZE, random_ids, rows_of

SHAPE = BertConfig(
    vocab_size=VOCAB_SIZE, hidden_size=64, num_layers=2, num_heads=4, intermediate_size=128, max_positions=32
)


def linear(inputs: int, outputs: int) -> nn.Linear:
    """Return a layer whose weights are whole steps, so that only inputs are rounded."""
    torch.manual_seed(0)
    layer = nn.Linear(inputs, outputs)
    steps = torch.randint(-127, 128, (outputs, inputs))
    steps[:, 0] = 127
    layer.weight.data = steps * 0.001
    return layer


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float(((found - expected).norm() / expected.norm()).detach())


def test_products_are_those_of_the_rounded_numbers() -> None:
    """A second way to the answer: NumPy in float64, by the formula."""
    layer = linear(96, 40)
    inputs = torch.randn(17, 96)
    weight = layer.weight.detach().double().numpy()
    scales = np.abs(weight).max(axis=1) / 127
    steps = np.abs(inputs.double().numpy()).max(axis=1, keepdims=True) / 127
    products = np.round(inputs.double().numpy() / steps) @ np.round(weight / scales[:, None]).T
    expected = products * steps * scales + layer.bias.detach().numpy()
    np.testing.assert_allclose(Int8Linear(layer, None)(inputs).detach().numpy(), expected, atol=1e-4)


def test_a_token_does_not_depend_on_others() -> None:
    layer, above = Int8Linear(linear(96, 40), torch.rand(96) + 0.1), Int8AboveLinear(linear(96, 40), -0.1701)
    inputs = functional.gelu(torch.randn(33, 96) * torch.logspace(-2, 2, 33)[:, None])
    for module in (layer, above):
        alone = torch.cat([module(row[None]) for row in inputs])
        torch.testing.assert_close(module(inputs), alone, rtol=0, atol=0)


def test_a_channel_of_large_values_takes_the_steps_unless_its_range_is_moved() -> None:
    layer = linear(96, 40)
    inputs = torch.randn(64, 96)
    inputs[:, 3] *= 60
    expected = layer(inputs)
    plain = relative_error(Int8Linear(layer, None)(inputs), expected)
    smoothed = relative_error(Int8Linear(layer, inputs.abs().amax(dim=0))(inputs), expected)
    assert smoothed < 0.02
    assert smoothed < 0.5 * plain


@pytest.mark.parametrize("name", ["gelu", "relu"])
def test_a_known_lowest_value_halves_the_steps(name: str) -> None:
    layer = linear(96, 40)
    inputs = getattr(functional, name)(torch.randn(64, 96) * 3)
    expected = layer(inputs)
    lowest = {"gelu": -0.1701, "relu": 0.0}[name]
    around = relative_error(Int8Linear(layer, None)(inputs), expected)
    above = relative_error(Int8AboveLinear(layer, lowest)(inputs), expected)
    assert above < 0.01
    assert above < 0.7 * around


def test_zeros_and_weights_of_zero_stay_zero() -> None:
    layer = linear(8, 4)
    nn.init.zeros_(layer.weight)
    for module in (Int8Linear(layer, torch.zeros(8)), Int8AboveLinear(layer, -0.1701)):
        for inputs in (torch.zeros(2, 8), torch.ones(2, 8)):
            torch.testing.assert_close(module(inputs), layer.bias.detach().expand(2, 4), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    "activation, norm", [("gelu", "post"), ("gelu", "pre"), ("gelu_tanh", "post"), ("relu", "post")]
)
def test_an_encoder_in_8_bits_is_near_and_ignores_neighbours(activation: str, norm: str) -> None:
    torch.manual_seed(0)
    encoder = Bert(dataclasses.replace(SHAPE, activation=activation, norm=norm, initializer_std=0.2)).eval()
    ids = random_ids([5, 9, 30])
    tokens = rows_of(ids)
    with torch.no_grad():
        expected = encoder(tokens)
        quantize(encoder, 2, 3)
        found = encoder(tokens)
        assert found.dtype == torch.float32
        assert functional.cosine_similarity(found, expected, dim=1).min() > 0.995
        torch.testing.assert_close(encoder(rows_of(ids[:1])), found[:5], rtol=0, atol=1e-4)
        kinds = {type(module) for module in encoder.layers.modules()}
    assert nn.Linear not in kinds
