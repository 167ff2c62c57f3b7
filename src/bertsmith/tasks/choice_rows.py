"""Rows of a choice: a context and two or more choices, of which one is right.

Three forms are read:

- JSON lines: a context, a list of ``choices`` of any length, and a ``label``: the number of the right one,
  counted from 0, or its text.
- CSV or TSV: columns ``choice0``, ``choice1`` and so on (or ``ending``, ``option``, ``answer``); the label
  is the number in the name of the right column. Empty fields at the end of a row are choices it does not
  have.
- SWAG's CSV: ``sent1``, ``sent2`` (how the second sentence begins) and ``ending0`` to ``ending3``. CODAH's
  TSV without a header: category, prompt, four endings, label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.tasks.rows import Columns, kept_rows
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.tables import Table, format_of, open_table

_CONTEXT_NAMES = ("context", "prompt", "question", "text", "sent1", "premise", "sentence")
_CHOICE_NAMES = ("choices", "endings", "options", "answers", "choice", "ending", "option", "answer")
_LABEL_NAMES = ("label", "gold", "correct", "answer_idx")
_BEGINNING = "sent2"
_CODAH = ("category", "prompt", "ending0", "ending1", "ending2", "ending3", "label")
_SWAG_FILES = {"train": ("train",), "dev": ("val", "dev"), "test": ("test",)}
_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


@dataclass(frozen=True)
class ChoiceRow:
    """One row of a choice.

    Attributes:
        context: what the choices are measured against.
        choices: two or more texts.
        label: number of the right one, from 0; ``None`` when not read.
        line: number of the row's first line in the file, from 1.
        missing: columns that were empty.
    """

    context: str
    choices: tuple[str, ...]
    label: int | None
    line: int
    missing: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The context and the choices."""
        return (self.context, *self.choices)


def read_split(source: DataSource, split: str) -> RowSet[ChoiceRow] | None:
    """Read the train rows (``source.data``) or the dev rows (``source.dev``; ``None`` without one).

    Raises:
        InputError: a file or column is missing, a row is broken or lacks a value, or there is no row.
    """
    if Path(source.data).is_dir():
        raise InputError(f"{source.data}: a directory; name a .csv, .tsv or .jsonl file, or --task swag")
    path = source.data if split == "train" else source.dev
    return None if path is None else _read_file(source, open_choices(path), with_label=True)


def read_swag_split(source: DataSource, split: str) -> RowSet[ChoiceRow] | None:
    """Read a split of a directory of SWAG's files (train.csv, val.csv) or CODAH's (train.tsv, dev.tsv).

    A file instead of a directory is read too. Test rows need no label.

    Raises:
        InputError: there is no such file, a flag would be ignored, or the rows are broken.
    """
    if not Path(source.data).is_dir():
        path = source.data if split == "train" else source.dev
        return None if path is None else _read_file(source, open_choices(path), with_label=True)
    if split not in _SWAG_FILES:
        raise InputError(f"split {split!r} is unknown; take one of {', '.join(_SWAG_FILES)}")
    if source.dev is not None:
        raise InputError(
            f"--dev {source.dev} would be ignored: {source.data} is a directory; leave it out, or name files"
        )
    candidates = [Path(source.data) / (name + end) for name in _SWAG_FILES[split] for end in _ENDINGS]
    path = next((str(path) for path in candidates if path.is_file()), None)
    if path is None:
        if split == "train":
            raise InputError(f"{source.data}: no train.csv (SWAG) or train.tsv (CODAH), nor .gz, in it")
        return None
    return _read_file(source, open_choices(path), with_label=split != "test")


def open_choices(path: str) -> Table:
    """Open a file; a TSV whose first line is a row of CODAH has no header."""
    if path != "-" and format_of(path) == ".tsv":
        first = open_table(path).columns
        if len(first) == len(_CODAH) and re.fullmatch(r"[0-3]", first[-1]):
            return open_table(path, _CODAH)
    return open_table(path)


def _read_file(source: DataSource, table: Table, with_label: bool) -> RowSet[ChoiceRow]:
    columns = find_choice_columns(table, source.stored, source.named)
    if columns.label is None and with_label:
        raise InputError(
            f"{table.path}: no column is known to be the label; name it with --label; columns: {table.known}"
        )
    rows, counts = kept_rows(list(iterate_choice_rows(table, columns)), table, source.missing)
    if not rows:
        raise InputError(f"{table.path}: no row with a context, choices and a label")
    return RowSet(rows, table.path, columns, counts=counts)


def find_choice_columns(table: Table, stored: Columns | None, named: Mapping[str, str | None]) -> Columns:
    """Return the columns: ``text`` is the context, ``second_text`` the choices.

    Args:
        table: the opened file.
        stored: columns stored with a model; used where the file has them.
        named: ``text``, ``second_text`` and ``label`` as the user named them; ``second_text`` is the column
            of the list of choices, or what the names of the choices' columns begin with.

    Raises:
        InputError: a column that is named, the context or the choices are not there.
    """
    context = _column(table, "text", named["text"], (stored.text if stored else None, *_CONTEXT_NAMES))
    label = _column(table, "label", named["label"], (stored.label if stored else None, *_LABEL_NAMES))
    wanted = named["second_text"]
    guesses = (stored.second_text if stored else None, *_CHOICE_NAMES) if wanted is None else (wanted,)
    choices = next((name for name in guesses if name and _is_choices(table, name, label)), None)
    if choices is None and wanted is not None:
        raise InputError(
            f"{table.path}: --second-text {wanted} is neither a column nor what columns {wanted}0, {wanted}1 "
            f"begin with; columns: {table.known}"
        )
    if context is None or choices is None:
        lacking = ("context", "--text") if context is None else ("choices", "--second-text")
        raise InputError(
            f"{table.path}: no column is known to be the {lacking[0]}; name it with {lacking[1]}, where the "
            f"command has that; columns: {table.known}"
        )
    if context in (choices, label):
        raise InputError(f"{table.path}: column {context!r} would be read twice; name each column")
    return Columns(context, choices, label)


def _column(table: Table, flag: str, named: str | None, guesses: tuple[str | None, ...]) -> str | None:
    if named is not None and named not in table.columns:
        raise InputError(
            f"{table.path}: no column {named!r} (--{flag}); {nearest(named, list(table.columns))}"
        )
    return named or next((name for name in guesses if name in table.columns), None)


def _is_choices(table: Table, name: str, label: str | None) -> bool:
    return (name in table.columns and name != label) or len(_numbered(table.columns, name)) > 1


def _numbered(columns: tuple[str, ...], prefix: str) -> dict[int, str]:
    """Return the columns of a name and a number, by number."""
    matches = ((re.fullmatch(rf"{re.escape(prefix)}[ _-]?(\d{{1,4}})", name), name) for name in columns)
    return dict(sorted((int(match[1]), name) for match, name in matches if match))


def iterate_choice_rows(table: Table, columns: Columns) -> Iterator[ChoiceRow]:
    """Yield every row in the order of the file; those with missing values say which.

    Raises:
        InputError: a value has the wrong type, or a label names no choice; the line is named.
    """
    assert columns.second_text is not None, "a choice has choices"
    is_list = columns.second_text in table.columns
    numbers = {} if is_list else _numbered(table.columns, columns.second_text)
    beginning = _BEGINNING if columns.text == "sent1" and _BEGINNING in table.columns else None
    for line, values in table.records:
        where = f"{table.path}, line {line}:"
        context, lacking = _text(where, columns.text, values.get(columns.text))
        if is_list:
            choices, name = _listed(where, columns.second_text, values.get(columns.second_text))
            lacking += name
        else:
            choices, names = _in_columns(where, list(numbers.values()), values)
            lacking += names
        if beginning is not None:
            start, name = _text(where, beginning, values.get(beginning))
            choices, lacking = tuple(f"{start} {choice}" for choice in choices), lacking + name
        label = None
        if columns.label is not None:
            value = values.get(columns.label)
            if value is None or value == "":
                lacking.append(columns.label)
            elif not lacking:
                label = (
                    _by_text(where, value, choices) if is_list else _by_number(where, value, numbers, choices)
                )
        yield ChoiceRow(context, choices, label, line, tuple(lacking))


def _text(where: str, column: str, value: Any) -> tuple[str, list[str]]:
    """Return a text, and the column's name if it is missing."""
    if value is None or value == "":
        return "", [column]
    if not isinstance(value, str):
        raise InputError(f"{where} {column!r} is {json.dumps(value)[:40]}, a text has to be a string")
    return value, []


def _listed(where: str, column: str, value: Any) -> tuple[tuple[str, ...], list[str]]:
    if value is None or value == "":
        return (), [column]
    if not isinstance(value, list):
        raise InputError(
            f"{where} {column!r} is {json.dumps(value)[:40]}; expected a JSON list of texts, or columns "
            f"{column}0, {column}1, ... "
        )
    found = [_text(where, column, choice) for choice in value]
    lacking = [column] if len(found) < 2 or any(name for _, name in found) else []
    return tuple(text for text, _ in found), lacking


def _in_columns(where: str, names: list[str], values: Mapping[str, Any]) -> tuple[tuple[str, ...], list[str]]:
    found = [_text(where, name, values.get(name)) for name in names]
    while len(found) > 2 and found[-1][1]:  # a row may have fewer choices than the widest
        found.pop()
    return tuple(text for text, _ in found), [name for _, lacking in found for name in lacking]


def _by_text(where: str, value: Any, choices: tuple[str, ...]) -> int:
    """Return the number of the right one of a list: its JSON number, or its text."""
    if type(value) is int and 0 <= value < len(choices):
        return value
    if isinstance(value, str) and choices.count(value) == 1:
        return choices.index(value)
    raise InputError(
        f"{where} label {json.dumps(value, ensure_ascii=False)[:60]} names no choice; expected a JSON number "
        f"from 0 to {len(choices) - 1}, or the very text of one choice"
    )


def _by_number(where: str, value: Any, numbers: Mapping[int, str], choices: tuple[str, ...]) -> int:
    """Return the place of the column that has the label's number in its name."""
    known = list(numbers)[: len(choices)]
    number = int(value) if re.fullmatch(r"\d{1,4}", str(value)) else None
    if number not in known:
        raise InputError(
            f"{where} label {str(value)[:60]!r} names no choice; expected {known[0]} to {known[-1]}, the "
            "number in the name of the right choice's column"
        )
    return known.index(number)


def row_to_choose(number: int, item: Any) -> ChoiceRow:
    """Return an item as a row.

    Raises:
        InputError: it is no context with two or more choices.
    """
    if isinstance(item, (tuple, list)) and len(item) == 2 and _is_many(item[1]):
        context, choices = item[0], tuple(item[1])
        if all(isinstance(text, str) for text in (context, *choices)) and len(choices) > 1:
            return ChoiceRow(context, choices, None, number)
    raise InputError(f"item number {number} is no (context, [two or more choices]), all of them texts")


def _is_many(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
