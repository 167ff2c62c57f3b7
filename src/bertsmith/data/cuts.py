"""Which places of an epoch's order each step reads, also while the batch grows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BatchWarmup:
    """A batch that grows linearly at the beginning of a run.

    Attributes:
        start: instances of the first step.
        steps: steps until the batch has its full size.
    """

    start: int
    steps: int


class Cuts:
    """Cuts the epochs of a run into the batches of its steps: a pure function of the step.

    Each epoch is read from its first place to its last, once; a batch never crosses the end of an epoch, so
    the last one of an epoch may be short.

    Attributes:
        num_examples: places of an epoch.
        batch_size: places of a full batch.
    """

    def __init__(self, num_examples: int, batch_size: int, warmup: BatchWarmup | None = None) -> None:
        self.num_examples = num_examples
        self.batch_size = batch_size
        self._growing: list[tuple[int, int, int]] = []
        epoch = place = 0
        for step in range(warmup.steps if warmup else 0):
            assert warmup is not None
            size = warmup.start + (batch_size - warmup.start) * step // warmup.steps
            end = min(place + size, num_examples)
            self._growing.append((epoch, place, end))
            epoch, place = (epoch, end) if end < num_examples else (epoch + 1, 0)
        self._epoch, self._place = epoch, place  # where full batches begin

    def of(self, step: int) -> tuple[int, int, int]:
        """Return the epoch of a step, from 0, and its places there: the first, and one past the last."""
        if step < len(self._growing):
            return self._growing[step]
        step -= len(self._growing)
        epoch, place = self._epoch, self._place
        rest = -(-(self.num_examples - place) // self.batch_size)  # steps to the end of that epoch
        if step >= rest:
            more, step = divmod(step - rest, -(-self.num_examples // self.batch_size))
            epoch, place = epoch + 1 + more, 0
        first = place + step * self.batch_size
        return epoch, first, min(first + self.batch_size, self.num_examples)
