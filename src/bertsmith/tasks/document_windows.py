"""Windows over documents that are longer than a model's rows, so that every word is scored once.

Source: the paper, section 5.3: "we include the maximal document context provided by the data". It does not
say how; this is our reading of it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate

Range = tuple[int, int]


@dataclass(frozen=True)
class Window:
    """Words of a document that go through the model together, numbered from the document's first word.

    Attributes:
        start: the first word.
        end: the word behind the last.
        scored: ranges of words that are scored here, in order; those of a document's windows are disjoint
            and hold every word.
    """

    start: int
    end: int
    scored: list[Range] = field(default_factory=list)


def document_windows(sentences: Sequence[Sequence[int]], capacity: int) -> list[Window]:
    """Return the windows of a document.

    A document that fits is one window. Else neighbouring sentences of at most half a window share one, with
    as many words as fit before and behind them; and each sentence is scored in the window where the shorter
    one of its two contexts is longest, at an end of the document: the other one. A sentence stays whole
    unless it is longer than a window; then its parts, of half a window, are treated like sentences.

    Args:
        sentences: the number of pieces of each word, 1 to ``capacity``, for each sentence.
        capacity: pieces of a window, special tokens not counted.
    """
    ends = list(accumulate(pieces for sentence in sentences for pieces in sentence))
    begins = [0, *ends[:-1]]
    units = list(_units(sentences, begins, ends, capacity))
    ranges = dict.fromkeys(
        _widened(begins[start], ends[end - 1], begins, ends, capacity)
        for start, end in _blocks(units, begins, ends, capacity // 2)
    )
    windows = [Window(start, end) for start, end in ranges]
    first_words, last_words = [w.start for w in windows], [w.end for w in windows]
    for start, end in units:
        holding = range(bisect_left(last_words, end), bisect_right(first_words, start))
        best = max(holding, key=lambda number: _context(windows[number], start, end, begins, ends))
        windows[best].scored.append((start, end))
    return [window for window in windows if window.scored]


def _units(
    sentences: Sequence[Sequence[int]], begins: Sequence[int], ends: Sequence[int], capacity: int
) -> list[Range]:
    """Return the ranges of words that have to be scored together."""
    units = []
    place = 0
    for sentence in sentences:
        start, stop = place, place + len(sentence)
        most = capacity if sum(sentence) <= capacity else capacity // 2
        while start < stop:
            end = min(stop, max(start + 1, bisect_right(ends, begins[start] + most)))
            units.append((start, end))
            start = end
        place = stop
    return units


def _blocks(units: Sequence[Range], begins: Sequence[int], ends: Sequence[int], most: int) -> list[Range]:
    """Join neighbouring units of together at most ``most`` pieces."""
    blocks: list[Range] = []
    for start, end in units:
        if blocks and ends[end - 1] - begins[blocks[-1][0]] <= most:
            blocks[-1] = (blocks[-1][0], end)
        else:
            blocks.append((start, end))
    return blocks


def _widened(first: int, behind: int, begins: Sequence[int], ends: Sequence[int], capacity: int) -> Range:
    """Return the words of a window around pieces ``first`` to ``behind``, in the middle where possible."""
    spare = capacity - (behind - first)
    before = min(first, max(spare // 2, spare - (ends[-1] - behind)))
    low = first - before
    return bisect_left(begins, low), bisect_right(ends, low + capacity)


def _context(window: Window, start: int, end: int, begins: Sequence[int], ends: Sequence[int]) -> int:
    """Return the pieces on the side that has fewer; a side that reaches the document's end has enough."""
    before = begins[start] - begins[window.start] if window.start else ends[-1]
    behind = ends[window.end - 1] - ends[end - 1] if window.end < len(ends) else ends[-1]
    return min(before, behind)
