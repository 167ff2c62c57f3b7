"""All GLUE tasks together: dev scores with their averages, the leaderboard's zip, a check of any such zip."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from bertsmith import files, predictor
from bertsmith.bundle import load_bundle
from bertsmith.config import nearest
from bertsmith.device import limit_threads
from bertsmith.errors import InputError
from bertsmith.progress import StageProgress
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.glue_config import GlueConfig
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.glue_averages import averages
from bertsmith.tasks.glue_submission import SUBMISSION, SubmissionFile, write_submission
from bertsmith.tasks.glue_submission_check import check_submission
from bertsmith.tasks.majority import majority_answer, majority_metrics
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.task import TASKS

_TRAINED = tuple(name for name in GLUE if "train" in GLUE[name].splits)
"""The tasks that have models of their own; the diagnostic set is answered by that of MNLI."""
_ROWS_AT_ONCE = 2048

Answers = Sequence[str | float]


@dataclass(frozen=True)
class Answerers:
    """Who answers.

    Attributes:
        models: the model directory of each task.
        alike: the answer to every row of a file, by the file's name.
        source: the directory of all tasks.
    """

    models: Mapping[str, str]
    alike: Mapping[str, str | float]
    source: DataSource


def glue(config: GlueConfig) -> dict[str, Any]:
    """Score, and write or check a submission.

    Returns:
        ``dev`` metrics by task, the three ``averages``, which tasks are ``partial``, which files are answered
        ``alike``; the ``submission`` with its ``rows`` and ``problems``; ``failed``: there are problems.

    Raises:
        InputError: settings contradict each other, a model is of no GLUE task, or data is missing.
    """
    _check(config)
    summary: dict[str, Any] = {"dev": {}, "partial": [], "averages": {}, "alike": {}, "rows": {}}
    submission = config.out if config.check is None else config.check
    if config.check is None:
        limit_threads()
        answerers = _answerers(config)
        if config.out is not None:
            _check_complete(answerers)
        summary |= _dev_scores(config, answerers)
        if config.out is not None:
            predictions = {file.name: _predictions(config, file, answerers) for file in SUBMISSION}
            write_submission(Path(config.out), predictions)
            summary["rows"] = {name: len(rows) for name, rows in predictions.items()}
    problems = [] if submission is None else [str(found) for found in check_submission(Path(submission))]
    return summary | {"submission": submission, "problems": problems, "failed": bool(problems)}


def show(summary: dict[str, Any]) -> None:
    """Print a summary for people on standard output."""
    console = Console(highlight=False)
    lines = []
    for task, values in summary["dev"].items():
        part = "  (a part of dev)" if task in summary["partial"] else ""
        lines.append(f"{task:<8}{', '.join(f'{name} {value:.4f}' for name, value in values.items())}{part}")
    missing = ", ".join(name for name in _TRAINED if name not in summary["dev"]) or "a dev set of mnli"
    for name, value in summary["averages"].items():
        lines.append(f"{name:<24}{f'not known, missing: {missing}' if value is None else f'{value:.4f}'}")
    for name, answer in summary["alike"].items():
        lines.append(f"{name}: every row is answered {answer}")
    lines += summary["problems"]
    if summary["submission"] is not None:
        verdict = f"{len(summary['problems'])} problems" if summary["problems"] else "no problem found"
        lines.append(f"{summary['submission']}: {verdict}")
    for line in lines:
        console.print(line, soft_wrap=True, markup=False)


def _check(config: GlueConfig) -> None:
    """Refuse settings that contradict each other or would be ignored."""
    default = GlueConfig()
    if config.check is not None:
        for name in (field.name for field in dataclasses.fields(config) if field.name != "check"):
            if getattr(config, name) != getattr(default, name):
                raise InputError(f"--{name.replace('_', '-')} would be ignored with --check; leave it out")
        return
    if config.data is None or not (config.models or config.majority):
        raise InputError(
            "give --models and --data to score them (and --out to write a zip), or --check a zip"
        )
    if not Path(config.data).is_dir():
        raise InputError(f"--data {config.data}: no such directory; give the one that holds CoLA, SST-2, ...")
    if config.out is not None:
        files.require_no_directory(Path(config.out))
        if not config.out.endswith(".zip"):
            raise InputError(f"--out {config.out}: the leaderboard takes a zip; end the name in .zip")


def _answerers(config: GlueConfig) -> Answerers:
    """Return who answers each task and file.

    Raises:
        InputError: a model is of no GLUE task, a task has two, or a file of --majority is unknown.
    """
    source = DataSource(str(config.data), missing=config.missing)
    models: dict[str, str] = {}
    for text in config.models:
        name, separator, directory = text.partition("=")
        if not separator or name not in _TRAINED:
            directory = text
            name = str((load_bundle(text).task or {}).get("task"))
        if name not in _TRAINED:
            raise InputError(
                f"--models {text}: its task is {name!r}, none of {', '.join(_TRAINED)}; write TASK={text}"
            )
        if name in models:
            raise InputError(f"--models {text}: {name} has a model already, {models[name]}; leave one out")
        models[name] = directory
    known = {file.name.removesuffix(".tsv").lower(): file for file in SUBMISSION}
    for name in config.majority:
        if name.lower() not in known:
            raise InputError(
                f"--majority {name}: no file of a submission; {nearest(name.lower(), list(known))}"
            )
    chosen = [known[name.lower()] for name in config.majority]
    alike = {file.name: majority_answer(TASKS[file.task], source) for file in chosen}
    return Answerers({name: models[name] for name in _TRAINED if name in models}, alike, source)


def _check_complete(answerers: Answerers) -> None:
    """Refuse to write a zip that would lack something, before anything is computed.

    Raises:
        InputError: a file has neither a model nor a majority, or its test rows are not all there.
    """
    lacking = []
    for file in SUBMISSION:
        if file.name in answerers.alike:
            continue
        if file.task not in answerers.models:
            lacking.append(f"{file.name} (no model of {file.task})")
            continue
        rows = TASKS[file.data].read(answerers.source, file.split)
        found = 0 if rows is None else len(rows.rows)
        if found != file.rows:
            lacking.append(f"{file.name} ({found:,} of {file.rows:,} test rows)")
    if lacking:
        raise InputError(
            f"a submission has all its files; this one would lack {', '.join(lacking)}; add what is missing, "
            "or name the files in --majority to answer their rows alike"
        )


def _dev_scores(config: GlueConfig, answerers: Answerers) -> dict[str, Any]:
    """Return metrics on dev by task and their averages, which tasks had a part of dev, and who is alike."""
    source = answerers.source
    dev: dict[str, dict[str, float]] = {}
    partial = []
    diagnosed = {"ax": answerers.models["mnli"]} if "mnli" in answerers.models else {}
    for name, directory in {**answerers.models, **diagnosed}.items():
        if _dev_rows(name, source) is None:
            continue
        found = evaluate(
            EvaluateConfig(
                model=directory,
                data=source.data,
                task=name,
                missing=config.missing,
                batch_tokens=config.batch_tokens,
                precision=config.precision,
            )
        )
        dev[name] = found["metrics"]
        if found["partial"] or any(other["partial"] for other in found["other_dev"].values()):
            partial.append(name)
    for file in SUBMISSION:
        if file.name in answerers.alike and file.split == "test" and file.task not in answerers.models:
            rows = _dev_rows(file.data, source)
            if rows is None:
                continue
            dev[file.data] = majority_metrics(TASKS[file.task], rows, answerers.alike[file.name])
            if rows.partial:
                partial.append(file.data)
    return {"dev": dev, "partial": partial, "averages": averages(dev), "alike": dict(answerers.alike)}


def _dev_rows(name: str, source: DataSource) -> RowSet[Any] | None:
    if name == "ax" and not (Path(source.data) / GLUE[name].directory).is_dir():
        return None  # it comes by itself, and its labels came later
    return TASKS[name].read(source, "dev")


def _predictions(config: GlueConfig, file: SubmissionFile, answerers: Answerers) -> Answers:
    """Return the prediction for each test row of a file, in their order."""
    if file.name in answerers.alike:
        return [answerers.alike[file.name]] * file.rows
    model = predictor.load(answerers.models[file.task], config.precision, config.batch_tokens)
    rows = TASKS[file.data].read(answerers.source, file.split)
    assert rows is not None, "looked at before"
    texts: list[predictor.Text] = [
        first if second is None else (first, second) for first, second in (row.texts for row in rows.rows)
    ]
    predictions: list[str | float] = []
    with StageProgress(f"glue: {file.name}", "rows") as progress:
        for start in range(0, len(texts), _ROWS_AT_ONCE):
            chunk = texts[start : start + _ROWS_AT_ONCE]
            if file.labels is None:
                predictions += [answer.value for answer in model.regress(chunk)]
            else:
                predictions += [answer.label for answer in model.classify(chunk)]
            progress.add(len(chunk), len(predictions) / len(texts))
    return predictions
