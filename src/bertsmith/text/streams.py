"""Plain, gzip and zstandard files, standard input and URLs, streamed as blocks of whole documents.

A compressed file that was cut off is an error here, never a shorter text.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import sys
import zlib
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError, RunError
from bertsmith.remote import Location, RemoteFile

STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 19
_READ_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 256 << 20
_COMPRESSED = (".gz", ".zst")
_LINE_END = re.compile(rb"\n")
_BLANK_LINE = re.compile(rb"\n\r?\n")
_FOREIGN_STARTS = {
    b"\xff\xfe": "the text is UTF-16; convert it to UTF-8",
    b"\xfe\xff": "the text is UTF-16; convert it to UTF-8",
    b"\x1f\x8b": "this is gzip; let its name end in .gz",
    b"\x28\xb5\x2f\xfd": "this is zstandard; let its name end in .zst",
    b"BZh": "this is bzip2; unpack it",
    b"\xfd7zXZ\x00": "this is xz; unpack it",
    b"PK\x03\x04": "this is a zip archive (or an office document); give the text in it",
    b"%PDF-": "this is a PDF; give its text",
    b"\x89PNG": "this is a picture, not text",
    b"\x7fELF": "this is a program, not text",
    b"\x93NUMPY": "these are numbers, not text",
    b"PAR1": "this is Parquet; give the text as .jsonl",
}
"""How files begin that are no UTF-8 text, and what to do with them."""


def inner_suffix(path: Location) -> str:
    """Return the suffix of a file's name in lower case, that of the content when it is compressed."""
    name = path.name.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return Path(name).suffix


def is_json_lines(path: Location) -> bool:
    """Say whether each line of a file is a JSON object, by its name."""
    return inner_suffix(path) in (".jsonl", ".ndjson")


@dataclass(frozen=True)
class TextBlock:
    """Some whole documents of a file.

    Attributes:
        path: the file.
        first_line: number of the first line, from 1.
        data: the bytes as they lie there, unpacked.
    """

    path: Location
    first_line: int
    data: bytes


class TextFile:
    """A file while it is read in blocks of whole documents.

    Attributes:
        num_bytes: read from the file so far, packed if it is.
    """

    def __init__(self, path: Location, document_a_line: bool) -> None:
        """Make a reader.

        Args:
            path: a file, or ``-`` for standard input.
            document_a_line: each line is a document, else blank lines separate them.
        """
        self.path = path
        self.num_bytes = 0
        self._boundary = _LINE_END if document_a_line or is_json_lines(path) else _BLANK_LINE
        self._digest = hashlib.sha256()
        self._unended_bytes = 0

    @property
    def sha256(self) -> str:
        """SHA-256 of what was read, in hexadecimal."""
        return self._digest.hexdigest()

    def blocks(self, block_bytes: int = BLOCK_BYTES) -> Iterator[TextBlock]:
        """Yield the blocks of the file: each ends with the first document that reaches a size.

        Raises:
            InputError: the file cannot be opened, is cut off, is no UTF-8 text by its first bytes, or has a
                line beyond 256 MiB.
            RunError: reading fails.
        """
        buffer = bytearray()
        line, searched = 1, 0
        for part in self._parts():
            buffer += part
            while end := self._end_of_block(buffer, max(block_bytes, searched)):
                block = TextBlock(self.path, line, bytes(buffer[:end]))
                line += block.data.count(b"\n")
                del buffer[:end]
                searched = 0
                yield block
            searched = max(0, len(buffer) - 2)  # a boundary may begin in what is there
        if buffer:
            yield TextBlock(self.path, line, bytes(buffer))

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes of the file as they lie there, counted and hashed; for what unpacks them."""
        block: bytes = self._file.read(size)
        self.num_bytes += len(block)
        self._digest.update(block)
        return block

    def _end_of_block(self, buffer: bytearray, start: int) -> int:
        match = self._boundary.search(buffer, start)
        return match.end() if match else 0

    def _parts(self) -> Iterator[bytes]:
        """Yield the unpacked bytes of the file, and refuse what cannot be text."""
        for number, part in enumerate(self._unpacked()):
            if number == 0:
                _refuse_foreign(part, self.path)
            last = part.rfind(b"\n")
            self._unended_bytes = len(part) - last - 1 if last >= 0 else self._unended_bytes + len(part)
            if self._unended_bytes > _LONGEST_LINE_BYTES:
                raise InputError(
                    f"{self.path}: a line is longer than {_LONGEST_LINE_BYTES >> 20} MiB; break it up"
                )
            yield part

    def _unpacked(self) -> Iterator[bytes]:
        path = self.path
        unpack = {".gz": _gunzip, ".zst": _unzstd}.get(path.suffix.lower(), _plain)
        try:
            opened = _opened(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error
        try:
            with opened as self._file:
                yield from unpack(self)
        except OSError as error:  # a disk or a store that fails: the same file may be read later
            raise RunError(f"{path}: reading it failed ({error.strerror or error})") from error


def lines_of(path: Location) -> Iterator[bytes]:
    """Yield the lines of a file without their LF; see ``TextFile.blocks``."""
    for block in TextFile(path, document_a_line=True).blocks():
        yield from block.data.removesuffix(b"\n").split(b"\n")


def _opened(path: Location) -> Any:
    """Return the context of an open file; standard input is not closed by it."""
    if isinstance(path, RemoteFile):
        return path.open()
    return nullcontext(sys.stdin.buffer) if str(path) == STANDARD_INPUT else open(path, "rb")


def _refuse_foreign(block: bytes, path: Location) -> None:
    for start, advice in _FOREIGN_STARTS.items():
        if block.startswith(start):
            raise InputError(f"{path}: {advice}")


def _plain(file: TextFile) -> Iterator[bytes]:
    while block := file.read(_READ_BYTES):
        yield block


def _gunzip(file: TextFile) -> Iterator[bytes]:
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:  # type: ignore[call-overload]
            while block := unpacked.read(_READ_BYTES):
                yield block
    except EOFError:
        raise InputError(f"{file.path}: the gzip file is cut off; get it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{file.path}: broken gzip file ({error}); get it again") from None
    if file.num_bytes == 0:  # gzip takes an empty file for empty text
        raise InputError(f"{file.path}: the file is empty, not gzip; it may be cut off: get it again")


def _unzstd(file: TextFile) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise InputError(
            f"{file.path}: reading .zst needs zstandard; pip install 'bertsmith[zstd]'"
        ) from None
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    pending = file.read(_READ_BYTES)
    whole = False
    try:
        while pending:
            block = frame.decompress(pending)
            if block:
                yield block
            whole = frame.eof
            pending = frame.unused_data if whole else b""
            if whole:
                frame = decompressor.decompressobj()
            pending = pending or file.read(_READ_BYTES)
    except zstandard.ZstdError as error:
        raise InputError(f"{file.path}: broken zstandard file ({error}); get it again") from None
    if not whole:
        raise InputError(f"{file.path}: the zstandard file is cut off or empty; get it again")
