"""The original's way from text to instances, a second time and deliberately plain.

Pieces are strings and lists of them, every step is done as it is told, nothing is fast. Random numbers come
from outside, so that another implementation can be given the same.

Source: create_pretraining_data.py, create_training_instances and what it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

Pieces = list[str]
Document = list[Pieces]


@dataclass
class Numbers:
    """Random numbers, asked for one by one.

    Attributes:
        draw: uniform from 0 to 1.
    """

    draw: Callable[[], float]

    def chance(self, probability: float) -> bool:
        return self.draw() < probability

    def between(self, low: int, high: int) -> int:
        """Return a whole number, both ends included."""
        return low + int(self.draw() * (high - low + 1))

    def other(self, own: int, number: int) -> int:
        """Return a document that is not ``own``; the original tries at most ten times."""
        return (own + self.between(1, number - 1)) % number


@dataclass
class Pair:
    """Two texts; the second is from elsewhere (1) or the first's continuation (0)."""

    first: Pieces
    second: Pieces
    label: int
    was_cut: bool


def read_documents(path: Path) -> list[list[str]]:
    """A line is a sentence, an empty line the end of a document."""
    documents: list[list[str]] = [[]]
    with open(path, encoding="utf-8", newline="\n") as file:
        for line in file:
            sentence = line.strip()
            if sentence:
                documents[-1].append(sentence)
            else:
                documents.append([])
    return [document for document in documents if document]


def joined(sentences: Sequence[Pieces]) -> Pieces:
    return [piece for sentence in sentences for piece in sentence]


def pairs_of(documents: list[Document], own: int, seq_len: int, short: float, numbers: Numbers) -> list[Pair]:
    """Return the pairs of one document."""
    room = seq_len - 3  # [CLS], [SEP], [SEP]
    target = numbers.between(2, room) if numbers.chance(short) else room
    waiting = list(documents[own])
    made: list[Pair] = []
    while waiting:
        chunk = [waiting.pop(0)]
        while waiting and len(joined(chunk)) < target:
            chunk.append(waiting.pop(0))
        end = numbers.between(1, len(chunk) - 1) if len(chunk) > 1 else 1
        first, rest = joined(chunk[:end]), chunk[end:]
        if not rest or numbers.chance(0.5):
            waiting = rest + waiting  # unused sentences are put back
            elsewhere = documents[numbers.other(own, len(documents))]
            second: Pieces = []
            for sentence in elsewhere[numbers.between(0, len(elsewhere) - 1) :]:
                second += sentence
                if len(second) >= target - len(first):
                    break
            label = 1
        else:
            second, label = joined(rest), 0
        size = len(first) + len(second)
        cut(first, second, room, numbers)
        made.append(Pair(first, second, label, len(first) + len(second) < size))
    return made


def cut(first: Pieces, second: Pieces, room: int, numbers: Numbers) -> None:
    """Drop one piece at a time from the longer text, in place."""
    while len(first) + len(second) > room:
        longer = first if len(first) > len(second) else second
        if numbers.chance(0.5):
            longer.pop(0)
        else:
            longer.pop()


@dataclass
class MaskNumbers:
    """Random numbers of one row's masks.

    Attributes:
        shuffle: brings units that may be chosen into a random order.
        coins: for so many chosen places, in rising order, two uniform numbers each.
    """

    shuffle: Callable[[list[list[int]]], list[list[int]]]
    coins: Callable[[int], list[tuple[float, float]]]


def masked(
    row: Pieces, vocabulary: Pieces, most: int, numbers: MaskNumbers, whole_words: bool = False
) -> tuple[Pieces, list[int]]:
    """Return a row after masking, and the places to predict."""
    budget = min(most, max(1, round(len(row) * 0.15)))
    units: list[list[int]] = []
    for place, piece in enumerate(row):
        if piece in ("[CLS]", "[SEP]"):
            continue
        if whole_words and units and piece.startswith("##"):
            units[-1].append(place)
        else:
            units.append([place])
    chosen: list[int] = []
    for unit in numbers.shuffle(units):
        if len(chosen) + len(unit) <= budget:
            chosen += unit
    chosen.sort()
    result = list(row)
    for place, (coin, word) in zip(chosen, numbers.coins(len(chosen)), strict=True):
        if coin < 0.8:
            result[place] = "[MASK]"
        elif (coin - 0.8) / 0.2 >= 0.5:  # a second coin: half of the rest stays as it is
            result[place] = vocabulary[int(word * len(vocabulary))]
    return result, chosen
