"""What is searched and what is looked for: files of texts, as streams."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.tasks.tables import Table, open_table

_TEXT_NAMES = ("text", "passage", "document", "content", "contents", "body", "sentence")
_ID_NAMES = ("id", "_id", "doc_id", "docid")
_QUERY_NAMES = ("query", "question", "text", "anchor")


@dataclass(frozen=True)
class CorpusText:
    """A text to be found.

    Attributes:
        id: its name: of the corpus's column, or its line.
        text: what is read and shown.
    """

    id: str | int
    text: str


@dataclass
class Corpus:
    """A file of texts to be found.

    Attributes:
        table: the opened file.
        text_column: of the texts.
        id_column: of their names; ``None``: their lines.
        missing: an empty text: "error" or "skip".
        missing_texts: how many were left out so far.
    """

    table: Table
    text_column: str
    id_column: str | None
    missing: str
    missing_texts: int = 0

    @classmethod
    def open(cls, path: str, text: str | None, id: str | None, missing: str) -> Corpus:
        """Open a file, with the columns that are named or found.

        Raises:
            InputError: there is no such file or column, or none is known to be the text.
        """
        table = open_table(path)
        text_column = _column(table, "text", text, _TEXT_NAMES)
        if text_column is None:
            raise InputError(_unknown(table, "text", "text"))
        return cls(table, text_column, _column(table, "id", id, _ID_NAMES), missing)

    def facts(self) -> dict[str, Any]:
        """Return which file it is and what is read of it."""
        sha256 = files.sha256_of(Path(self.table.path))
        return {"path": self.table.path, "sha256": sha256, "text": self.text_column, "id": self.id_column}

    def texts(self) -> Iterator[CorpusText]:
        """Yield the texts in the order of the file, once.

        Raises:
            InputError: a text or a name is none, or a name is there twice; the line is named.
        """
        lines: dict[str | int, int] = {}
        for line, values in self.table.records:
            where = f"{self.table.path}, line {line}:"
            text = _text(where, self.text_column, values.get(self.text_column))
            if not text:
                if self.missing == "error":
                    raise InputError(f"{where} no {self.text_column}; mend it, or --missing skip")
                self.missing_texts += 1
                continue
            name: Any = line if self.id_column is None else values.get(self.id_column)
            if type(name) not in (str, int) or name == "":
                found = json.dumps(name)[:40]
                raise InputError(f"{where} {self.id_column!r} is {found}; expected a text or a number")
            if lines.setdefault(name, line) != line:
                raise InputError(
                    f"{where} {self.id_column!r} is {name!r}, as in line {lines[name]}; names have to "
                    "differ: mend it, or name another column with --id"
                )
            yield CorpusText(name, text)


def read_queries(path: str, column: str | None) -> Iterator[tuple[int, str]]:
    """Open a file of queries; return line and text of each, in its order; an empty one is "".

    Args:
        path: the file; - is text lines on standard input.
        column: of the queries, as named by the user.

    Raises:
        InputError: there is no such file or column, none is known to be the query, or a text is none.
    """
    table = open_table(path)
    found = _column(table, "query-text", column, _QUERY_NAMES)
    if found is None:
        raise InputError(_unknown(table, "query", "query-text"))
    return (
        (line, _text(f"{path}, line {line}:", found, values.get(found))) for line, values in table.records
    )


def _column(table: Table, flag: str, named: str | None, guesses: Sequence[str]) -> str | None:
    if named is not None and named not in table.columns:
        raise InputError(
            f"{table.path}: no column {named!r} (--{flag}); {nearest(named, list(table.columns))}"
        )
    return named or next((name for name in guesses if name in table.columns), None)


def _unknown(table: Table, what: str, flag: str) -> str:
    return f"{table.path}: no column is known to be the {what}; name it with --{flag}; columns: {table.known}"


def _text(where: str, column: str, value: Any) -> str:
    if value is not None and not isinstance(value, str):
        raise InputError(f"{where} {column!r} is {json.dumps(value)[:40]}, a text has to be a string")
    return value or ""
