"""Overlap of a corpus with evaluation rows: runs of words that stand in both.

Source: Brown et al., "Language Models are Few-Shot Learners", 2020, appendix C (runs of 8 to 13 words).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.checkup.finding import Example, Finding, excerpt, judge, many, percent
from bertsmith.checkup.places import Places
from bertsmith.checkup.words import Hashes, WordHashes, run_hashes, words_of
from bertsmith.errors import InputError
from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.rows import Row, find_columns, iterate_rows
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.tables import format_of, open_table
from bertsmith.tasks.task import TASKS

_LOG = logging.getLogger(__name__)

SHORTEST_RUN = 8
"""A row shorter than a run is compared whole, from that many words on; shorter ones are like by chance."""
_FILTER_BITS = 22


@dataclass(frozen=True)
class EvaluationRow:
    """A row of an evaluation set."""

    where: str
    texts: tuple[str, ...]


def read_evaluation_rows(paths: Sequence[str]) -> list[EvaluationRow]:
    """Read evaluation sets: GLUE directories (all but their training rows) or files.

    Raises:
        InputError: a path is not there, is a directory without a known task, or its rows cannot be read.
    """
    rows: list[EvaluationRow] = []
    for path in paths:
        found = list(_rows_of_directory(path) if Path(path).is_dir() else _rows_of_file(path))
        if not found:
            raise InputError(
                f"--against {path}: no row with a text in it; name a file of rows or a GLUE directory"
            )
        rows += found
    return rows


def _rows_of_directory(path: str) -> Iterator[EvaluationRow]:
    root = Path(path).resolve()
    known: set[str] = set()
    for name, files in GLUE.items():
        folder = root if root.name == files.directory else root / files.directory
        if not folder.is_dir():
            continue
        known.add(folder.name)
        for split in (split for split in files.splits if split != "train"):
            rows = TASKS[name].read(DataSource(str(folder), missing="skip"), split)
            if rows is not None:
                yield from _evaluation_rows(rows.path, rows.rows)
    if not known:
        raise InputError(
            f"--against {path}: no known task in this directory; name its files, such as {path}/dev.tsv"
        )
    others = sorted(folder.name for folder in root.iterdir() if folder.is_dir() and folder.name not in known)
    if others and root.name not in known:
        _LOG.warning(
            "--against %s: %s not compared: no tasks of bertsmith's; name their files to compare them too",
            *(path, ", ".join(others)),
        )


def _rows_of_file(path: str) -> Iterator[EvaluationRow]:
    if path != "-" and not Path(path).exists():
        raise InputError(f"--against {path}: no such file or directory")
    table = open_table(path)
    if format_of(path) == ".txt":
        for line, values in table.records:
            if values["text"]:
                yield EvaluationRow(f"{path}:{line}", (values["text"],))
        return
    columns = find_columns(table, None, {"text": None, "second_text": None, "label": None}, None)
    yield from _evaluation_rows(path, iterate_rows(table, columns))


def _evaluation_rows(path: str, rows: Iterable[Row]) -> Iterator[EvaluationRow]:
    for row in rows:
        texts = tuple(text for text in row.texts if text)
        if texts:
            yield EvaluationRow(f"{path}:{row.line}", texts)


@dataclass(frozen=True)
class _Runs:
    """The runs of one length in all rows: sorted numbers, the row of each, and a filter of low bits."""

    length: int
    hashes: Hashes
    rows: NDArray[np.int64]
    may_be: NDArray[np.bool_]


class Contamination:
    """Finds the runs of evaluation rows in a corpus that passes by, block by block."""

    def __init__(self, rows: list[EvaluationRow], run_words: int, hashes: WordHashes) -> None:
        """Take the rows.

        Args:
            rows: of the evaluation sets.
            run_words: words that have to be the same in a row; a shorter text counts whole.
            hashes: the numbers of words.

        Raises:
            InputError: ``run_words`` is too small to tell anything.
        """
        if run_words < SHORTEST_RUN:
            raise InputError(
                f"ngram_words is {run_words}; it has to be at least {SHORTEST_RUN}: shorter runs are "
                "the same by chance"
            )
        self._rows = rows
        self._run_words = run_words
        self._found: dict[int, int] = {}  # row -> place in the corpus
        collected: dict[int, list[tuple[Hashes, int]]] = {}
        self.checked = 0
        for number, row in enumerate(rows):
            texts = [words for text in row.texts if len(words := words_of(text)) >= SHORTEST_RUN]
            self.checked += bool(texts)
            for words in texts:
                length = min(run_words, len(words))
                runs = run_hashes(hashes.of(words), length)
                collected.setdefault(length, []).append((runs, number))
        self._runs = [_sorted_runs(length, parts) for length, parts in sorted(collected.items())]

    def look(
        self, words: Hashes, starts: NDArray[np.int64], line_starts: NDArray[np.int64], places: list[int]
    ) -> None:
        """Look at a block of documents.

        Args:
            words: uint64 ``(words,)``, the documents end to end.
            starts: int64 ``(documents + 1,)``, where each document begins, and the end.
            line_starts: int64 ``(lines,)``, where each line begins.
            places: of the lines.
        """
        for runs in self._runs:
            here = run_hashes(words, runs.length)
            maybe = np.flatnonzero(runs.may_be[here & np.uint64((1 << _FILTER_BITS) - 1)])
            left = np.searchsorted(runs.hashes, here[maybe], side="left")
            right = np.searchsorted(runs.hashes, here[maybe], side="right")
            for begin, low, high in zip(maybe.tolist(), left.tolist(), right.tolist(), strict=True):
                end = begin + runs.length - 1
                if low == high or end >= starts[np.searchsorted(starts, begin, side="right")]:
                    continue  # not the same, or it goes on into the next document
                line = int(np.searchsorted(line_starts, begin, side="right")) - 1
                for row in runs.rows[low:high].tolist():
                    self._found.setdefault(row, places[line])

    def findings(self, places: Places) -> list[Finding]:
        """Return the finding of rows that share a run with the corpus."""
        count = len(self._found)
        share = count / max(1, self.checked)
        unchecked = len(self._rows) - self.checked
        shown = sorted(self._found)[:2]
        examples = [
            Example(
                self._rows[row].where,
                f"also at {places.name(self._found[row])}: {excerpt(' / '.join(self._rows[row].texts))}",
            )
            for row in shown
        ]
        return judge(
            "contamination",
            share,
            f"{count:,} of {self.checked:,} evaluation rows ({percent(share)}) share {self._run_words} words "
            f"in a row with the corpus, or stand in it whole ({many(unchecked, 'row')} of fewer than "
            f"{SHORTEST_RUN} words not compared)",
            count,
            "a model may know such rows by heart: the score on them says nothing about new text",
            "leave the documents out of the corpus, or report the score on the clean rows as well",
            examples,
        )


def _sorted_runs(length: int, parts: list[tuple[Hashes, int]]) -> _Runs:
    hashes = np.concatenate([part for part, _ in parts])
    rows = np.repeat(np.array([row for _, row in parts]), [len(part) for part, _ in parts])
    order = np.argsort(hashes, kind="stable")
    may_be = np.zeros(1 << _FILTER_BITS, dtype=np.bool_)
    may_be[hashes & np.uint64((1 << _FILTER_BITS) - 1)] = True
    return _Runs(length, hashes[order], rows[order], may_be)
