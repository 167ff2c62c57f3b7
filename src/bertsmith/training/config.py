"""Settings of optimiser, schedule and checkpoints."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bertsmith.errors import InputError

OPTIMIZERS = ("adamw", "bert-adam", "lamb", "muon")
SCHEDULES = ("linear", "bert-linear", "power", "cosine", "wsd")
PRECISIONS = ("auto", "float32", "bfloat16")

# What only one choice of another setting reads.
_READ_BY = {
    "power": ("schedule", "power"),
    "decay_fraction": ("schedule", "wsd"),
    "adam_rate": ("name", "muon"),
    "momentum": ("name", "muon"),
}


@dataclass(frozen=True)
class OptimizerConfig:
    """How gradients change weights, and the rate over the run.

    Attributes:
        name: "adamw" (with bias correction), "bert-adam" (the original's: none, so early steps are larger),
            "lamb" (AdamW whose step is as long as the matrix, for large batches) or "muon" (orthogonal steps
            for the matrices of the layers, AdamW for the rest).
        learning_rate: the peak rate; of "muon": for the matrices, on AdamW's scale.
        beta1: decay of the first moment (of "muon": in its AdamW).
        beta2: decay of the second moment (of "muon": in its AdamW).
        eps: added outside the root.
        weight_decay: decoupled, times the rate; not on biases and LayerNorm, embeddings are decayed.
        max_grad_norm: global norm at which gradients are clipped; 0: never.
        warmup_fraction: share of the run in which the rate rises from 0 to its peak.
        schedule: how the rate falls to 0 afterwards: "linear", "bert-linear" (the original's: the line
            begins at the run's first step), "power" (linear to a power), "cosine", or "wsd" (stays at its
            peak, falls at the end).
        power: exponent of "power"; below 1 the rate stays high and falls late.
        decay_fraction: share of the run in which "wsd" falls.
        adam_rate: peak rate of AdamW beside "muon"; 0: the same as learning_rate.
        momentum: of "muon".

    Source: optimization.py, AdamWeightDecayOptimizer and create_optimizer; the others: docs/recipes.md.
    """

    name: str = "adamw"
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-6
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    warmup_fraction: float = 0.1
    schedule: str = "linear"
    power: float = 0.5
    decay_fraction: float = 0.2
    adam_rate: float = 0.0
    momentum: float = 0.95

    def __post_init__(self) -> None:
        if self.name not in OPTIMIZERS:
            raise InputError(f"optimizer {self.name!r} is unknown; take one of {', '.join(OPTIMIZERS)}")
        if self.schedule not in SCHEDULES:
            raise InputError(f"schedule {self.schedule!r} is unknown; take one of {', '.join(SCHEDULES)}")
        for name in ("learning_rate", "power"):
            if not 0.0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it has to be above 0 and finite")
        for name in ("beta1", "beta2", "momentum", "warmup_fraction"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise InputError(f"{name} is {getattr(self, name)}; it has to be at least 0 and below 1")
        for name in ("eps", "weight_decay", "max_grad_norm", "adam_rate"):
            if not 0.0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} is {getattr(self, name)}; it has to be at least 0 and finite")
        self._check_schedule()

    def _check_schedule(self) -> None:
        if not 0.0 < self.decay_fraction <= 1.0:
            raise InputError(f"decay_fraction is {self.decay_fraction}; it has to be above 0 and at most 1")
        if self.schedule == "wsd" and self.warmup_fraction + self.decay_fraction > 1.0:
            raise InputError(
                f"warmup_fraction {self.warmup_fraction} and decay_fraction {self.decay_fraction} are more "
                "than the whole run; together they may be at most 1"
            )
        for name, (chooser, choice) in _READ_BY.items():
            default = getattr(type(self), name)
            if getattr(self, name) != default and getattr(self, chooser) != choice:
                raise InputError(
                    f"{name} is {getattr(self, name)}, but only {chooser} {choice!r} reads it, and {chooser} "
                    f"is {getattr(self, chooser)!r}; leave it at {default}"
                )
