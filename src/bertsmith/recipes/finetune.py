"""Fine-tune a model on a task: read, train once a point of the grid and seed, keep the best on dev.

Source: the paper, sections 4 and A.3; run_classifier.py.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from bertsmith.bundle import Bundle, load_bundle, load_shape
from bertsmith.device import describe, dtype_name, keep_freed_memory, limit_threads, pick_precision
from bertsmith.errors import InputError
from bertsmith.files import alone_in
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune_grid import Cell, cells_of
from bertsmith.recipes.finetune_report import Kept, described, greeting, save, summarize
from bertsmith.recipes.finetune_run import Place, SeedRun, Setup, shaped, train_run
from bertsmith.recipes.finetune_runs import RUNS, Runs, Slot, Wanted, carry_out, check_out, origin_of
from bertsmith.recipes.finetune_table import table
from bertsmith.runlog import RunLog, write_config, write_environment
from bertsmith.tasks.encode import check_seq_len
from bertsmith.tasks.frozen_encoder import with_frozen_encoder
from bertsmith.tasks.inference import Inference, inference_settings
from bertsmith.tasks.kind import Encoding, Task
from bertsmith.tasks.prepared import TrainingData, read_training_data
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import all_settings, find_task, settings_of

EVALUATION_TOKENS = 4096
HEADS = ("classifier.", "span_scores.", "lstm.", "mix.", "reading.", "hidden.")


class EveryRunDiverged(InputError):
    """No run of a fine-tuning has a model to keep."""


def finetune(config: FinetuneConfig) -> dict[str, Any]:
    """Fine-tune, and write the run directory.

    Each run is written when it is over. With ``config.resume`` those of an earlier call are kept, if the same
    settings, rows and start would make them again.

    Returns:
        The content of metrics.json, and where the model is as ``model_directory``.

    Raises:
        InputError: settings, data or model are wrong.
        EveryRunDiverged: there is no model to keep.
    """
    cells = cells_of(config)
    check_out(config)
    keep_freed_memory()
    threads = limit_threads()
    # Dev is scored as ``evaluate`` scores it by default, whatever the precision of the training.
    inference = inference_settings("float32", EVALUATION_TOKENS)
    precision = pick_precision(config.precision, inference.device)
    task = find_task(config.task)
    bundle = _start(config, cells)
    task, encoding, data = _read(config, task, bundle, inference)
    inherited = {name: encoding.settings[name] for name in task.kind.inherited}
    config = dataclasses.replace(config, **inherited)
    cells = [Cell(cell.values, dataclasses.replace(cell.config, **inherited)) for cell in cells]
    for cell in cells:
        task.kind.check(data.train, bundle.config, cell.config.batch_size)
    bundle = dataclasses.replace(bundle, task=described(task, encoding, data))
    setup = Setup(task, data, bundle, inference, task.kind.baseline(task, data.dev))
    facts = {"device": describe(inference.device), "precision": dtype_name(precision)}
    out = Path(config.out)
    with alone_in(out):
        check_out(config)  # again: another process may have been there while the rows were read
        write_config(out, config)
        write_environment(out, **facts, threads=threads)
        return _trained(cells, setup, encoding, out, origin_of(setup, precision))


def _trained(
    cells: list[Cell], setup: Setup, encoding: Encoding, out: Path, origin: dict[str, str]
) -> dict[str, Any]:
    """Have every run; write the best one's model and what all came to."""
    runs = Runs(out / RUNS, setup.task.main_metric)
    with RunLog(out, runs.logged_steps, title=f"fine-tuning {setup.task.name}") as log:
        log.note(greeting(setup.data))

        def execute(cell: Cell, seed: int, place: Place) -> SeedRun:
            run = train_run(setup, cell, seed, log, place)
            log.note(run.line())
            return run

        try:
            slots, best = carry_out(cells, runs, origin, execute)
        except KeyboardInterrupt:
            log.note("stopped; finished runs are kept, and the same command with --resume goes on")
            raise
    if best is None:
        rate = min(cell.config.optimizer.learning_rate for cell in cells)
        raise EveryRunDiverged(f"every run diverged; lower --optimizer.learning-rate (it is {rate})")
    kept = _kept(setup, encoding, runs, best, slots)
    summary = summarize(best.cell.config, kept, slots)
    save(out, kept, summary)
    runs.keep_only(best)
    return summary | {"model_directory": str(out / "model")}


def show(summary: dict[str, Any]) -> None:
    """Print a summary for people on standard output."""
    print(table(summary))
    values = ", ".join(f"{name} {value:.4f}" for name, value in summary["dev"].items())
    print(f"kept: seed {summary['best_seed']}, dev {values}")
    print(f"model: {summary['model_directory']}")


def _read(
    config: FinetuneConfig, task: Task, bundle: Bundle, inference: Inference
) -> tuple[Task, Encoding, TrainingData]:
    """Read the rows and encode them for the model; return the task as this model does it.

    Raises:
        InputError: a setting does not fit the task, or the data is wrong.
    """
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
    if config.features is not None:
        task = with_frozen_encoder(task, bundle, config.features, Path(config.out) / "features", inference)
    settings = settings_of(task, {name: getattr(config, name) for name in all_settings()}, bundle.task)
    encoding = Encoding(bundle.tokenizer, config.seq_len, config.truncation, settings)
    data = read_training_data(task, source, encoding, config.limit_rows, config.seed)
    return task.measured_by(task, data.dev.rows), encoding, data


def _start(config: FinetuneConfig, cells: list[Cell]) -> Bundle:
    """Return the model to start from, without weights when they are to be random.

    Raises:
        InputError: it cannot be read, or has too few positions or layers for the settings.
    """
    if config.random_weights:
        bundle = load_shape(config.model)
    else:
        bundle = load_bundle(config.model)
        # A head that was trained before is not this task's: every run draws a new one.
        state = {name: value for name, value in bundle.state.items() if not name.startswith(HEADS)}
        bundle = dataclasses.replace(bundle, state=state)
    check_seq_len(config.seq_len, bundle.config.max_positions, config.truncation)
    most = max(cell.config.reinit_layers for cell in cells)
    if most > bundle.config.num_layers:
        raise InputError(f"reinit-layers is {most}; the model has {bundle.config.num_layers} layers")
    return bundle


def _kept(setup: Setup, encoding: Encoding, runs: Runs, best: Wanted, slots: list[Slot]) -> Kept:
    """Return the best run with its model, which is finished."""
    task, data = setup.task, setup.data
    run = next(slot.run for slot in slots if slot.cell is best.cell and slot.run.seed == best.seed)
    bundle = dataclasses.replace(shaped(setup.bundle, best.cell.config), state=runs.weights(best))
    model = task.kind.load_model(bundle, None)
    if len(run.outputs) == 0:  # trained by an earlier call
        run.outputs = task.kind.outputs(model.to(setup.inference.device), data.dev, setup.inference)
        run.tuned = task.kind.tune(task, data.dev, run.outputs)
    task.kind.finish(model, data.train)
    answers = task.kind.answers(data.dev, run.outputs, data.labels, run.tuned)
    return Kept(task, data, encoding, model, run, answers)
