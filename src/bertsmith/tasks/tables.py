"""Files of records as streams: CSV, TSV and JSON lines, plain or gzipped.

No record vanishes and none is joined to another without a word. CSV follows the quoting rules of CSV; TSV has
no quoting at all; a record with the wrong number of fields is an error with its line number.
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Any

from bertsmith.errors import InputError

FORMATS = (".csv", ".tsv", ".jsonl", ".txt")

_BLANK_LINES = "blank_lines"
_OBJECTS_FOR_KEYS = 1000


@dataclass
class Table:
    """A file of records, read as a stream.

    Attributes:
        path: the file, for messages.
        columns: the names of the columns (of JSON lines: the keys of the first thousand objects).
        records: (line number, values by column); can be walked once.
        counts: filled while reading: ``blank_lines``.
        short_rows: a row that ends early lacks its last columns instead of being an error.
    """

    path: str
    columns: tuple[str, ...]
    records: Iterator[tuple[int, Mapping[str, Any]]]
    counts: dict[str, int] = field(default_factory=lambda: {_BLANK_LINES: 0})
    short_rows: bool = False

    @property
    def known(self) -> str:
        """The columns, as a message names them."""
        if self.path != "-" and format_of(self.path) == ".txt":
            return "none, for a .txt is a text a line; make it a .tsv whose first line names the columns"
        return ", ".join(self.columns)


def open_table(path: str, column_names: tuple[str, ...] | None = None) -> Table:
    """Open a CSV, TSV, JSON lines or text file, plain or ``.gz``; ``-`` is text lines on standard input.

    Args:
        path: the file; its name says the format.
        column_names: names of the columns of a TSV without a header line.

    Raises:
        InputError: the file is missing, of another format, damaged, or has no header.
    """
    readers = {".csv": _read_csv, ".tsv": _read_tsv, ".jsonl": _read_jsonl, ".txt": _read_text}
    suffix = ".txt" if path == "-" else format_of(path)
    return readers[suffix](path, column_names)


def format_of(path: str) -> str:
    """Return the format by the file's name, ``.gz`` put aside.

    Raises:
        InputError: the name says no known format.
    """
    suffix = Path(path.removesuffix(".gz")).suffix.lower()
    suffix = {".json": ".jsonl", ".ndjson": ".jsonl"}.get(suffix, suffix)
    if suffix not in FORMATS:
        raise InputError(f"{path}: the name has to end in .csv, .tsv or .jsonl (.gz may follow)")
    return suffix


def text_lines(path: str) -> Iterator[str]:
    """Yield the lines with their ends, without a BOM; only a line feed ends a line."""
    for number, raw in enumerate(raw_lines(path), start=1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise InputError(
                f"{path}, line {number}: not UTF-8 ({error.reason}); convert the file to UTF-8"
            ) from None


def raw_lines(path: str) -> Iterator[bytes]:
    """Yield the lines of a plain or gzipped file as they are, with their ends, without a UTF-8 BOM.

    Raises:
        InputError: there is no such file, or its gzip is damaged.
    """
    number = 0
    try:
        with _open_bytes(path) as file:
            for number, raw in enumerate(file, start=1):
                yield raw.removeprefix(b"\xef\xbb\xbf") if number == 1 else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged or cut gzip file after line {number} ({error})") from None


def _open_bytes(path: str) -> IO[bytes]:
    if path == "-":
        return sys.stdin.buffer
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    return gzip.open(path) if path.endswith(".gz") else open(path, "rb")  # type: ignore[return-value]


def _header(path: str, columns: list[str]) -> tuple[str, ...]:
    if not any(columns):
        raise InputError(f"{path}: empty; expected a header line with the names of the columns")
    repeated = {name for name in columns if columns.count(name) > 1}
    if repeated:
        raise InputError(f"{path}, line 1: column {sorted(repeated)[0]!r} occurs twice; names have to differ")
    return tuple(columns)


def _checked(table: Table, line: int, fields: list[str]) -> Mapping[str, str]:
    if len(fields) > len(table.columns) or (len(fields) < len(table.columns) and not table.short_rows):
        raise InputError(
            f"{table.path}, line {line}: {len(fields)} fields, expected {len(table.columns)} "
            f"({', '.join(table.columns)}); mend the row"
        )
    return dict(zip(table.columns, fields, strict=False))


def _read_csv(path: str, column_names: tuple[str, ...] | None) -> Table:
    assert column_names is None, "a CSV has a header"
    csv.field_size_limit(2**31 - 1)  # a text may be longer than the module's 128 KiB
    reader = csv.reader(text_lines(path), strict=True)
    table = Table(path, _header(path, _next_csv(path, reader) or []), iter(()))

    def records() -> Iterator[tuple[int, Mapping[str, Any]]]:
        while True:
            line = reader.line_num + 1
            fields = _next_csv(path, reader)
            if fields is None:
                return
            if not fields and len(table.columns) > 1:
                table.counts[_BLANK_LINES] += 1
            else:
                yield line, _checked(table, line, fields or [""])

    table.records = records()
    return table


def _next_csv(path: str, reader: Any) -> list[str] | None:
    line = reader.line_num + 1
    try:
        return next(reader, None)
    except csv.Error as error:
        raise InputError(
            f"{path}, line {line}: broken CSV ({error}); "
            "double the quotes inside a quoted field, or name the file .tsv"
        ) from None


def _read_tsv(path: str, column_names: tuple[str, ...] | None) -> Table:
    lines = (line.removesuffix("\n").removesuffix("\r") for line in text_lines(path))
    columns = column_names or _header(path, next(lines, "").split("\t"))
    table = Table(path, columns, iter(()))

    def records() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number, line in enumerate(lines, start=1 if column_names else 2):
            if not line and len(columns) > 1:
                table.counts[_BLANK_LINES] += 1
            else:
                yield number, _checked(table, number, line.split("\t"))

    table.records = records()
    return table


def _read_jsonl(path: str, column_names: tuple[str, ...] | None) -> Table:
    assert column_names is None, "JSON objects name their fields"
    lines = enumerate(text_lines(path), start=1)
    table = Table(path, (), iter(()))

    def records() -> Iterator[tuple[int, Mapping[str, Any]]]:
        for number, line in lines:
            if line.strip():
                yield number, _json_object(path, number, line)
            else:
                table.counts[_BLANK_LINES] += 1

    stream = records()
    first = list(islice(stream, _OBJECTS_FOR_KEYS))  # an object may lack what the others have
    if not first:
        raise InputError(f"{path}: empty; expected one JSON object a line")
    table.columns = tuple(dict.fromkeys(key for _, values in first for key in values))

    def all_records() -> Iterator[tuple[int, Mapping[str, Any]]]:
        yield from first
        yield from stream

    table.records = all_records()
    return table


def _json_object(path: str, number: int, line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{path}, line {number}: no JSON ({error.msg}); expected one object a line"
        ) from None
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, or very deep nesting
        raise InputError(f"{path}, line {number}: JSON beyond what can be read ({error})") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}, line {number}: a JSON {type(value).__name__}; expected an object")
    return value


def _read_text(path: str, column_names: tuple[str, ...] | None) -> Table:
    lines = (line.removesuffix("\n").removesuffix("\r") for line in text_lines(path))
    return Table(
        path, ("text",), ((number, {"text": line or None}) for number, line in enumerate(lines, start=1))
    )
