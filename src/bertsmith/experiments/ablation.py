"""``ablate``: an experiment of the paper at one's own scale, from the rows of its table to a report."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.experiments.ablation_report import write_report
from bertsmith.experiments.config import AblateConfig
from bertsmith.experiments.designs import DESIGNS, Column, Design, Row, column_of, mixture_row
from bertsmith.experiments.results import Results, RowResult, Run, as_markdown
from bertsmith.experiments.study import Stopped, Study, can_judge, task_of
from bertsmith.experiments.task_data import task_directory
from bertsmith.files import alone_in, require_no_directory, write_json, write_text
from bertsmith.model.config import BertConfig
from bertsmith.recipes import finetune_grid
from bertsmith.recipes.demo_report import imported
from bertsmith.recipes.pretrain_settings import check
from bertsmith.runlog import write_config, write_environment
from bertsmith.tasks.encode import check_seq_len

NO_TASKS = "none"


def ablate(config: AblateConfig) -> dict[str, Any]:
    """Train what the table needs and is not there yet; write table, figures and report.

    The table is written anew after every run, so a study that was stopped shows what it has.

    Returns:
        The rows with means and deviations, and where the report is; ``interrupted`` if it was stopped.

    Raises:
        InputError: a setting is wrong or data is missing; before anything is trained.
    """
    design = _design(config)
    study = Study(config, _say)
    rows, left_out = _rows(design, study)
    columns = _columns(design, study, rows)
    left_out |= {
        f"{row.name} on {column.name}": "has no head for such a task on a frozen encoder"
        for row in rows
        for column in columns
        if not can_judge(column, row)
    }
    directory = Path(config.out) / design.name
    require_no_directory(directory / "report.html")
    with alone_in(study.out):
        directory.mkdir(exist_ok=True)
        write_config(directory, config)
        write_environment(directory)
        study.prepare_pairings(rows)
        results = Results(design, columns, [RowResult(row, []) for row in rows], left_out, study.base)
        return _carried_out(study, results, directory)


def _carried_out(study: Study, results: Results, directory: Path) -> dict[str, Any]:
    """Have every run; write table and report."""
    config = study.config
    try:
        for seed in range(config.seed, config.seed + config.seeds):
            for number, place in enumerate(results.rows, start=1):
                _say(f"[{number}/{len(results.rows)}] {place.row.name}, seed {seed}")
                place.runs.append(_run(study, place.row, results.columns, seed))
                _write_table(directory, results)
    except Stopped as stopped:
        _say(str(stopped))
        return {"interrupted": True, "out": str(directory)}
    report = write_report(directory, results, config)
    return {"out": str(directory), "report": str(report), **results.to_dict()}


def show(summary: dict[str, Any]) -> None:
    """Print a summary for people on standard output."""
    if summary.get("interrupted"):
        return
    print((Path(summary["out"]) / "table.md").read_text(encoding="utf-8"), end="")
    print(f"report: {summary['report']}")


def _run(study: Study, row: Row, columns: list[Column], seed: int) -> Run:
    """Return what one row came to with one seed."""
    pretrained = study.pretrained(row, seed)
    if pretrained.status != "finished":
        return Run(seed, pretrained, {})
    return Run(
        seed,
        pretrained,
        {
            column.name: study.fine_tuned(row, column, seed, pretrained)
            for column in columns
            if can_judge(column, row)
        },
    )


def _design(config: AblateConfig) -> Design:
    """Return the experiment; refuse settings that cannot be meant.

    Raises:
        InputError: naming the setting.
    """
    if config.experiment not in DESIGNS:
        hint = nearest(config.experiment, list(DESIGNS))
        raise InputError(f"experiment {config.experiment!r} is unknown; {hint}")
    if config.seeds < 1:
        raise InputError(f"--seeds is {config.seeds}; it has to be at least 1")
    if config.processes < 1:
        raise InputError(f"--processes is {config.processes}; it has to be at least 1")
    most = os.cpu_count() or 1
    if config.processes > most:  # each would fill memory and wait for the others
        raise InputError(f"--processes is {config.processes}; this machine has {most} processors, take fewer")
    imported("matplotlib")  # hours later would be too late
    imported("jinja2")
    if config.mixtures and config.experiment != "masking":
        raise InputError("--mixtures would be ignored: they are rows of ablate masking; leave them out")
    if config.model is not None:
        _check_model(config)
        return DESIGNS[config.experiment]
    if not config.data:
        raise InputError("--data is missing: a directory written by prepare")
    return DESIGNS[config.experiment]


def _check_model(config: AblateConfig) -> None:
    if config.experiment != "features":
        raise InputError("--model would be ignored: only ablate features judges a model that is there")
    for name in ("data", "steps", "budget"):
        if getattr(config, name):
            raise InputError(f"--{name} would be ignored: --model is not pretrained anew; leave it out")


def _rows(design: Design, study: Study) -> tuple[list[Row], dict[str, str]]:
    """Return the rows of the table, and those that are left out with the reason.

    Raises:
        InputError: a row is unknown, or its settings do not fit.
    """
    config = study.config
    if config.model is None:
        check(study.base)
    every = design.rows(study.base)
    if config.mixtures:
        every = [mixture_row(name) for name in config.mixtures]
    if config.model is not None:  # what is not pretrained anew cannot be another model
        every = [row for row in every if not row.pretraining]
    names = [row.name for row in every]
    for name in config.rows:
        if name not in names:
            raise InputError(f"--rows {name!r} is unknown; {nearest(name, names)}")
    chosen = [row for row in every if not config.rows or row.name in config.rows]
    left_out = {}
    if not config.corpus:
        reason = "needs --corpus, the text that the data was made of"
        left_out = {row.name: reason for row in chosen if row.pairing is not None}
    elif not any(row.pairing for row in chosen):
        raise InputError("--corpus would be ignored: no row has other pairs than --data; leave it out")
    rows = [row for row in chosen if row.name not in left_out]
    if not rows:
        raise InputError(f"no row is left: {'; '.join(f'{name} {why}' for name, why in left_out.items())}")
    if config.model is None:
        _require_fitting(study, rows)
    return rows, left_out


def _require_fitting(study: Study, rows: list[Row]) -> None:
    """Refuse settings that do not fit a row's pretraining, and data without the pairs that a row predicts.

    Raises:
        InputError: naming what does not fit.
    """
    for row in rows:
        if row.pairing is not None:
            continue
        check(study.pretraining(row, study.config.seed))
        if row.pretraining.get("next_sentence", True) and study.pairing != "nsp":
            raise InputError(
                f"{study.config.data} was prepared with --pairing {study.pairing}; row {row.name} needs the "
                "original's pairs: prepare it with --pairing nsp, or leave the row out (--rows)"
            )


def _columns(design: Design, study: Study, rows: list[Row]) -> list[Column]:
    """Return what models are judged by; the tasks' data is there.

    Raises:
        InputError: a task is unknown, or its data is not there.
    """
    names = study.config.tasks or list(design.columns)
    if names == [NO_TASKS]:
        if design.name == "features":
            raise InputError("--tasks none leaves nothing to judge frozen layers by; take conll")
        if study.config.finetuning:
            raise InputError("--finetuning would be ignored: --tasks none fine-tunes nothing; leave it out")
        return []
    layers = min(_architecture(study, row).num_layers for row in rows)
    columns = [column_of(name, layers) for name in dict.fromkeys(names)]
    tasks = [column.task for column in columns]
    for word in study.config.finetuning:
        if task_of(word) not in (None, *tasks):
            hint = nearest(str(task_of(word)), tasks)
            raise InputError(
                f"--finetuning {word!r} would be ignored: it is for a task that is not judged; {hint}"
            )
    for column in columns:
        task_directory(study.config.task_data, column.task)
        if design.name == "features" and not any(can_judge(column, row) for row in rows[1:]):
            raise InputError(
                f"--tasks {column.task}: there is no head for it on a frozen encoder; take conll"
            )
        for row in rows:
            if not can_judge(column, row):
                continue
            fits = _architecture(study, row).max_positions
            settings = study.finetuning(row, column, study.config.seed, Path("model"))
            finetune_grid.check(settings)
            check_seq_len(settings.seq_len, fits, "tail")
    return columns


def _architecture(study: Study, row: Row) -> BertConfig:
    changes = row.pretraining.get("architecture", {})
    return dataclasses.replace(study.base.architecture, **changes)


def _write_table(directory: Path, results: Results) -> None:
    write_json(directory / "results.json", results.to_dict())
    write_text(directory / "table.md", as_markdown(results))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
