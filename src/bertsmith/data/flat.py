"""All encoded documents of a corpus in flat files, which workers map into memory."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.encoded import EncodedBlock, read_blocks, remove_blocks
from bertsmith.data.pairing import Documents
from bertsmith.data.shards import id_dtype
from bertsmith.files import sync_files, write_json
from bertsmith.text.corpus import CorpusCounts

_COUNTS_FILE = "counts.json"
_FILES = ("ids", "sentence_starts", "document_starts", "document_sources")


@dataclass(frozen=True)
class EncodedCounts:
    """What stage one made.

    Attributes:
        documents: documents with at least one piece.
        empty_documents: documents without any piece, left out.
        pieces: ids, special tokens not counted.
        corpus: counts of the text.
    """

    documents: int
    empty_documents: int
    pieces: int
    corpus: CorpusCounts

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON types."""
        return {
            **self.corpus.to_dict(),
            "documents_without_pieces": self.empty_documents,
            "pieces": self.pieces,
        }


class _FlatWriter:
    """Appends blocks to the flat files of a directory."""

    def __init__(self, directory: Path) -> None:
        self.pieces = self.documents = 0
        self._sentences = 0
        self._stack = ExitStack()
        self._files: dict[str, BinaryIO] = {}
        for name in _FILES:
            self._files[name] = self._stack.enter_context((directory / name).open("wb"))
        self._write("sentence_starts", np.zeros(1, np.int64))
        self._write("document_starts", np.zeros(1, np.int64))

    def append(self, block: EncodedBlock, source: int) -> None:
        self._write("ids", block.ids)
        self._write("sentence_starts", np.cumsum(block.sentence_lengths) + self.pieces)
        self._write("document_starts", np.cumsum(block.document_lengths) + self._sentences)
        self._write("document_sources", np.full(len(block.document_lengths), source, np.uint16))
        self.pieces += len(block.ids)
        self._sentences += len(block.sentence_lengths)
        self.documents += len(block.document_lengths)

    def close(self) -> None:
        self._stack.close()

    def _write(self, name: str, values: NDArray[Any]) -> None:
        self._files[name].write(values.data)


def join(encoded: Path, sources: Sequence[int], flat: Path) -> None:
    """Make the flat files of all blocks in the order of the corpus, and remove the blocks.

    Args:
        encoded: the directory of ``encode_files``; all files are done. Their records stay.
        sources: number of the source of each file.
        flat: the directory to make; it is whole or not there.
    """
    temporary = flat.with_name(flat.name + ".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    writer, counts, empty = _FlatWriter(temporary), CorpusCounts(), 0
    try:
        for number, source in enumerate(sources):
            crlf_files = counts.crlf_files
            for block in read_blocks(encoded, number):
                writer.append(block, source)
                counts.add(block.corpus)
                empty += block.empty_documents
            counts.files += 1
            counts.crlf_files = min(counts.crlf_files, crlf_files + 1)
    finally:
        writer.close()
    total = {"documents": writer.documents, "empty_documents": empty, "pieces": writer.pieces}
    write_json(temporary / _COUNTS_FILE, {**total, "corpus": counts.to_dict()})
    sync_files(temporary)
    temporary.rename(flat)
    for number in range(len(sources)):
        remove_blocks(encoded, number)


def read_counts(flat: Path) -> EncodedCounts:
    """Return the counts of what ``join`` wrote."""
    values = json.loads((flat / _COUNTS_FILE).read_text(encoding="utf-8"))
    return EncodedCounts(**{**values, "corpus": CorpusCounts.from_dict(values["corpus"])})


def open_documents(flat: Path, vocab_size: int) -> Documents:
    """Map what ``join`` wrote; every document is chosen."""
    starts = _mapped(flat / "document_starts", np.dtype(np.int64))
    return Documents(
        _mapped(flat / "ids", id_dtype(vocab_size)),
        _mapped(flat / "sentence_starts", np.dtype(np.int64)),
        starts,
        np.arange(len(starts) - 1, dtype=np.int64),
    )


def open_sources(flat: Path) -> NDArray[np.uint16]:
    """Map the source of each document, uint16 ``(documents,)``."""
    return _mapped(flat / "document_sources", np.dtype(np.uint16))


def _mapped(path: Path, dtype: np.dtype[Any]) -> NDArray[Any]:
    if path.stat().st_size == 0:
        return np.zeros(0, dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r")).view(np.ndarray)
