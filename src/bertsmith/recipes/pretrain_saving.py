"""What a pretraining run writes: checkpoints while it trains, model and metrics at its end.

All ranks take part; the main one writes.
"""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

import torch

from bertsmith import distributed
from bertsmith.bundle import save_bundle
from bertsmith.config import to_dict
from bertsmith.errors import RunError
from bertsmith.files import write_json
from bertsmith.model.bert import BertForPreTraining
from bertsmith.recipes.pretrain_card import pretrained_card
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
        is_due = parts.clock() - standing.last_saved >= parts.config.checkpoint_seconds
    if is_due:
        save_checkpoint(parts, standing, log)


def save_unless_saved(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Save, if the last checkpoint is of an earlier step.

    Raises:
        NonFiniteLoss: as ``save_checkpoint``.
    """
    finish_checkpoint(parts, standing, log)
    if standing.checkpoint is None or standing.checkpoint.name != checkpoint.name_of(standing.step):
        save_checkpoint(parts, standing, log)
        finish_checkpoint(parts, standing, log)


def save_the_start(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Save what a run that diverges before its first checkpoint goes back to."""
    if parts.config.on_divergence == "rollback" and standing.checkpoint is None:
        save_checkpoint(parts, standing, log)


def save_checkpoint(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Save a checkpoint of weights, optimiser and standing, which names it when it is whole.

    If it cannot be written, the run says so and goes on: what was computed would be lost otherwise, and the
    next checkpoint may find room. The one before stays whole. That of a sharded model is written in the
    background.

    Raises:
        NonFiniteLoss: the last step has broken the weights.
    """
    _require_sound_weights(parts, standing)
    begun = parts.clock()
    finish_checkpoint(parts, standing, log)
    state = standing.state(parts.budget.elapsed_seconds) | parts.phases.state() | parts.fixed
    keep = parts.config.keep_checkpoints + _holds_back(parts, standing)
    if parts.sharded is None:
        written = distributed.from_main(lambda: _written(parts, standing, log, state, keep))
        standing.checkpoint = written or standing.checkpoint
    elif distributed.from_main(lambda: _is_synced(standing, log)):
        parts.sharded.start(standing.step, parts.model, parts.optimizer, state, keep)
    parts.clock.agree()
    standing.last_saved = parts.clock()
    standing.save_seconds = standing.last_saved - begun
    standing.keep_time_back(parts.budget)


def finish_checkpoint(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Wait for a checkpoint that is being written in the background, if there is one."""
    if parts.sharded is not None:
        try:
            standing.checkpoint = parts.sharded.finish() or standing.checkpoint
        except OSError as error:
            log.note(_not_written(standing, error))


def interrupted(parts: Parts, standing: Standing, log: RunLog) -> dict[str, Any]:
    """Say where the run was saved and how to go on; return the same as a summary."""
    world = distributed.ranks().world
    alone = world == 1  # several ranks are taken to be on one machine
    program = "bertsmith" if alone else f"torchrun --nproc-per-node {world} -m bertsmith"
    command = f"{program} pretrain --config {shlex.quote(str(parts.out / 'config.yaml'))} --resume"
    is_saved = standing.checkpoint is not None and standing.checkpoint.name == checkpoint.name_of(
        standing.step
    )
    place = (
        f"saved in {standing.checkpoint}" if is_saved else f"NOT saved; last checkpoint {standing.checkpoint}"
    )
    log.note(f"stopped after step {standing.step}, {place}; to go on: {command}")
    return {
        "interrupted": True,
        "step": standing.step,
        "checkpoint": str(standing.checkpoint),
        "resume": command,
    }


def _is_synced(standing: Standing, log: RunLog) -> bool:
    try:
        log.sync()
    except OSError as error:
        log.note(_not_written(standing, error))
        return False
    return True


def _written(parts: Parts, standing: Standing, log: RunLog, state: dict[str, Any], keep: int) -> Path | None:
    try:
        log.sync()
        return checkpoint.save(parts.out, standing.step, parts.model, parts.optimizer, state, keep)
    except OSError as error:
        log.note(_not_written(standing, error))
        return None


def _not_written(standing: Standing, error: OSError) -> str:
    return (
        f"WARNING: a checkpoint could not be written, step {standing.step} is not saved ({error}); the run "
        "goes on and tries again when the next is due; the last whole one: "
        f"{standing.checkpoint or 'none yet'}"
    )


def _holds_back(parts: Parts, standing: Standing) -> bool:
    """Return whether a checkpoint of now, perhaps a damaged one, must not push out the last good one."""
    return parts.config.on_divergence == "rollback" and standing.watcher.suspect_since is not None


def _require_sound_weights(parts: Parts, standing: Standing) -> None:
    weights = list(parts.model.parameters())
    largest = float(distributed.whole(torch.nn.utils.get_total_norm(weights, norm_type=math.inf)))
    if not math.isfinite(largest):
        raise NonFiniteLoss(standing.step - 1, {"the largest weight": largest})


def whole_model(parts: Parts) -> BertForPreTraining:
    """Return the model with all its weights in one piece, on the main rank; all ranks take part."""
    state = distributed.whole_state(parts.model)
    if parts.sharded is None or not distributed.ranks().is_main:
        return parts.model
    with torch.device("meta"):
        model = BertForPreTraining(parts.model.config)
    model.load_state_dict(state, assign=True)
    return model


def write_results(parts: Parts, standing: Standing, model: BertForPreTraining) -> dict[str, Any]:
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
        sources = parts.source_levels()
        metrics |= {f"heldout_unigram_entropy_{name}": level for name, level in sources.items()}
    metrics["uniform_entropy"] = parts.levels.uniform
    metrics |= summary(parts, standing)
    architecture = parts.fixed["settings"]["architecture"]
    card = pretrained_card(metrics, to_dict(parts.config) | {"architecture": architecture})
    task = {"task": "pretraining", "head": "pretraining", "labels": None, "seq_len": parts.phases.seq_len}
    try:
        save_bundle(parts.out / "model", model, parts.tokenizer, task, card)
        write_json(parts.out / "metrics.json", metrics)
    except OSError as error:
        raise RunError(
            f"the model could not be written to {parts.out} ({error}); mend that and add --resume, which "
            f"goes on from {standing.checkpoint or 'the start'}"
        ) from error
    return metrics | {"model": str(parts.out / "model")}
