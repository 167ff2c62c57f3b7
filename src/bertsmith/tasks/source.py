"""Where the rows of a task come from, and what was read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import InputError
from bertsmith.randomness import generator
from bertsmith.tasks.rows import MISSING_POLICIES, Columns


@dataclass(frozen=True)
class DataSource:
    """What the user said about the data.

    Attributes:
        data: a GLUE task directory, or a CSV, TSV or JSON lines file.
        dev: the dev file for own data.
        text: column of the text, as named by the user.
        second_text: column of the second text of a pair, as named by the user.
        label: column of the label, as named by the user.
        missing: a row without text or label: "error" or "skip".
        stored: columns stored with a model: used where a file has them, and they say whether rows are pairs.
        scheme: of the tags in a file of columns, as named by the user; ``None``: it is found.
        label_separator: what parts the labels in a field, as named by the user.
    """

    data: str
    dev: str | None = None
    text: str | None = None
    second_text: str | None = None
    label: str | None = None
    missing: str = "error"
    stored: Columns | None = None
    scheme: str | None = None
    label_separator: str | None = None

    def __post_init__(self) -> None:
        if self.missing not in MISSING_POLICIES:
            raise InputError(f"missing is {self.missing!r}; take one of {', '.join(MISSING_POLICIES)}")

    @property
    def named(self) -> dict[str, str | None]:
        """The columns the user named, by flag."""
        return {"text": self.text, "second_text": self.second_text, "label": self.label}

    @property
    def pair(self) -> bool | None:
        """Whether rows have to be pairs; ``None`` when nothing is stored."""
        return None if self.stored is None else self.stored.second_text is not None


class AnyRow(Protocol):
    """What every row has, whatever its task."""

    @property
    def line(self) -> int:
        """Number of the row's first line in the file, from 1."""
        ...

    @property
    def texts(self) -> Sequence[str | None]:
        """What people read of it, without the answer."""
        ...


RowT = TypeVar("RowT", bound=AnyRow)


@dataclass(frozen=True)
class RowSet(Generic[RowT]):
    """The rows of one split.

    Attributes:
        rows: in the order of the file.
        path: the file.
        columns: where texts and labels were found; ``None`` where the format fixes it.
        partial: the file is marked as a part of the split (``dev.part.tsv``).
        counts: ``rows``, ``missing_rows``, ``blank_lines``.
        unread: the other columns of a user's file.
    """

    rows: list[RowT]
    path: str
    columns: Columns | None = None
    partial: bool = False
    counts: dict[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()

    def where(self, index: int) -> str:
        """Return where a row stands, for messages."""
        return f"{self.path}, line {self.rows[index].line}:"

    def groups(self) -> list[list[int]]:
        """Return which rows may only be chosen together, in the order of the file: each row by itself."""
        return [[index] for index in range(len(self.rows))]


def subset(rows: RowSet[RowT], indices: Iterable[int]) -> RowSet[RowT]:
    """Return some of the rows, in the order of the file."""
    return replace(rows, rows=[rows.rows[index] for index in sorted(indices)])


def _drawn(groups: list[list[int]], number: int, order: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Return the rows of groups in an order until there are ``number``, and the other rows."""
    chosen: list[int] = []
    rest: list[int] = []
    for group in order:
        (chosen if len(chosen) < number else rest).extend(groups[group])
    return chosen, rest


def limit(rows: RowSet[RowT], number: int, seed: int) -> RowSet[RowT]:
    """Return ``number`` rows that the seed chooses (more if they come in groups); 0 or more than all: all.

    Raises:
        InputError: the number is negative.
    """
    if number < 0:
        raise InputError(f"limit-rows is {number}; it has to be 0 (all) or more")
    if number == 0 or number >= len(rows.rows):
        return rows
    groups = rows.groups()
    return subset(rows, _drawn(groups, number, generator(seed, "limit").permutation(len(groups)))[0])


def hold_out(rows: RowSet[RowT], seed: int, fraction: float = 0.1) -> tuple[RowSet[RowT], RowSet[RowT]]:
    """Return the rows to train on and those to keep for dev, chosen by the seed; groups stay whole.

    Raises:
        InputError: there are fewer than two rows or groups.
    """
    groups = rows.groups()
    if len(groups) < 2:
        what = "rows" if len(groups) == len(rows.rows) else "documents"
        raise InputError(f"{rows.path}: {len(groups)} {what}; at least 2 are needed to keep one for dev")
    number = max(1, round(len(rows.rows) * fraction))
    kept, rest = _drawn(groups, number, generator(seed, "dev").permutation(len(groups)))
    if not rest:  # the last group is the largest
        raise InputError(f"{rows.path}: no row is left to train on beside those kept for dev; give --dev")
    return subset(rows, rest), subset(rows, kept)
