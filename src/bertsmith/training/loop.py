"""The training loop: a generator of steps that knows no BERT, no files and no log."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from bertsmith import distributed
from bertsmith.errors import RunError
from bertsmith.layout import Tokens
from bertsmith.randomness import seed_of
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.schedule import Budget, rate_of


class Batch(Protocol):
    """What the loop itself reads of a batch."""

    @property
    def tokens(self) -> Tokens:
        """The inputs; the loop counts them."""
        ...


BatchT = TypeVar("BatchT", bound=Batch)
BatchT_contra = TypeVar("BatchT_contra", bound=Batch, contravariant=True)


class Objective(Protocol[BatchT_contra]):
    """What is minimised and what is watched."""

    def counts(self, batch: BatchT_contra) -> dict[str, int]:
        """Return, before any forward pass, the number of targets behind each sum of the same name."""
        ...

    def sums(self, model: nn.Module, batch: BatchT_contra) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the summed losses (scalars with gradient) and the summed monitors (scalars without)."""
        ...


@dataclass(frozen=True)
class LoopSettings:
    """Settings of the loop.

    Attributes:
        seed: of the dropout.
        device: where model and batches are.
        precision: ``torch.float32``, or ``torch.bfloat16`` for autocast (weights stay float32).
        max_grad_norm: global norm at which gradients are clipped; 0: never. Clipped after accumulation; the
            original clips on each replica before the sum.
        rate: factor of the peak learning rate at a share of the run (``schedule.rate_of``).
        ahead: make the next step's batches while the device computes this one's; on a processor they would
            only share its time.
    """

    seed: int
    device: torch.device
    precision: torch.dtype = torch.float32
    max_grad_norm: float = 1.0
    rate: Callable[[float], float] = field(default_factory=lambda: rate_of(OptimizerConfig()))
    ahead: bool = False


@dataclass(frozen=True)
class Step:
    """What one optimiser step did, as host numbers.

    Attributes:
        step: completed steps, this one included.
        losses: mean loss of each name, over all micro-batches; names without a target are absent.
        monitors: mean of each watched value.
        learning_rate: the first parameter group's.
        grad_norm: global norm before clipping.
        tokens: tokens of the step on all ranks, without padding.
        seconds: time of the step, without what the caller did between steps.
    """

    step: int
    losses: dict[str, float]
    monitors: dict[str, float]
    learning_rate: float
    grad_norm: float
    tokens: int
    seconds: float

    @property
    def loss(self) -> float:
        """The minimised loss: the sum of the mean losses."""
        return sum(self.losses.values())


class NonFiniteLoss(RunError):
    """A loss or the gradient norm is NaN or infinite; the weights are those of the step before.

    Attributes:
        step: completed steps, the broken one not counted.
    """

    def __init__(self, step: int, values: dict[str, float]) -> None:
        self.step = step
        broken = ", ".join(f"{name} is {value}" for name, value in values.items() if not math.isfinite(value))
        super().__init__(f"step {step + 1}: {broken}")


def total_counts(objective: Objective[BatchT], micro_batches: Iterable[BatchT]) -> dict[str, int]:
    """Return the number of targets of each name, and of "tokens", over all micro-batches of all ranks.

    A batch without any target does not count: a rank that has no row of a short batch computes one for
    nothing, because the exchange of gradients needs every rank.
    """
    totals = {"tokens": 0}
    for batch in micro_batches:
        counts = objective.counts(batch)
        tokens = batch.tokens.layout.num_tokens if any(counts.values()) else 0
        for name, count in (counts | {"tokens": tokens}).items():
            totals[name] = totals.get(name, 0) + count
    return distributed.totals(totals)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: Objective[BatchT],
    batches: Callable[[int], Sequence[BatchT]],
    settings: LoopSettings,
    budget: Budget,
    start_step: int = 0,
) -> Iterator[Step]:
    """Train until the budget is used up, yielding after each optimiser step.

    The loss is the sum over names of (sum / count), both over all micro-batches of all ranks, so the result
    does not depend on how a batch is cut. Dropout is seeded for each (seed, step, micro-batch, rank): with
    the weights and the optimiser's state, ``start_step`` is all that a resumed run needs to go on bit by bit.

    Args:
        model: as ``distributed.replicated`` returns it; the caller may evaluate between steps.
        optimizer: its groups hold the peak rate as ``initial_lr``.
        objective: losses and monitors as sums and counts.
        batches: from the number of completed steps to the micro-batches of the next, on the device; every
            rank has the same number of them.
        settings: seed, device, precision, clipping, schedule.
        budget: says how far the run is.
        start_step: completed steps of a resumed run.

    Yields:
        The step that was just completed.

    Raises:
        NonFiniteLoss: before the weights change.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    model.train()
    step = start_step
    if distributed.is_replicated(model):
        _settle_exchange(model, objective, batches(step)[:1], settings)
        optimizer.zero_grad(set_to_none=True)
    prepared: Sequence[BatchT] | None = None
    while (progress := budget.progress(step)) < 1.0:
        begun = time.perf_counter()
        _set_rates(optimizer, settings.rate(progress))
        micro_batches = batches(step) if prepared is None else prepared
        counts = total_counts(objective, micro_batches)
        tokens = counts.pop("tokens")
        losses, monitors = _accumulate(model, objective, micro_batches, counts, settings, step)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        norm = distributed.whole(torch.nn.utils.get_total_norm(gradients))
        # Until the next line waits for it, a device works on what it was given.
        prepared = batches(step + 1) if settings.ahead and budget.progress(step + 1) < 1.0 else None
        values = _host_means(losses | monitors, counts, norm)
        _require_finite({name: values[name] for name in (*losses, "grad_norm")}, step, optimizer)
        if 0 < settings.max_grad_norm < values["grad_norm"]:
            torch._foreach_mul_(gradients, settings.max_grad_norm / values["grad_norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        yield Step(
            step=step,
            losses={name: values[name] for name in losses},
            monitors={name: values[name] for name in monitors},
            learning_rate=optimizer.param_groups[0]["lr"],
            grad_norm=values["grad_norm"],
            tokens=tokens,
            seconds=time.perf_counter() - begun,
        )


def _settle_exchange(
    model: nn.Module, objective: Objective[BatchT], micro_batches: Sequence[BatchT], settings: LoopSettings
) -> None:
    """Exchange gradients once for nothing.

    After the first exchange DDP orders them anew, in the order in which they were ready; and of more than two
    ranks' numbers the last bits of a sum depend on its place in the order. So that a resumed run goes on bit
    by bit, no step is made before that.
    """
    counts = total_counts(objective, micro_batches)
    _accumulate(model, objective, micro_batches, counts, settings, step=0)


def _set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    for group in optimizer.param_groups:
        group["lr"] = group["initial_lr"] * factor


def _require_finite(values: dict[str, float], step: int, optimizer: torch.optim.Optimizer) -> None:
    if not all(map(math.isfinite, values.values())):
        optimizer.zero_grad(set_to_none=True)
        raise NonFiniteLoss(step, values)


def _accumulate(
    model: nn.Module,
    objective: Objective[BatchT],
    micro_batches: Sequence[BatchT],
    counts: dict[str, int],
    settings: LoopSettings,
    step: int,
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Add the gradients of all micro-batches; return the sums of losses and monitors, without gradient."""
    losses: dict[str, Tensor] = {}
    monitors: dict[str, Tensor] = {}
    here = distributed.ranks()
    for index, batch in enumerate(micro_batches):
        _seed_dropout(
            settings.device, seed_of(settings.seed, "dropout", step, index * here.world + here.rank)
        )
        with distributed.exchange(model, last=index == len(micro_batches) - 1):
            with autocast(settings.device, settings.precision):
                loss_sums, monitor_sums = objective.sums(model, batch)
            shares = _shares(loss_sums, counts, here.world)
            if shares:
                # Tensor.backward is not typed in PyTorch.
                torch.stack(shares).sum().backward()  # type: ignore[no-untyped-call]
        _add(losses, loss_sums, counts)
        _add(monitors, monitor_sums, counts)
    return losses, monitors


def _shares(sums: dict[str, Tensor], counts: dict[str, int], world: int) -> list[Tensor]:
    """Return each loss over its count.

    The exchange takes the mean over ranks, but what is wanted is the sum; and it waits for the gradient of
    every weight, also of those whose loss has no target in this step.
    """
    shares = {name: total / (counts[name] / world) for name, total in sums.items() if counts[name]}
    if world > 1:
        shares |= {name: total * 0.0 for name, total in sums.items() if not counts[name]}
    return list(shares.values())


def _seed_dropout(device: torch.device, seed: int) -> None:
    """Seed the processor's generator and the device's.

    Not by ``torch.manual_seed``: where a kind of device is absent, that queues a call with its traceback for
    it, for ever, each time.
    """
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        torch.cuda.manual_seed(seed)


def _add(totals: dict[str, Tensor], sums: dict[str, Tensor], counts: dict[str, int]) -> None:
    for name, value in sums.items():
        if counts[name]:
            value = value.detach().float()
            totals[name] = totals[name] + value if name in totals else value


def _host_means(sums: dict[str, Tensor], counts: dict[str, int], norm: Tensor) -> dict[str, float]:
    """Bring everything to the host in one transfer (a device is waited for once a step)."""
    table = torch.stack([*sums.values(), norm.to(torch.float32)])
    distributed.summed(table[:-1])  # the norm is that of all ranks already
    host: list[float] = table.tolist()
    means = {name: value / counts[name] for name, value in zip(sums, host, strict=False)}
    return means | {"grad_norm": host[-1]}


def autocast(device: torch.device, precision: torch.dtype) -> torch.autocast:
    """Return the context in which matrix products run in ``precision``."""
    enabled = precision != torch.float32
    return torch.autocast(device.type, dtype=precision if enabled else torch.bfloat16, enabled=enabled)


@torch.no_grad()
def evaluate(
    model: nn.Module, objective: Objective[BatchT], batches: Iterable[BatchT], settings: LoopSettings
) -> dict[str, float]:
    """Return the mean of every loss and monitor over all batches of all ranks: divided once, nothing dropped.

    The model is in evaluation mode meanwhile, and in its former mode afterwards.

    Args:
        model: what ``train`` got, or that without its exchange of gradients.
        objective: losses and monitors as sums and counts.
        batches: this rank's; every rank has the same number, those without a target count nowhere.
        settings: device and precision.
    """
    was_training = model.training
    model.eval()
    sums: dict[str, Tensor] = {}
    counts: dict[str, int] = {}
    try:
        for batch in batches:
            with autocast(settings.device, settings.precision):
                losses, monitors = objective.sums(model, batch)
            values = losses | monitors
            for name, count in objective.counts(batch).items():
                counts[name] = counts.get(name, 0) + count
                value = values[name].double() if count else values[name].new_zeros((), dtype=torch.float64)
                sums[name] = sums[name] + value if name in sums else value
    finally:
        model.train(was_training)
    if not sums:
        return {}
    totals = distributed.summed(torch.stack([sums[name] for name in counts])).tolist()
    counts = distributed.totals(counts)
    return {name: total / counts[name] for name, total in zip(counts, totals, strict=True) if counts[name]}
