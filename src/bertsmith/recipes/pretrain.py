"""``pretrain``: prepared data to a pretrained BERT, from the settings to the model directory."""

from __future__ import annotations

import dataclasses
import math
import time
from pathlib import Path
from typing import Any

import torch

from bertsmith.bundle import load_pretraining_model, model_card, save_bundle
from bertsmith.config import duration_seconds
from bertsmith.data.shards import Instances
from bertsmith.device import describe, keep_freed_memory, limit_threads, pick_device, pick_precision
from bertsmith.errors import RunError
from bertsmith.files import write_json
from bertsmith.model.bert import BertForPreTraining
from bertsmith.objectives import PretrainingObjective
from bertsmith.randomness import seed_of
from bertsmith.recipes.config import PretrainConfig
from bertsmith.recipes.pretrain_loader import loader_of
from bertsmith.recipes.pretrain_run import (
    Parts,
    Standing,
    architecture_of,
    check,
    explanation,
    fixed_settings,
    headline,
    heldout_unigram_entropy,
    initial_model,
    interrupted,
    log_means,
    open_run,
    tokenizer_of,
    warn_of_other_machine,
)
from bertsmith.runlog import RunLog, write_config, write_environment
from bertsmith.training import checkpoint
from bertsmith.training.interrupt import StopRequest
from bertsmith.training.loop import LoopSettings, NonFiniteLoss, Step, evaluate, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget, rate_of

_EVALUATION_SHARE = 0.1  # of the time, when evaluations are placed automatically within a time budget


def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Train masked words and next sentences; write the run directory.

    With ``config.resume`` the run goes on from its newest whole checkpoint, or starts if there is none yet,
    so the same command can be repeated until it is done. On the same machine a resumed run of so many steps
    ends with the weights of one that never stopped, bit for bit; one with a time budget gets the time that is
    left. Settings that would make it another run are refused; those of logs, evaluations and checkpoints may
    change.

    Args:
        config: the settings.

    Returns:
        The content of metrics.json; or, if the run was told to stop, ``interrupted`` with the checkpoint and
        the command to go on.

    Raises:
        InputError: settings, data or the run directory do not fit.
        RunError: a loss is not finite, or the budget was over before the first step.
    """
    parts, standing = _set_up(config)
    with RunLog(parts.out, last_step=standing.step, title="pretraining") as log, StopRequest() as stop:
        log.note(headline(parts, standing))
        steps = train(
            parts.model,
            parts.optimizer,
            parts.objective,
            parts.batches,
            parts.settings,
            parts.budget,
            standing.step,
        )
        try:
            for step in steps:
                _take(parts, standing, step, log)
                if _evaluation_due(parts, standing):
                    _evaluate(parts, standing, log)
                if stop.requested or _checkpoint_due(parts, standing):
                    _save(parts, standing, log)
                if stop.requested:
                    return interrupted(parts, standing, log)
        except NonFiniteLoss as error:
            raise RunError(explanation(error, standing)) from error
        return _finish(parts, standing, log)


def _set_up(config: PretrainConfig) -> tuple[Parts, Standing]:
    """Check all that can be checked; build the model; when resuming, fill it from the newest checkpoint."""
    started = time.monotonic()
    check(config)
    instances = Instances.open(config.data, "train")
    tokenizer = tokenizer_of(instances)
    initial = initial_model(config, tokenizer)
    architecture = architecture_of(config, initial, tokenizer.vocab_size, instances.seq_len)
    device = pick_device()
    precision = pick_precision(config.precision, device)
    keep_freed_memory()
    machine = {"device": describe(device), "threads": limit_threads(), "torch": str(torch.__version__)}
    fixed = fixed_settings(config, architecture, str(precision), instances, tokenizer)
    found = open_run(config, fixed)
    torch.manual_seed(seed_of(config.seed, "weights"))
    if initial is None:
        model = BertForPreTraining(architecture).to(device)
    else:
        model = load_pretraining_model(dataclasses.replace(initial, config=architecture)).to(device)
    optimizer = build_optimizer(model, config.optimizer)
    standing = Standing()
    if found is not None:
        checkpoint.restore(found, model, optimizer)
        warn_of_other_machine(found.state["machine"], machine)
        standing = Standing.from_state(found)
    write_config(Path(config.out), config)
    write_environment(Path(config.out), **machine, precision=str(precision))
    parts = Parts(
        config,
        Path(config.out),
        tokenizer,
        instances,
        Instances.open(config.data, "heldout"),
        loader_of(config, instances, tokenizer),
        model,
        optimizer,
        PretrainingObjective(),
        LoopSettings(
            config.seed, device, precision, config.optimizer.max_grad_norm, rate_of(config.optimizer)
        ),
        Budget(
            config.steps,
            duration_seconds(config.budget) if config.budget else None,
            elapsed_seconds=standing.elapsed_seconds + time.monotonic() - started,
        ),
        {"settings": fixed, "machine": machine},
    )
    standing.tenths = int(10 * parts.budget.progress(standing.step))
    standing.keep_time_back(parts.budget)
    return parts, standing


def _take(parts: Parts, standing: Standing, step: Step, log: RunLog) -> None:
    """Note a completed step; every ``log_steps``, log the means since the last time."""
    standing.step = step.step
    standing.tokens += step.tokens
    standing.means.add(
        {
            "loss": step.loss,
            **step.losses,
            **step.monitors,
            "grad_norm": step.grad_norm,
            "tokens": step.tokens,
            "seconds": step.seconds,
        }
    )
    progress = parts.budget.progress(step.step)
    speed = step.tokens / step.seconds
    log.progress(progress, f"step {step.step}  loss {step.loss:.3f}  {speed:,.0f} tokens/s")
    if step.step % parts.config.log_steps == 0 or progress >= 1.0:
        log_means(parts, standing, log)


def _evaluation_due(parts: Parts, standing: Standing) -> bool:
    """Return whether to evaluate now; the end of the run evaluates on its own."""
    progress = parts.budget.progress(standing.step)
    if not len(parts.heldout) or progress >= 1.0:
        return False
    if parts.config.evaluate_steps:
        return standing.step % parts.config.evaluate_steps == 0
    before, standing.tenths = standing.tenths, int(10 * progress)
    allowed = _EVALUATION_SHARE * parts.budget.elapsed_seconds
    affordable = parts.budget.seconds is None or standing.evaluations_seconds <= allowed
    return standing.tenths > before and affordable


def _evaluate(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Log the held-out losses and accuracies, always of the same instances with the same masks."""
    begun = time.monotonic()
    values = evaluate(parts.model, parts.objective, parts.heldout_batches(), parts.settings)
    values = {"loss": sum(value for name, value in values.items() if name.endswith("_loss"))} | values
    standing.heldout = {"step": standing.step} | {f"heldout_{name}": value for name, value in values.items()}
    log.log(standing.heldout)
    log.note("  ".join(f"{name} {value:.4g}" for name, value in standing.heldout.items()))
    standing.evaluation_seconds = time.monotonic() - begun
    standing.evaluations_seconds += standing.evaluation_seconds
    standing.keep_time_back(parts.budget)


def _checkpoint_due(parts: Parts, standing: Standing) -> bool:
    if parts.config.checkpoint_steps:
        return standing.step % parts.config.checkpoint_steps == 0
    return time.monotonic() - standing.last_saved >= parts.config.checkpoint_seconds


def _save(parts: Parts, standing: Standing, log: RunLog) -> None:
    log.sync()
    begun = time.monotonic()
    state = standing.state(parts.budget.elapsed_seconds) | parts.fixed
    keep = parts.config.keep_checkpoints
    standing.checkpoint = checkpoint.save(parts.out, standing.step, parts.model, parts.optimizer, state, keep)
    standing.last_saved = time.monotonic()
    standing.save_seconds = standing.last_saved - begun
    standing.keep_time_back(parts.budget)


def _finish(parts: Parts, standing: Standing, log: RunLog) -> dict[str, Any]:
    """Log what is left, evaluate, save the last checkpoint and the model, write metrics.json."""
    if standing.step == 0:
        raise RunError(
            f"the budget of {parts.config.budget} was over before the first step; give a longer --budget"
        )
    if standing.means:  # the clock ran out between a step and the next look at it
        log_means(parts, standing, log)
    if len(parts.heldout) and standing.heldout.get("step") != standing.step:
        _evaluate(parts, standing, log)
    if standing.checkpoint is None or standing.checkpoint.name != checkpoint.name_of(standing.step):
        _save(parts, standing, log)
    seconds = parts.budget.elapsed_seconds
    metrics: dict[str, Any] = {
        "step": standing.step,
        "tokens": standing.tokens,
        "epochs": round(parts.loader.epochs(standing.step), 3),
        "seconds": round(seconds, 1),
        "tokens_per_second": round(standing.tokens / seconds, 1),
        "parameters": parts.num_parameters,
        **{name: value for name, value in standing.heldout.items() if name != "step"},
    }
    if len(parts.heldout):
        metrics["heldout_unigram_entropy"] = heldout_unigram_entropy(parts)
    metrics["uniform_entropy"] = math.log(parts.tokenizer.vocab_size)
    usage = f'bertsmith fill --model {parts.out / "model"} "text with one [MASK]"'
    facts = {"architecture": parts.fixed["settings"]["architecture"], "pretraining": metrics}
    save_bundle(
        parts.out / "model",
        parts.model,
        parts.tokenizer,
        {"task": "pretraining", "head": "pretraining", "labels": None, "seq_len": parts.instances.seq_len},
        model_card("A BERT pretrained with Bertsmith", facts, usage),
    )
    write_json(parts.out / "metrics.json", metrics)
    return metrics | {"model": str(parts.out / "model")}
