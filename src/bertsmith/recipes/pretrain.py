"""``pretrain``: prepared data to a pretrained BERT, from the settings to the model directory."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from bertsmith import distributed
from bertsmith.config import duration_seconds
from bertsmith.data.shards import Instances
from bertsmith.device import describe, keep_freed_memory, limit_threads, pick_device, pick_precision
from bertsmith.errors import RunError
from bertsmith.model.execution import prepare_layers
from bertsmith.objectives import PretrainingObjective
from bertsmith.randomness import seed_of
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_evaluation import (
    evaluate_if_due,
    evaluate_the_end,
    expect_evaluation,
    probe_the_start,
)
from bertsmith.recipes.pretrain_init import first_model, initial_model, start_word_bias
from bertsmith.recipes.pretrain_loader import targets_of
from bertsmith.recipes.pretrain_phases import Phases
from bertsmith.recipes.pretrain_probes import check_probes, read_probes
from bertsmith.recipes.pretrain_ranks import (
    has_pairs,
    machine_facts,
    open_log,
    place,
    restore,
    sharded_checkpoints,
    warn_of_other_machine,
)
from bertsmith.recipes.pretrain_rollback import check_rollback, go_back
from bertsmith.recipes.pretrain_run import Parts, Standing, headline, log_means
from bertsmith.recipes.pretrain_saving import (
    interrupted,
    save_if_due,
    save_the_start,
    save_unless_saved,
    whole_model,
    write_results,
)
from bertsmith.recipes.pretrain_settings import (
    architecture_of,
    check,
    fixed_settings,
    open_run,
    tokenizer_of,
)
from bertsmith.recipes.pretrain_watch import progress_line, watch, watch_the_end
from bertsmith.runlog import RunLog, write_config, write_environment
from bertsmith.training.diagnosis import Diverged
from bertsmith.training.interrupt import StopRequest
from bertsmith.training.loop import LoopSettings, NonFiniteLoss, Step, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget, rate_of


def pretrain(config: PretrainConfig) -> dict[str, Any]:
    """Train masked words and next sentences; write the run directory.

    With ``config.resume`` the run goes on from its newest whole checkpoint, or starts if there is none yet,
    so the same command can be repeated until it is done. On the same machine a resumed run of so many steps
    ends with the weights of one that never stopped, bit for bit; one with a time budget gets the time that is
    left. Settings that would make it another run are refused; those of logs, evaluations and checkpoints may
    change. Started by ``torchrun``, all its processes train together; the first writes and logs.

    Args:
        config: the settings.

    Returns:
        The content of metrics.json; or, if the run was told to stop, ``interrupted`` with the checkpoint and
        the command to go on.

    Raises:
        InputError: settings, data or the run directory do not fit.
        RunError: the run diverged for good, or the budget was over before the first step.
    """
    with distributed.joined(sharded=config.sharding == "fsdp"), contextlib.ExitStack() as held:
        parts, standing = _set_up(config, held)
        return _run(parts, standing)


def _run(parts: Parts, standing: Standing) -> dict[str, Any]:
    """Train to the end of the budget, or until a stop is asked for."""
    background = parts.sharded or contextlib.nullcontext()
    with open_log(parts.out, standing.logged) as log, background, StopRequest() as stop:
        log.note(headline(parts, standing))
        probe_the_start(parts, standing, log)
        save_the_start(parts, standing, log)
        while True:
            try:
                for step in _steps(parts, standing):
                    parts.clock.agree()
                    _take(parts, standing, step, log)
                    expect_evaluation(parts, standing, step)
                    evaluate_if_due(parts, standing, log)
                    save_if_due(parts, standing, log)
                    if parts.clock.agree(stop.requested):
                        save_unless_saved(parts, standing, log)
                        return interrupted(parts, standing, log)
                return _finish(parts, standing, log)
            except (NonFiniteLoss, Diverged) as error:
                go_back(parts, standing, error, log)


def _set_up(config: PretrainConfig, held: contextlib.ExitStack) -> tuple[Parts, Standing]:
    """Check all that can be checked; build the model; when resuming, fill it from the newest checkpoint.

    The main process has the run directory for itself until ``held`` is let go.
    """
    clock = distributed.SharedClock()
    started = clock()
    with distributed.main_first():
        check(config)
        check_rollback(config)
        check_probes(config)
        instances = Instances.open(config.data, "train")
        tokenizer = tokenizer_of(instances)
        initial = initial_model(config, tokenizer, instances)
        targets = targets_of(config, config.architecture if initial is None else initial.config)
        phases = Phases.open(config, instances, tokenizer, targets)
        architecture = architecture_of(config, initial, tokenizer, phases)
        probes = read_probes(config, tokenizer, architecture.max_positions)
    device = pick_device()
    precision = pick_precision(config.precision, device)
    keep_freed_memory()
    machine = machine_facts(config, describe(device), limit_threads())
    fixed = fixed_settings(config, architecture, str(precision), phases, tokenizer)
    found = distributed.from_main(lambda: open_run(config, fixed, held))
    torch.manual_seed(seed_of(config.seed, "weights"))
    model = first_model(architecture, initial)
    if found is None:
        start_word_bias(model, config, instances, tokenizer)
    prepare_layers(model, device, config.compile, config.checkpoint_activations)
    place(model, config.sharding, targets.pairs and has_pairs(instances), device)
    optimizer = build_optimizer(model, config.optimizer)
    standing = Standing()
    if found is not None:
        restore(found, model, optimizer)
        phases.restore(found.state)
        warn_of_other_machine(found.state["machine"], machine)
        standing = Standing.from_state(found)
    if distributed.ranks().is_main:
        write_config(Path(config.out), config)
        write_environment(Path(config.out), **machine, precision=str(precision))
    clock.agree()
    standing.last_saved = clock()
    parts = Parts(
        config,
        Path(config.out),
        tokenizer,
        instances,
        Instances.open(config.data, "heldout"),
        phases,
        model,
        optimizer,
        PretrainingObjective(),
        LoopSettings(
            config.seed,
            device,
            precision,
            config.optimizer.max_grad_norm,
            rate_of(config.optimizer),
            ahead=device.type == "cuda",
        ),
        Budget(
            config.steps,
            duration_seconds(config.budget) if config.budget else None,
            elapsed_seconds=standing.elapsed_seconds + clock() - started,
            clock=clock,
        ),
        {"settings": fixed, "machine": machine},
        clock,
        sharded_checkpoints(config.sharding, Path(config.out)),
        probes,
    )
    standing.tenths = int(10 * parts.budget.progress(standing.step))
    standing.keep_time_back(parts.budget)
    return parts, standing


def _steps(parts: Parts, standing: Standing) -> Iterator[Step]:
    """Train on from where the run stands, with a lower rate if it was taken back."""
    return train(
        parts.trained,
        parts.optimizer,
        parts.objective,
        parts.batches,
        dataclasses.replace(
            parts.settings, rate=lambda done: standing.rate_factor * parts.settings.rate(done)
        ),
        parts.budget,
        standing.step,
    )


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
    watch(parts, standing, step, log)
    progress = parts.budget.progress(step.step)
    log.progress(progress, progress_line(parts, step))
    if step.step % parts.config.log_steps == 0 or progress >= 1.0:
        log_means(parts, standing, log)


def _finish(parts: Parts, standing: Standing, log: RunLog) -> dict[str, Any]:
    """Log what is left, evaluate, save the last checkpoint and the model, write metrics.json."""
    if standing.step == 0:
        raise RunError(
            f"the budget of {parts.config.budget} was over before the first step; give a longer --budget"
        )
    if standing.means:  # the clock ran out between a step and the next look at it
        log_means(parts, standing, log)
    watch_the_end(parts, standing, log)
    evaluate_the_end(parts, standing, log)
    save_unless_saved(parts, standing, log)
    model = whole_model(parts)
    return distributed.from_main(lambda: write_results(parts, standing, model))
