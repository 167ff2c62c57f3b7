"""From documents to shards: encode in parallel, pair in parallel, write in order.

Stage one cuts documents into sentences and encodes them; the pieces go to flat files. Stage two pairs ranges
of documents that it reads memory-mapped from these files. Only whole tasks go to workers, and results are
taken in the order of the tasks, so the number of workers changes nothing but the time.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.config import PairingConfig
from bertsmith.data.pairing import NEXT, RANDOM, Documents, instances_of, minimum_documents, num_units
from bertsmith.data.shards import Rows, id_dtype
from bertsmith.data.word_cache import WordCache
from bertsmith.data.workers import ordered_map
from bertsmith.randomness import generator
from bertsmith.text.config import BpeConfig, CorpusConfig, TokenizerConfig
from bertsmith.text.sentences import document_sentences
from bertsmith.text.tokenizer import Tokenizer

Report = Callable[[float], None]
"""Is told the characters encoded since the last call."""

_TASK_CHARACTERS = 1 << 19
_TASK_PIECES = 1 << 18
_LENGTH_BINS = 8
_MOST_HELDOUT_UNASKED = 0.1


@dataclass(frozen=True)
class _Encoded:
    """A batch of encoded documents.

    Attributes:
        ids: ``(pieces,)``.
        sentence_lengths: int64 ``(sentences,)``, each at least 1.
        document_lengths: int64 ``(documents,)``, sentences of each, each at least 1.
        sentences: sentences found, those without pieces included.
        empty_documents: documents without any piece, left out.
        characters: of the text.
        source: number of the source that all of them come from.
    """

    ids: NDArray[Any]
    sentence_lengths: NDArray[np.int64]
    document_lengths: NDArray[np.int64]
    sentences: int
    empty_documents: int
    characters: int
    source: int


@dataclass(frozen=True)
class EncodedCounts:
    """What stage one made.

    Attributes:
        documents: documents with at least one piece.
        sentences: sentences found.
        empty_documents: documents without any piece, left out.
        pieces: ids, special tokens not counted.
    """

    documents: int
    sentences: int
    empty_documents: int
    pieces: int


def encode_documents(
    documents: Iterable[tuple[int, list[str]]],
    tokenizer: Tokenizer,
    config: CorpusConfig,
    directory: Path,
    workers: int,
    report: Report,
) -> EncodedCounts:
    """Encode documents into the flat files of a directory, in their order.

    Args:
        documents: each as the number of its source and its lines; read once, streaming.
        tokenizer: turns sentences into ids.
        config: how lines become sentences.
        directory: where the files go.
        workers: processes.
        report: is told the characters encoded.
    """
    num_documents = num_sentences = pieces = found = empty = 0
    dtype = id_dtype(tokenizer.vocab_size)
    results = ordered_map(
        _encode,
        _batches(documents),
        _make_encoder,
        (tokenizer.vocab, tokenizer.config, config, dtype),
        workers,
    )
    with (
        open(directory / "ids", "wb") as ids,
        open(directory / "sentence_starts", "wb") as sentence_starts,
        open(directory / "document_starts", "wb") as document_starts,
        open(directory / "document_sources", "wb") as document_sources,
    ):
        np.zeros(1, np.int64).tofile(sentence_starts)
        np.zeros(1, np.int64).tofile(document_starts)
        for batch in results:
            batch.ids.tofile(ids)
            (np.cumsum(batch.sentence_lengths) + pieces).tofile(sentence_starts)
            (np.cumsum(batch.document_lengths) + num_sentences).tofile(document_starts)
            np.full(len(batch.document_lengths), batch.source, np.uint16).tofile(document_sources)
            pieces += len(batch.ids)
            num_sentences += len(batch.sentence_lengths)
            num_documents += len(batch.document_lengths)
            found += batch.sentences
            empty += batch.empty_documents
            report(batch.characters)
    return EncodedCounts(num_documents, found, empty, pieces)


def _batches(documents: Iterable[tuple[int, list[str]]]) -> Iterator[tuple[int, list[list[str]]]]:
    """Yield consecutive documents of one source with its number."""
    batch: list[list[str]] = []
    characters = batch_source = 0
    for source, document in documents:
        if batch and (characters >= _TASK_CHARACTERS or source != batch_source):
            yield batch_source, batch
            batch, characters = [], 0
        batch_source = source
        batch.append(document)
        characters += sum(map(len, document))
    if batch:
        yield batch_source, batch


@dataclass(frozen=True)
class _Encoder:
    tokenizer: Tokenizer
    words: WordCache
    config: CorpusConfig
    dtype: np.dtype[Any]


def _make_encoder(
    vocab: list[str], settings: TokenizerConfig | BpeConfig, config: CorpusConfig, dtype: np.dtype[Any]
) -> _Encoder:
    tokenizer = Tokenizer(vocab, settings)
    return _Encoder(tokenizer, WordCache(tokenizer), config, dtype)


def _encode(encoder: _Encoder, batch: tuple[int, list[list[str]]]) -> _Encoded:
    source, documents = batch
    ids: list[int] = []
    sentence_lengths, document_lengths = array("q"), array("q")
    found = empty = 0
    for document in documents:
        sentences = document_sentences(document, encoder.config)
        found += len(sentences)
        before = len(sentence_lengths)
        for sentence in encoder.tokenizer.in_document(sentences):
            start = len(ids)
            encoder.words.extend(ids, sentence)
            if len(ids) > start:
                sentence_lengths.append(len(ids) - start)
        if len(sentence_lengths) > before:
            document_lengths.append(len(sentence_lengths) - before)
        else:
            empty += 1
    return _Encoded(
        np.array(ids, dtype=encoder.dtype),
        np.asarray(sentence_lengths, dtype=np.int64),
        np.asarray(document_lengths, dtype=np.int64),
        found,
        empty,
        sum(len(line) for document in documents for line in document),
        source,
    )


def open_documents(directory: Path, vocab_size: int) -> Documents:
    """Map what ``encode_documents`` wrote into a directory; every document is chosen."""
    starts = _mapped(directory / "document_starts", np.dtype(np.int64))
    return Documents(
        _mapped(directory / "ids", id_dtype(vocab_size)),
        _mapped(directory / "sentence_starts", np.dtype(np.int64)),
        starts,
        np.arange(len(starts) - 1, dtype=np.int64),
    )


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")).view(np.ndarray)


def choose_heldout(
    documents: int, share: float, pairing: str, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the documents of train and those held out, each int64 and rising.

    Each document has a number drawn from (seed, document); those with the smallest are held out. When the
    share is too small to make pairs (NSP needs two documents), the fewest that do are taken, if that is at
    most a tenth of all; else nothing is held out, and train is never left with too few.
    """
    fewest = minimum_documents(pairing)
    number = round(share * documents)
    if share > 0 and number < fewest:
        number = fewest if fewest <= _MOST_HELDOUT_UNASKED * documents else 0
    if documents - number < fewest:
        number = 0
    order = np.argsort(generator(seed, "heldout").random(documents), kind="stable")
    return np.sort(order[number:]), np.sort(order[:number])


@dataclass
class PairCounts:
    """What stage two made of one split.

    Attributes:
        documents: documents paired.
        instances: instances made.
        pieces: pieces of the instances, special tokens counted.
        labels: int64 ``(3,)``: instances without a pair, next or in order, random or swapped.
        lengths: int64 ``(seq_len + 1,)``: instances of each length.
        sources: int64 ``(sources,)``: instances of each source.
    """

    documents: int
    instances: int
    pieces: int
    labels: NDArray[np.int64]
    lengths: NDArray[np.int64]
    sources: NDArray[np.int64]

    @classmethod
    def of(cls, documents: int, seq_len: int, sources: int) -> PairCounts:
        """Return the counts before the first instance."""
        labels, lengths, by_source = (np.zeros(size, np.int64) for size in (3, seq_len + 1, sources))
        return cls(documents, 0, 0, labels, lengths, by_source)

    def add(self, rows: Rows) -> None:
        """Count rows."""
        self.instances += len(rows)
        self.pieces += len(rows.ids)
        self.labels += np.bincount(rows.labels + 1, minlength=3)
        self.lengths += np.bincount(np.diff(rows.offsets), minlength=len(self.lengths))
        self.sources += np.bincount(rows.sources, minlength=len(self.sources))

    @property
    def random_share(self) -> float:
        """Share of the pairs that are random or swapped."""
        pairs = int(self.labels[1:].sum())
        return int(self.labels[1 + RANDOM]) / pairs if pairs else 0.0

    def to_dict(self, pairing: str, source_names: Sequence[str]) -> dict[str, Any]:
        """Return the counts as JSON types: the balance of the labels, and the lengths in eight bins."""
        result: dict[str, Any] = {
            "documents": self.documents,
            "instances": self.instances,
            "pieces": self.pieces,
            "mean_length": round(self.pieces / self.instances, 2) if self.instances else 0.0,
            "lengths": self._histogram(),
            "sources": dict(zip(source_names, self.sources.tolist(), strict=True)),
        }
        names = {"nsp": ("next", "random"), "sop": ("in_order", "swapped")}.get(pairing)
        if names:
            result[pairing] = {
                names[0]: int(self.labels[1 + NEXT]),
                names[1]: int(self.labels[1 + RANDOM]),
                f"{names[1]}_share": round(self.random_share, 4),
            }
        return result

    def _histogram(self) -> dict[str, int]:
        seq_len = len(self.lengths) - 1
        edges = [round(seq_len * bin / _LENGTH_BINS) for bin in range(_LENGTH_BINS + 1)]
        return {
            f"{low + 1}-{high}": int(self.lengths[low + 1 : high + 1].sum())
            for low, high in itertools.pairwise(edges)
        }


@dataclass(frozen=True)
class PairTask:
    """Units to pair in one go: those from ``first`` up to ``last`` in one pass."""

    pass_: int
    first: int
    last: int


@dataclass(frozen=True)
class _Pairer:
    documents: Documents
    document_sources: NDArray[np.uint16]
    config: PairingConfig
    seed: int
    cls_id: int
    sep_id: int


def pair_documents(
    source: Path,
    chosen: NDArray[np.int64],
    config: PairingConfig,
    seed: int,
    tokenizer: Tokenizer,
    workers: int,
) -> Iterator[Rows]:
    """Yield the instances of documents, as rows with their special tokens.

    Args:
        source: the directory of the flat files.
        chosen: int64 ``(documents,)``, those that take part; random texts come from them alone.
        config: how they are paired, and how often.
        seed: of the pairs.
        tokenizer: of the ids.
        workers: processes.

    Raises:
        InputError: NSP with fewer than two documents.
    """
    documents = open_documents(source, tokenizer.vocab_size).choose(chosen)
    tasks = pair_tasks(documents, config)
    arguments = (
        source,
        tokenizer.vocab_size,
        chosen,
        config,
        seed,
        (tokenizer.cls_id, tokenizer.sep_id),
    )
    return ordered_map(_pair, tasks, _make_pairer, arguments, min(workers, max(len(tasks), 1)))


def pair_tasks(documents: Documents, config: PairingConfig) -> list[PairTask]:
    """Return the tasks of all passes: ranges of units of about the same number of pieces."""
    units = num_units(documents, config)
    if config.pairing == "full-sentences" or len(documents) == 0:
        cuts = list(range(units + 1))
    else:
        ends = documents.sentence_starts[documents.document_starts[documents.chosen + 1]]
        sizes = ends - documents.sentence_starts[documents.document_starts[documents.chosen]]
        groups = np.cumsum(sizes) // _TASK_PIECES
        cuts = [0, *(np.flatnonzero(np.diff(groups)) + 1).tolist(), units]
    return [
        PairTask(pass_, first, last)
        for pass_ in range(config.passes)
        for first, last in itertools.pairwise(cuts)
    ]


def _make_pairer(
    source: Path,
    vocab_size: int,
    chosen: NDArray[np.int64],
    config: PairingConfig,
    seed: int,
    separators: tuple[int, int],
) -> _Pairer:
    documents = open_documents(source, vocab_size).choose(chosen)
    sources = _mapped(source / "document_sources", np.dtype(np.uint16))
    return _Pairer(documents, sources, config, seed, *separators)


def _pair(pairer: _Pairer, task: PairTask) -> Rows:
    ids = pairer.documents.ids
    cls, sep = np.array([pairer.cls_id], ids.dtype), np.array([pairer.sep_id], ids.dtype)
    parts: list[NDArray[Any]] = [ids[:0]]
    lengths, firsts, second_starts, labels = array("q", [0]), array("q"), array("i"), array("b")
    for unit in range(task.first, task.last):
        for instance in instances_of(pairer.documents, pairer.config, pairer.seed, task.pass_, unit):
            parts.append(cls)
            for start, end in instance.parts:
                parts.append(ids[start:end])
                parts.append(sep)
            lengths.append(instance.num_pieces)
            firsts.append(instance.parts[0][0])
            second_starts.append(instance.second_start)
            labels.append(instance.label)
    return Rows(
        np.concatenate(parts),
        np.cumsum(np.asarray(lengths, dtype=np.int64)),
        np.asarray(second_starts, dtype=np.int32),
        np.asarray(labels, dtype=np.int8),
        pairer.document_sources[pairer.documents.at(np.asarray(firsts, dtype=np.int64))],
    )
