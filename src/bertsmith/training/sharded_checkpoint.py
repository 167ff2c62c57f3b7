"""Checkpoints of a model whose weights are spread over ranks, written while it goes on training.

Every rank writes its part of each tensor, as safetensors, through ``torch.distributed.checkpoint``:
``RUN/checkpoints/step-00001000/`` holds ``shard-*.safetensors`` and the same ``state.json`` as a plain
checkpoint, with the tensors under the same names. Either kind can be read by any number of ranks, sharded or
not.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save

from bertsmith import distributed
from bertsmith.errors import InputError
from bertsmith.files import atomic_directory
from bertsmith.training import checkpoint
from bertsmith.training.checkpoint import Checkpoint


class ShardedCheckpoints:
    """Writes one checkpoint at a time in the background.

    All ranks call the same methods at the same points of a run.

    Args:
        run: the run directory; all ranks see it.
    """

    def __init__(self, run: Path) -> None:
        self._run = run
        # Its own connections: the background's messages must not come between those of training.
        self._group = dist.new_group(backend="gloo")
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[Path | None] | None = None

    def start(
        self,
        step: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        state: Mapping[str, Any],
        keep: int,
    ) -> None:
        """Copy what is to be written to the host's memory and begin to write it; see ``checkpoint.save``."""
        assert self._writing is None, "the one before is finished first"
        shards = self._run / "checkpoints" / f".{checkpoint.name_of(step)}.shards"
        distributed.from_main(lambda: _make_room(self._run, shards))
        tensors = model.state_dict() | checkpoint.optimizer_tensors(model, optimizer)
        written = async_save(
            tensors,
            storage_writer=HuggingFaceStorageWriter(str(shards), save_distributed=True),
            process_group=self._group,
        )
        assert isinstance(written, Future)
        is_main = distributed.ranks().is_main
        self._writing = self._worker.submit(
            _complete, written, (self._run, step, dict(state), keep) if is_main else None, shards
        )

    def __enter__(self) -> ShardedCheckpoints:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._worker.shutdown(wait=True)  # what is being written is finished, whatever ends the run

    def finish(self) -> Path | None:
        """Wait for the checkpoint that is being written, if any, and return its directory.

        Raises:
            OSError: it could not be written.
        """
        if self._writing is None:
            return None
        writing, self._writing = self._writing, None
        error = writing.exception()
        path, reason = distributed.from_main(
            lambda: (None, str(error)) if error is not None else (writing.result(), "")
        )
        if reason:
            raise OSError(reason)
        return path


def _make_room(run: Path, shards: Path) -> None:
    checkpoint.clear_leftovers(run)
    shutil.rmtree(shards, ignore_errors=True)
    shards.mkdir(parents=True)


def _complete(
    written: Future[Any], rest: tuple[Path, int, dict[str, Any], int] | None, shards: Path
) -> Path | None:
    """Wait until all ranks have written; in the main one, make it a checkpoint and delete the old ones."""
    try:
        written.result()
        if rest is None:
            return None
        run, step, state, keep = rest
        directory = run / "checkpoints" / checkpoint.name_of(step)
        with atomic_directory(directory) as temporary:
            for shard in shards.iterdir():
                shard.rename(temporary / shard.name)
            checkpoint.write_state(temporary, step, state)
        checkpoint.keep_newest(run, step, keep)
        return directory
    except (OSError, CheckpointException) as error:
        raise OSError(_one_line(error)) from error
    finally:
        if rest is not None:
            shutil.rmtree(shards, ignore_errors=True)


def _one_line(error: BaseException) -> str:
    """Return what an error says, without the tracebacks that ``torch.distributed.checkpoint`` adds."""
    if isinstance(error, CheckpointException):
        return "; ".join(f"rank {rank}: {cause}" for rank, (cause, _) in error.failures.items())
    return " ".join(str(error).split())


def restore(found: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Fill a model and its optimiser, sharded or whole, from a checkpoint of either kind.

    Each rank reads its part, without the others.

    Raises:
        InputError: the tensors are not those of this model and this optimiser.
    """
    reader = HuggingFaceStorageReader(str(found.directory))
    parameters = dict(model.named_parameters())
    tensors = model.state_dict()
    states: dict[str, dict[str, Tensor]] = {}
    try:
        for key, stored in reader.read_metadata().state_dict_metadata.items():
            if key not in tensors:
                name, _, kind = key.rpartition("/")
                states.setdefault(name, {})[kind] = _like(stored, parameters[name])
        for name, state in states.items():
            tensors |= {f"{name}/{kind}": tensor for kind, tensor in state.items()}
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="torch.distributed is")  # on purpose
            load(tensors, storage_reader=reader, no_dist=True)
    except (RuntimeError, ValueError, KeyError, CheckpointException, SafetensorError) as error:
        raise InputError(
            f"{found.directory}: cannot be read as this model's checkpoint ({_one_line(error)[:300]})"
        ) from error
    optimizer.state.clear()
    for name, state in states.items():
        optimizer.state[parameters[name]] = state


def _like(stored: Any, parameter: Tensor) -> Tensor:
    """Return an empty tensor for a stored one: spread like its parameter if it has the same shape."""
    dtype = stored.properties.dtype
    if stored.size == parameter.shape:
        return torch.zeros_like(parameter, dtype=dtype)
    return torch.zeros(stored.size, dtype=dtype, device=parameter.device)
