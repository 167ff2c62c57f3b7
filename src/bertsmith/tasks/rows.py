"""Rows of a task: which columns hold the texts and the label, and what is missing.

The words NA, null, None and nan are text like any other: only an empty field, JSON ``null``, an empty JSON
string and an absent JSON key are missing. A row that lacks something is an error with its line number, or is
left out and counted; it never vanishes without a word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.tasks.tables import Table

MISSING_POLICIES = ("error", "skip")

_TEXT_NAMES = ("text", "sentence", "review", "content")
_PAIR_NAMES = (
    ("sentence1", "sentence2"),
    ("text1", "text2"),
    ("text_a", "text_b"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("#1 string", "#2 string"),
)
_LABEL_NAMES = ("label", "labels", "score", "class", "category", "target", "gold_label", "quality")


@dataclass(frozen=True)
class Row:
    """One row of a task.

    Attributes:
        texts: the text, and the second text of a pair or ``None``.
        label: the label as it stands in the file (a number as its JSON spelling); ``None`` when not read.
        line: number of the row's first line in the file, from 1.
        missing: columns that were empty; such rows only come back from ``rows_of(..., missing="keep")``.
    """

    texts: tuple[str, str | None]
    label: str | None
    line: int
    missing: tuple[str, ...] = ()


@dataclass(frozen=True)
class Columns:
    """Which columns hold what."""

    text: str
    second_text: str | None = None
    label: str | None = None


def find_columns(
    table: Table, named: Columns | None, wanted: Mapping[str, str | None], pair: bool | None
) -> Columns:
    """Return the columns of the text, the second text and the label.

    Args:
        table: the opened file.
        named: columns stored with a model; used where the file has them.
        wanted: ``text``, ``second_text`` and ``label`` as the user named them, ``None`` where not named.
        pair: whether the rows have to be pairs; ``None``: as the header says.

    Raises:
        InputError: a named column is not there, or none or several columns could be the text.
    """
    for flag, name in wanted.items():
        if name is not None and name not in table.columns:
            hint = nearest(name, list(table.columns))
            raise InputError(f"{table.path}: no column {name!r} (--{flag.replace('_', '-')}); {hint}")
    label = wanted["label"] or _stored(table, named.label if named else None) or _first(table, _LABEL_NAMES)
    text, second = wanted["text"], wanted["second_text"]
    if text is None and named is not None and _stored(table, named.text) and second is None:
        text, second = named.text, _stored(table, named.second_text)
    if text is None:
        text, found = _find_texts(table, pair)
        second = second or found
    if pair and second is None:
        raise InputError(f"{table.path}: the model takes pairs; name the second text with --second-text")
    if pair is False and second is not None:
        raise InputError(f"{table.path}: the model takes single texts; leave out --second-text {second}")
    return Columns(text, second, label)


def _stored(table: Table, name: str | None) -> str | None:
    return name if name in table.columns else None


def _first(table: Table, names: tuple[str, ...]) -> str | None:
    lowered = {column.lower(): column for column in reversed(table.columns)}
    return next((lowered[name] for name in names if name in lowered), None)


def _find_texts(table: Table, pair: bool | None) -> tuple[str, str | None]:
    lowered = {column.lower(): column for column in table.columns}
    found: list[tuple[str, str | None]] = []
    if pair is not True:
        found += [(lowered[name], None) for name in _TEXT_NAMES if name in lowered]
    if pair is not False:
        found += [(lowered[a], lowered[b]) for a, b in _PAIR_NAMES if a in lowered and b in lowered]
    if len(found) == 1:
        return found[0]
    columns = ", ".join(table.columns)
    problem = "several columns could be the text" if found else "no column is known to be the text"
    raise InputError(
        f"{table.path}: {problem}; call it text in the file, or name it with --text (and --second-text), "
        f"where the command has that; its first line names the columns: {columns}"
    )


def rows_of(table: Table, columns: Columns, missing: str) -> tuple[list[Row], dict[str, int]]:
    """Read all rows.

    Args:
        table: the opened file.
        columns: which columns to read; without a label column the labels are ``None``.
        missing: "error" stops at a row without text or label; "skip" leaves it out and counts it; "keep"
            hands it over with empty texts and the names of the missing columns.

    Returns:
        The rows in the order of the file, and the counts ``rows``, ``missing_rows`` and ``blank_lines``.

    Raises:
        InputError: a value is missing under "error", or a text is no string; line numbers are named.
    """
    rows = list(iterate_rows(table, columns))
    lacking = [row for row in rows if row.missing]
    if lacking and missing == "error":
        named = ", ".join(f"line {row.line} ({' and '.join(row.missing)})" for row in lacking[:5])
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise InputError(
            f"{table.path}: {len(lacking)} rows lack a value: {named}{more}; mend them, or --missing skip"
        )
    if missing != "keep":
        rows = [row for row in rows if not row.missing]
    return rows, {"rows": len(rows), "missing_rows": len(lacking), **table.counts}


def iterate_rows(table: Table, columns: Columns) -> Iterator[Row]:
    """Yield every row in the order of the file; those with missing values say which."""
    for line, values in table.records:
        lacking = []
        texts: list[str | None] = [None, None]
        for place, column in enumerate((columns.text, columns.second_text)):
            if column is None:
                continue
            text = values.get(column)
            if text is None or text == "":
                lacking.append(column)
            elif not isinstance(text, str):
                raise InputError(
                    f"{table.path}, line {line}: {column!r} is {json.dumps(text)[:40]}, "
                    "a text has to be a string"
                )
            texts[place] = text or ""
        label = None
        if columns.label is not None:
            label = _label_text(table.path, line, columns.label, values.get(columns.label))
            if label is None:
                lacking.append(columns.label)
        yield Row((texts[0] or "", texts[1]), label, line, tuple(lacking))


def _label_text(path: str, line: int, column: str, value: Any) -> str | None:
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise InputError(
        f"{path}, line {line}: {column!r} is a {type(value).__name__}; a label is a string or number"
    )
