"""Stage one of ``prepare``: text to ids, block by block, so that a crash costs one block a worker.

Each block of text becomes one file; a file of the corpus is done when a record says how many blocks it has.
Which process encodes a block, and when, changes nothing. ``flat.join`` then makes flat files of all blocks,
which stage two maps into memory.
"""

from __future__ import annotations

import json
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.arrays import is_whole, load_arrays, save_arrays
from bertsmith.data.encoders import ENCODERS, Encoder
from bertsmith.data.shards import id_dtype
from bertsmith.data.workers import ordered_map
from bertsmith.files import write_json
from bertsmith.remote import Location
from bertsmith.text.config import CorpusConfig
from bertsmith.text.corpus import CorpusCounts, block_documents
from bertsmith.text.sentences import document_sentences
from bertsmith.text.streams import TextBlock, TextFile
from bertsmith.text.tokenizer import Tokenizer

Report = Callable[[int, int], None]
"""Is told the characters encoded since the last call, and the bytes of the corpus read in all."""


@dataclass(frozen=True)
class EncodingJob:
    """What turns text into ids; goes to every worker.

    Attributes:
        tokenizer: turns sentences into ids.
        config: how text becomes sentences.
        encoder: "tokenizers" or "nanotoken".
        block_bytes: of text in a block, at least.
    """

    tokenizer: Tokenizer
    config: CorpusConfig
    encoder: str
    block_bytes: int


@dataclass(frozen=True)
class EncodedBlock:
    """The documents of a block of text.

    Attributes:
        ids: ``(pieces,)``.
        sentence_lengths: int64 ``(sentences,)``, each at least 1.
        document_lengths: int64 ``(documents,)``, sentences of each, each at least 1.
        empty_documents: documents without any piece, left out.
        corpus: counts of the text; ``sentences`` are those found, those without pieces included.
    """

    ids: NDArray[Any]
    sentence_lengths: NDArray[np.int64]
    document_lengths: NDArray[np.int64]
    empty_documents: int
    corpus: CorpusCounts

    def save(self, path: Path) -> None:
        """Write the block to a file that is whole or not there."""
        counts = {**self.corpus.to_dict(), "documents_without_pieces": self.empty_documents}
        arrays = {
            "ids": self.ids,
            "sentence_lengths": self.sentence_lengths,
            "document_lengths": self.document_lengths,
            "line_hashes": np.array(sorted(self.corpus.line_hashes), dtype=np.uint64),
            "counts": np.frombuffer(json.dumps(counts).encode(), dtype=np.uint8),
        }
        save_arrays(path, arrays)

    @classmethod
    def load(cls, path: Path) -> EncodedBlock:
        """Return what ``save`` wrote."""
        arrays = load_arrays(path)
        counts = json.loads(arrays["counts"].tobytes())
        corpus = CorpusCounts.from_dict(counts)
        corpus.line_hashes = set(arrays["line_hashes"].tolist())
        lengths = arrays["sentence_lengths"], arrays["document_lengths"]
        return cls(arrays["ids"], *lengths, counts["documents_without_pieces"], corpus)


def encode_block(job: EncodingJob, encoder: Encoder, block: TextBlock) -> EncodedBlock:
    """Return the documents of a block as ids: a pure function of the block and the job."""
    counts = CorpusCounts()
    sentences: list[str] = []
    ends = [0]
    for document in block_documents(block, job.config, counts):
        sentences += job.tokenizer.in_document(document_sentences(document, job.config))
        ends.append(len(sentences))
    counts.sentences = len(sentences)
    ids, lengths = encoder(sentences)
    kept = np.zeros(len(sentences) + 1, dtype=np.int64)
    np.cumsum(lengths > 0, out=kept[1:])
    document_lengths = np.diff(kept[ends])
    dtype = id_dtype(job.tokenizer.vocab_size)
    empty = int((document_lengths == 0).sum())
    return EncodedBlock(
        ids.astype(dtype), lengths[lengths > 0], document_lengths[document_lengths > 0], empty, counts
    )


@dataclass(frozen=True)
class _BlockTask:
    block: TextBlock
    target: Path


@dataclass
class _FileEnd:
    """A file that was read to its end: its record is due when so many tasks are done."""

    tasks: int
    place: Path
    record: dict[str, Any]


@dataclass
class _Reading:
    """The tasks of some files, and what is known of the files that were read to their end."""

    files: Sequence[tuple[int, Location]]
    job: EncodingJob
    directory: Path
    ends: deque[_FileEnd] = field(default_factory=deque)
    given: int = 0
    num_bytes: int = 0

    def tasks(self) -> Iterator[_BlockTask]:
        """Yield the blocks that are not encoded yet; files whose record is there are not even read."""
        done_bytes = 0
        for number, path in self.files:
            record = read_record(self.directory, number)
            if record is not None:
                done_bytes += record["bytes"]
                continue
            file = TextFile(path, self.job.config.documents == "line")
            blocks = 0
            for block in file.blocks(self.job.block_bytes):
                target = _block_place(self.directory, number, blocks)
                blocks += 1
                self.num_bytes = done_bytes + file.num_bytes
                if not is_whole(target):
                    self.given += 1
                    yield _BlockTask(block, target)
            done_bytes += file.num_bytes
            record = {"file": str(path), "blocks": blocks, "bytes": file.num_bytes, "sha256": file.sha256}
            self.ends.append(_FileEnd(self.given, _record_place(self.directory, number), record))

    def close_files(self, tasks_done: int) -> None:
        """Write the records of the files whose tasks are all done."""
        while self.ends and self.ends[0].tasks <= tasks_done:
            end = self.ends.popleft()
            write_json(end.place, end.record)


def encode_files(
    files: Sequence[tuple[int, Location]], job: EncodingJob, directory: Path, workers: int, report: Report
) -> None:
    """Encode files into a directory; what is whole there already is left as it is.

    Args:
        files: with their numbers in the corpus. Several processes may work on different files at once.
        job: how they are encoded.
        directory: where the blocks and the records go.
        workers: processes.
        report: is told the progress.
    """
    directory.mkdir(parents=True, exist_ok=True)
    reading = _Reading(files, job, directory)
    results = ordered_map(_encode_to_file, reading.tasks(), _make_worker, (job,), workers)
    for tasks_done, characters in enumerate(results, start=1):
        reading.close_files(tasks_done)
        report(characters, reading.num_bytes)
    reading.close_files(reading.given)  # files whose last blocks were there before, too


def _make_worker(job: EncodingJob) -> tuple[EncodingJob, Encoder]:
    return job, ENCODERS[job.encoder](job.tokenizer)


def _encode_to_file(worker: tuple[EncodingJob, Encoder], task: _BlockTask) -> int:
    encoded = encode_block(*worker, task.block)
    encoded.save(task.target)
    return encoded.corpus.characters


def _record_place(directory: Path, number: int) -> Path:
    return directory / f"{number:06d}.json"


def _block_place(directory: Path, number: int, block: int) -> Path:
    return directory / f"{number:06d}" / f"{block:06d}.npz"


def read_record(directory: Path, number: int) -> dict[str, Any] | None:
    """Return the record of a file (``file``, ``blocks``, ``bytes``, ``sha256``); ``None``: it is not done."""
    try:
        record: dict[str, Any] = json.loads(_record_place(directory, number).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return record


def read_blocks(directory: Path, number: int) -> Iterator[EncodedBlock]:
    """Yield the blocks of a file that is done."""
    record = read_record(directory, number)
    assert record is not None, f"file {number} is not done"
    for block in range(record["blocks"]):
        yield EncodedBlock.load(_block_place(directory, number, block))


def remove_blocks(directory: Path, number: int) -> None:
    """Remove the blocks of a file; its record stays."""
    shutil.rmtree(_block_place(directory, number, 0).parent, ignore_errors=True)
