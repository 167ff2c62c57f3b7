"""Instances on disk: flat id arrays and offsets in plain ``.npy`` files, memory-mapped, and a manifest.

A data directory holds ``manifest.json``, the tokenizer's files, and for each split (``train``, ``heldout``)
numbered shards of five arrays::

    ids-00000.npy            uint16, or int32 for a vocabulary above 65,536: all rows end to end,
                             [CLS] and [SEP] included
    offsets-00000.npy        int64 (instances + 1,): where each row starts in ids
    second_starts-00000.npy  int32 (instances,): where the second segment starts; row's length if none
    labels-00000.npy         int8 (instances,): 0 next / in order, 1 random / swapped, -1 no pair
    sources-00000.npy        uint16 (instances,): where the first text comes from, a place in the manifest's
                             list of sources; missing in data of earlier versions
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import InputError
from bertsmith.files import sha256_of, write_json

FORMAT = "bertsmith-data"
FORMAT_VERSION = 1
SPLITS = ("train", "heldout")
ARRAYS = ("ids", "offsets", "second_starts", "labels", "sources")
MOST_SOURCES = 1 << 16
ONLY_SOURCE = "all"
"""Name of the one source of data that was written before sources were."""
SHARD_PIECES = 1 << 25
"""Pieces after which a shard is full: 64 MiB of uint16."""


@dataclass(frozen=True)
class Rows:
    """Rows as flat arrays: what a shard holds, and what the builder's workers hand over.

    Attributes:
        ids: ``(pieces,)``.
        offsets: int64 ``(rows + 1,)``.
        second_starts: int32 ``(rows,)``.
        labels: int8 ``(rows,)``.
        sources: uint16 ``(rows,)``, number of the source of each.
    """

    ids: NDArray[Any]
    offsets: NDArray[np.int64]
    second_starts: NDArray[np.int32]
    labels: NDArray[np.int8]
    sources: NDArray[np.uint16]

    def __len__(self) -> int:
        return len(self.labels)

    def part(self, start: int, end: int) -> Rows:
        """Return the rows from ``start`` up to ``end``, without a copy of their pieces."""
        first, last = int(self.offsets[start]), int(self.offsets[end])
        return Rows(
            self.ids[first:last],
            self.offsets[start : end + 1] - first,
            self.second_starts[start:end],
            self.labels[start:end],
            self.sources[start:end],
        )


@dataclass(frozen=True)
class Example:
    """One instance.

    Attributes:
        ids: int64 ``(n,)``, [CLS] and [SEP] included.
        second_start: place of the second segment; n when there is none.
        nsp_label: 0 next / in order, 1 random / swapped, -1 no pair.
    """

    ids: NDArray[np.int64]
    second_start: int
    nsp_label: int


def id_dtype(vocab_size: int) -> np.dtype[Any]:
    """Return the smallest type of ids: uint16 when the vocabulary fits, else int32."""
    return np.dtype(np.uint16 if vocab_size <= 1 << 16 else np.int32)


class ShardWriter:
    """Writes the shards of one split into a directory, in the order in which batches of rows are appended.

    With a journal, each whole shard is recorded. A writer that is made anew finds the whole shards and says
    where it goes on; shards are compared with their hashes.

    Attributes:
        shards: the manifest's entry of each whole shard.
        next_batch: number of the batch to append next.
        next_row: rows of that batch that are in the shards already.
    """

    def __init__(
        self,
        directory: Path,
        dtype: np.dtype[Any],
        shard_pieces: int = SHARD_PIECES,
        journal: Path | None = None,
    ) -> None:
        self.directory = directory
        self.shards: list[dict[str, Any]] = []
        self.next_batch = self.next_row = 0
        self._dtype = dtype
        self._shard_pieces = shard_pieces
        self._journal = journal
        self._waiting: list[Rows] = []
        self._waiting_pieces = 0
        directory.mkdir(parents=True, exist_ok=journal is not None)
        if journal is not None:
            journal.mkdir(parents=True, exist_ok=True)
            self._find_whole_shards(journal)

    def append(self, rows: Rows) -> Rows:
        """Take a batch of rows; full shards go to disk.

        Returns:
            The rows of the batch that were not in the shards before.
        """
        fresh = rows.part(self.next_row, len(rows))
        start = 0
        while start < len(fresh):
            room = self._shard_pieces - self._waiting_pieces
            end = int(np.searchsorted(fresh.offsets, fresh.offsets[start] + room, side="right")) - 1
            if end == start and self._waiting_pieces == 0:
                end = start + 1  # a row longer than a shard still needs one
            if end > start:
                self._take(fresh.part(start, min(end, len(fresh))))
            if end < len(fresh):
                self._flush(rows_taken=self.next_row + max(end, start))
            start = max(end, start)
        self.next_batch, self.next_row = self.next_batch + 1, 0
        return fresh

    def close(self) -> list[dict[str, Any]]:
        """Write what is left; return the manifest's entry of each shard."""
        if self._waiting or not self.shards:
            self._flush(rows_taken=0)
        return self.shards

    def whole_rows(self) -> Iterator[Rows]:
        """Yield the rows of the whole shards, mapped into memory."""
        for shard in self.shards:
            yield _open_shard(self.directory, shard)

    def _find_whole_shards(self, journal: Path) -> None:
        """Go on after the last shard that is whole and has only whole ones before it."""
        for path in sorted(journal.glob("*.json")):
            record = json.loads(path.read_text(encoding="utf-8"))
            try:
                for file in record["shard"]["files"].values():
                    _check_file(self.directory / file["file"], file["bytes"], file["sha256"])
            except InputError:
                return
            self.shards.append(record["shard"])
            self.next_batch, self.next_row = record["next_batch"], record["next_row"]

    def _take(self, rows: Rows) -> None:
        self._waiting.append(rows)
        self._waiting_pieces += len(rows.ids)

    def _flush(self, rows_taken: int) -> None:
        lengths = [np.diff(rows.offsets) for rows in self._waiting]
        offsets = np.zeros(sum(map(len, lengths)) + 1, dtype=np.int64)
        if lengths:
            np.cumsum(np.concatenate(lengths), out=offsets[1:])
        ids = np.empty(self._waiting_pieces, dtype=self._dtype)
        place = 0
        for rows in self._waiting:
            ids[place : place + len(rows.ids)] = rows.ids
            place += len(rows.ids)
        arrays = {
            "ids": ids,
            "offsets": offsets,
            "second_starts": np.concatenate(
                [np.zeros(0, np.int32), *(r.second_starts for r in self._waiting)]
            ),
            "labels": np.concatenate([np.zeros(0, np.int8), *(r.labels for r in self._waiting)]),
            "sources": np.concatenate([np.zeros(0, np.uint16), *(r.sources for r in self._waiting)]),
        }
        self._waiting, self._waiting_pieces = [], 0
        files: dict[str, Any] = {}
        for name in ARRAYS:
            path = self.directory / f"{name}-{len(self.shards):05d}.npy"
            np.save(path, arrays[name])
            files[name] = {"file": path.name, "bytes": path.stat().st_size, "sha256": sha256_of(path)}
        shard = {"instances": len(offsets) - 1, "pieces": len(ids), "files": files}
        if self._journal is not None:
            record = {"shard": shard, "next_batch": self.next_batch, "next_row": rows_taken}
            write_json(self._journal / f"{len(self.shards):05d}.json", record)
        self.shards.append(shard)


def read_manifest(directory: Path) -> dict[str, Any]:
    """Return the manifest of a data directory.

    Raises:
        InputError: the directory was not written by prepare, or by another version of the format.
    """
    path = directory / "manifest.json"
    if not path.is_file():
        raise InputError(f"{directory}: no manifest.json; give a directory that `bertsmith prepare` wrote")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{path}: no JSON ({error}); prepare the data again") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise InputError(f"{path}: not the manifest of prepared data; give a directory that prepare wrote")
    if manifest.get("format_version") != FORMAT_VERSION:
        raise InputError(
            f"{path}: format version {manifest.get('format_version')}, but this bertsmith reads "
            f"{FORMAT_VERSION}; prepare the data again"
        )
    return manifest


class Instances:
    """The instances of one split, memory-mapped: any of them by its number, in no time.

    Attributes:
        seq_len: pieces of the longest instance that was allowed.
        source_names: the parts of the corpus, such as books and wiki; see ``sources``.
    """

    def __init__(self, directory: Path, split: str, manifest: dict[str, Any]) -> None:
        self.directory = directory
        self.split = split
        self.manifest = manifest
        self.seq_len: int = manifest["settings"]["seq_len"]
        self.source_names: list[str] = manifest.get("sources", [ONLY_SOURCE])
        entry = manifest["splits"][split]
        self._shards = [_open_shard(directory / split, shard) for shard in entry["shards"]]
        counts = [len(shard) for shard in self._shards]
        self._firsts = np.cumsum([0, *counts], dtype=np.int64)

    @classmethod
    def open(cls, directory: str | Path, split: str, verify: bool = False) -> Instances:
        """Open a split of a data directory.

        Args:
            directory: what ``prepare`` wrote.
            split: "train" or "heldout".
            verify: read every byte and compare the hashes; sizes and shapes are always compared.

        Raises:
            InputError: a file is missing, cut short or foreign; the message names it.
        """
        assert split in SPLITS, split
        directory = Path(directory)
        manifest = read_manifest(directory)
        try:
            files = [
                (directory / split / file["file"], file["bytes"], file["sha256"])
                for shard in manifest["splits"][split]["shards"]
                for file in shard["files"].values()
            ]
            for path, size, digest in files:
                _check_file(path, size, digest if verify else None)
            return cls(directory, split, manifest)
        except (KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{directory / 'manifest.json'}: lacks {error}; prepare the data again"
            ) from error

    def __len__(self) -> int:
        return int(self._firsts[-1])

    def identity(self) -> str:
        """Return the SHA-256 of what the manifest says of this split: its counts and its shards' hashes."""
        entry = json.dumps(self.manifest["splits"][self.split], sort_keys=True)
        return hashlib.sha256(entry.encode()).hexdigest()

    def file_of(self, index: int, array: str) -> Path:
        """Return the file in which an instance's part of an array lies."""
        shard = int(np.searchsorted(self._firsts, index, side="right")) - 1
        entry = self.manifest["splits"][self.split]["shards"][shard]["files"][array]
        return self.directory / self.split / str(entry["file"])

    def example(self, index: int) -> Example:
        """Return one instance."""
        assert 0 <= index < len(self), f"instance {index} of {len(self)}"
        one = np.array([index])
        (row,) = self.rows(one)
        return Example(row.astype(np.int64), int(self.second_starts(one)[0]), int(self.labels(one)[0]))

    def rows(self, indices: NDArray[np.int64]) -> list[NDArray[Any]]:
        """Return the ids of each instance as they lie on disk, without a copy."""
        starts = self._gather(indices, lambda rows, places: rows.offsets[places]).tolist()
        ends = self._gather(indices, lambda rows, places: rows.offsets[places + 1]).tolist()
        if len(self._shards) == 1:
            ids = self._shards[0].ids
            return [ids[start:end] for start, end in zip(starts, ends, strict=True)]
        shards = (np.searchsorted(self._firsts, indices, side="right") - 1).tolist()
        places = zip(shards, starts, ends, strict=True)
        return [self._shards[shard].ids[start:end] for shard, start, end in places]

    def second_starts(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return int64 ``(indices,)``: the place of the second segment of each."""
        return self._gather(indices, lambda rows, places: rows.second_starts[places])

    def labels(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return int64 ``(indices,)``: 0 next / in order, 1 random / swapped, -1 no pair."""
        return self._gather(indices, lambda rows, places: rows.labels[places])

    def sources(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return int64 ``(indices,)``: place in ``source_names`` of the source of each.

        It is that of the first text: a random second text of NSP, or the further documents of a row of
        full-sentences, may come from another.
        """
        return self._gather(indices, lambda rows, places: rows.sources[places])

    def lengths(self, indices: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return int64 ``(indices,)``: pieces of each, special tokens counted."""
        return self._gather(indices, lambda rows, places: rows.offsets[places + 1] - rows.offsets[places])

    def _gather(self, indices: NDArray[np.int64], read: Any) -> NDArray[np.int64]:
        if len(self._shards) == 1:
            return np.asarray(read(self._shards[0], indices), dtype=np.int64)
        result = np.empty(len(indices), dtype=np.int64)
        shards = np.searchsorted(self._firsts, indices, side="right") - 1
        for shard in np.unique(shards).tolist():
            here = shards == shard
            result[here] = read(self._shards[shard], indices[here] - self._firsts[shard])
        return result


def _check_file(path: Path, size: int, digest: str | None) -> None:
    if not path.is_file():
        raise InputError(f"{path}: missing, though the manifest names it; prepare the data again")
    if path.stat().st_size != size:
        raise InputError(
            f"{path}: {path.stat().st_size} bytes, the manifest says {size}; the file is cut short or "
            "foreign: prepare the data again"
        )
    if digest is not None and sha256_of(path) != digest:
        raise InputError(f"{path}: its SHA-256 is not the manifest's; prepare the data again")


def _open_shard(directory: Path, shard: dict[str, Any]) -> Rows:
    """Map the arrays of a shard and compare their shapes with the manifest."""
    instances, pieces = shard["instances"], shard["pieces"]
    expected = {
        "ids": (pieces, ("uint16", "int32")),
        "offsets": (instances + 1, ("int64",)),
        "second_starts": (instances, ("int32",)),
        "labels": (instances, ("int8",)),
        "sources": (instances, ("uint16",)),
    }
    if "sources" not in shard["files"]:  # written before sources were
        del expected["sources"]
    arrays: dict[str, NDArray[Any]] = {}
    for name, (length, dtypes) in expected.items():
        path = directory / shard["files"][name]["file"]
        try:
            array = np.load(path, mmap_mode="r" if length else None, allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise InputError(f"{path}: no .npy array ({error}); prepare the data again") from error
        if array.shape != (length,) or array.dtype.name not in dtypes:
            raise InputError(
                f"{path}: {array.dtype.name} {array.shape}, the manifest says {'/'.join(dtypes)} "
                f"({length},); prepare the data again"
            )
        arrays[name] = np.asarray(array).view(np.ndarray)  # slices of a memmap object are slow
    arrays.setdefault("sources", np.broadcast_to(np.uint16(0), instances))
    return Rows(**arrays)
