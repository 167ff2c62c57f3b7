"""Own data: a file with a header, columns named by flags or found."""

from __future__ import annotations

from pathlib import Path

from bertsmith.errors import InputError
from bertsmith.tasks.rows import Row, find_columns, rows_of
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.tables import open_table


def read_split(source: DataSource, split: str) -> RowSet[Row] | None:
    """Read the train rows (``source.data``) or the dev rows (``source.dev``; ``None`` without one).

    Raises:
        InputError: a file or column is missing, a row is broken or lacks a value, or there is no row.
    """
    if Path(source.data).is_dir():
        raise InputError(f"{source.data}: a directory; name a .csv, .tsv or .jsonl file, or a --task of GLUE")
    path = source.data if split == "train" else source.dev
    return None if path is None else read_file(source, path)


def read_file(source: DataSource, path: str) -> RowSet[Row]:
    """Read the labelled rows of one file.

    Raises:
        InputError: a file or column is missing, a column is taken twice, a row is broken or lacks a value, or
            there is no row.
    """
    table = open_table(path)
    columns = find_columns(table, source.stored, source.named, source.pair)
    if columns.label is None:
        known = ", ".join(table.columns)
        raise InputError(
            f"{path}: no column is known to be the label; name it with --label; columns: {known}"
        )
    chosen = [name for name in (columns.text, columns.second_text, columns.label) if name is not None]
    if repeated := {name for name in chosen if chosen.count(name) > 1}:
        raise InputError(
            f"{path}: column {min(repeated)!r} would be read twice, as texts or label; "
            "name each with --text, --second-text, --label"
        )
    rows, counts = rows_of(table, columns, source.missing)
    if not rows:
        raise InputError(f"{path}: no row with a text and a label")
    return RowSet(rows, path, columns, counts=counts)
