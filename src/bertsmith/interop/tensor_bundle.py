"""TensorFlow's checkpoints: tensors by name, in PREFIX.index and PREFIX.data-00000-of-00001.

The index is a table as LevelDB writes them: blocks of sorted keys, each stored as what differs from the key
before it. Its values are protocol buffers that say where in the data files a tensor lies. Everything that is
read is checked against the sums stored with it.

Source: tensorflow, core/util/tensor_bundle/tensor_bundle.cc, core/protobuf/tensor_bundle.proto,
    core/lib/io/format.cc; leveldb, doc/table_format.md.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import InputError
from bertsmith.interop.crc32c import crc32c, masked

_MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER_BYTES = 48
_FLOATS = {1: "<f4", 2: "<f8", 14: "<u2", 19: "<f2"}
_BFLOAT16 = 14
_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_LATEST = re.compile(r'^model_checkpoint_path:\s*"(.+)"', re.MULTILINE)
# The shape of protocol buffers: the kind of a field's value, in the three lowest bits of its key.
_NUMBER, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True)
class Entry:
    """Where a tensor lies.

    Attributes:
        kind: TensorFlow's number of the type.
        shape: of the tensor.
        shard: number of the data file.
        start: first byte in it.
        num_bytes: size.
        checksum: masked CRC-32C of the bytes.
        is_sliced: the tensor is stored in parts.
    """

    kind: int
    shape: tuple[int, ...]
    shard: int
    start: int
    num_bytes: int
    checksum: int
    is_sliced: bool


def find_prefix(path: Path) -> Path | None:
    """Return the prefix of the checkpoint that a path means: a prefix, one of its files, or a directory.

    Of several in a directory it is the one that its file "checkpoint" names. ``None``: there is none.

    Raises:
        InputError: a directory holds several and does not say which is meant.
    """
    if path.is_dir():
        prefixes = sorted(file.with_suffix("") for file in path.glob("*.index"))
        latest = path / "checkpoint"
        if len(prefixes) > 1 and latest.is_file():
            named = _LATEST.search(latest.read_text(encoding="utf-8", errors="replace"))
            prefixes = [prefix for prefix in prefixes if named and prefix.name == Path(named[1]).name]
        if len(prefixes) > 1:
            names = ", ".join(prefix.name for prefix in prefixes)
            raise InputError(f"{path}: holds several checkpoints ({names}); give the path of one of them")
        return prefixes[0] if prefixes else None
    prefix = path.with_name(_PART.sub("", path.name))
    return prefix if _index_of(prefix).is_file() else None


def is_old_checkpoint(path: Path) -> bool:
    """Say whether a file is a checkpoint of the form before TensorFlow 0.12: one table that holds all."""
    if not path.is_file() or path.stat().st_size < _FOOTER_BYTES:
        return False
    with open(path, "rb") as file:
        file.seek(-len(_MAGIC), 2)
        return file.read() == _MAGIC


class TensorBundle:
    """A checkpoint whose index has been read.

    Attributes:
        prefix: its files' path without the ending.
        entries: where each tensor lies, by name.
    """

    def __init__(self, prefix: Path) -> None:
        """Read the index.

        Raises:
            InputError: it is missing, broken, or of another form.
        """
        self.prefix = prefix
        path = _index_of(prefix)
        if not path.is_file():
            raise InputError(f"{path}: no such file; a checkpoint is PREFIX.index and PREFIX.data-…")
        try:
            pairs = dict(_table(path))
            header = dict(_fields(pairs.pop(b"")))
            self.entries = {key.decode(): _entry(value) for key, value in pairs.items()}
        except (KeyError, IndexError, ValueError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{path}: not a whole index of a checkpoint ({error}); copy it again") from error
        self._num_shards = header.get(1, 1)
        if header.get(2, 0) != 0:
            raise InputError(f"{path}: written on a big-endian machine, which is not supported")

    def read(self, name: str) -> NDArray[np.float32]:
        """Return a tensor in float32.

        Raises:
            InputError: it holds no numbers of floating point, is stored in parts, or its bytes are missing or
                broken.
        """
        entry = self.entries[name]
        path = self.prefix.with_name(f"{self.prefix.name}.data-{entry.shard:05d}-of-{self._num_shards:05d}")
        if entry.kind not in _FLOATS:
            raise InputError(f"{self.prefix}: {name} is of type number {entry.kind}, expected floating point")
        stored = np.dtype(_FLOATS[entry.kind])
        if entry.is_sliced or entry.num_bytes != math.prod(entry.shape) * stored.itemsize:
            raise InputError(
                f"{self.prefix}: {name} is stored in parts; save the checkpoint without partitions"
            )
        if not path.is_file():
            raise InputError(f"{path}: no such file; copy all files of the checkpoint")
        data = np.fromfile(path, np.uint8, entry.num_bytes, offset=entry.start)
        if len(data) != entry.num_bytes or masked(crc32c(data)) != entry.checksum:
            raise InputError(f"{path}: the bytes of {name} are not those that were written; copy it again")
        values = data.view(stored).reshape(entry.shape)
        if entry.kind == _BFLOAT16:
            return (values.astype("<u4") << 16).view("<f4")
        return values.astype(np.float32)


def _index_of(prefix: Path) -> Path:
    return prefix.with_name(f"{prefix.name}.index")


def _table(path: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of a table."""
    data = path.read_bytes()
    footer = data[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or not footer.endswith(_MAGIC):
        raise ValueError("its end is missing")
    *_, start, size = _numbers(footer, 4)
    for _, handle in _block(data, start, size):
        yield from _block(data, *_numbers(handle, 2))


def _block(data: bytes, start: int, size: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values of one block, which a byte for its compression and a sum follow."""
    end = start + size
    if int.from_bytes(data[end + 1 : end + 5], "little") != masked(crc32c(data[start : end + 1])):
        raise ValueError("a block's sum is another than the stored one")
    if data[end] != 0:
        raise ValueError("it is compressed; save the checkpoint with a TensorFlow of 1.2 or later")
    num_restarts = int.from_bytes(data[end - 4 : end], "little")
    place, end = start, end - 4 * (num_restarts + 1)
    key = b""
    while place < end:
        shared, place = _number(data, place)
        new, place = _number(data, place)
        length, place = _number(data, place)
        key = key[:shared] + data[place : place + new]
        yield key, data[place + new : place + new + length]
        place += new + length


def _entry(value: bytes) -> Entry:
    """Read a BundleEntryProto."""
    fields = dict(_fields(value))
    shape = [dict(_fields(size)).get(1, 0) for number, size in _fields(fields.get(2, b"")) if number == 2]
    numbers = [fields.get(number, 0) for number in (1, 3, 4, 5, 6)]
    kind, shard, start, num_bytes, checksum = numbers
    return Entry(kind, tuple(shape), shard, start, num_bytes, checksum, is_sliced=7 in fields)


def _fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Yield number and value of each field of a protocol buffer; of a number, a number, else bytes."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        kind = key & 7
        if kind == _NUMBER:
            number, place = _number(message, place)
            yield key >> 3, number
            continue
        if kind == _BYTES:
            size, place = _number(message, place)
        elif kind in (_FOUR_BYTES, _EIGHT_BYTES):
            size = 4 if kind == _FOUR_BYTES else 8
        else:
            raise ValueError(f"a field is of kind {kind}")
        value = message[place : place + size]
        place += size
        yield key >> 3, value if kind == _BYTES else int.from_bytes(value, "little")


def _numbers(data: bytes, count: int) -> list[int]:
    """Read so many numbers from the beginning."""
    numbers, place = [], 0
    for _ in range(count):
        number, place = _number(data, place)
        numbers.append(number)
    return numbers


def _number(data: bytes, place: int) -> tuple[int, int]:
    """Read a number of seven bits a byte, the lowest first; return it and the place behind it."""
    number = shift = 0
    while True:
        byte = data[place]
        number |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return number, place
