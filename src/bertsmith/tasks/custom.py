"""Own data: a file with a header, columns named by flags or found."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError
from bertsmith.tasks.rows import Columns, LabelReader, Row, find_columns, one_label, rows_of, several_labels
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.tables import open_table


def read_split(source: DataSource, split: str, several: bool = False) -> RowSet[Row] | None:
    """Read the train rows (``source.data``) or the dev rows (``source.dev``; ``None`` without one).

    Args:
        source: the files.
        split: "train" or another name, which means dev.
        several: a row has any number of labels instead of one.

    Raises:
        InputError: a file or column is missing, a row is broken or lacks a value, or there is no row.
    """
    if Path(source.data).is_dir():
        raise InputError(f"{source.data}: a directory; name a .csv, .tsv or .jsonl file, or a --task of GLUE")
    path = source.data if split == "train" else source.dev
    return None if path is None else read_file(source, path, several)


def read_file(source: DataSource, path: str, several: bool = False) -> RowSet[Row]:
    """Read the labelled rows of one file.

    Raises:
        InputError: a file or column is missing, a column is taken twice, a row is broken or lacks a value, or
            there is no row.
    """
    table = open_table(path)
    columns = find_columns(table, source.stored, source.named, source.pair)
    if columns.label is None:
        raise InputError(
            f"{path}: no column is known to be the label; name it with --label; columns: {table.known}"
        )
    chosen = [name for name in (columns.text, columns.second_text, columns.label) if name is not None]
    if repeated := {name for name in chosen if chosen.count(name) > 1}:
        raise InputError(
            f"{path}: column {min(repeated)!r} would be read twice, as texts or label; "
            "name each with --text, --second-text, --label"
        )
    read_label: LabelReader = one_label
    if several:
        stored = source.stored.label_separator if source.stored else None
        columns = replace(columns, label_separator=source.label_separator or stored)
        read_label = several_labels if source.label_separator is None else _parted_labels
    rows, counts = rows_of(table, columns, source.missing, read_label)
    if not rows:
        raise InputError(f"{path}: no row with a text and a label")
    unread = tuple(name for name in table.columns if name not in chosen)
    return RowSet(rows, path, columns, counts=counts, unread=unread)


def _parted_labels(where: str, columns: Columns, value: Any) -> tuple[str, ...] | None:
    if isinstance(value, list):
        raise InputError(
            f"{where} {columns.label!r} is a list: --label-separator would be ignored; leave it out"
        )
    return several_labels(where, columns, value)
