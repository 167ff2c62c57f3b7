"""Nearly equal documents: MinHash over runs of five words, grouped by bands.

32 minima a document in 8 bands of 4: of two documents that share 80 % of their runs, 98 % are found; of two
that share 40 %, one in five is looked at, and refused because too few of the 32 minima agree.

Source: Broder, "On the resemblance and containment of documents", 1997 (the sketch).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bertsmith.checkup.finding import Finding, judge, percent
from bertsmith.checkup.places import Places
from bertsmith.checkup.repeats import Repeats
from bertsmith.checkup.words import Hashes, run_hashes
from bertsmith.randomness import generator

RUN_WORDS = 5
LEAST_WORDS = 20
"""Words from which a document is compared: of shorter ones a single run decides."""
_MINIMA, _BANDS = 32, 8
_ALIKE = 0.8
_MOST_DOCUMENTS = 1 << 22


class Sketches:
    """The minima of every document that is long enough."""

    def __init__(self) -> None:
        draws = generator(0, "minhash").integers(0, 1 << 62, size=_MINIMA, dtype=np.uint64)
        self._factors = draws * np.uint64(2) + np.uint64(1)  # odd: each is a permutation modulo 2^64
        self._minima: list[NDArray[np.uint32]] = []
        self._documents: list[NDArray[np.int64]] = []
        self._count = 0

    def add(self, words: Hashes, starts: NDArray[np.int64], first_document: int) -> None:
        """Take a block of documents.

        Args:
            words: uint64 ``(words,)``, the documents end to end.
            starts: int64 ``(documents + 1,)``, where each begins, and the end.
            first_document: the number of the block's first document in the corpus.
        """
        chosen = np.flatnonzero(np.diff(starts) >= LEAST_WORDS)
        if len(chosen) == 0 or self._count >= _MOST_DOCUMENTS:
            return
        runs = run_hashes(words, RUN_WORDS)
        # Each document's runs from its start to the last that ends within it.
        bounds = np.stack([starts[chosen], starts[chosen + 1] - (RUN_WORDS - 1)], axis=1).ravel()
        padded = np.append(runs, np.uint64(0))  # so that a document may end where the block does
        minima = np.empty((len(chosen), _MINIMA), dtype=np.uint32)
        for place, factor in enumerate(self._factors):
            spread = (padded * factor) >> np.uint64(32)
            minima[:, place] = np.minimum.reduceat(spread, bounds)[::2]
        self._minima.append(minima)
        self._documents.append(chosen + first_document)
        self._count += len(chosen)

    def near_duplicates(self) -> NDArray[np.int64]:
        """Return pairs (document, an earlier one like it), int64 ``(pairs, 2)``, one a document."""
        if not self._minima:
            return np.zeros((0, 2), dtype=np.int64)
        minima, documents = np.concatenate(self._minima), np.concatenate(self._documents)
        earlier = np.full(len(documents), -1, dtype=np.int64)
        rows = _MINIMA // _BANDS
        for band in range(_BANDS):
            keys = minima[:, band * rows : (band + 1) * rows]
            _, first, group = np.unique(keys, axis=0, return_index=True, return_inverse=True)
            candidate = first[group.ravel()]
            alike = (minima == minima[candidate]).mean(axis=1) >= _ALIKE
            found = alike & (candidate < np.arange(len(documents))) & (earlier < 0)
            earlier[found] = candidate[found]
        later = np.flatnonzero(earlier >= 0)
        return np.stack([documents[later], documents[earlier[later]]], axis=1)


def near_duplicate_findings(sketches: Sketches, repeats: Repeats, places: Places) -> list[Finding]:
    """Return the finding of documents that are nearly, not exactly, an earlier one."""
    pairs = sketches.near_duplicates()
    pairs = pairs[pairs[:, 0] < len(repeats.is_repeated)]  # the index of lines may have been full
    pairs = pairs[~repeats.is_repeated[pairs[:, 0]]]
    characters = repeats.document_characters[pairs[:, 0]]
    share = int(characters.sum()) / max(1, int(repeats.document_characters.sum()))
    worst = pairs[np.argsort(-characters, kind="stable")[:2]]
    notes = [f"is like the document at {places.name(int(repeats.document_places[b]))}: " for _, b in worst]
    return judge(
        "near_duplicates",
        share,
        f"{len(pairs):,} documents are nearly equal to an earlier one (four fifths of their runs of "
        f"{RUN_WORDS} words)",
        len(pairs),
        f"{percent(share)} of the text ({int(characters.sum()):,} characters) says little new",
        "keep one of each: versions of a page, reprints, the same letter with other names",
        places.examples([int(repeats.document_places[a]) for a, _ in worst], notes),
    )
