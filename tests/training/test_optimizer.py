from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from bertsmith.errors import InputError
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.optimizer import build_optimizer

RATE, BETA1, BETA2, EPS, DECAY = 0.01, 0.9, 0.999, 1e-6, 0.01


class Pair(nn.Module):
    """A matrix and a vector with the same numbers."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.tensor(values, dtype=torch.float32)[None])
        self.vector = nn.Parameter(torch.tensor(values, dtype=torch.float32))


def reference(start: np.ndarray, gradients: np.ndarray, decay: float, corrected: bool) -> np.ndarray:
    """The update of optimization.py (or of AdamW) in float64."""
    weights, first, second = start.astype(np.float64), np.zeros(start.shape), np.zeros(start.shape)
    for step, gradient in enumerate(gradients.astype(np.float64), 1):
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * gradient**2
        correction1, correction2 = (1 - BETA1**step, 1 - BETA2**step) if corrected else (1.0, 1.0)
        update = (first / correction1) / (np.sqrt(second / correction2) + EPS)
        weights = weights - RATE * (update + decay * weights)
    return weights


@pytest.mark.parametrize("name, corrected", [("bert-adam", False), ("adamw", True)])
def test_updates_equal_the_float64_reference(name, corrected):
    random = np.random.default_rng(3)
    start = random.normal(size=37).astype(np.float32)
    gradients = (random.normal(size=(60, 37)) * 10.0 ** random.integers(-6, 2, size=(60, 37))).astype(
        np.float32
    )
    model = Pair(start)
    optimizer = build_optimizer(model, OptimizerConfig(name=name, learning_rate=RATE))
    for gradient in gradients:
        model.matrix.grad = torch.tensor(gradient)[None]
        model.vector.grad = torch.tensor(gradient)
        optimizer.step()
    decayed = reference(start, gradients, DECAY, corrected)
    undecayed = reference(start, gradients, 0.0, corrected)
    np.testing.assert_allclose(model.matrix[0].detach().numpy(), decayed, rtol=2e-5, atol=2e-6)
    np.testing.assert_allclose(model.vector.detach().numpy(), undecayed, rtol=2e-5, atol=2e-6)
    assert np.abs(decayed - undecayed).max() > 1e-3  # the two groups can be told apart


@pytest.mark.parametrize("step, factor", [(1, 3.16), (12, 6.57), (1000, 1.26)])
def test_without_bias_correction_early_steps_are_larger(step, factor):
    sizes = {}
    for name in ("bert-adam", "adamw"):
        model = Pair(np.zeros(1))
        config = OptimizerConfig(name=name, learning_rate=1e-3, weight_decay=0.0, eps=1e-12)
        optimizer = build_optimizer(model, config)
        for _ in range(step):
            before = float(model.vector.detach())
            model.vector.grad = torch.full((1,), 0.5)
            optimizer.step()
        sizes[name] = before - float(model.vector.detach())
    assert sizes["bert-adam"] / sizes["adamw"] == pytest.approx(factor, rel=0.01)


def test_matrices_and_embeddings_decay_and_biases_and_layer_norm_do_not():
    config = BertConfig(vocab_size=11, hidden_size=8, num_layers=1, num_heads=2, intermediate_size=16)
    model = BertForPreTraining(config)
    optimizer = build_optimizer(model, OptimizerConfig(weight_decay=0.3))
    decay = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            assert parameter not in decay, "a tied weight belongs to one group, once"
            decay[parameter] = group["weight_decay"]
    names = dict(model.named_parameters())
    assert decay.keys() == set(names.values())
    norms = {
        f"{name}.{kind}"
        for name, module in model.named_modules()
        if isinstance(module, nn.LayerNorm)
        for kind in ("weight", "bias")
    }
    assert norms
    for name, parameter in names.items():
        expected = 0.0 if name.endswith("bias") or name in norms else 0.3
        assert decay[parameter] == expected, name


def test_a_parameter_without_gradient_is_left_alone():
    model = Pair(np.ones(3))
    optimizer = build_optimizer(model, OptimizerConfig(name="bert-adam", learning_rate=0.1))
    model.vector.grad = torch.ones(3)
    optimizer.step()
    assert torch.equal(model.matrix.detach(), torch.ones(1, 3))
    assert not torch.equal(model.vector.detach(), torch.ones(3))


@pytest.mark.parametrize(
    "name, value",
    [
        ("learning_rate", math.nan),
        ("learning_rate", math.inf),
        ("beta1", -0.1),
        ("beta2", 1.0),
        ("eps", -1e-6),
        ("weight_decay", math.nan),
        ("max_grad_norm", -1.0),
    ],
)
def test_numbers_out_of_range_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name} is {value}"):
        OptimizerConfig(**{name: value})
