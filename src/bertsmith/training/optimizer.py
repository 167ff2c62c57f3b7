"""Optimisers: the original's Adam, the standard AdamW, LAMB, and Muon with AdamW."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith.device import computes_bfloat16
from bertsmith.errors import InputError
from bertsmith.training.config import OptimizerConfig

# At this many steps both corrections of Adam's moments are 1 in every floating-point format.
_CORRECTED = 1e9
_RMS_OF_ADAMW = 0.2
_POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # of Newton-Schulz: factors of the first, third and fifth power
_NEWTON_SCHULZ_STEPS = 5


class BertAdam(torch.optim.AdamW):
    """The original's "Adam": no bias correction, eps outside the root, decoupled weight decay.

    Without the correction early steps are larger than Adam's: 3.2 times at the first, 1.26 times at step
    1000. It is AdamW as it is after very many steps, when the correction has become 1; so each parameter's
    step count simply starts there, and PyTorch's fused kernel does the work.

    Source: optimization.py, AdamWeightDecayOptimizer.apply_gradients.
    """

    def __init__(self, params: Any, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, fused=True)
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter] = {
                    "step": torch.full((), _CORRECTED, dtype=torch.float32, device=parameter.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }


class Lamb(torch.optim.Optimizer):
    """Adam's step with decoupled decay, stretched to the length of the parameter it changes.

    The step of each parameter is multiplied by |parameter| / |step| (by 1 where either is 0), so the rate
    says by which share a matrix may change: that keeps training with very large batches stable. Parameters
    without decay, biases and LayerNorm, are left out of it. Both moments are corrected for their start at 0.

    Everything stays on the device, and each operation is one call for all parameters of a group.

    Args:
        params: groups with their rate and decay; in ``layerwise`` ones the step is stretched.
        betas: decays of both moments.
        eps: added outside the root.

    Source: arXiv 1904.00962, algorithm 2, with its authors' implementation (tensorflow_addons, LAMB): the
        norm itself is the scale of the step, and what is excluded from decay is excluded from the ratio.
    """

    def __init__(self, params: Any, betas: tuple[float, float], eps: float) -> None:
        super().__init__(params, {"betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Change the parameters that have a gradient."""
        assert closure is None, "a step evaluates nothing"
        for group in self.param_groups:
            parameters: list[Tensor] = [one for one in group["params"] if one.grad is not None]
            if parameters:
                self._step_group(parameters, group)

    def _step_group(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        states = [self._state_of(parameter) for parameter in parameters]
        steps = [state["step"] for state in states]
        torch._foreach_add_(steps, 1.0)
        updates = _adam_steps([parameter.grad for parameter in parameters], states, steps, group)
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["layerwise"]:
            weight_norms = torch.stack(torch._foreach_norm(parameters))  # (parameters,)
            update_norms = torch.stack(torch._foreach_norm(updates))
            has_ratio = (weight_norms > 0) & (update_norms > 0)
            ratios = torch.where(has_ratio, weight_norms / update_norms, 1.0)
            torch._foreach_mul_(updates, list(ratios.unbind()))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _state_of(self, parameter: Tensor) -> dict[str, Tensor]:
        state: dict[str, Tensor] = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state["exp_avg"] = torch.zeros_like(parameter)
            state["exp_avg_sq"] = torch.zeros_like(parameter)
        return state


def _adam_steps(
    gradients: list[Any], states: list[dict[str, Tensor]], steps: list[Tensor], group: dict[str, Any]
) -> list[Tensor]:
    """Move the moments on; return Adam's steps without rate and decay."""
    firsts = [state["exp_avg"] for state in states]
    seconds = [state["exp_avg_sq"] for state in states]
    beta1, beta2 = group["betas"]
    torch._foreach_lerp_(firsts, gradients, 1 - beta1)
    torch._foreach_mul_(seconds, beta2)
    torch._foreach_addcmul_(seconds, gradients, gradients, 1 - beta2)
    roots = list(torch._foreach_div(seconds, _corrections(beta2, steps)))
    torch._foreach_sqrt_(roots)
    torch._foreach_add_(roots, group["eps"])
    updates = list(torch._foreach_div(firsts, _corrections(beta1, steps)))
    torch._foreach_div_(updates, roots)
    return updates


def _corrections(beta: float, steps: list[Tensor]) -> list[Tensor]:
    """Return ``1 - beta ** step``; through expm1, for in float32 the difference has no digits."""
    exponents = list(torch._foreach_mul(steps, math.log(beta) if beta else -math.inf))
    torch._foreach_expm1_(exponents)
    torch._foreach_neg_(exponents)
    return exponents


class Muon(torch.optim.Optimizer):
    """Orthogonal steps for matrices: all directions of a step are equally long.

    The step is the orthogonalised momentum (Nesterov's), scaled to the size of AdamW's, so that rates and
    decay mean the same for both. It is ``torch.optim.Muon`` but for the precision of its products: that one
    has bfloat16 everywhere, and where a processor emulates it, float32 is twenty to fifty times faster.

    Args:
        groups: matrices with their rate and decay.
        momentum: share of the momentum that a step keeps.

    Source: Keller Jordan, "Muon: An optimizer for hidden layers in neural networks" (2024); the scale:
        arXiv 2502.16982, section 2.2.
    """

    def __init__(self, groups: list[dict[str, Any]], momentum: float) -> None:
        super().__init__(groups, {"momentum": momentum})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Change the matrices that have a gradient."""
        assert closure is None, "a step evaluates nothing"
        for group in self.param_groups:
            rate, momentum = group["lr"], group["momentum"]
            for parameter in group["params"]:
                gradient = parameter.grad
                if gradient is None:
                    continue
                state = self.state[parameter]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(gradient)
                buffer = state["momentum_buffer"].lerp_(gradient, 1 - momentum)
                update = orthogonalized(gradient.lerp(buffer, momentum))
                parameter.mul_(1 - rate * group["weight_decay"])
                parameter.add_(update, alpha=-rate * _RMS_OF_ADAMW * math.sqrt(max(parameter.shape)))


def orthogonalized(matrix: Tensor) -> Tensor:
    """Return the matrix with all its singular values brought near 1 (about 0.7 to 1.2).

    Five Newton-Schulz steps, in bfloat16 where the device computes in it, else in float32.

    Args:
        matrix: float (rows, columns).

    Source: Keller Jordan, "Muon" (2024): the polynomial, its steps and the least norm.
    """
    precision = torch.bfloat16 if computes_bfloat16(matrix.device) else torch.float32
    is_tall = matrix.size(0) > matrix.size(1)
    wide = (matrix.T if is_tall else matrix).to(precision)
    wide = wide / wide.norm().clamp(min=1e-7)
    first, third, fifth = _POLYNOMIAL
    for _ in range(_NEWTON_SCHULZ_STEPS):
        gram = wide @ wide.T
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=third, alpha=fifth), wide, beta=first)
    return wide.T if is_tall else wide


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for the matrices of the stacked layers, AdamW for every other parameter, as one optimiser.

    The groups and the state are this object's, which hands them over at each step.

    Args:
        matrices: Muon's groups.
        others: AdamW's groups.
        momentum: Muon's.
        betas: AdamW's.
        eps: AdamW's.
    """

    def __init__(
        self,
        matrices: list[dict[str, Any]],
        others: list[dict[str, Any]],
        momentum: float,
        betas: tuple[float, float],
        eps: float,
    ) -> None:
        self._muon = Muon(matrices, momentum)
        self._adamw = torch.optim.AdamW(others, betas=betas, eps=eps, fused=True)
        super().__init__([*self._muon.param_groups, *self._adamw.param_groups], {})
        self._num_matrix_groups = len(matrices)

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Change the parameters that have a gradient."""
        assert closure is None, "a step evaluates nothing"
        number = self._num_matrix_groups
        for part, groups in (
            (self._muon, self.param_groups[:number]),
            (self._adamw, self.param_groups[number:]),
        ):
            part.param_groups, part.state = groups, self.state
            part.step()


def parameter_groups(
    parameters: Iterable[nn.Parameter],
    config: OptimizerConfig,
    factors: Mapping[nn.Parameter, float] | None = None,
) -> list[dict[str, Any]]:
    """Return the groups with and without weight decay, each with its peak rate as ``lr`` and ``initial_lr``.

    Biases and LayerNorm are the parameters with one axis; they are not decayed. Matrices and embeddings are.

    Args:
        parameters: to be trained.
        config: the rate, and how much is decayed.
        factors: of the rate; the groups of the highest come first; ``None``: 1 everywhere.

    Source: optimization.py, _do_use_weight_decay.
    """
    members: dict[tuple[float, bool], list[nn.Parameter]] = {}
    for parameter in parameters:
        factor = 1.0 if factors is None else factors[parameter]
        members.setdefault((factor, parameter.ndim >= 2), []).append(parameter)
    groups = []
    for (factor, is_decayed), group in sorted(members.items(), key=lambda item: item[0], reverse=True):
        rate = factor * config.learning_rate
        decay = config.weight_decay if is_decayed else 0.0
        groups.append({"params": group, "weight_decay": decay, "lr": rate, "initial_lr": rate})
    return groups


def layer_factors(model: nn.Module, decay: float) -> dict[nn.Parameter, float]:
    """Return each parameter's share of the learning rate: less, the farther it is from the head.

    What the model registers after its stack of layers, such as heads, learns at the full rate; the top layer
    at ``decay`` times that, each layer at ``decay`` times the one above it, and what is registered before the
    stack, the embeddings, at ``decay`` times the lowest layer. A tied weight belongs to its first place.

    Raises:
        InputError: the model has no stack of layers.

    Source: arXiv 1801.06146, section 3.2 (discriminative fine-tuning); arXiv 2006.05987, section 2.
    """
    stack = next((module for module in model.modules() if isinstance(module, nn.ModuleList)), None)
    if stack is None:
        raise InputError("layer-rate-decay needs a model with a stack of layers; leave it at 1")
    levels = {parameter: number for number, layer in enumerate(stack, 1) for parameter in layer.parameters()}
    factors: dict[nn.Parameter, float] = {}
    head, level = len(stack) + 1, 0
    for parameter in model.parameters():
        level = levels.get(parameter, 0 if level == 0 else head)
        factors[parameter] = decay ** (head - level)
    return factors


def build_optimizer(
    model: nn.Module, config: OptimizerConfig, layer_rate_decay: float = 1.0
) -> torch.optim.Optimizer:
    """Return the optimiser of a model; each group keeps its peak rate as ``initial_lr`` for the schedule.

    A tied weight is in one group, once.

    Args:
        model: whose parameters are trained.
        config: which optimiser, and its rates.
        layer_rate_decay: how much of the rate remains from one layer to the one below it; 1: all.

    Raises:
        InputError: Muon for a model without matrices in stacked layers, or a layer-wise rate without layers.
    """
    factors = None if layer_rate_decay == 1.0 else layer_factors(model, layer_rate_decay)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    rate, betas, eps = config.learning_rate, (config.beta1, config.beta2), config.eps
    if config.name == "muon":
        return _muon(model, parameters, config, factors)
    groups = parameter_groups(parameters, config, factors)
    if config.name == "lamb":
        return Lamb([group | {"layerwise": group["params"][0].ndim >= 2} for group in groups], betas, eps)
    if config.name == "bert-adam":
        return BertAdam(groups, lr=rate, betas=betas, eps=eps)
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=eps, fused=True)


def _muon(
    model: nn.Module,
    parameters: list[nn.Parameter],
    config: OptimizerConfig,
    factors: Mapping[nn.Parameter, float] | None,
) -> MuonWithAdamW:
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    stacked = {parameter for stack in stacks for parameter in stack.parameters() if parameter.ndim == 2}
    matrices = [parameter for parameter in parameters if parameter in stacked]
    if not matrices:
        raise InputError("optimizer muon needs trainable matrices in stacked layers; take adamw")
    others = [parameter for parameter in parameters if parameter not in stacked]
    return MuonWithAdamW(
        parameter_groups(matrices, config, factors),
        parameter_groups(
            others, replace(config, learning_rate=config.adam_rate or config.learning_rate), factors
        ),
        config.momentum,
        (config.beta1, config.beta2),
        config.eps,
    )
