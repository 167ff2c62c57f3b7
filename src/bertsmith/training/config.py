"""Settings of optimiser, schedule and checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bertsmith.errors import InputError

OPTIMIZERS = ("adamw", "bert-adam")
PRECISIONS = ("auto", "float32", "bfloat16")


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients change weights.

    Attributes:
        name: "adamw" (with bias correction) or "bert-adam" (the original's: none, so early steps are larger).
        learning_rate: the peak rate.
        beta1: decay of the first moment.
        beta2: decay of the second moment.
        eps: added outside the root.
        weight_decay: decoupled, times the rate; not on biases and LayerNorm, embeddings are decayed.
        max_grad_norm: global norm at which gradients are clipped; 0: never.
        warmup_fraction: share of the run in which the rate rises from 0 to its peak; then it falls linearly
            to 0.

    Source: optimization.py, AdamWeightDecayOptimizer and create_optimizer.
    """

    name: str = "adamw"
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    warmup_fraction: float = 0.1

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise InputError(f"optimizer {self.name!r} is unknown; take one of {', '.join(OPTIMIZERS)}")
        if not 0.0 < self.learning_rate < math.inf:
            raise InputError(f"learning_rate is {self.learning_rate}; it has to be above 0 and finite")
        for name in ("beta1", "beta2"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InputError(f"{name} is {getattr(self, name)}; it has to be at least 0 and below 1")
        for name in ("eps", "weight_decay", "max_grad_norm"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it has to be at least 0 and finite")
        if not 0.0 <= self.warmup_fraction < 1.0:
            raise InputError(
                f"warmup_fraction is {self.warmup_fraction}; it has to be at least 0 and below 1"
            )
