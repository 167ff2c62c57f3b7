"""How a pretraining run is spread over ranks, and what may differ when it is resumed on others."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from bertsmith import distributed
from bertsmith.data.pairing import NO_LABEL
from bertsmith.data.shards import Instances
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForPreTraining
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.runlog import RunLog, SilentLog
from bertsmith.training import checkpoint
from bertsmith.training.checkpoint import Checkpoint

if TYPE_CHECKING:
    from bertsmith.training.sharded_checkpoint import ShardedCheckpoints

logger = logging.getLogger(__name__)

SHARDINGS = ("none", "fsdp")


def has_pairs(instances: Instances) -> bool:
    """Return whether the data has pairs: all instances have one, or none has."""
    return bool(instances.labels(np.array([0]))[0] != NO_LABEL)


def check_sharding(config: PretrainConfig) -> None:
    """Refuse a sharding that cannot be meant.

    Raises:
        InputError: it is unknown.
    """
    if config.sharding not in SHARDINGS:
        raise InputError(f"sharding {config.sharding!r} is unknown; take one of {', '.join(SHARDINGS)}")


def place(model: BertForPreTraining, sharding: str, has_pairs: bool, device: torch.device) -> None:
    """Put a model where it trains, in place: on the device, whole or this rank's part of it.

    Where no pairs are learnt from, the heads of next sentences are left out of training: the exchange of
    gradients would wait for theirs.
    """
    if not has_pairs:
        for head in (model.pooler, model.nsp_head):
            head.requires_grad_(False)
    if sharding == "fsdp":
        distributed.shard(model, model.bert.layers)
    else:
        model.to(device)


def restore(found: Checkpoint, model: BertForPreTraining, optimizer: torch.optim.Optimizer) -> None:
    """Fill model and optimiser from a checkpoint; whether they or it are sharded does not matter.

    Raises:
        InputError: the tensors are not those of this model and this optimiser.
    """
    if found.is_sharded or distributed.is_sharded(model):
        from bertsmith.training import sharded_checkpoint

        sharded_checkpoint.restore(found, model, optimizer)
    else:
        checkpoint.restore(found, model, optimizer)


def sharded_checkpoints(sharding: str, run: Path) -> ShardedCheckpoints | None:
    """Return what writes the checkpoints of a sharded model; ``None``: the model is whole."""
    if sharding != "fsdp":
        return None
    from bertsmith.training.sharded_checkpoint import ShardedCheckpoints

    return ShardedCheckpoints(run)


def open_log(run: Path, last_step: int) -> RunLog:
    """Return the log of a run; that of all ranks but the main one is silent."""
    if not distributed.ranks().is_main:
        return SilentLog()
    return RunLog(run, last_step=last_step, title="pretraining")


def machine_facts(config: PretrainConfig, device: str, threads: int) -> dict[str, Any]:
    """Return what computes a run and how it is cut: what may change on resuming, but not without a trace."""
    return {
        "device": device,
        "threads": threads,
        "torch": str(torch.__version__),
        "ranks": distributed.ranks().world,
        "micro_batch_size": config.micro_batch_size,
        "sharding": config.sharding,
    }


def warn_of_other_machine(then: dict[str, Any], now: dict[str, Any]) -> None:
    """Say when a resumed run cannot be bit-identical because what computes it has changed."""
    changed = [
        f"{name} was {then[name]}, is {value}"
        for name, value in now.items()
        if name in then and then[name] != value  # an earlier version did not note all
    ]
    if changed and distributed.ranks().is_main:
        logger.warning(
            "results can differ from the run never stopped, in the last bits and in what dropout drops; "
            "examples and masks are the same: %s",
            "; ".join(changed),
        )
