"""How far a run is, by steps or by the clock, and the learning rate that follows from it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from bertsmith.training.config import OptimizerConfig


def rate_of(config: OptimizerConfig) -> Callable[[float], float]:
    """Return the factor of the peak learning rate as a function of progress, the share that is done.

    Linear from 0 to 1 in the warm-up, then to 0 as ``config.schedule`` says. The update that follows ``k``
    completed ones of ``T`` is made at progress ``k/T``; so, as in the original, the first update has rate 0
    when there is a warm-up. The fall starts at the peak, but for "bert-linear", the original's.

    Source: optimization.py, create_optimizer.
    """
    fall = _FALLS[config.schedule]

    def rate(progress: float) -> float:
        if progress < config.warmup_fraction:
            return progress / config.warmup_fraction
        return fall(progress, config)

    return rate


def _linear(progress: float, config: OptimizerConfig) -> float:
    return max(0.0, (1.0 - progress) / (1.0 - config.warmup_fraction))


def _bert_linear(progress: float, config: OptimizerConfig) -> float:
    """A line that starts at step 0: the rate drops by ``1 - warmup_fraction`` at the end of the warm-up."""
    return 1.0 - progress


def _power(progress: float, config: OptimizerConfig) -> float:
    """The linear fall to a power.

    Source: LAMB, arXiv 1904.00962, section 4 (power 1); NVIDIA's BERT with LAMB, PolyWarmUpScheduler (0.5).
    """
    return float(_linear(progress, config) ** config.power)


def _cosine(progress: float, config: OptimizerConfig) -> float:
    """Half a wave of a cosine. Source: SGDR, arXiv 1608.03983, equation 5, one period."""
    return 0.5 * (1.0 - math.cos(math.pi * _linear(progress, config)))


def _stable(progress: float, config: OptimizerConfig) -> float:
    """At the peak, then 1 - sqrt(share of the decay that is over), which is better than a line.

    Source: arXiv 2405.18392, section 4 (form and share of the decay); MiniCPM, arXiv 2404.06395, section 4.
    """
    into_decay = 1.0 - (1.0 - progress) / config.decay_fraction
    return 1.0 - math.sqrt(min(1.0, max(0.0, into_decay)))


_FALLS: dict[str, Callable[[float, OptimizerConfig], float]] = {
    "linear": _linear,
    "bert-linear": _bert_linear,
    "power": _power,
    "cosine": _cosine,
    "wsd": _stable,
}


class Budget:
    """What a run may use: a number of steps, or seconds of wall-clock time.

    The clock runs from construction on, so evaluations and checkpoints count. A resumed run passes the
    seconds that were used before.

    Attributes:
        steps: optimiser steps; ``None`` when the clock decides.
        seconds: wall-clock seconds; ``None`` when the steps decide.
        reserve_seconds: of ``seconds``, kept back for what follows the last step (evaluation, saving).
    """

    def __init__(
        self,
        steps: int | None = None,
        seconds: float | None = None,
        elapsed_seconds: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        assert (steps is None) != (seconds is None), "a budget is either steps or seconds"
        self.steps = steps
        self.seconds = seconds
        self.reserve_seconds = 0.0
        self._clock = clock
        self._start = clock() - elapsed_seconds

    @property
    def elapsed_seconds(self) -> float:
        """Wall-clock seconds used, those before a resume included."""
        return self._clock() - self._start

    def progress(self, step: int) -> float:
        """Return the share of the run that is done after ``step`` completed steps; 1: it is over."""
        if self.steps is not None:
            return min(1.0, step / self.steps)
        assert self.seconds is not None
        trainable = self.seconds - self.reserve_seconds
        return min(1.0, self.elapsed_seconds / trainable) if trainable > 0 else 1.0
