"""Sentences become instances: next sentence prediction, sentence order, and packing without pairs.

An instance is index arithmetic over the flat pieces of the corpus: ranges of pieces, not copies of them.
Every function is pure: its result depends on the documents, the settings, the seed, the pass and the
document's number alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.config import PairingConfig
from bertsmith.errors import InputError
from bertsmith.randomness import generator

NEXT = 0
"""Label of a second text that follows the first (NSP), or of texts in order (SOP)."""
RANDOM = 1
"""Label of a second text from another document (NSP), or of swapped texts (SOP)."""
NO_LABEL = -1
"""Label of an instance without a second text."""

_DRAWS_AT_ONCE = 256
PACKED_DOCUMENTS = 256
"""Documents that full-sentences packs together: text runs on from one to the next within such a block."""

Span = tuple[int, int]


@dataclass(frozen=True)
class Documents:
    """Documents as flat arrays; sentences and documents without pieces are left out beforehand.

    Attributes:
        ids: ``(pieces,)``, the pieces of all sentences, end to end.
        sentence_starts: int64 ``(sentences + 1,)``, where each sentence starts in ``ids``.
        document_starts: int64 ``(all documents + 1,)``, where each document starts in ``sentence_starts``.
        chosen: int64 ``(documents,)``, the documents that take part (those of train, or those held out).
    """

    ids: NDArray[Any]
    sentence_starts: NDArray[np.int64]
    document_starts: NDArray[np.int64]
    chosen: NDArray[np.int64]

    @classmethod
    def from_lists(cls, documents: Sequence[Sequence[Sequence[int]]]) -> Documents:
        """Return the documents of nested lists (documents, sentences, ids); empty ones are left out."""
        kept = [[sentence for sentence in document if len(sentence)] for document in documents]
        kept = [document for document in kept if document]
        lengths = [len(sentence) for document in kept for sentence in document]
        return cls(
            np.array([id for document in kept for sentence in document for id in sentence], dtype=np.int64),
            np.cumsum([0, *lengths], dtype=np.int64),
            np.cumsum([0, *map(len, kept)], dtype=np.int64),
            np.arange(len(kept), dtype=np.int64),
        )

    def choose(self, chosen: NDArray[np.int64]) -> Documents:
        """Return the same text with other documents taking part."""
        return replace(self, chosen=chosen)

    def __len__(self) -> int:
        return len(self.chosen)

    def at(self, pieces: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the documents (of all) that pieces belong to.

        Args:
            pieces: int64 ``(n,)``, places in ``ids``.

        Returns:
            int64 ``(n,)``, places in ``document_starts``.
        """
        sentences = np.searchsorted(self.sentence_starts, pieces, side="right") - 1
        return np.searchsorted(self.document_starts, sentences, side="right") - 1

    def bounds(self, index: int) -> list[int]:
        """Return the places in ``ids`` between the sentences of a document, its start and end included."""
        document = int(self.chosen[index])
        first, last = int(self.document_starts[document]), int(self.document_starts[document + 1])
        bounds: list[int] = self.sentence_starts[first : last + 1].tolist()
        return bounds


@dataclass(frozen=True, slots=True)
class Instance:
    """One instance: [CLS] part [SEP], or [CLS] part [SEP] part [SEP], and so on.

    Attributes:
        parts: ranges of ``Documents.ids``; a [SEP] follows each.
        label: NEXT or RANDOM when the second part is a second segment; NO_LABEL when all is one segment.
    """

    parts: tuple[Span, ...]
    label: int = NO_LABEL

    @property
    def num_pieces(self) -> int:
        """Length of the row, special tokens counted."""
        return 1 + len(self.parts) + sum(end - start for start, end in self.parts)

    @property
    def second_start(self) -> int:
        """Place of the second segment in the row; the row's length when there is none."""
        if self.label == NO_LABEL:
            return self.num_pieces
        start, end = self.parts[0]
        return 2 + end - start


def minimum_documents(pairing: str) -> int:
    """Return how many documents a pairing needs."""
    return 2 if pairing == "nsp" else 1


def num_units(documents: Documents, config: PairingConfig) -> int:
    """Return how many units (documents, or blocks of them) the documents are paired in."""
    if config.pairing == "full-sentences":
        return -(-len(documents) // PACKED_DOCUMENTS)
    return len(documents)


def instances_of(
    documents: Documents, config: PairingConfig, seed: int, pass_: int, unit: int
) -> Iterator[Instance]:
    """Yield the instances of one unit: a document, or a block of documents for full-sentences.

    Args:
        documents: those that take part.
        config: how they are paired.
        seed: of the pairs.
        pass_: which pass over the corpus.
        unit: below ``num_units(documents, config)``.

    Raises:
        InputError: NSP with fewer than two documents.
    """
    return PAIRING_FUNCTIONS[config.pairing](documents, config, seed, pass_, unit)


def _below(draw: Callable[[], float], number: int) -> int:
    return int(draw() * number)


def _target_length(config: PairingConfig, draw: Callable[[], float]) -> int:
    """Draw the pieces that a chunk is filled to, once per document."""
    longest = config.seq_len - 3
    return 2 + _below(draw, longest - 1) if draw() < config.short_seq_prob else longest


def _draws(seed: int, purpose: str, epoch: int, index: int) -> Callable[[], float]:
    """Return what yields the numbers of ``generator(...).random()`` one by one; many are drawn at once."""

    def numbers() -> Iterator[float]:
        random = generator(seed, purpose, epoch, index).random
        while True:
            yield from random(_DRAWS_AT_ONCE).tolist()

    return numbers().__next__


def _truncated(first: Span, second: Span, longest: int, draw: Callable[[], float]) -> tuple[Span, Span]:
    """Take pieces one at a time from the longer text, front or back by a fair coin, until the pair fits.

    Source: create_pretraining_data.py, truncate_seq_pair.
    """
    (start, end), (second_start, second_end) = first, second
    size, second_size = end - start, second_end - second_start
    for _ in range(size + second_size - longest):
        front = draw() < 0.5
        if size > second_size:
            size -= 1
            start += front
        else:
            second_size -= 1
            second_start += front
    return (start, start + size), (second_start, second_start + second_size)


def _next_sentence(
    documents: Documents, config: PairingConfig, seed: int, pass_: int, index: int
) -> Iterator[Instance]:
    """Pair a chunk's beginning with its rest, or with text of another document.

    Deviation: the other document is drawn from the others; the original draws from all at most 10 times and
    can end with the same document.

    Source: create_pretraining_data.py, create_instances_from_document; the paper, section 3.1, task 2.
    """
    if len(documents) < 2:
        raise InputError(
            "NSP needs at least two documents, separated by blank lines; "
            f"there are {len(documents)}: give more text or another --pairing"
        )
    draw = _draws(seed, "pairing", pass_, index)
    longest, target = config.seq_len - 3, _target_length(config, draw)
    bounds = documents.bounds(index)
    num_sentences = len(bounds) - 1
    first = 0
    while first < num_sentences:
        last = first + 1
        while last < num_sentences and bounds[last] - bounds[first] < target:
            last += 1
        middle = first + 1
        if last - first >= 2:
            middle += _below(draw, last - first - 1)
        one = (bounds[first], bounds[middle])
        if last - first == 1 or draw() < config.random_next_prob:
            other = (index + 1 + _below(draw, len(documents) - 1)) % len(documents)
            two = _from_document(documents, other, target - (one[1] - one[0]), draw)
            label, first = RANDOM, middle
        else:
            two = (bounds[middle], bounds[last])
            label, first = NEXT, last
        yield Instance(_truncated(one, two, longest, draw), label)


def _from_document(documents: Documents, index: int, pieces: int, draw: Callable[[], float]) -> Span:
    """Return whole sentences from a random place of a document, until there are enough pieces."""
    document = int(documents.chosen[index])
    first, end = int(documents.document_starts[document]), int(documents.document_starts[document + 1])
    first += _below(draw, end - first)
    start = int(documents.sentence_starts[first])
    last = first + 1
    while last < end and documents.sentence_starts[last] - start < pieces:
        last += 1
    return start, int(documents.sentence_starts[last])


def _sentence_order(
    documents: Documents, config: PairingConfig, seed: int, pass_: int, index: int
) -> Iterator[Instance]:
    """Pair two consecutive stretches of a document, in order or swapped.

    A chunk holds at least two sentences; a lone last sentence takes the one before it once more. A document
    of one sentence gives nothing.

    Source: ALBERT, arXiv 1909.11942, section 3.1.
    """
    draw = _draws(seed, "pairing", pass_, index)
    longest, target = config.seq_len - 3, _target_length(config, draw)
    bounds = documents.bounds(index)
    num_sentences = len(bounds) - 1
    first = 0
    while first < num_sentences and num_sentences > 1:
        first = min(first, num_sentences - 2)
        last = first + 2
        while last < num_sentences and bounds[last] - bounds[first] < target:
            last += 1
        middle = first + 1 + _below(draw, last - first - 1)
        parts = ((bounds[first], bounds[middle]), (bounds[middle], bounds[last]))
        swapped = draw() < config.random_next_prob
        one, two = _truncated(*parts, longest, draw)
        yield Instance((two, one), RANDOM) if swapped else Instance((one, two), NEXT)
        first = last


def _doc_sentences(
    documents: Documents, config: PairingConfig, seed: int, pass_: int, index: int
) -> Iterator[Instance]:
    """Fill instances with the contiguous sentences of one document."""
    draw = _draws(seed, "pairing", pass_, index)
    return _packed(documents, [index], config, draw, pass_)


def _full_sentences(
    documents: Documents, config: PairingConfig, seed: int, pass_: int, block: int
) -> Iterator[Instance]:
    """Fill instances with contiguous sentences that run on into the next document, a [SEP] between them."""
    order = np.arange(len(documents))
    if pass_ > 0:
        order = generator(seed, "pairing-order", pass_).permutation(len(documents))
    chosen = order[block * PACKED_DOCUMENTS : (block + 1) * PACKED_DOCUMENTS].tolist()
    draw = _draws(seed, "pairing", pass_, block)
    return _packed(documents, chosen, config, draw, pass_)


def _packed(
    documents: Documents, chosen: list[int], config: PairingConfig, draw: Callable[[], float], pass_: int
) -> Iterator[Instance]:
    """Yield instances of up to seq_len pieces.

    Passes after the first cut their first instance at a random length, so that the borders move.

    Source: RoBERTa, arXiv 1907.11692, section 4.2 (FULL-SENTENCES, DOC-SENTENCES).
    """
    limit = config.seq_len if pass_ == 0 else 8 + _below(draw, config.seq_len - 7)
    parts: list[Span] = []
    used = 1
    for index in chosen:
        bounds = documents.bounds(index)
        fresh = True
        for start, end in _pieces_of_sentences(bounds, config.seq_len - 2):
            size = end - start + fresh  # a document that begins here brings its own [SEP]
            if used + size > limit and parts:
                yield Instance(tuple(parts))
                parts, used, limit, fresh = [], 1, config.seq_len, True
                size = end - start + 1
            if fresh:
                parts.append((start, end))
            else:
                parts[-1] = (parts[-1][0], end)
            used, fresh = used + size, False
    if parts:
        yield Instance(tuple(parts))


def _pieces_of_sentences(bounds: list[int], longest: int) -> Iterator[Span]:
    """Yield the sentences; one that is longer than an instance is cut."""
    for start, end in itertools.pairwise(bounds):
        for cut in range(start, end, longest):
            yield cut, min(cut + longest, end)


PAIRING_FUNCTIONS: dict[str, Callable[[Documents, PairingConfig, int, int, int], Iterator[Instance]]] = {
    "nsp": _next_sentence,
    "sop": _sentence_order,
    "full-sentences": _full_sentences,
    "doc-sentences": _doc_sentences,
}
