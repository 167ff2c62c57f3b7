"""Bytes of plain, gzip and zstandard files and of standard input, as lines, streaming.

A compressed file that was cut off is an error here, never a shorter text.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from bertsmith.errors import InputError

STANDARD_INPUT = "-"
_BLOCK_BYTES = 1 << 20
_LONGEST_LINE_BYTES = 256 << 20
_COMPRESSED = (".gz", ".zst")
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


def inner_suffix(path: Path) -> str:
    """Return the suffix of a file's name in lower case, that of the content when it is compressed."""
    name = path.name.lower()
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return Path(name).suffix


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their LF; ``-`` is standard input.

    Raises:
        InputError: the file cannot be read, is cut off, is no UTF-8 text by its first bytes, or has a line
            beyond 256 MiB.
    """
    rest: list[bytes] = []
    rest_bytes = 0
    first = True
    for block in _blocks(path):
        if first:
            _refuse_foreign(block, path)
        first = False
        head, *lines = block.split(b"\n")
        rest.append(head)
        rest_bytes += len(head)
        if rest_bytes > _LONGEST_LINE_BYTES:
            raise InputError(f"{path}: a line is longer than {_LONGEST_LINE_BYTES >> 20} MiB; break it up")
        if lines:
            yield b"".join(rest)
            yield from lines[:-1]
            rest = [lines[-1]]
            rest_bytes = len(lines[-1])
    if rest_bytes:
        yield b"".join(rest)


def _refuse_foreign(block: bytes, path: Path) -> None:
    for start, advice in _FOREIGN_STARTS.items():
        if block.startswith(start):
            raise InputError(f"{path}: {advice}")


def _blocks(path: Path) -> Iterator[bytes]:
    if str(path) == STANDARD_INPUT:
        yield from _plain(sys.stdin.buffer)
        return
    try:
        with open(path, "rb") as file:
            suffix = path.suffix.lower()
            if suffix == ".gz":
                yield from _gunzip(file, path)
            elif suffix == ".zst":
                yield from _unzstd(file, path)
            else:
                yield from _plain(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error})") from error


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while block := file.read(_BLOCK_BYTES):
        yield block


def _gunzip(file: BinaryIO, path: Path) -> Iterator[bytes]:
    if not file.peek(1):  # type: ignore[attr-defined]  # gzip takes an empty file for empty text
        raise InputError(f"{path}: the file is empty, not gzip; it may be cut off: get it again")
    try:
        with gzip.GzipFile(fileobj=file) as unpacked:
            while block := unpacked.read(_BLOCK_BYTES):
                yield block
    except EOFError:
        raise InputError(f"{path}: the gzip file is cut off; get it again") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path}: broken gzip file ({error}); get it again") from None


def _unzstd(file: BinaryIO, path: Path) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        raise InputError(f"{path}: reading .zst needs zstandard; pip install 'bertsmith[zstd]'") from None
    decompressor = zstandard.ZstdDecompressor()
    frame = decompressor.decompressobj()
    pending = file.read(_BLOCK_BYTES)
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
            pending = pending or file.read(_BLOCK_BYTES)
    except zstandard.ZstdError as error:
        raise InputError(f"{path}: broken zstandard file ({error}); get it again") from None
    if not whole:
        raise InputError(f"{path}: the zstandard file is cut off or empty; get it again")
