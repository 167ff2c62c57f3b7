"""Fine-tune a model on a task: read, train once a seed, keep the best epoch on dev, write a model directory.

Source: the paper, sections 4 and A.3; run_classifier.py.
"""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith.bundle import Bundle, load_bundle, load_shape
from bertsmith.device import describe, keep_freed_memory, limit_threads, pick_precision
from bertsmith.errors import InputError
from bertsmith.randomness import seed_of
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune_report import (
    CONSTANT,
    DIVERGED,
    LEARNED,
    Kept,
    SeedRun,
    greeting,
    save,
    summarize,
)
from bertsmith.runlog import RunLog, write_config, write_environment
from bertsmith.tasks.encode import TrainingRows, check_seq_len
from bertsmith.tasks.feature_tagging import with_frozen_encoder
from bertsmith.tasks.inference import Inference, inference_settings
from bertsmith.tasks.kind import Encoding, Task
from bertsmith.tasks.prepared import TrainingData, read_training_data, with_other_dev
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import all_settings, find_task, settings_of
from bertsmith.training.loop import LoopSettings, NonFiniteLoss, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget, rate_of

EVALUATION_TOKENS = 4096
HEADS = ("classifier.", "span_scores.", "lstm.", "mix.")


def finetune(config: FinetuneConfig) -> dict[str, Any]:
    """Fine-tune, and write the run directory.

    Returns:
        The content of metrics.json, and where the model is as ``model_directory``.

    Raises:
        InputError: settings, data or model are wrong, or every run diverged.
    """
    for name in ("epochs", "batch_size", "seeds"):
        if getattr(config, name) < 1:
            raise InputError(f"{name.replace('_', '-')} is {getattr(config, name)}; it has to be at least 1")
    _check_out(config)
    keep_freed_memory()
    threads = limit_threads()
    # Dev is scored as ``evaluate`` scores it by default, whatever the precision of the training.
    inference = inference_settings("float32", EVALUATION_TOKENS)
    precision = pick_precision(config.precision, inference.device)
    task = find_task(config.task)
    bundle = _start(config)
    check_seq_len(config.seq_len, bundle.config.max_positions, config.truncation)
    if config.truncation not in task.kind.truncations:
        fitting = ", ".join(task.kind.truncations)
        raise InputError(f"truncation {config.truncation} does not fit {task.name}; take one of {fitting}")
    source = DataSource(
        config.data,
        config.dev,
        config.text,
        config.second_text,
        config.label,
        config.missing,
        scheme=config.scheme,
        label_separator=config.label_separator,
    )
    settings = settings_of(task, {name: getattr(config, name) for name in all_settings()})
    encoding = Encoding(bundle.tokenizer, config.seq_len, config.truncation, settings)
    if config.features is not None:
        task = with_frozen_encoder(task, bundle, config.features, Path(config.out) / "features", inference)
    data = read_training_data(task, source, encoding, config.limit_rows, config.seed)

    out = Path(config.out)
    out.mkdir(parents=True, exist_ok=True)
    write_config(out, config)
    facts = {"device": describe(inference.device), "precision": str(precision).split(".")[-1]}
    write_environment(out, **facts, threads=threads)
    runs: list[SeedRun] = []
    best: SeedRun | None = None
    with RunLog(out, title=f"fine-tuning {task.name}") as log:
        log.note(greeting(data))
        for seed in range(config.seed, config.seed + config.seeds):
            run = _run_seed(config, task, data, bundle, inference, seed, log)
            log.note(run.line())
            runs.append(run)
            best = _better(task, best, run)
    if best is None:
        rate = config.optimizer.learning_rate
        raise InputError(f"every run diverged; lower --optimizer.learning-rate (it is {rate})")
    summary = summarize(config, task, data, runs, best)
    model = task.kind.load_model(dataclasses.replace(bundle, state=best.state), None)
    task.kind.finish(model, data.train)
    save(out, Kept(task, data, encoding, model, best), summary)
    return summary | {"model_directory": str(out / "model")}


def _check_out(config: FinetuneConfig) -> None:
    """Refuse a run directory that is none, and one whose content would be lost.

    Raises:
        InputError: it is a file, a finished run, a pretraining run, or a model.
    """
    out = Path(config.out)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a directory")
    for name in ("model", "config.json", "checkpoints"):
        if (out / name).exists():
            raise InputError(f"--out {out} holds {name}, which would be lost; choose another --out")


def _start(config: FinetuneConfig) -> Bundle:
    """Return the model to start from, without weights when they are to be random."""
    if config.random_weights:
        bundle = load_shape(config.model)
    else:
        bundle = load_bundle(config.model)
        # A head that was trained before is not this task's: every run draws a new one.
        state = {name: value for name, value in bundle.state.items() if not name.startswith(HEADS)}
        bundle = dataclasses.replace(bundle, state=state)
    if config.dropout is None:
        return bundle
    shape = dataclasses.replace(
        bundle.config, hidden_dropout=config.dropout, attention_dropout=config.dropout
    )
    return dataclasses.replace(bundle, config=shape)


def _run_seed(
    config: FinetuneConfig,
    task: Task,
    data: TrainingData,
    bundle: Bundle,
    inference: Inference,
    seed: int,
    log: RunLog,
) -> SeedRun:
    """Train with one seed; evaluate on dev after each epoch and keep the best one's weights."""
    torch.manual_seed(seed_of(seed, "weights"))  # the head, and all weights where they are random
    model = task.kind.load_model(bundle, task.kind.num_outputs(data.labels))
    model.to(inference.device)
    rows = TrainingRows(data.train.num_units, data.train.batch, config.batch_size, seed)
    total_steps = config.epochs * rows.steps_per_epoch
    steps = train(
        model,
        build_optimizer(model, config.optimizer),
        task.kind.objective(data.train),
        lambda step: [batch.to(inference.device) for batch in rows.batch(step)],
        LoopSettings(
            seed,
            inference.device,
            pick_precision(config.precision, inference.device),
            config.optimizer.max_grad_norm,
            rate_of(config.optimizer),
        ),
        Budget(steps=total_steps),
    )
    run = SeedRun(seed, task.main_metric)
    before = (seed - config.seed) * total_steps
    begun = time.perf_counter()
    try:
        for step in steps:
            number = before + step.step
            event = {"step": number, "seed": seed, **step.losses, **step.monitors}
            event |= {"learning_rate": step.learning_rate, "grad_norm": step.grad_norm}
            log.log(event | {"tokens": step.tokens, "seconds": step.seconds})
            speed = f"{config.batch_size / step.seconds:.0f} rows/s"
            log.progress(number / (config.seeds * total_steps), f"seed {seed}  loss {step.loss:.4f}  {speed}")
            if step.step % rows.steps_per_epoch == 0:
                _evaluate(task, data, model, run, inference, step.step)
                found = run.epochs[-1]
                dev = {f"dev_{name}": value for name, value in found.metrics.items()}
                log.log({"step": number, "seed": seed, **dev, "dev_loss": found.loss})
    except NonFiniteLoss:
        run.status = DIVERGED
    if run.status == LEARNED and run.best is not None and run.best.constant:
        run.status = CONSTANT
    run.seconds = time.perf_counter() - begun
    return run


def _evaluate(
    task: Task,
    data: TrainingData,
    model: torch.nn.Module,
    run: SeedRun,
    inference: Inference,
    step: int,
) -> None:
    """Score dev; keep weights and outputs if this epoch is the best so far (of equals the first).

    Raises:
        NonFiniteLoss: the last step broke the weights, which the loop would notice at the next one.
    """
    outputs = task.kind.outputs(model, data.dev, inference)
    if not all(np.isfinite(part).all() for part in outputs):
        raise NonFiniteLoss(step, {"a dev output": float("nan")})
    previous = run.best
    tuned = task.kind.tune(task, data.dev, outputs)
    found = task.kind.score(task, data.dev, outputs, tuned)
    run.epochs.append(with_other_dev(task, model, found, data.other_dev, inference, tuned))
    if previous is None or run.epochs[-1].metrics[task.main_metric] > previous.metrics[task.main_metric]:
        run.best_epoch = len(run.epochs)
        run.outputs, run.tuned = outputs, tuned
        run.state = {name: value.detach().cpu().clone() for name, value in model.state_dict().items()}


def _better(task: Task, best: SeedRun | None, run: SeedRun) -> SeedRun | None:
    """Return the better run on dev (of equals the first); the other one's weights are let go."""
    if run.best is None:
        return best
    if best is not None and best.best is not None:
        if run.best.metrics[task.main_metric] <= best.best.metrics[task.main_metric]:
            run.state = {}
            return best
        best.state = {}
    return run
