"""Real processes that train together: forked from a server that has loaded the package already."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

TIMEOUT_SECONDS = 60
# Also what PyTorch imports only when it is used: a second and a half for each process.
_PRELOADED = [
    "tests.recipes.ranks",
    "torch._dynamo",
    "torch.utils.tensorboard",
    "torch.distributed.fsdp",
    "torch.distributed.checkpoint.state_dict",
]


@dataclass
class Ended:
    """How a process ended: what its function returned, its exit code, its traceback if it raised."""

    value: Any
    code: int | None
    error: str


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
        return port


def _child(
    connection: Connection, rank: int, world: int, port: int, function: Callable[..., Any], arguments: Any
) -> None:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("error")
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    try:
        connection.send((function(*arguments), ""))
    except Exception:
        connection.send((None, traceback.format_exc()))
        raise SystemExit(70) from None


def run_ranks(
    world: int, function: Callable[..., Any], *arguments: Any, timeout: float = TIMEOUT_SECONDS
) -> list[Ended]:
    """Run a function in processes 0 to ``world - 1``; it is importable and finds its rank in the environment.

    Processes that are not done in time are killed; their exit code is -9 then.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    port = free_port()
    started = []
    for rank in range(world):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(sender, rank, world, port, function, arguments))
        process.start()
        sender.close()
        started.append((process, receiver))
    deadline = time.monotonic() + timeout
    ended = []
    for process, receiver in started:
        value, error = None, ""
        try:
            if receiver.poll(max(0.0, deadline - time.monotonic())):
                value, error = receiver.recv()
        except EOFError:
            error = "ended without a word"
        process.join(max(0.0, deadline - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
        ended.append(Ended(value, process.exitcode, error))
    return ended


def values_of(ended: list[Ended]) -> list[Any]:
    """Return what the processes returned; all have to have ended well."""
    for rank, one in enumerate(ended):
        assert one.code == 0, f"rank {rank} ended with {one.code}: {one.error}"
    return [one.value for one in ended]
