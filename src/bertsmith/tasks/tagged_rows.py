"""Rows of words with entities, whatever the file they come from."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate
from typing import Any

from tokenizers import Regex, pre_tokenizers

from bertsmith.errors import InputError
from bertsmith.tasks.entities import Entity

_LETTER = r"[[\p{L}\p{M}\p{N}_]&&[^\p{Han}]]"
_SURROGATE = re.compile("[\ud800-\udfff]")
_WORD = rf"\p{{Han}}|{_LETTER}+(?:(?:\.-|[.&\-]){_LETTER}+|['’]{_LETTER}{{2,}})*|\S"

Place = tuple[int, int]
"""First character and the one behind the last."""


@dataclass(frozen=True)
class TaggedRow:
    """A sentence of a file of columns, or the text of a JSON object.

    Attributes:
        text: the text; of columns, the words with a blank between them.
        words: where each word lies in the text, in characters.
        entities: in characters, sorted; ``None``: the file does not say.
        line: number of the row's first line in the file, from 1.
        document: rows of one document have the same number and follow each other.
        missing: what the row lacks; such rows only come back under the policy "keep".
    """

    text: str
    words: tuple[Place, ...]
    entities: tuple[Entity, ...] | None
    line: int
    document: int
    missing: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        """The text, as other rows have theirs."""
        return (self.text,)

    @cached_property
    def spelled(self) -> list[str]:
        """The words themselves."""
        return [self.text[start:end] for start, end in self.words]


def words_of(text: str) -> tuple[Place, ...]:
    """Return where the words of a running text lie.

    Every ideograph is a word; so is a run of letters and digits, also over a hyphen, full stop, ampersand or
    apostrophe inside of it (AT&T, U.S, 1996-08-22, O'Brien, but Ada's is three); so is any other character
    that is no white space.
    """
    whole = _SURROGATE.sub("\ufffd", text)  # half a pair, which the splitter cannot take; places stay
    return tuple(place for _, place in _splitter().pre_tokenize_str(whole))


@lru_cache(maxsize=1)
def _splitter() -> Any:
    return pre_tokenizers.Split(Regex(_WORD), "removed", invert=True)


def row_of_words(
    words: Sequence[str], entities: Iterable[Entity] | None, line: int, document: int
) -> TaggedRow:
    """Return a row of words as they were given.

    Args:
        words: none is empty.
        entities: in words; ``None``: unknown.
        line: where it stands.
        document: what it belongs to.
    """
    ends = list(accumulate(len(word) + 1 for word in words))
    places = tuple((end - 1 - len(word), end - 1) for end, word in zip(ends, words, strict=True))
    found = None if entities is None else tuple(in_characters(places, entities))
    return TaggedRow(" ".join(words), places, found, line, document)


def row_to_tag(number: int, text: str | Sequence[str]) -> TaggedRow:
    """Return a text, or a list of words, as a document of one row.

    Raises:
        InputError: it is neither.
    """
    if isinstance(text, str):
        return TaggedRow(text, words_of(text), None, 1, number)
    if not isinstance(text, (list, tuple)) or not all(isinstance(word, str) for word in text):
        raise InputError(
            f"text number {number} is a {type(text).__name__}; expected a text or a list of words"
        )
    return row_of_words(text, None, 1, number)


def in_characters(words: Sequence[Place], entities: Iterable[Entity]) -> list[Entity]:
    """Return entities in words as entities in characters."""
    return [Entity(words[e.start][0], words[e.end - 1][1], e.label) for e in entities]


def in_words(row: TaggedRow) -> list[Entity]:
    """Return a row's entities in words, as far as tags can spell them.

    An entity that begins or ends inside a word is widened to it; of entities that overlap, the one that
    begins first stays, of those the longest; one without any word goes.
    """
    starts = [start for start, _ in row.words]
    ends = [end for _, end in row.words]
    found: list[Entity] = []
    for entity in sorted(row.entities or (), key=lambda e: (e.start, -e.end, e.label)):
        first, behind = bisect_right(ends, entity.start), bisect_left(starts, entity.end)
        if first < behind and (not found or found[-1].end <= first):
            found.append(Entity(first, behind, entity.label))
    return found


def count_unspelled(row: TaggedRow) -> int:
    """Return how many of a row's entities tags cannot spell as they are."""
    return len(set(row.entities or ()) - set(in_characters(row.words, in_words(row))))
