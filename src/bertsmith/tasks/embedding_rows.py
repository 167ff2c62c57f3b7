"""Rows that embeddings learn from: pairs that belong together, or pairs with a number for how alike they are.

- ``anchor`` and ``positive`` (or ``query`` and ``document``, ``question`` and ``answer``, ...), and any
  number of texts that do not belong to the anchor: columns ``negative``, ``negative1``, ..., or in JSON lines
  a list.
- Two texts and a ``score``; the directory of GLUE's STS-B is read, too.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError
from bertsmith.tasks import glue
from bertsmith.tasks.rows import Columns, find_columns, kept_rows
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.tables import Table, open_table

_PAIR_NAMES = (
    ("anchor", "positive"),
    ("query", "positive"),
    ("question", "positive"),
    ("query", "document"),
    ("query", "passage"),
    ("question", "answer"),
    ("question", "context"),
    ("sentence_a", "sentence_b"),
)
_SCORE_NAMES = ("score", "similarity", "similarity_score", "label")
_NEGATIVE = re.compile(r"(hard_)?negatives?(_?\d+)?", re.IGNORECASE)


@dataclass(frozen=True)
class EmbeddingRow:
    """Two texts, and what is known of them.

    Attributes:
        anchor: the first text, such as a question.
        positive: the second; where there is no score, it belongs to the anchor.
        negatives: texts that do not belong to the anchor.
        score: how alike both texts are; ``None``: they belong together.
        line: number of the row's first line in the file, from 1.
        missing: columns that were empty.
    """

    anchor: str
    positive: str
    negatives: tuple[str, ...]
    score: float | None
    line: int
    missing: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts of the row, the anchor first."""
        return (self.anchor, self.positive, *self.negatives)

    @property
    def label(self) -> Any:
        """What is right: the score, or the text that belongs to the anchor."""
        return self.positive if self.score is None else self.score


@dataclass(frozen=True)
class EmbeddingRowSet(RowSet[EmbeddingRow]):
    """The rows of one split."""

    @property
    def is_scored(self) -> bool:
        """Whether the rows are pairs with a number."""
        return self.rows[0].score is not None

    def groups(self) -> list[list[int]]:
        """Return which rows may only be chosen together: those of one positive.

        A passage that some questions train on would be no unknown one on dev.
        """
        if self.is_scored:
            return super().groups()
        groups: dict[str, list[int]] = {}
        for index, row in enumerate(self.rows):
            groups.setdefault(row.positive, []).append(index)
        return list(groups.values())


def read_split(source: DataSource, split: str) -> EmbeddingRowSet | None:
    """Read the train rows (``source.data``), the dev rows (``source.dev``), or a split of STS-B's directory.

    Returns:
        The rows; ``None`` when there is no such file.

    Raises:
        InputError: a file or column is missing, a row is broken or lacks a value, or there is no row.
    """
    if Path(source.data).is_dir():
        return _read_stsb(source, split)
    path = source.data if split == "train" else source.dev
    return None if path is None else _read_file(source, path)


def _read_stsb(source: DataSource, split: str) -> EmbeddingRowSet | None:
    found = glue.read_split(glue.GLUE["stsb"], source, split)
    if found is None:
        return None
    rows = []
    for row in found.rows:
        first, second = row.texts
        score = None if row.label is None else _number(f"{found.path}, line {row.line}:", row.label)
        rows.append(EmbeddingRow(first, second or "", (), score, row.line))
    return EmbeddingRowSet(rows, found.path, found.columns, found.partial, found.counts)


def _read_file(source: DataSource, path: str) -> EmbeddingRowSet:
    table = open_table(path)
    columns = _columns(source, table)
    negatives = [name for name in table.columns if _NEGATIVE.fullmatch(name)]
    is_scored = columns.label != columns.second_text
    if is_scored and negatives:
        raise InputError(
            f"{path}: column {columns.label!r} holds scores and {negatives[0]!r} texts that do not belong to "
            "the first; rows have one of both: take one out"
        )
    rows, counts = kept_rows(list(_rows(table, columns, negatives)), table, source.missing)
    if not rows:
        raise InputError(f"{path}: no row with both texts")
    return EmbeddingRowSet(rows, path, columns, counts=counts)


def _columns(source: DataSource, table: Table) -> Columns:
    """Return the columns; the label is that of the score, or the positive's where there is none.

    Raises:
        InputError: a column is not there, or would be read twice.
    """
    found = find_columns(table, source.stored, source.named, True, _PAIR_NAMES)
    lowered = {column.lower(): column for column in reversed(table.columns)}
    known = next((lowered[name] for name in _SCORE_NAMES if name in lowered), None)
    stored = source.stored.label if source.stored and source.stored.label in table.columns else None
    columns = replace(found, label=source.label or stored or known or found.second_text)
    if columns.text in (columns.second_text, columns.label) or source.label == columns.second_text:
        raise InputError(
            f"{table.path}: a column would be read twice; name each with --text, --second-text, --label"
        )
    return columns


def _rows(table: Table, columns: Columns, negatives: list[str]) -> Iterator[EmbeddingRow]:
    """Yield every row in the order of the file; those with missing values say which.

    Raises:
        InputError: a value is of a wrong type; the line is named.
    """
    assert columns.second_text is not None, "there are two texts"
    score_column = None if columns.label == columns.second_text else columns.label
    for line, values in table.records:
        where = f"{table.path}, line {line}:"
        names = (columns.text, columns.second_text)
        anchor, positive = (_text(where, name, values.get(name)) for name in names)
        lacking = [name for name, text in zip(names, (anchor, positive), strict=True) if not text]
        score = None
        if score_column is not None:
            value = values.get(score_column)
            if value is None or value == "":
                lacking.append(score_column)
            else:
                score = _number(where, value)
        others = tuple(text for name in negatives for text in _texts(where, name, values.get(name)))
        yield EmbeddingRow(anchor, positive, others, score, line, tuple(lacking))


def _text(where: str, column: str, value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise InputError(f"{where} {column!r} is {json.dumps(value)[:40]}, a text has to be a string")
    return value or ""


def _texts(where: str, column: str, value: Any) -> list[str]:
    """Return the texts of a field or a list; a row may have none."""
    texts = [_text(where, column, text) for text in (value if isinstance(value, list) else [value])]
    if isinstance(value, list) and not all(texts):
        raise InputError(f"{where} {column!r} has an empty text in it; take it out")
    return [text for text in texts if text]


def _number(where: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InputError(
            f"{where} {str(value)[:40]!r} is no number for how alike the texts are; for texts that belong "
            "together leave the column out, or name the right one with --label"
        )
    return number
