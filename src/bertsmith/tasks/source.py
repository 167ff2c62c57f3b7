"""Where the rows of a task come from, and what was read."""

from __future__ import annotations

from dataclasses import dataclass, field

from bertsmith.errors import InputError
from bertsmith.tasks.rows import MISSING_POLICIES, Columns, Row


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
    """

    data: str
    dev: str | None = None
    text: str | None = None
    second_text: str | None = None
    label: str | None = None
    missing: str = "error"
    stored: Columns | None = None

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


@dataclass(frozen=True)
class RowSet:
    """The rows of one split.

    Attributes:
        rows: in the order of the file.
        path: the file.
        columns: where texts and labels were found.
        partial: the file is marked as a part of the split (``dev.part.tsv``).
        counts: ``rows``, ``missing_rows``, ``blank_lines``.
    """

    rows: list[Row]
    path: str
    columns: Columns
    partial: bool = False
    counts: dict[str, int] = field(default_factory=dict)
