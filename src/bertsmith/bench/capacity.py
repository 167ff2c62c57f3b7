"""What this device does with a model: time and memory of real training steps, by micro-batch size.

Steps of one and of two micro-batches take turns, so that the time of a micro-batch (forward and backward) and
that of the optimiser come apart: a plan needs both, for a step may hold any number of micro-batches.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch

from bertsmith.bench.synthetic import operations, random_batches
from bertsmith.bench.turns import synchronize
from bertsmith.data.batch import PretrainingBatch
from bertsmith.data.config import MaskingConfig
from bertsmith.device import held_memory, peak_memory
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.model.execution import prepare_layers
from bertsmith.objectives import PretrainingObjective
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import LoopSettings, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget

_TOKENS_AT_FIRST = 1024
_MOST_SIZES = 5
_GAIN = 1.02
"""A larger micro-batch has to be that much faster to be worth its memory."""


@dataclass(frozen=True)
class Workload:
    """What is measured.

    Attributes:
        architecture: with its vocabulary's size.
        optimizer: optimiser and clipping.
        masking: how many pieces are predicted.
        seq_len: pieces of a full instance.
        precision: of the matrix products.
        device: where.
        compiled: whether the layers are compiled.
        recomputed: whether activations are computed again in the backward pass.
    """

    architecture: BertConfig
    optimizer: OptimizerConfig
    masking: MaskingConfig
    seq_len: int
    precision: torch.dtype
    device: torch.device
    compiled: bool = False
    recomputed: bool = False


@dataclass(frozen=True)
class Timing:
    """One micro-batch size.

    Attributes:
        micro_batch_size: instances of a forward pass.
        tokens: of such a pass, the mean.
        operations: floating-point operations of its matrix products, forward and backward, the mean.
        seconds: forward and backward of one micro-batch, the median.
        optimizer_seconds: what a step takes besides.
        steps: how many steps were measured.
        peak_bytes: the most that the process (or on a GPU the allocator) held up to then; 0: unknown.
    """

    micro_batch_size: int
    tokens: float
    operations: float
    seconds: float
    optimizer_seconds: float
    steps: int
    peak_bytes: int

    def tokens_per_second(self, batch_size: int) -> float:
        """Return the speed of a step of ``batch_size`` instances, the optimiser's time included.

        A batch smaller than the micro-batch is taken to need its share of the time.
        """
        passes = batch_size / self.micro_batch_size
        return passes * self.tokens / (passes * self.seconds + self.optimizer_seconds)


@dataclass(frozen=True)
class Capacity:
    """What was measured of one workload.

    Attributes:
        parameters: of the model, tied ones once.
        optimizer_bytes: of the optimiser's state.
        base_bytes: what the process held before the model was made, its libraries loaded; 0: unknown.
        timings: of each micro-batch size, rising.
    """

    parameters: int
    optimizer_bytes: int
    base_bytes: int
    timings: tuple[Timing, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights, float32; the gradients are as many."""
        return 4 * self.parameters

    def activation_bytes(self, timing: Timing) -> int:
        """Return what the forward and backward pass of a micro-batch need besides weights and optimiser."""
        fixed = self.base_bytes + 2 * self.weight_bytes + self.optimizer_bytes
        return max(0, timing.peak_bytes - fixed)

    def total_bytes(self, timing: Timing) -> int:
        """Return what training with that micro-batch needs: all but the interpreter and its libraries."""
        return 2 * self.weight_bytes + self.optimizer_bytes + self.activation_bytes(timing)


def count_parameters(architecture: BertConfig) -> int:
    """Return the parameters of a model without making it."""
    with torch.device("meta"):
        model = BertForPreTraining(architecture)
    return sum(parameter.numel() for parameter in model.parameters())


def micro_batch_sizes(seq_len: int, batch_size: int) -> list[int]:
    """Return the sizes to try: from about a thousand tokens, doubled, never above the batch."""
    first = max(1, _TOKENS_AT_FIRST // seq_len)
    return sorted({min(first << step, batch_size) for step in range(_MOST_SIZES)})


def measure(
    workload: Workload, sizes: list[int], batch_size: int, seconds: float, most_bytes: int | None
) -> Capacity:
    """Train on made-up instances, one micro-batch size after another.

    It stops when a larger one is no faster, would not fit, or would not be done within the time.

    Args:
        workload: what is measured.
        sizes: micro-batch sizes, rising; the first is measured whatever it takes.
        batch_size: instances of the step that the sizes are compared for.
        seconds: of all.
        most_bytes: that the model may need here; ``None``: nobody knows.
    """
    small = BertConfig(workload.architecture.vocab_size, 64, 1, 1, 64, max_positions=workload.seq_len)
    _time_steps(*_trainer(replace(workload, architecture=small)), size=1, seconds=0.0)  # loads the kernels
    base = held_memory(workload.device) or 0
    model, optimizer, workload = _trainer(workload)
    ends = time.monotonic() + seconds
    capacity = Capacity(sum(parameter.numel() for parameter in model.parameters()), 0, base, ())
    for number, size in enumerate(sizes):
        left = ends - time.monotonic()
        if number > 0 and not _is_worth_it(capacity, batch_size, size, left, most_bytes):
            break
        timing = _time_steps(model, optimizer, workload, size, left / (len(sizes) - number))
        capacity = replace(
            capacity, optimizer_bytes=_state_bytes(optimizer), timings=(*capacity.timings, timing)
        )
    return capacity


def _trainer(workload: Workload) -> tuple[BertForPreTraining, torch.optim.Optimizer, Workload]:
    torch.manual_seed(0)
    model = BertForPreTraining(workload.architecture).to(workload.device)
    prepare_layers(model, workload.device, workload.compiled, workload.recomputed)
    return model, build_optimizer(model, workload.optimizer), workload


def _state_bytes(optimizer: torch.optim.Optimizer) -> int:
    values = (value for entry in optimizer.state.values() for value in entry.values())
    return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))


def _is_worth_it(
    capacity: Capacity, batch_size: int, size: int, seconds_left: float, most_bytes: int | None
) -> bool:
    last = capacity.timings[-1]
    growth = size / last.micro_batch_size
    if 4 * last.seconds * growth + 2 * last.optimizer_seconds > seconds_left:
        return False
    needed = capacity.total_bytes(last) + (growth - 1) * capacity.activation_bytes(last)
    if most_bytes is not None and needed > most_bytes:
        return False
    speeds = [timing.tokens_per_second(batch_size) for timing in capacity.timings]
    return len(speeds) < 2 or speeds[-1] > speeds[-2] * _GAIN


def _time_steps(
    model: BertForPreTraining,
    optimizer: torch.optim.Optimizer,
    workload: Workload,
    size: int,
    seconds: float,
) -> Timing:
    """Measure one size: a step to warm up, then steps of one and of two micro-batches in turn."""
    shape = workload.architecture
    fetch = random_batches(
        shape.vocab_size, size, workload.seq_len, workload.masking, pairs=shape.num_segments > 1
    )
    used: list[PretrainingBatch] = []

    def batches(step: int) -> list[PretrainingBatch]:
        parts = [fetch(2 * step + part)[0] for part in range(1 + (step > 0 and step % 2 == 0))]
        used.extend(parts)
        return [part.to(workload.device) for part in parts]

    settings = LoopSettings(
        0,
        workload.device,
        workload.precision,
        workload.optimizer.max_grad_norm,
        ahead=workload.device.type == "cuda",  # as pretrain does
    )
    steps = train(model, optimizer, PretrainingObjective(), batches, settings, Budget(steps=1 << 40))
    single, double = _seconds_of(steps, workload.device, seconds)
    one, two = statistics.median(single), statistics.median(double)
    # With noise two may look cheaper than one twice; then the optimiser's part is too small to be seen.
    micro = two - one if 0 < two - one <= one else two / 2
    return Timing(
        micro_batch_size=size,
        tokens=statistics.fmean(batch.tokens.layout.num_tokens for batch in used),
        operations=statistics.fmean(operations(workload.architecture, batch) for batch in used),
        seconds=micro,
        optimizer_seconds=max(0.0, one - micro),
        steps=len(single) + len(double),
        peak_bytes=peak_memory(workload.device) or 0,
    )


def _seconds_of(
    steps: Iterator[object], device: torch.device, seconds: float
) -> tuple[list[float], list[float]]:
    """Return the times of the steps with one and of those with two micro-batches, at least one of each."""
    begun = time.monotonic()
    next(steps)  # warms up: memory, caches, kernels
    single: list[float] = []
    double: list[float] = []
    while not double or time.monotonic() - begun < seconds:
        for times in (single, double):
            synchronize(device)
            started = time.perf_counter()
            next(steps)
            synchronize(device)
            times.append(time.perf_counter() - started)
    return single, double


def extrapolate(few: Capacity, more: Capacity, layers: tuple[int, int], workload: Workload) -> Capacity:
    """Return the capacity of the whole model from two with fewer layers: everything grows straight with them.

    Args:
        few: measured with ``layers[0]`` layers.
        more: measured with ``layers[1]`` layers.
        layers: their numbers.
        workload: the whole model's.
    """
    steps = (workload.architecture.num_layers - layers[0]) / (layers[1] - layers[0])

    def onward(low: float, high: float) -> float:
        return max(low, low + (high - low) * steps)

    timings = tuple(
        replace(
            low,
            operations=onward(low.operations, high.operations),
            seconds=onward(low.seconds, high.seconds),
            optimizer_seconds=onward(low.optimizer_seconds, high.optimizer_seconds),
            peak_bytes=round(onward(low.peak_bytes, high.peak_bytes)),
        )
        for low, high in zip(few.timings, more.timings, strict=False)
    )
    return Capacity(
        parameters=count_parameters(workload.architecture),
        optimizer_bytes=round(onward(few.optimizer_bytes, more.optimizer_bytes)),
        base_bytes=few.base_bytes,
        timings=timings,
    )
