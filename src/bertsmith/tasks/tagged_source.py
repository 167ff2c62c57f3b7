"""The rows of tagging tasks: of a directory or file of columns, or of a file of texts with spans."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from bertsmith.errors import InputError
from bertsmith.tasks import conll
from bertsmith.tasks.entities import parts_of
from bertsmith.tasks.marked_text import read_marked_text
from bertsmith.tasks.rows import Columns
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.tables import text_lines
from bertsmith.tasks.tagged_rows import TaggedRow

_SPAN_ENDINGS = (".json", ".jsonl", ".ndjson")


@dataclass(frozen=True)
class TaggedRows(RowSet[TaggedRow]):
    """The rows of one split.

    Attributes:
        scheme: of the file's tags; ``None``: it holds spans, or no tags.
    """

    scheme: str | None = None

    def groups(self) -> list[list[int]]:
        """Return the rows of each document."""
        numbers = range(len(self.rows))
        return [list(group) for _, group in groupby(numbers, key=lambda index: self.rows[index].document)]


def holds_spans(path: str) -> bool:
    """Say whether a file's name means JSON lines."""
    return path.removesuffix(".gz").lower().endswith(_SPAN_ENDINGS)


def holds_tags(path: str) -> bool:
    """Say whether a text file holds columns: in each of its first hundred lines, tags are the last of two."""
    fields = [
        found
        for _, line in zip(range(100), text_lines(path), strict=False)
        if (found := conll.fields_of(line))
    ]
    try:
        return bool(fields) and all(len(found) > 1 and parts_of(found[-1]) for found in fields)
    except InputError:
        return False


def read_split(source: DataSource, split: str) -> TaggedRows | None:
    """Read one split; ``None`` when there is no such file.

    Raises:
        InputError: the data is missing or broken, or a setting would be ignored.
    """
    if source.second_text is not None:
        raise InputError(f"--second-text {source.second_text} would be ignored: words are tagged in one text")
    if Path(source.data).is_dir():
        if source.dev is not None:
            raise InputError(
                f"--dev {source.dev} would be ignored: {source.data} is a directory; leave it out"
            )
        found = conll.find_split(Path(source.data), split)
        if found is None and split == "train":
            names = ", ".join(conll.SPLITS["train"])
            raise InputError(
                f"{source.data}: no training file in it; expected one of {names} (.gz may follow)"
            )
        path = None if found is None else str(found)
    else:
        path = source.data if split == "train" else source.dev
    return None if path is None else read_file(source, path)


def read_file(source: DataSource, path: str, labelled: bool = True) -> TaggedRows:
    """Read one file, by its name: JSON lines with spans, else columns.

    Args:
        source: what the user said about columns and scheme.
        path: the file.
        labelled: read the entities too.

    Raises:
        InputError: the file is missing or broken, or a setting would be ignored.
    """
    if holds_spans(path):
        if source.scheme is not None:
            raise InputError(f"--scheme {source.scheme} would be ignored: {path} holds spans; leave it out")
        marked = read_marked_text(path, source, labelled)
        columns = Columns(marked.text_key, None, marked.label_key)
        return TaggedRows(marked.rows, path, columns, counts=marked.counts)
    read = conll.read_columns(path, source, labelled)
    columns = Columns(str(read.word_column), None, None if read.tag_column is None else str(read.tag_column))
    return TaggedRows(read.rows, path, columns, ".part." in Path(path).name, read.counts, scheme=read.scheme)
