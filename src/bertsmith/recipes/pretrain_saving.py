"""What a pretraining run writes: checkpoints while it trains, model and metrics at its end."""

from __future__ import annotations

import math
import time
from typing import Any

import torch

from bertsmith.bundle import model_card, save_bundle
from bertsmith.files import write_json
from bertsmith.recipes.pretrain_run import Parts, Standing
from bertsmith.recipes.pretrain_watch import summary
from bertsmith.runlog import RunLog
from bertsmith.training import checkpoint
from bertsmith.training.loop import NonFiniteLoss


def save_if_due(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Save every so many steps or seconds.

    Raises:
        NonFiniteLoss: as ``save_checkpoint``.
    """
    if _holds_back(parts, standing):
        return
    if parts.config.checkpoint_steps:
        is_due = standing.step % parts.config.checkpoint_steps == 0
    else:
        is_due = time.monotonic() - standing.last_saved >= parts.config.checkpoint_seconds
    if is_due:
        save_checkpoint(parts, standing, log)


def save_unless_saved(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Save, if the last checkpoint is of an earlier step.

    Raises:
        NonFiniteLoss: as ``save_checkpoint``.
    """
    if standing.checkpoint is None or standing.checkpoint.name != checkpoint.name_of(standing.step):
        save_checkpoint(parts, standing, log)


def save_the_start(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Save what a run that diverges before its first checkpoint goes back to."""
    if parts.config.on_divergence == "rollback" and standing.checkpoint is None:
        save_checkpoint(parts, standing, log)


def save_checkpoint(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Save a checkpoint of weights, optimiser and standing.

    Raises:
        NonFiniteLoss: the last step has broken the weights.
    """
    _require_sound_weights(parts, standing)
    log.sync()
    begun = time.monotonic()
    state = standing.state(parts.budget.elapsed_seconds) | parts.phases.state() | parts.fixed
    keep = parts.config.keep_checkpoints + _holds_back(parts, standing)
    standing.checkpoint = checkpoint.save(parts.out, standing.step, parts.model, parts.optimizer, state, keep)
    standing.last_saved = time.monotonic()
    standing.save_seconds = standing.last_saved - begun
    standing.keep_time_back(parts.budget)


def _holds_back(parts: Parts, standing: Standing) -> bool:
    """Return whether a checkpoint of now, perhaps a damaged one, must not push out the last good one."""
    return parts.config.on_divergence == "rollback" and standing.watcher.suspect_since is not None


def _require_sound_weights(parts: Parts, standing: Standing) -> None:
    largest = float(torch.nn.utils.get_total_norm(list(parts.model.parameters()), norm_type=math.inf))
    if not math.isfinite(largest):
        raise NonFiniteLoss(standing.step - 1, {"the largest weight": largest})


def write_results(parts: Parts, standing: Standing) -> dict[str, Any]:
    """Write the model directory and metrics.json; return the metrics and where the model is."""
    seconds = parts.budget.elapsed_seconds
    metrics: dict[str, Any] = {
        "step": standing.step,
        "tokens": standing.tokens,
        "epochs": round(parts.phases.epochs(standing.step), 3),
        "seconds": round(seconds, 1),
        "tokens_per_second": round(standing.tokens / seconds, 1),
        "parameters": parts.num_parameters,
        **{name: value for name, value in (standing.heldout | standing.probed).items() if name != "step"},
    }
    if len(parts.heldout):
        metrics["heldout_unigram_entropy"] = parts.levels.unigram
    metrics["uniform_entropy"] = parts.levels.uniform
    usage = f'bertsmith fill --model {parts.out / "model"} "text with one [MASK]"'
    facts = {"architecture": parts.fixed["settings"]["architecture"], "pretraining": metrics}
    save_bundle(
        parts.out / "model",
        parts.model,
        parts.tokenizer,
        {"task": "pretraining", "head": "pretraining", "labels": None, "seq_len": parts.phases.seq_len},
        model_card("A BERT pretrained with Bertsmith", facts, usage),
    )
    metrics |= summary(parts, standing)
    write_json(parts.out / "metrics.json", metrics)
    return metrics | {"model": str(parts.out / "model")}
