from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
from torch import nn

from bertsmith.errors import InputError
from bertsmith.model.bert import BertForClassification, BertForPreTraining
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


@pytest.mark.parametrize("name", ["bert-adam", "lamb"])
def test_a_parameter_without_gradient_is_left_alone(name):
    model = Pair(np.ones(3))
    optimizer = build_optimizer(model, OptimizerConfig(name=name, learning_rate=0.1))
    model.vector.grad = torch.ones(3)
    optimizer.step()
    assert torch.equal(model.matrix.detach(), torch.ones(1, 3))
    assert not torch.equal(model.vector.detach(), torch.ones(3))


def lamb_reference(start: np.ndarray, gradients: np.ndarray, decay: float, layerwise: bool) -> np.ndarray:
    """Algorithm 2 of arXiv 1904.00962 for one parameter, in float64."""
    weights, first, second = start.astype(np.float64), np.zeros(start.shape), np.zeros(start.shape)
    for step, gradient in enumerate(gradients.astype(np.float64), 1):
        first = BETA1 * first + (1 - BETA1) * gradient
        second = BETA2 * second + (1 - BETA2) * gradient**2
        update = (first / (1 - BETA1**step)) / (np.sqrt(second / (1 - BETA2**step)) + EPS) + decay * weights
        norms = np.linalg.norm(weights), np.linalg.norm(update)
        ratio = norms[0] / norms[1] if layerwise and min(norms) > 0 else 1.0
        weights = weights - RATE * ratio * update
    return weights


@pytest.mark.parametrize("starts_at_zero", [False, True])
def test_lamb_equals_the_float64_reference(starts_at_zero):
    random = np.random.default_rng(4)
    start = (random.normal(size=37) * (not starts_at_zero)).astype(np.float32)
    gradients = (random.normal(size=(60, 37)) * 10.0 ** random.integers(-4, 2, size=(60, 37))).astype(
        np.float32
    )
    model = Pair(start)
    optimizer = build_optimizer(model, OptimizerConfig(name="lamb", learning_rate=RATE))
    for gradient in gradients:
        model.matrix.grad = torch.tensor(gradient)[None]
        model.vector.grad = torch.tensor(gradient)
        optimizer.step()
    stretched = lamb_reference(start, gradients, DECAY, True)
    plain = lamb_reference(start, gradients, 0.0, False)
    np.testing.assert_allclose(model.matrix[0].detach().numpy(), stretched, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(model.vector.detach().numpy(), plain, rtol=1e-4, atol=1e-5)
    assert np.abs(stretched - plain).max() > 1e-2


def test_a_step_of_lamb_is_as_long_as_the_rate_says():
    """Whatever the size of the gradient: |change| = rate x |matrix|."""
    for scale in (1e-3, 1.0, 1e3):
        torch.manual_seed(0)
        model = nn.Linear(30, 20)
        before = model.weight.detach().clone()
        optimizer = build_optimizer(model, OptimizerConfig(name="lamb", learning_rate=0.02))
        model.weight.grad = scale * torch.randn(20, 30)
        model.bias.grad = torch.zeros(20)
        optimizer.step()
        assert (model.weight.detach() - before).norm() / before.norm() == pytest.approx(0.02, rel=1e-4)


def test_lamb_leaves_a_parameter_alone_whose_gradient_is_zero():
    model = Pair(np.ones(3))
    optimizer = build_optimizer(model, OptimizerConfig(name="lamb", learning_rate=0.1, weight_decay=0.0))
    model.matrix.grad, model.vector.grad = torch.zeros(1, 3), torch.zeros(3)
    optimizer.step()
    assert torch.equal(model.matrix.detach(), torch.ones(1, 3))
    assert torch.equal(model.vector.detach(), torch.ones(3))


class Stack(nn.Module):
    """Layers with matrices of several shapes, and a matrix outside of them."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(9, 16)
        self.layers = nn.ModuleList([nn.Linear(16, 48), nn.Linear(48, 16), nn.Linear(16, 16)])
        self.head = nn.Linear(16, 5)


def orthogonal_reference(matrix: np.ndarray) -> np.ndarray:
    """Five Newton-Schulz steps with Jordan's coefficients, in float64."""
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    wide = wide / np.linalg.norm(wide)
    for _ in range(5):
        gram = wide @ wide.T
        wide = 3.4445 * wide + (-4.7750 * gram + 2.0315 * gram @ gram) @ wide
    return wide.T if matrix.shape[0] > matrix.shape[1] else wide


def test_muon_moves_the_layers_matrices_as_the_float64_reference_does():
    """Its products are bfloat16, so to a hundredth of the step."""
    random = np.random.default_rng(5)
    torch.manual_seed(0)
    model = Stack()
    optimizer = build_optimizer(
        model, OptimizerConfig(name="muon", learning_rate=RATE, weight_decay=0.3, momentum=0.9)
    )
    weights = [layer.weight.detach().double().numpy().copy() for layer in model.layers]
    momenta = [np.zeros(weight.shape) for weight in weights]
    for _ in range(4):
        for index, layer in enumerate(model.layers):
            gradient = random.normal(size=weights[index].shape).astype(np.float32)
            layer.weight.grad = torch.tensor(gradient)
            momenta[index] += 0.1 * (gradient - momenta[index])
            ahead = gradient + 0.9 * (momenta[index] - gradient)
            scale = 0.2 * np.sqrt(max(weights[index].shape))
            weights[index] *= 1 - RATE * 0.3
            weights[index] -= RATE * scale * orthogonal_reference(ahead)
        before = [layer.weight.detach().double().numpy().copy() for layer in model.layers]
        optimizer.step()
        for index, layer in enumerate(model.layers):
            moved = layer.weight.detach().double().numpy()
            step = np.linalg.norm(moved - before[index])
            assert np.linalg.norm(moved - weights[index]) < 0.02 * step
            weights[index] = moved


@pytest.mark.parametrize("has_bfloat16", [True, False])
def test_muon_is_pytorchs_and_in_float32_where_bfloat16_is_emulated(has_bfloat16, monkeypatch):
    """With bfloat16 to the last bits of it; float32 differs from that by bfloat16's rounding, no more."""
    monkeypatch.setattr("bertsmith.training.optimizer.computes_bfloat16", lambda device: has_bfloat16)
    torch.manual_seed(0)
    start = Stack()
    settings = OptimizerConfig(name="muon", learning_rate=RATE, weight_decay=0.3, momentum=0.9)
    ours, theirs = copy.deepcopy(start), copy.deepcopy(start)
    optimizer = build_optimizer(ours, settings)
    peer = torch.optim.Muon(
        [layer.weight for layer in theirs.layers],
        lr=RATE,
        weight_decay=0.3,
        momentum=0.9,
        adjust_lr_fn="match_rms_adamw",
    )
    for _ in range(5):
        for one, other in zip(ours.layers, theirs.layers, strict=True):
            one.weight.grad = torch.randn(one.weight.shape)
            other.weight.grad = one.weight.grad.clone()
        optimizer.step()
        peer.step()
    for one, other, begin in zip(ours.layers, theirs.layers, start.layers, strict=True):
        moved = (other.weight - begin.weight).norm()
        difference = (one.weight - other.weight).norm() / moved
        assert difference < (1e-3 if has_bfloat16 else 0.02)
        assert has_bfloat16 or difference > 1e-4, "the precision has no effect"


def test_a_step_of_muon_is_nearly_orthogonal_and_as_large_as_adamws():
    torch.manual_seed(0)
    model = Stack()
    optimizer = build_optimizer(model, OptimizerConfig(name="muon", learning_rate=1.0, weight_decay=0.0))
    before = [layer.weight.detach().clone() for layer in model.layers]
    for layer in model.layers:
        layer.weight.grad = torch.randn(layer.weight.shape) * torch.logspace(-0.5, 0.5, layer.weight.shape[1])
    optimizer.step()
    for layer, start in zip(model.layers, before, strict=True):
        step = (layer.weight.detach() - start).double()
        lengths = torch.linalg.svdvals(step) / (0.2 * max(step.shape) ** 0.5)
        assert lengths.max() < 1.3
        assert lengths.median() > 0.6
        assert step.square().mean().sqrt() == pytest.approx(0.2, rel=0.2)


def test_muon_takes_the_layers_matrices_and_adamw_the_rest_with_its_own_rate():
    config = BertConfig(vocab_size=11, hidden_size=8, num_layers=2, num_heads=2, intermediate_size=16)
    model = BertForPreTraining(config)
    settings = OptimizerConfig(name="muon", learning_rate=0.02, adam_rate=1e-3, weight_decay=0.3)
    optimizer = build_optimizer(model, settings)
    found = {}
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            assert parameter not in found, "a tied weight belongs to one group, once"
            found[parameter] = ("momentum" in group, group["initial_lr"], group["lr"], group["weight_decay"])
    assert len(found) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        is_matrix = parameter.ndim == 2
        if "layers." in name and is_matrix:
            assert found[parameter] == (True, 0.02, 0.02, 0.3), name
        else:
            assert found[parameter] == (False, 1e-3, 1e-3, 0.3 if is_matrix else 0.0), name
    shared = build_optimizer(model, OptimizerConfig(name="muon", learning_rate=0.02))
    assert {group["initial_lr"] for group in shared.param_groups} == {0.02}


def test_beside_muon_adamw_is_adamw():
    models = []
    for name in ("muon", "adamw"):
        torch.manual_seed(0)
        model = Stack()
        optimizer = build_optimizer(model, OptimizerConfig(name=name, learning_rate=RATE))
        for seed in range(5):
            torch.manual_seed(seed)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape)
            for group in optimizer.param_groups:
                group["lr"] = 0.5 * group["initial_lr"]
            optimizer.step()
        models.append(dict(model.named_parameters()))
    for name, parameter in models[0].items():
        alike = torch.equal(parameter, models[1][name])
        assert alike == (not (name.startswith("layers") and name.endswith("weight"))), name


def test_muon_without_layers_is_refused():
    with pytest.raises(InputError, match="muon needs trainable matrices in stacked layers"):
        build_optimizer(Pair(np.ones(3)), OptimizerConfig(name="muon"))


@pytest.mark.parametrize("name", ["lamb", "muon"])
def test_the_state_survives_pytorchs_own_state_dict(name):
    """What torch.distributed.checkpoint goes through."""
    models = []
    for stops in (False, True):
        torch.manual_seed(0)
        model = Stack()
        optimizer = build_optimizer(model, OptimizerConfig(name=name, learning_rate=RATE))
        for seed in range(4):
            if stops and seed == 2:
                stored = copy.deepcopy(optimizer.state_dict())
                optimizer = build_optimizer(model, OptimizerConfig(name=name, learning_rate=RATE))
                optimizer.load_state_dict(stored)
            torch.manual_seed(seed)
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape)
            optimizer.step()
        models.append(model.state_dict())
    for key, value in models[0].items():
        assert torch.equal(value, models[1][key]), key


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
        ("power", 0.0),
        ("decay_fraction", 1.5),
        ("adam_rate", -1.0),
        ("momentum", 1.0),
    ],
)
def test_numbers_out_of_range_are_refused(name, value):
    with pytest.raises(InputError, match=f"{name} is {value}"):
        OptimizerConfig(**{name: value})


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"name": "sgd"}, "optimizer 'sgd' is unknown"),
        ({"schedule": "step"}, "schedule 'step' is unknown"),
        ({"power": 2.0}, "power is 2.0, but only schedule 'power' reads it, and schedule is 'linear'"),
        ({"schedule": "cosine", "decay_fraction": 0.1}, "decay_fraction is 0.1, but only schedule 'wsd'"),
        ({"adam_rate": 1e-3}, "adam_rate is 0.001, but only name 'muon' reads it"),
        ({"name": "lamb", "momentum": 0.9}, "momentum is 0.9, but only name 'muon' reads it"),
        ({"schedule": "wsd", "warmup_fraction": 0.9}, "more than the whole run"),
    ],
)
def test_settings_without_a_use_are_refused(settings, message):
    with pytest.raises(InputError, match=message):
        OptimizerConfig(**settings)


LAYERS, WIDTH = 3, 8


def small_classifier() -> BertForClassification:
    torch.manual_seed(0)
    shape = BertConfig(vocab_size=11, hidden_size=WIDTH, num_layers=LAYERS, num_heads=2, intermediate_size=16)
    return BertForClassification(shape, 2)


def expected_factor(name: str, decay: float) -> float:
    """By the names: head and pooler 1, the top layer one factor, the embeddings one below the lowest."""
    if name.startswith("bert.embeddings."):
        return decay ** (LAYERS + 1)
    if name.startswith("bert.layers."):
        return decay ** (LAYERS - int(name.split(".")[2]))
    assert name.startswith(("pooler.", "classifier."))
    return 1.0


@pytest.mark.parametrize("name", ["adamw", "bert-adam", "lamb", "muon"])
def test_the_rate_falls_layer_by_layer_below_the_head(name):
    model = small_classifier()
    config = OptimizerConfig(name=name, learning_rate=0.01, weight_decay=0.3)
    optimizer = build_optimizer(model, config, layer_rate_decay=0.5)
    found = {}
    for group in optimizer.param_groups:
        assert group["lr"] == group["initial_lr"]
        for parameter in group["params"]:
            assert parameter not in found
            found[parameter] = (group["initial_lr"], group["weight_decay"])
    assert len(found) == len(list(model.parameters()))
    for key, parameter in model.named_parameters():
        rate = pytest.approx(0.01 * expected_factor(key, 0.5), rel=1e-12)
        assert found[parameter] == (rate, 0.3 if parameter.ndim == 2 else 0.0), key
    # The log shows the first group's rate: the peak one.
    assert optimizer.param_groups[0]["initial_lr"] == 0.01 or name == "muon"


def test_with_layer_rates_each_weight_moves_as_adamw_with_that_rate_alone_would_move_it():
    decay, steps = 0.7, 5
    model = small_classifier()
    start = {name: value.detach().clone() for name, value in model.named_parameters()}
    optimizer = build_optimizer(model, OptimizerConfig(learning_rate=RATE), layer_rate_decay=decay)
    for step in range(steps):
        torch.manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape)
        optimizer.step()
    gradients: dict[str, list[torch.Tensor]] = {name: [] for name in start}
    for step in range(steps):
        torch.manual_seed(step)
        for name, value in start.items():
            gradients[name].append(torch.randn(value.shape))
    for name, parameter in model.named_parameters():
        alone = nn.Parameter(start[name].clone())
        rate = RATE * expected_factor(name, decay)
        plain = torch.optim.AdamW(
            [alone], lr=rate, betas=(BETA1, BETA2), eps=EPS, weight_decay=DECAY if alone.ndim == 2 else 0.0
        )
        for gradient in gradients[name]:
            alone.grad = gradient
            plain.step()
        torch.testing.assert_close(parameter.detach(), alone.detach(), rtol=1e-5, atol=1e-7)
        assert not torch.equal(parameter.detach(), start[name]), name


def test_without_layer_rates_the_groups_are_the_two_of_the_original():
    """Stored optimiser states hold the parameters in this order."""
    model = small_classifier()
    plain = build_optimizer(model, OptimizerConfig())
    assert [group["weight_decay"] for group in plain.param_groups] == [0.01, 0.0]
    parameters = list(model.parameters())
    for group, is_matrix in zip(plain.param_groups, (True, False), strict=True):
        kept = [parameter for parameter in parameters if (parameter.ndim >= 2) == is_matrix]
        assert all(a is b for a, b in zip(group["params"], kept, strict=True))


def test_a_tied_weight_learns_at_the_rate_of_the_embeddings():
    shape = BertConfig(vocab_size=11, hidden_size=8, num_layers=2, num_heads=2, intermediate_size=16)
    model = BertForPreTraining(shape)
    optimizer = build_optimizer(model, OptimizerConfig(learning_rate=1.0), layer_rate_decay=0.5)
    rates = [
        group["lr"]
        for group in optimizer.param_groups
        for parameter in group["params"]
        if parameter is model.bert.embeddings.word.weight
    ]
    assert rates == [0.125]


def test_layer_rates_without_layers_are_refused():
    with pytest.raises(InputError, match="layer-rate-decay needs a model with a stack of layers"):
        build_optimizer(Pair(np.ones(3)), OptimizerConfig(), layer_rate_decay=0.9)
