"""Stage two of ``prepare``: encoded documents to instances, paired in parallel, in order.

Workers map the flat files of stage one. Only whole tasks go to workers, and results are taken in the order of
the tasks, so the number of workers changes nothing but the time. A task whose rows lie in a file already (see
``prepare_cluster``) is read instead of computed.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.arrays import is_whole, load_arrays, save_arrays
from bertsmith.data.config import PairingConfig
from bertsmith.data.flat import open_documents, open_sources
from bertsmith.data.pairing import NEXT, RANDOM, Documents, instances_of, minimum_documents, num_units
from bertsmith.data.shards import Rows
from bertsmith.data.workers import ordered_map
from bertsmith.randomness import generator

_TASK_PIECES = 1 << 18
_LENGTH_BINS = 8
_MOST_HELDOUT_UNASKED = 0.1


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
class PairingJob:
    """What turns the documents of one split into instances; goes to every worker.

    Attributes:
        flat: the directory of the flat files.
        chosen: int64 ``(documents,)``, those that take part; random texts come from them alone.
        config: how they are paired, and how often.
        seed: of the pairs.
        vocab_size: entries of the vocabulary.
        separators: ids of [CLS] and [SEP].
        rows: the directory where the rows of some tasks may lie already.
    """

    flat: Path
    chosen: NDArray[np.int64]
    config: PairingConfig
    seed: int
    vocab_size: int
    separators: tuple[int, int]
    rows: Path

    def open(self) -> Documents:
        """Map the documents."""
        return open_documents(self.flat, self.vocab_size).choose(self.chosen)


@dataclass(frozen=True)
class PairTask:
    """Units to pair in one go: those from ``first`` up to ``last`` in one pass."""

    number: int
    pass_: int
    first: int
    last: int


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
    ranges = itertools.product(range(config.passes), itertools.pairwise(cuts))
    return [PairTask(number, pass_, *cut) for number, (pass_, cut) in enumerate(ranges)]


def pair_documents(job: PairingJob, tasks: Sequence[PairTask], workers: int) -> Iterator[Rows]:
    """Yield the instances of tasks, as rows with their special tokens.

    Raises:
        InputError: NSP with fewer than two documents.
    """
    return ordered_map(_rows, tasks, _make_pairer, (job,), min(workers, max(len(tasks), 1)))


def write_rows(job: PairingJob, tasks: Iterable[PairTask]) -> None:
    """Pair tasks into files of the directory ``job.rows``; what is whole there stays as it is."""
    pairer = _make_pairer(job)
    for task in tasks:
        path = _rows_place(job, task)
        if not is_whole(path):
            save_arrays(path, vars(_pair(pairer, task)))


@dataclass(frozen=True)
class _Pairer:
    job: PairingJob
    documents: Documents
    sources: NDArray[np.uint16]


def _make_pairer(job: PairingJob) -> _Pairer:
    return _Pairer(job, job.open(), open_sources(job.flat))


def _rows_place(job: PairingJob, task: PairTask) -> Path:
    return job.rows / f"{task.number:07d}.npz"


def _rows(pairer: _Pairer, task: PairTask) -> Rows:
    path = _rows_place(pairer.job, task)
    return Rows(**load_arrays(path)) if is_whole(path) else _pair(pairer, task)


def _pair(pairer: _Pairer, task: PairTask) -> Rows:
    job, documents = pairer.job, pairer.documents
    ids = documents.ids
    cls, sep = (np.array([id], ids.dtype) for id in job.separators)
    parts: list[NDArray[Any]] = [ids[:0]]
    lengths, firsts, second_starts, labels = array("q", [0]), array("q"), array("i"), array("b")
    for unit in range(task.first, task.last):
        for instance in instances_of(documents, job.config, job.seed, task.pass_, unit):
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
        pairer.sources[documents.at(np.asarray(firsts, dtype=np.int64))],
    )
