"""Rows of a task: which columns hold the texts and the label, and what is missing.

The words NA, null, None and nan are text like any other: only an empty field, JSON ``null``, an empty JSON
string and an absent JSON key are missing. A row that lacks something is an error with its line number, or is
left out and counted; it never vanishes without a word.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.tasks.tables import Table

MISSING_POLICIES = ("error", "skip")

_TEXT_NAMES = ("text", "sentence", "review", "content")
_PAIR_NAMES = (
    ("text", "second_text"),
    ("text", "text_pair"),
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
        label: the label as it stands in the file (a number as its JSON spelling), or in a task of several
            labels those of the row, each once, sorted; ``None`` when not read.
        line: number of the row's first line in the file, from 1.
        missing: columns that were empty; such rows only come back from ``rows_of(..., missing="keep")``.
    """

    texts: tuple[str, str | None]
    label: str | tuple[str, ...] | None
    line: int
    missing: tuple[str, ...] = ()


class MaybeIncomplete(Protocol):
    """A row of any kind."""

    @property
    def line(self) -> int:
        """Number of the row's first line in the file, from 1."""
        ...

    @property
    def missing(self) -> tuple[str, ...]:
        """Columns that were empty."""
        ...


R = TypeVar("R", bound=MaybeIncomplete)


@dataclass(frozen=True)
class Columns:
    """Which columns hold what; ``label_separator`` parts the labels of a row where a field holds several."""

    text: str
    second_text: str | None = None
    label: str | None = None
    label_separator: str | None = None

    def stored(self) -> dict[str, str | None]:
        """Return what task.json keeps."""
        names = {"text": self.text, "second_text": self.second_text, "label": self.label}
        return names | {"label_separator": self.label_separator} if self.label_separator else names


def find_columns(
    table: Table,
    named: Columns | None,
    wanted: Mapping[str, str | None],
    pair: bool | None,
    more_pairs: Sequence[tuple[str, str]] = (),
) -> Columns:
    """Return the columns of the text, the second text and the label.

    Args:
        table: the opened file.
        named: columns stored with a model; used where the file has them.
        wanted: ``text``, ``second_text`` and ``label`` as the user named them, ``None`` where not named.
        pair: whether the rows have to be pairs; ``None``: as the header says.
        more_pairs: further usual names of both texts.

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
        text, found = _find_texts(table, pair, more_pairs)
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


def _find_texts(
    table: Table, pair: bool | None, more_pairs: Sequence[tuple[str, str]]
) -> tuple[str, str | None]:
    lowered = {column.lower(): column for column in table.columns}
    found: list[tuple[str, str | None]] = []
    if pair is not False:
        names = (*_PAIR_NAMES, *more_pairs)
        found += [(lowered[a], lowered[b]) for a, b in names if a in lowered and b in lowered]
    if pair is not True:
        firsts = {first for first, _ in found}
        texts = [lowered[name] for name in _TEXT_NAMES if name in lowered]
        found += [(text, None) for text in texts if text not in firsts]
    if len(found) == 1:
        return found[0]
    columns = ", ".join(table.columns)
    problem = "several columns could be the text" if found else "no column is known to be the text"
    raise InputError(
        f"{table.path}: {problem}; call it text in the file, or name it with --text (and --second-text), "
        f"where the command has that; its first line names the columns: {columns}"
    )


LabelReader = Callable[[str, Columns, Any], "str | tuple[str, ...] | None"]
"""From where a row stands, the columns and a value to the label; ``None``: it is missing."""


def rows_of(
    table: Table, columns: Columns, missing: str, read_label: LabelReader | None = None
) -> tuple[list[Row], dict[str, int]]:
    """Read all rows; without a label column the labels are ``None``.

    Raises:
        InputError: a value is missing under "error", or of a wrong type; line numbers are named.
    """
    return kept_rows(list(iterate_rows(table, columns, read_label)), table, missing)


def kept_rows(rows: list[R], table: Table, missing: str) -> tuple[list[R], dict[str, int]]:
    """Return the rows that a policy keeps.

    Args:
        rows: all rows of the table.
        table: the file, read to its end.
        missing: "error" stops at a row without text or label; "skip" leaves it out and counts it; "keep"
            hands it over with empty texts and the names of the missing columns.

    Returns:
        The rows in the order of the file, and the counts ``rows``, ``missing_rows`` and ``blank_lines``.

    Raises:
        InputError: a value is missing under "error"; line numbers are named.
    """
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


def iterate_rows(table: Table, columns: Columns, read_label: LabelReader | None = None) -> Iterator[Row]:
    """Yield every row in the order of the file; those with missing values say which.

    Args:
        table: the opened file.
        columns: which columns to read.
        read_label: default: one label a row.

    Raises:
        InputError: a text or a label is of a wrong type; the line is named.
    """
    read_label = read_label or one_label
    for line, values in table.records:
        where = f"{table.path}, line {line}:"
        lacking = []
        texts: list[str | None] = [None, None]
        for place, column in enumerate((columns.text, columns.second_text)):
            if column is None:
                continue
            text = values.get(column)
            if text is None or text == "":
                lacking.append(column)
            elif not isinstance(text, str):
                raise InputError(f"{where} {column!r} is {json.dumps(text)[:40]}, a text has to be a string")
            texts[place] = text or ""
        label = None
        if columns.label is not None:
            label = read_label(where, columns, values.get(columns.label))
            if label is None:
                lacking.append(columns.label)
        yield Row((texts[0] or "", texts[1]), label, line, tuple(lacking))


def one_label(where: str, columns: Columns, value: Any) -> str | None:
    """Return the label of a row that has one.

    Raises:
        InputError: the value is neither a string nor a number.
    """
    if value is None or value == "":
        return None
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise InputError(f"{where} {columns.label!r} is a {type(value).__name__}; a label is a string or number")


def several_labels(where: str, columns: Columns, value: Any) -> tuple[str, ...] | None:
    """Return the labels of a row that has any number of them, each once, sorted.

    A JSON list may be empty, and so may a field whose separator is known: no label fits the row. A key that
    is not there and JSON ``null`` are missing.

    Raises:
        InputError: the value is no list of strings or numbers, a label is empty, or a field of several labels
            has no known separator.
    """
    if value is None:
        return None
    if isinstance(value, str):
        if columns.label_separator is None:
            raise InputError(
                f"{where} {columns.label!r} is text, so that several labels need --label-separator "
                "(such as ';' or '|'); JSON lists need none"
            )
        value = [part.strip() for part in value.split(columns.label_separator)] if value else []
    if not isinstance(value, list):
        raise InputError(f"{where} {columns.label!r} is {json.dumps(value)[:40]}; expected a list of labels")
    labels = {one_label(where, columns, label) for label in value}
    if None in labels:
        raise InputError(f"{where} {columns.label!r} has an empty label in it; take it out")
    return tuple(sorted(str(label) for label in labels))
