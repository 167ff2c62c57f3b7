"""Tags for the words of a file: as JSON, or as one more column of the file's."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from bertsmith.answers import Tagging
from bertsmith.errors import InputError
from bertsmith.predictor import Predictor
from bertsmith.recipes.config import PredictConfig
from bertsmith.tasks.conll import lines_with_tags, read_columns
from bertsmith.tasks.entities import SCHEMES, entities_of, tags_of
from bertsmith.tasks.rows import Columns, find_columns, iterate_rows
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.tables import FORMATS, open_table
from bertsmith.tasks.tagged_rows import TaggedRow, words_of
from bertsmith.tasks.tagged_source import holds_spans, holds_tags, read_file

COLUMNS_ENDING = ".conll"
ROWS_AT_ONCE = 2048


def tagging_answers(
    model: Predictor, config: PredictConfig, counts: dict[str, int]
) -> Iterator[dict[str, Any]]:
    """Yield words, tags and entities of each row, or its error, in the order of the rows."""
    rows = _rows(model, config)
    answers = _tagged(model, [row for row in rows if not row.missing])
    for row in rows:
        if row.missing:
            yield {"error": f"line {row.line}: no {' and no '.join(row.missing)}"}
        else:
            yield dataclasses.asdict(next(answers))


def lines_of_columns(model: Predictor, config: PredictConfig, counts: dict[str, int]) -> Iterator[str]:
    """Yield the lines of a file of columns with one column more; the CoNLL script scores that form.

    Raises:
        InputError: the input is no file of columns, or the scheme is unknown.
    """
    path = config.input
    if not _holds_columns(path):
        raise InputError(f"--out {config.out} is for columns, {path} holds none; name a .jsonl file")
    read = read_columns(path, _source(model, config), labelled=holds_tags(path))
    scheme = config.scheme or read.scheme or "iob2"
    if scheme not in SCHEMES:
        raise InputError(f"scheme {scheme!r} is unknown; take one of {', '.join(SCHEMES)}")

    def tags() -> Iterator[Sequence[str]]:
        for answer in _tagged(model, read.rows):
            counts["rows"] += 1
            counts["truncated_rows"] += answer.truncated
            yield tags_of(entities_of(answer.tags), len(answer.tags), scheme)

    return lines_with_tags(path, tags())


def _holds_columns(path: str) -> bool:
    """Say whether a file holds columns: by its name, or of .txt and .tsv by what stands in it."""
    if path == "-" or holds_spans(path):
        return False
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    return suffix not in FORMATS or (suffix != ".csv" and holds_tags(path))


def _source(model: Predictor, config: PredictConfig) -> DataSource:
    stored = (model.bundle.task or {}).get("columns")
    if config.second_text is not None:
        raise InputError(f"--second-text {config.second_text} would be ignored: words are tagged in one text")
    return DataSource(config.input, text=config.text, stored=Columns(**stored) if stored else None)


def _rows(model: Predictor, config: PredictConfig) -> list[TaggedRow]:
    source = _source(model, config)
    if holds_spans(config.input) or _holds_columns(config.input):
        return read_file(source, config.input, labelled=False).rows
    table = open_table(config.input)
    column = find_columns(table, source.stored, source.named, pair=False).text
    plain = Columns(column)
    return [
        TaggedRow(row.texts[0], words_of(row.texts[0]), None, row.line, number, row.missing)
        for number, row in enumerate(iterate_rows(table, plain))
    ]


def _tagged(model: Predictor, rows: Sequence[TaggedRow]) -> Iterator[Tagging]:
    """Yield an answer for each row; whole documents are computed together."""
    chunk: list[TaggedRow] = []
    for _, document in groupby(rows, key=lambda row: row.document):
        chunk += document
        if len(chunk) >= ROWS_AT_ONCE:
            yield from model.tag_rows(chunk)
            chunk = []
    yield from model.tag_rows(chunk)
