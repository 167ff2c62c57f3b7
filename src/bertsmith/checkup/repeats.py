"""Repeated lines and documents, exact, and boilerplate: every line of a corpus as a few numbers."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from bertsmith.checkup.finding import Example, Finding, judge, many, percent
from bertsmith.checkup.places import Places

MOST_LINES = 1 << 26
"""Lines that are compared; 20 bytes each. Lines beyond are left out, and the findings say so."""
_BOILERPLATE_DOCUMENTS = 10
_KEEP_FIRST = "awk '!NF || !seen[$0]++' corpus.txt > clean.txt (keeps the first of equal lines)"


@dataclass(frozen=True)
class Groups:
    """Equal items of a list.

    Attributes:
        first: bool ``(items,)``: no earlier item is equal.
        group: int64 ``(items,)``: the number of each item's group.
    """

    first: NDArray[np.bool_]
    group: NDArray[np.int64]

    @classmethod
    def of(cls, hashes: NDArray[np.uint64]) -> Groups:
        """Group items by their hashes, uint64 ``(items,)``."""
        _, first_places, group = np.unique(hashes, return_index=True, return_inverse=True)
        first = np.zeros(len(hashes), dtype=np.bool_)
        first[first_places] = True
        return cls(first, group.astype(np.int64))


class LineIndex:
    """Hash, place and length of every kept line, and which document it belongs to.

    Attributes:
        hashes: of the lines.
        places: of the lines, see ``Places``.
        characters: of the lines.
        document_hashes: of the documents.
        document_lines: lines of each document.
        left_out: lines beyond ``MOST_LINES``.
    """

    def __init__(self) -> None:
        self.hashes = array("Q")
        self.places = array("Q")
        self.characters = array("I")
        self.document_hashes = array("Q")
        self.document_lines = array("Q")
        self.left_out = 0

    def add(self, lines: list[str], places: list[int]) -> list[int]:
        """Take a document; return the hashes of its lines."""
        digests = [blake2b(line.encode(), digest_size=8).digest() for line in lines]
        hashes = [int.from_bytes(digest, "little") for digest in digests]
        if self.left_out or len(self.hashes) + len(lines) > MOST_LINES:
            self.left_out += len(lines)
            return hashes
        self.hashes.extend(hashes)
        self.places.extend(places)
        self.characters.extend(map(len, lines))
        whole = blake2b(b"".join(digests), digest_size=8).digest()
        self.document_hashes.append(int.from_bytes(whole, "little"))
        self.document_lines.append(len(lines))
        return hashes


class Repeats:
    """What the index of a whole corpus says about repetition.

    Attributes:
        document_characters: int64 ``(documents,)``.
        document_places: uint64 ``(documents,)``: where each begins.
        is_repeated: bool ``(documents,)``: an earlier document is equal.
    """

    def __init__(self, index: LineIndex, places: Places) -> None:
        self._places = places
        self._left_out = index.left_out
        self._hashes = np.asarray(index.hashes, dtype=np.uint64)
        self._line_places = np.asarray(index.places, dtype=np.uint64)
        self._characters = np.asarray(index.characters, dtype=np.int64)
        self._total = max(1, int(self._characters.sum()))
        lines = np.asarray(index.document_lines, dtype=np.int64)
        starts = np.cumsum(lines) - lines  # (documents,)
        self._document_of_line = np.repeat(np.arange(len(lines)), lines)  # (lines,)
        self.document_characters = np.bincount(
            self._document_of_line, weights=self._characters, minlength=len(lines)
        ).astype(np.int64)
        self.document_places = self._line_places[starts]
        self._documents = Groups.of(np.asarray(index.document_hashes, dtype=np.uint64))
        self.is_repeated = ~self._documents.first

    def findings(self) -> list[Finding]:
        """Return findings of repeated lines, repeated documents and boilerplate."""
        if len(self._hashes) == 0:
            return []
        lines = Groups.of(self._hashes)
        return [*self._of_documents(), *self._of_lines(lines), *self._of_boilerplate(lines)]

    def _of_lines(self, lines: Groups) -> list[Finding]:
        repeated = ~lines.first
        characters = int(self._characters[repeated].sum())
        count = int(repeated.sum())
        share = characters / self._total
        within = int(self._characters[repeated & self.is_repeated[self._document_of_line]].sum())
        through = f", {percent(within / max(1, characters))} of that in repeated documents" if within else ""
        beyond = f" (the last {self._left_out:,} lines were not compared)" if self._left_out else ""
        return judge(
            "repeated_lines",
            share,
            f"{count:,} of {len(repeated):,} lines ({percent(count / len(repeated))}) repeat an earlier line"
            f"{through}{beyond}",
            count,
            f"{percent(share)} of the text ({characters:,} characters) is read again in every epoch: wasted "
            "computing, and learnt by heart",
            _KEEP_FIRST,
            self._dearest(lines, np.bincount(lines.group) - 1),
        )

    def _of_documents(self) -> list[Finding]:
        count = int(self.is_repeated.sum())
        characters = int(self.document_characters[self.is_repeated].sum())
        share = characters / self._total
        worst = np.argsort(-self.document_characters * self.is_repeated, kind="stable")[: min(2, count)]
        groups = self._documents.group
        earlier = [np.flatnonzero(groups == groups[document])[0] for document in worst]
        notes = [
            f"is the document at {self._places.name(int(self.document_places[first]))}: " for first in earlier
        ]
        return judge(
            "repeated_documents",
            share,
            f"{count:,} of {len(self.is_repeated):,} documents are equal to an earlier one",
            count,
            f"{percent(share)} of the text ({characters:,} characters) is read again in every epoch",
            "keep one of each: most often a file was added twice or collected from two places",
            self._places.examples([int(self.document_places[document]) for document in worst], notes),
        )

    def _of_boilerplate(self, lines: Groups) -> list[Finding]:
        counts = np.bincount(lines.group)
        pairs = np.unique(
            np.stack([lines.group, self._document_of_line], axis=1)[counts[lines.group] > 1], axis=0
        )  # (pairs, 2)
        documents = np.bincount(pairs[:, 0], minlength=len(counts))
        is_boilerplate = documents >= _BOILERPLATE_DOCUMENTS
        wasted = is_boilerplate[lines.group] & ~lines.first
        characters = int(self._characters[wasted].sum())
        share = characters / self._total
        count = int(is_boilerplate.sum())
        return judge(
            "boilerplate",
            share,
            f"{many(count, 'line')} found in {_BOILERPLATE_DOCUMENTS} or more documents each "
            f"({int(wasted.sum()):,} repetitions)",
            count,
            f"{percent(share)} of the text; a next sentence that stands everywhere is told by itself",
            "delete such lines (navigation, licences, signatures): grep -vxFf boilerplate.txt corpus.txt",
            self._dearest(lines, np.where(is_boilerplate, documents - 1, 0)),
        )

    def _dearest(self, lines: Groups, times: NDArray[np.int64]) -> list[Example]:
        """Return the two groups that waste most characters, ``times`` being the repetitions of each."""
        first = np.zeros(len(times), dtype=np.int64)
        first[lines.group[lines.first]] = np.flatnonzero(lines.first)
        wasted = times * self._characters[first]
        worst = [int(group) for group in np.argsort(-wasted, kind="stable")[:2] if wasted[group] > 0]
        notes = [f"{int(times[group]) + 1:,} times: " for group in worst]
        return self._places.examples([int(self._line_places[first[group]]) for group in worst], notes)
