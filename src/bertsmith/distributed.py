"""Processes that train together: the only place that knows ranks.

``torchrun`` starts the processes and names each in its environment. A process alone has no process group, and
nothing here costs it anything.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from bertsmith.errors import InputError, RunError

T = TypeVar("T")

_HOST = torch.device("cpu")
_LOST = re.compile(r"gloo|nccl|connection (closed|reset|refused)|broken pipe", re.IGNORECASE)


@dataclass(frozen=True)
class Ranks:
    """Which of how many processes this one is.

    Attributes:
        rank: this process, from 0.
        world: all of them.
    """

    rank: int = 0
    world: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files, logs and shows progress."""
        return self.rank == 0

    def share(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return this process's share: every ``world``-th item, so that sorted items are dealt out evenly."""
        return items[self.rank :: self.world]


ALONE = Ranks()


def ranks() -> Ranks:
    """Return which of how many processes this one is; alone: 0 of 1."""
    return Ranks(dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else ALONE


@contextlib.contextmanager
def joined(sharded: bool = False) -> Iterator[None]:
    """Join the processes that ``torchrun`` started, for the time of the block.

    Numbers on the processor go over gloo, those on a GPU over NCCL; each process takes the GPU of its
    LOCAL_RANK. A process group that the caller has made is used and kept.

    Args:
        sharded: make a process group for a process alone, too, because sharding needs one.

    Raises:
        InputError: there are more processes than GPUs on this machine.
        RunError: another process has ended.
    """
    world = int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1
    if dist.is_initialized() or (world == 1 and not sharded):
        yield
        return
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        torch.cuda.set_device(_local_gpu(int(os.environ.get("LOCAL_RANK", "0"))))
    backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
    if world == 1:
        store = dist.HashStore()  # type: ignore[attr-defined]  # public, but not in its list of names
        dist.init_process_group(backend, store=store, rank=0, world_size=1)
    else:
        shared, rank, world = next(rendezvous("env://"))
        own = _of_these_processes(shared, Ranks(rank, world))
        dist.init_process_group(backend, store=own, rank=rank, world_size=world)
    # Whoever lets go of the group last waits for gloo's threads. If that is the C++ part of DDP, it waits
    # with Python's lock held, for a thread that may need the lock: so something of Python's holds it to the
    # end.
    atexit.register(lambda group: None, dist.group.WORLD)
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and (isinstance(error, RunError) or not _is_loss(error)):
            raise
        reason = " ".join(str(error).split())[:200]
        raise RunError(
            f"lost contact with another rank, so this one (rank {ranks().rank}) ends, too; why is in the "
            f"other's messages ({reason})"
        ) from error
    finally:
        dist.destroy_process_group()


def _of_these_processes(store: Store, here: Ranks) -> Store:
    """Return a part of a store that no process of an earlier attempt has written to.

    torchrun keeps its store when it restarts processes, and gloo and NCCL look up addresses in it: without
    this they may find those of the dead. Its count of restarts cannot tell attempts apart, for each node
    counts its own. So the main process names the attempt, and each other one goes by a name only when the
    main process has answered to a word of its own under that name.
    """
    word = secrets.token_hex(8)
    if here.is_main:
        store.set("attempt", word)
        for rank in range(1, here.world):
            store.set(f"{word}/answer/{rank}", store.get(f"{word}/question/{rank}").decode())
        return PrefixStore(word, store)
    deadline = time.monotonic() + dist.constants.default_pg_timeout.total_seconds()
    while time.monotonic() < deadline:
        attempt = store.get("attempt").decode()
        store.set(f"{attempt}/question/{here.rank}", word)
        answer = f"{attempt}/answer/{here.rank}"
        if store.check([answer]) and store.get(answer).decode() == word:
            return PrefixStore(attempt, store)
        time.sleep(0.01)
    raise RunError(f"rank {here.rank} had no answer from rank 0 within half an hour: is it still starting?")


def _is_loss(error: RuntimeError) -> bool:
    """Return whether an error of PyTorch's, which has no type of its own, is about other processes."""
    return _LOST.search(str(error)) is not None


def _local_gpu(local_rank: int) -> int:
    count = torch.cuda.device_count()
    if local_rank >= count:
        raise InputError(
            f"process {local_rank + 1} of this machine has no GPU: there are {count}; give torchrun "
            f"--nproc-per-node {count}"
        )
    return local_rank


def summed(table: Tensor) -> Tensor:
    """Return the sum of a tensor over all processes, in place; it has the same shape everywhere."""
    if dist.is_initialized():
        dist.all_reduce(table)
    return table


def totals(values: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of each value over all processes; the names and their order are the same everywhere."""
    if not dist.is_initialized():
        return dict(values)
    table = summed(torch.tensor(list(values.values()), dtype=torch.int64))
    return dict(zip(values, table.tolist(), strict=True))


def from_main(make: Callable[[], T]) -> T:
    """Let the main process make something and give it to all.

    Args:
        make: called in the main process only; what it returns can be pickled.

    Raises:
        Exception: what ``make`` raised, in the main process; the others end quietly with its exit code.
    """
    here = ranks()
    if here.world == 1:
        return make()
    if not here.is_main:
        received: T = _receive()
        return received
    with _failure_told():
        made = make()
    _send(made)
    return made


@contextlib.contextmanager
def main_first() -> Iterator[None]:
    """Run a block in the main process, then in the others; if it fails there, the others end quietly.

    So a mistake that every process would find is told once.
    """
    here = ranks()
    if here.world == 1:
        yield
    elif here.is_main:
        with _failure_told():
            yield
        _send(None)
    else:
        _receive()
        yield


@dataclass(frozen=True)
class _Failed:
    """What the main process sends instead of a value: the exit code of its error."""

    code: int


@contextlib.contextmanager
def _failure_told() -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        with contextlib.suppress(RuntimeError):  # the others may be gone
            _send(_Failed(2 if isinstance(error, InputError) else 1))
        raise


def _send(value: Any) -> None:
    dist.broadcast_object_list([value], device=_HOST)


def _receive() -> Any:
    content = [None]
    dist.broadcast_object_list(content, device=_HOST)
    if isinstance(content[0], _Failed):
        raise SystemExit(content[0].code)
    return content[0]


class SharedClock:
    """A clock that all processes read alike, so that they decide alike; it is the main process's.

    Alone it is the system's monotonic clock. With others it stands still between calls of ``agree``, which
    all processes make at the same points.
    """

    def __init__(self) -> None:
        self._now: float | None = None
        self.agree()

    def __call__(self) -> float:
        """Return seconds."""
        return time.monotonic() if self._now is None else self._now

    def agree(self, stop: bool = False) -> bool:
        """Set the clock; return whether any process wants to stop."""
        here = ranks()
        if here.world == 1:
            return stop
        mine = [time.monotonic() if here.is_main else 0.0, float(stop)]
        now, stops = summed(torch.tensor(mine, dtype=torch.float64)).tolist()
        self._now = now
        return bool(stops > 0)


def replicated(model: nn.Module) -> nn.Module:
    """Return a model whose gradients are exchanged with those of the other processes; alone: itself.

    Every process has all weights. A model that is sharded exchanges by itself and is returned as it is.
    """
    if ranks().world == 1 or is_sharded(model):
        return model
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(model, gradient_as_bucket_view=True)


def shard(model: nn.Module, blocks: Iterable[nn.Module]) -> None:
    """Spread the weights of a model over the processes, in place: each keeps its part of every weight.

    A block's weights are whole only while it computes.

    Args:
        model: what is left of it outside the blocks is one more block.
        blocks: parts of the model that compute one after another.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", (ranks().world,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)


def is_replicated(model: nn.Module) -> bool:
    """Return whether a model is one that ``replicated`` has made."""
    return hasattr(model, "no_sync")


def is_sharded(model: nn.Module) -> bool:
    """Return whether ``shard`` was applied to a model."""
    return hasattr(model, "set_requires_gradient_sync")


def whole_state(model: nn.Module) -> dict[str, Tensor]:
    """Return all weights of a model in one piece: of a sharded one, on the main process's host alone."""
    if not is_sharded(model):
        return model.state_dict()
    from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict

    state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    return {name: value for name, value in state.items() if isinstance(value, Tensor)}


def exchange(model: nn.Module, last: bool) -> contextlib.AbstractContextManager[None]:
    """Return the context of one micro-batch: gradients are exchanged in the last of a step only.

    What the optimiser sees then is the mean over processes.

    Args:
        model: from ``replicated``.
        last: this is the step's last micro-batch.
    """
    if is_sharded(model):
        model.set_requires_gradient_sync(last)  # type: ignore[operator]
    elif is_replicated(model) and not last:
        nested: contextlib.AbstractContextManager[None] = model.no_sync()  # type: ignore[operator]
        return nested
    return contextlib.nullcontext()


def whole(tensor: Tensor) -> Tensor:
    """Return a tensor that may be spread over the processes in one piece."""
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()
