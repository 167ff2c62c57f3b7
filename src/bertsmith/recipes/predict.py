"""Predict every row of a file: one JSON line a row, in the same order.

A row without a text gives a line with ``error`` instead of an answer, so that the lines of input and output
stay side by side. A row that cannot be told apart from its neighbours (a wrong number of fields) stops the
verb, and no file is written.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from bertsmith import files, predictor
from bertsmith.device import limit_threads
from bertsmith.errors import InputError
from bertsmith.recipes.config import PredictConfig
from bertsmith.recipes.predict_tagging import COLUMNS_ENDING, lines_of_columns, tagging_answers
from bertsmith.stored_task import plain_head
from bertsmith.tasks.choice_rows import ChoiceRow, find_choice_columns, iterate_choice_rows, open_choices
from bertsmith.tasks.rows import Columns, Row, find_columns, iterate_rows
from bertsmith.tasks.squad import read_questions
from bertsmith.tasks.tables import open_table
from bertsmith.tasks.task import KINDS

ROWS_AT_ONCE = 2048


def predict(config: PredictConfig) -> dict[str, Any]:
    """Predict every row.

    Returns:
        How many rows were answered, cut, or without a text.

    Raises:
        InputError: the model has no head to predict with, or a file or a column is wrong.
    """
    limit_threads()
    _check_out(config)
    model = predictor.load(config.model, config.precision, config.batch_tokens)
    head = (model.bundle.task or {}).get("head")
    if head == "embedding":
        raise InputError(f"{model.bundle.directory}: the model makes vectors of texts; use bertsmith embed")
    answers_of = _ANSWERS.get(plain_head(head))
    if answers_of is None:
        raise InputError(
            f"{model.bundle.directory}: the model has no head to predict with; fine-tune it first"
        )
    counts = {"rows": 0, "truncated_rows": 0, "rows_without_text": 0}
    if config.out.endswith(COLUMNS_ENDING):
        with _opened(config.out) as file:
            file.writelines(lines_of_columns(model, config, counts))
        return {**counts, "out": config.out}
    if config.scheme is not None:
        raise InputError(
            f"--scheme {config.scheme} would be ignored: only --out FILE{COLUMNS_ENDING} has tags"
        )
    with _opened(config.out) as file:
        for answer in answers_of(model, config, counts):
            file.write(json.dumps({"row": counts["rows"], **answer}, ensure_ascii=False) + "\n")
            counts["rows"] += 1
            counts["truncated_rows"] += answer.get("truncated", False)
            counts["rows_without_text"] += "error" in answer
    return {**counts, "out": config.out}


def _check_out(config: PredictConfig) -> None:
    if config.out == "-":
        return
    out = Path(config.out)
    files.require_no_directory(out)
    if out.resolve() == Path(config.input).resolve():
        raise InputError(f"--out {out} is the input, which would be lost; choose another file")


def _text_answers(
    model: predictor.Predictor, config: PredictConfig, counts: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each row's text or pair, or its error, in the order of the rows."""
    stored = model.bundle.task or {}
    columns = stored.get("columns")
    table = open_table(config.input)
    wanted = {"text": config.text, "second_text": config.second_text, "label": None}
    pair = None if columns is None else columns["second_text"] is not None
    found = find_columns(table, Columns(**columns) if columns else None, wanted, pair)
    rows = iterate_rows(table, dataclasses.replace(found, label=None))
    answer = getattr(model, KINDS[stored["head"]].verb)
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        answers: Iterator[Any] = iter(answer([_text(row) for row in chunk if not row.missing]))
        yield from _side_by_side(chunk, answers)
    counts |= table.counts


def _span_answers(
    model: predictor.Predictor, config: PredictConfig, counts: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each question, or its error, in the order of the questions."""
    for flag, value in (("text", config.text), ("second-text", config.second_text)):
        if value is not None:
            raise InputError(f"--{flag} {value} would be ignored: questions have question and context")
    questions = read_questions(config.input)
    for start in range(0, len(questions), ROWS_AT_ONCE):
        chunk = questions[start : start + ROWS_AT_ONCE]
        whole = [row for row in chunk if not row.lacking]
        answers = iter(model.answer([(row.question, row.passage) for row in whole]))
        for row in chunk:
            if row.lacking:
                yield {"id": row.id, "error": f"question {row.line}: no {' and no '.join(row.lacking)}"}
            else:
                yield {"id": row.id, **dataclasses.asdict(next(answers))}


def _choice_answers(
    model: predictor.Predictor, config: PredictConfig, counts: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield the answer to each row's context and choices, or its error, in the order of the rows."""
    columns = (model.bundle.task or {}).get("columns")
    table = open_choices(config.input)
    wanted = {"text": config.text, "second_text": config.second_text, "label": None}
    found = find_choice_columns(table, Columns(**columns) if columns else None, wanted)
    rows = iterate_choice_rows(table, dataclasses.replace(found, label=None))
    while chunk := list(islice(rows, ROWS_AT_ONCE)):
        items = [(row.context, row.choices) for row in chunk if not row.missing]
        yield from _side_by_side(chunk, iter(model.choose(items)))
    counts |= table.counts


def _side_by_side(rows: Sequence[Row | ChoiceRow], answers: Iterator[Any]) -> Iterator[dict[str, Any]]:
    """Yield the next answer for each row, or an error where the row lacks something."""
    for row in rows:
        if row.missing:
            yield {"error": f"line {row.line}: no {' and no '.join(row.missing)}"}
        else:
            yield dataclasses.asdict(next(answers))


def _text(row: Row) -> predictor.Text:
    first, second = row.texts
    return first if second is None else (first, second)


@contextlib.contextmanager
def _opened(out: str) -> Iterator[IO[str]]:
    """Open the file, which appears whole or not at all, or standard output."""
    if out == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    with (
        files.atomic_file(Path(out)) as temporary,
        open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        yield file


# From a model and the input to one answer a row, by the model's head; counts of the input are added.
_ANSWERS: dict[
    str, Callable[[predictor.Predictor, PredictConfig, dict[str, int]], Iterator[dict[str, Any]]]
] = {
    "classification": _text_answers,
    "regression": _text_answers,
    "spans": _span_answers,
    "tagging": tagging_answers,
    "multi-label": _text_answers,
    "choice": _choice_answers,
}
