"""How far a run is, by steps or by the clock, and the learning rate that follows from it."""

from __future__ import annotations

import time
from collections.abc import Callable


def linear_rate(progress: float, warmup_fraction: float) -> float:
    """Return the factor of the peak learning rate: linear from 0 to 1 in the warm-up, then linear to 0.

    The update that follows ``k`` completed ones of ``T`` is made at progress ``k/T``; so, as in the original,
    the first update has rate 0 when there is a warm-up. One difference: here the fall starts at the peak. In
    the original its line starts at step 0, so the rate drops by the factor ``1 - warmup_fraction`` at the end
    of the warm-up; from there on the original's rate is ours times that factor.

    Args:
        progress: share of the run that is done, 0 to 1.
        warmup_fraction: share of the run in which the rate rises; 0: the run starts at the peak.

    Source: optimization.py, create_optimizer.
    """
    if progress < warmup_fraction:
        return progress / warmup_fraction
    return max(0.0, (1.0 - progress) / (1.0 - warmup_fraction))


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
