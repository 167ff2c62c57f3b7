"""Writing files so that a crash never leaves half of one, and hashing them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from bertsmith.errors import InputError

_LOG = logging.getLogger(__name__)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(directory: Path) -> None:
    """Let the files below a directory survive a crash of the whole machine."""
    for path in directory.rglob("*"):
        if path.is_file():
            with open(path, "rb") as file:
                os.fsync(file.fileno())


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _clear_abandoned(path: Path) -> None:
    """Remove what killed processes left beside ``path``; put back a version they had moved out of the way."""
    pattern = re.compile(rf"\.{re.escape(path.name)}\.(\d+)\.(tmp|old)")
    for name in os.listdir(path.parent):
        match = pattern.fullmatch(name)
        if match is None or _is_alive(int(match[1])):
            continue
        left = path.with_name(name)
        if match[2] == "old" and not path.exists():
            os.replace(left, path)
        elif left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def require_no_directory(path: Path) -> None:
    """Refuse a path at which no file can be written because a directory is there.

    Raises:
        InputError: ``path`` is a directory.
    """
    if path.is_dir():
        raise InputError(f"{path} is a directory; name the file to write")


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """Make a directory and keep other processes that ask for it so out of it until the block ends.

    On a file system without locks nobody is kept out.

    Raises:
        InputError: another process is at work there.
    """
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"another process is writing {directory}; wait for it, or choose another --out"
            ) from None
        except OSError as error:
            _LOG.debug("%s cannot be locked: %s", directory, error)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; rename it to ``path`` when the block ends without an error.

    Raises:
        InputError: ``path`` is a directory.
    """
    require_no_directory(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        _sync_directory(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """Yield a temporary directory beside ``path``; it becomes ``path`` when the block ends without an error.

    An existing ``path`` is kept until the new one is whole, then replaced. What killed processes left here is
    removed.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    _clear_abandoned(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir()
    try:
        yield temporary
        sync_files(temporary)
        if path.exists():
            os.replace(path, old)
        os.replace(temporary, path)
        _sync_directory(path.parent)
    finally:
        if old.exists() and not path.exists():  # stopped between the two renames
            os.replace(old, path)
        shutil.rmtree(temporary, ignore_errors=True)
        shutil.rmtree(old, ignore_errors=True)


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Raise what safetensors raises when it cannot write as the OSError that it is.

    Raises:
        OSError: the disk is full, for example; it names ``path``.
    """
    try:
        yield
    except SafetensorError as error:
        number = re.search(r"\(os error (\d+)\)", str(error))
        if number is None:
            raise OSError(f"{path}: {error}") from error
        raise OSError(int(number[1]), os.strerror(int(number[1])), str(path)) from error


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically; half a surrogate pair, which UTF-8 cannot hold, as JSON spells it."""
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically, readable by people."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
