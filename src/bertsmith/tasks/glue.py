"""The files of GLUE tasks as they were published: names, columns, headers.

Source: the GLUE download layout; run_classifier.py, the ``_create_examples`` of each processor.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bertsmith.errors import InputError
from bertsmith.tasks import custom
from bertsmith.tasks.rows import Columns, Row, rows_of
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.tables import open_table

_SPLITS = {"train": "train", "dev": "dev", "test": "test"}
_ENDINGS = (".tsv", ".tsv.gz", ".part.tsv", ".part.tsv.gz")


@dataclass(frozen=True)
class GlueFiles:
    """How one task lies on disk.

    Attributes:
        directory: the name of the task's directory.
        labelled: columns of the train and dev files.
        unlabelled: columns of the test files.
        names: names of the columns of train and dev when they have no header line.
        splits: file name, without its ending, of each split.
    """

    directory: str
    labelled: Columns
    unlabelled: Columns
    names: tuple[str, ...] | None = None
    splits: Mapping[str, str] = field(default_factory=lambda: _SPLITS)

    def is_labelled(self, split: str) -> bool:
        """Say whether the rows of a split come with labels."""
        return not split.startswith("test")


GLUE: Mapping[str, GlueFiles] = {
    "cola": GlueFiles(
        "CoLA",
        Columns("sentence", None, "label"),
        Columns("sentence"),
        names=("source", "label", "mark", "sentence"),
    ),
    "sst2": GlueFiles("SST-2", Columns("sentence", None, "label"), Columns("sentence")),
    "mrpc": GlueFiles(
        "MRPC", Columns("#1 String", "#2 String", "Quality"), Columns("#1 String", "#2 String")
    ),
    "stsb": GlueFiles("STS-B", Columns("sentence1", "sentence2", "score"), Columns("sentence1", "sentence2")),
    "qqp": GlueFiles(
        "QQP", Columns("question1", "question2", "is_duplicate"), Columns("question1", "question2")
    ),
    "mnli": GlueFiles(
        "MNLI",
        Columns("sentence1", "sentence2", "gold_label"),
        Columns("sentence1", "sentence2"),
        splits={
            "train": "train",
            "dev": "dev_matched",
            "dev_mismatched": "dev_mismatched",
            "test": "test_matched",
            "test_mismatched": "test_mismatched",
        },
    ),
    "qnli": GlueFiles("QNLI", Columns("question", "sentence", "label"), Columns("question", "sentence")),
    "rte": GlueFiles("RTE", Columns("sentence1", "sentence2", "label"), Columns("sentence1", "sentence2")),
    "wnli": GlueFiles("WNLI", Columns("sentence1", "sentence2", "label"), Columns("sentence1", "sentence2")),
    # The diagnostic set: no training rows; a model of MNLI answers it. Its labels were published later.
    "ax": GlueFiles(
        "diagnostic",
        Columns("Premise", "Hypothesis", "Label"),
        Columns("sentence1", "sentence2"),
        splits={"dev": "diagnostic-full", "test": "diagnostic"},
    ),
}


def read_split(files: GlueFiles, source: DataSource, split: str) -> RowSet[Row] | None:
    """Read one split of a GLUE directory; a file instead of a directory is read as own data.

    Returns:
        The rows; ``None`` when the directory has no file of that split. Test rows have no label.

    Raises:
        InputError: the directory is not the task's, a flag names columns (the layout fixes them), a row is
            broken, or there is none.
    """
    if not Path(source.data).is_dir():
        is_first = split in ("train", "dev")  # own data has one dev file
        return custom.read_split(_with_task_columns(files, source), split) if is_first else None
    if split not in files.splits and split not in _SPLITS:
        raise InputError(
            f"split {split!r} of {files.directory} is unknown; take one of {', '.join(files.splits)}"
        )
    for flag, value in {**source.named, "dev": source.dev}.items():
        if value is not None:
            raise InputError(
                f"--{flag.replace('_', '-')} {value} would be ignored: {source.data} is a GLUE directory, "
                "its files and columns are fixed; leave the flag out, or name a file"
            )
    directory = _directory(files, Path(source.data))
    path = _find(directory, files.splits[split]) if split in files.splits else None
    if path is None:
        return None
    labelled = files.is_labelled(split)
    columns = files.labelled if labelled else files.unlabelled
    table = open_table(str(path), files.names if labelled else None)
    # The published QQP has rows that end early. The last column of every GLUE file is a text or the label, so
    # such a row lacks a value, and ``missing`` says what to do about it.
    table.short_rows = True
    for column in (columns.text, columns.second_text, columns.label):
        if column is not None and column not in table.columns:
            raise InputError(
                f"{path}: no column {column!r}, is this {files.directory}? "
                f"columns: {', '.join(table.columns)}"
            )
    # The leaderboard wants an answer to every test row, also to one without a text.
    rows, counts = rows_of(table, columns, source.missing if labelled else "keep")
    if not rows:
        raise InputError(f"{path}: no row in it; get the whole {split} file of {files.directory}")
    return RowSet(rows, str(path), columns, ".part." in path.name, counts)


def _with_task_columns(files: GlueFiles, source: DataSource) -> DataSource:
    return source if source.stored else dataclasses.replace(source, stored=files.labelled)


def _directory(files: GlueFiles, path: Path) -> Path:
    """Return the task's directory: the path itself, or inside the directory of all tasks."""
    for candidate in (path, path / files.directory):
        if any(_find(candidate, stem) for stem in files.splits.values()):
            return candidate
    names = " or ".join(f"{stem}.tsv" for stem in files.splits.values())
    raise InputError(f"{path}: no {names} (or .tsv.gz) of {files.directory} in it")


def _find(directory: Path, stem: str) -> Path | None:
    candidates = (directory / (stem + ending) for ending in _ENDINGS)
    return next((path for path in candidates if path.is_file()), None)
