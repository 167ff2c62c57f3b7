"""Entities and the tags that spell them: reading and writing every scheme, scoring as the CoNLL script does.

Inside the program an entity is a span; tags are only how files and models spell spans. So no figure depends
on the scheme of a file.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from bertsmith.errors import InputError

OUTSIDE = "O"
SCHEMES: Mapping[str, str] = {
    "iob2": "BIIB",
    "iob1": "IIII",
    "bioes": "BIES",
    "bilou": "BILU",
    "bmes": "BMES",
}
"""Name of a scheme: its letters for the first, an inner, the last and the only word of an entity.

The first word of an entity that follows another of the same label is "B" in every scheme, also in "iob1".
"""
_USUAL = {"M": "I", "L": "E", "U": "S"}
"""Letters of bilou and bmes, and what they are in bioes."""


@dataclass(frozen=True, order=True)
class Entity:
    """A span with a label; ``start`` and ``end`` (the place behind it) count words or characters."""

    start: int
    end: int
    label: str


@lru_cache(maxsize=4096)
def parts_of(tag: str) -> tuple[str, str]:
    """Return the letter and the label of a tag: "B-PER" is ("B", "PER"); labels may hold hyphens.

    Raises:
        InputError: it is no tag of any scheme.
    """
    letter, hyphen, label = tag.partition("-")
    is_outside = letter == OUTSIDE
    if len(letter) != 1 or letter not in "OBIESLUM" or (is_outside and hyphen) or (hyphen and not label):
        raise InputError(
            f"tag {tag!r} is of no known scheme; expected O, or a letter and a label as in B-PER"
        )
    return letter, label


def entities_of(tags: Sequence[str]) -> list[Entity]:
    """Return the entities that tags spell, read as leniently as the CoNLL script does, in words.

    An I- (or E-) that continues nothing begins an entity, so "iob1" and "iob2" are read alike.

    Args:
        tags: of the words of one sentence, in any scheme of ``SCHEMES``.

    Raises:
        InputError: a tag is of no known scheme.

    Source: conlleval.pl (CoNLL-2003 shared task), startOfChunk and endOfChunk; for S as seqeval does.
    """
    found: list[Entity] = []
    start: int | None = None
    before, before_label = OUTSIDE, ""
    for place, tag in enumerate([*tags, OUTSIDE]):
        letter, label = parts_of(tag)
        letter = _USUAL.get(letter, letter)
        continues = letter in "IE" and before in "BI" and label == before_label
        if not continues:
            if start is not None:
                found.append(Entity(start, place, before_label))
            start = None if letter == OUTSIDE else place
        before, before_label = letter, label
    return found


def tags_of(entities: Iterable[Entity], num_words: int, scheme: str) -> list[str]:
    """Return the tags of a sentence's words.

    Args:
        entities: in words, none over another.
        num_words: words of the sentence.
        scheme: a name in ``SCHEMES``.
    """
    first, inner, last, only = tuple(SCHEMES[scheme])
    tags = [OUTSIDE] * num_words
    before = Entity(-1, -1, "")
    for entity in sorted(entities):
        assert before.end <= entity.start < entity.end <= num_words, f"{entity} after {before}"
        size = entity.end - entity.start
        letters = [only] if size == 1 else [first, *[inner] * (size - 2), last]
        if letters[0] == "I" and (before.end, before.label) == (entity.start, entity.label):
            letters[0] = "B"  # iob1: only between neighbours
        for place, letter in enumerate(letters, start=entity.start):
            tags[place] = f"{letter}-{entity.label}" if entity.label else letter
        before = entity
    return tags


def irregular_tags(tags: Sequence[str], scheme: str) -> list[int]:
    """Return the places of tags that the scheme would have written otherwise."""
    written = tags_of(entities_of(tags), len(tags), scheme)
    return [place for place, (tag, right) in enumerate(zip(tags, written, strict=True)) if tag != right]


def find_scheme(sentences: Sequence[Sequence[str]]) -> str:
    """Return the scheme that explains most tags of a file; "iob2" where several do.

    Raises:
        InputError: a tag is of no known scheme, or letters of different schemes are mixed.
    """
    tags = {tag for sentence in sentences for tag in sentence}
    letters = {parts_of(tag)[0] for tag in tags} - {OUTSIDE}
    possible = [name for name, known in SCHEMES.items() if letters <= {*known, "B"}]
    if not possible:
        raise InputError(
            f"the tags use the letters {', '.join(sorted(letters))}, which no scheme has together; "
            f"known: {', '.join(SCHEMES)}"
        )
    distinct = {tuple(sentence) for sentence in sentences}
    irregular = {name: sum(len(irregular_tags(tags, name)) for tags in distinct) for name in possible}
    return min(possible, key=irregular.__getitem__)


def strict_entities_of(tags: Sequence[str], scheme: str = "iob2") -> list[Entity]:
    """Return the entities whose every tag is as the scheme demands; the others are none.

    Source: seqeval, ``mode="strict"``.
    """
    irregular = set(irregular_tags(tags, scheme))
    return [entity for entity in entities_of(tags) if irregular.isdisjoint(range(entity.start, entity.end))]


@dataclass(frozen=True)
class EntityCounts:
    """How many entities there are, were predicted, and were right in both ends and label."""

    gold: int
    predicted: int
    correct: int

    @property
    def precision(self) -> float:
        """Share of the predicted entities that are right; 0 without any, as the CoNLL script prints."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the gold entities that were found; 0 without any."""
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall."""
        return 2 * self.correct / (self.gold + self.predicted) if self.correct else 0.0


def count_entities(
    gold: Sequence[Collection[Entity]], predicted: Sequence[Collection[Entity]]
) -> dict[str, EntityCounts]:
    """Return the counts of each label over all sentences, sorted by label.

    Args:
        gold: the entities of each sentence.
        predicted: the same.
    """
    counts: dict[str, list[int]] = {}
    for right, found in zip(gold, predicted, strict=True):
        groups = (set(right), set(found), set(right) & set(found))
        for number, group in enumerate(groups):
            for entity in group:
                counts.setdefault(entity.label, [0, 0, 0])[number] += 1
    return {label: EntityCounts(*counts[label]) for label in sorted(counts)}


def total_counts(counts: Mapping[str, EntityCounts]) -> EntityCounts:
    """Return the counts over all labels."""
    return EntityCounts(
        sum(count.gold for count in counts.values()),
        sum(count.predicted for count in counts.values()),
        sum(count.correct for count in counts.values()),
    )


def entity_metrics(counts: Mapping[str, EntityCounts]) -> dict[str, float]:
    """Return precision, recall and F1 over all entities, and the mean over the labels of their F1s.

    ``macro_f1`` is what CLUENER's leaderboard averages; the others are the CoNLL script's "overall".
    """
    total = total_counts(counts)
    mean = sum(count.f1 for count in counts.values()) / len(counts) if counts else 0.0
    return {"f1": total.f1, "precision": total.precision, "recall": total.recall, "macro_f1": mean}
