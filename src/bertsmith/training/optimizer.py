"""Optimisers: the original's Adam and the standard AdamW."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from bertsmith.training.config import OptimizerConfig

# At this many steps both corrections of Adam's moments are 1 in every floating-point format.
_CORRECTED = 1e9


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


def parameter_groups(model: nn.Module, config: OptimizerConfig) -> list[dict[str, Any]]:
    """Return the groups with and without weight decay; a tied weight is in one of them, once.

    Biases and LayerNorm are the parameters with one axis; they are not decayed. Matrices and embeddings are.

    Source: optimization.py, _do_use_weight_decay.
    """
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {
            "params": [parameter for parameter in trainable if parameter.ndim >= 2],
            "weight_decay": config.weight_decay,
        },
        {"params": [parameter for parameter in trainable if parameter.ndim < 2], "weight_decay": 0.0},
    ]
    return [group | {"initial_lr": config.learning_rate} for group in groups if group["params"]]


def build_optimizer(model: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Return the optimiser of a model; each group keeps its peak rate as ``initial_lr`` for the schedule."""
    groups = parameter_groups(model, config)
    betas = (config.beta1, config.beta2)
    if config.name == "bert-adam":
        return BertAdam(groups, lr=config.learning_rate, betas=betas, eps=config.eps)
    return torch.optim.AdamW(groups, lr=config.learning_rate, betas=betas, eps=config.eps, fused=True)
