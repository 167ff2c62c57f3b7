"""Places in a corpus as numbers, and the text that stands there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from bertsmith.checkup.finding import Example, excerpt
from bertsmith.remote import Location
from bertsmith.tasks.source import RowSet
from bertsmith.text.corpus_files import file_bytes
from bertsmith.text.streams import STANDARD_INPUT, is_json_lines, lines_of

_LINE_BITS = 40


class Places:
    """Files and lines of a corpus as whole numbers below 2^63.

    Args:
        files: of the corpus, as they are read.
        text_field: the field of a .jsonl object that holds the text.
    """

    def __init__(self, files: Sequence[Location], text_field: str) -> None:
        self._files = list(files)
        self._numbers = {file: number for number, file in enumerate(self._files)}
        self._text_field = text_field

    def pack(self, file: Location, line: int) -> int:
        """Return the number of a line of a file, lines from 1."""
        return self._numbers[file] << _LINE_BITS | line

    def name(self, place: int) -> str:
        """Return a place for people: file and line."""
        file = self._files[place >> _LINE_BITS]
        name = "standard input" if str(file) == STANDARD_INPUT else str(file)
        return f"{name}:{place & ((1 << _LINE_BITS) - 1)}"

    def examples(
        self, places: Iterable[int], notes: Iterable[str] = (), around: re.Pattern[str] | None = None
    ) -> list[Example]:
        """Return examples with the text of their lines, read again from the files.

        Args:
            places: which lines.
            notes: what to say before each text.
            around: what has to be in the part of the line that is shown.
        """
        wanted = list(places)
        texts = self._texts(wanted)
        before = [*notes, *("" for _ in wanted)][: len(wanted)]
        return [
            Example(self.name(place), note + excerpt(texts[place], around))
            for place, note in zip(wanted, before, strict=True)
        ]

    def _texts(self, places: Sequence[int]) -> dict[int, str]:
        texts = dict.fromkeys(places, "")
        for number, file in enumerate(self._files):
            here = sorted({place for place in places if place >> _LINE_BITS == number})
            if not here or file_bytes(file) is None:
                continue  # a pipe cannot be read again
            last = here[-1] & ((1 << _LINE_BITS) - 1)
            for line, raw in enumerate(islice(lines_of(file), last), start=1):
                place = number << _LINE_BITS | line
                if place in texts:
                    texts[place] = self._text(file, raw)
        return texts

    def _text(self, file: Location, raw: bytes) -> str:
        line = raw.decode("utf-8", errors="replace")
        if not is_json_lines(file):
            return line
        try:
            return str(json.loads(line)[self._text_field])
        except (ValueError, KeyError, TypeError):  # the reader mended it first: NUL, a byte order mark
            return line


def examples_of_rows(
    rows: RowSet[Any], chosen: Sequence[Any], notes: Sequence[str] = ("", "")
) -> list[Example]:
    """Return examples of a task's rows, one for each note."""
    return [
        Example(f"{rows.path}:{row.line}", note + excerpt(" / ".join(text for text in row.texts if text)))
        for row, note in zip(chosen, notes, strict=False)
    ]
