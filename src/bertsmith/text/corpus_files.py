"""Which files make up a corpus, and which source (books, wiki and so on) each belongs to."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from bertsmith.errors import InputError
from bertsmith.remote import Location, RemoteFile, files_below, is_url
from bertsmith.text.streams import STANDARD_INPUT, inner_suffix

_STANDARD_INPUT_SOURCE = "standard-input"
_NO_TEXT = "no .txt or .jsonl file (also .gz, .zst) in this directory; name the files"
_NAMED = re.compile(r"([A-Za-z0-9][\w.-]*)=(.+)", re.DOTALL)
_SUFFIXES = {".txt", ".jsonl", ".ndjson"}
_FOREIGN_SUFFIXES = {
    *(".7z", ".arrow", ".avro", ".bin", ".bz2", ".csv", ".doc", ".docx", ".epub", ".feather", ".npy", ".npz"),
    *(".odt", ".parquet", ".pdf", ".pkl", ".pt", ".rar", ".safetensors", ".tar", ".tgz", ".tsv", ".xz"),
    ".zip",
}


@dataclass(frozen=True)
class CorpusFile:
    """A file of a corpus.

    Attributes:
        path: where it lies: a local path, a URL, or ``-``.
        source: name of the part of the corpus that it belongs to.
    """

    path: Location
    source: str


def list_sources(paths: Sequence[str]) -> list[CorpusFile]:
    """Return the files of a corpus with their sources, directories searched recursively and in sorted order.

    Args:
        paths: files, directories (of which the .txt and .jsonl files are taken, also .gz and .zst), URLs of
            either, or ``-``; each may be written NAME=PATH. Without a name, the source is called after the
            directory, for a file after the one it lies in.

    Raises:
        InputError: nothing is named, a path does not exist, a directory holds no text, a file is named twice
            or is of a kind that is no text.
    """
    if not paths:
        raise InputError("no corpus is named: give files, directories or - for standard input")
    found = [file for path in paths for file in _files_of(path)]
    seen: set[Location] = set()
    for file in found:
        real = file.path.resolve() if isinstance(file.path, Path) else file.path
        if real in seen:
            raise InputError(f"corpus {file.path}: named twice, its text would count double; name it once")
        seen.add(real)
    return found


def list_files(paths: Sequence[str]) -> list[Location]:
    """Return the files of a corpus; see ``list_sources``."""
    return [file.path for file in list_sources(paths)]


def _files_of(argument: str) -> list[CorpusFile]:
    named = _NAMED.fullmatch(argument)
    if named is None or Path(argument).exists():  # a path may hold a "=" itself
        source, name = "", argument
    else:
        source, name = named[1], named[2]
    path = Path(name)
    if is_url(name):
        return _remote_files(name, source)
    if name == STANDARD_INPUT:
        return [CorpusFile(path, source or _STANDARD_INPUT_SOURCE)]
    if path.is_dir():
        source = source or path.resolve().name
        return [CorpusFile(file, source) for file in _files_below(path)]
    if not path.exists():
        raise InputError(f"corpus {name}: no such file or directory")
    _refuse_foreign_name(path)
    return [CorpusFile(path, source or path.absolute().parent.name)]


def _remote_files(url: str, source: str) -> list[CorpusFile]:
    inside = PurePosixPath(url.rstrip("/"))
    files = files_below(url)
    if files is None:
        _refuse_foreign_name(RemoteFile(url))
        return [CorpusFile(RemoteFile(url), source or inside.parent.name)]
    files = [file for file in files if inner_suffix(file) in _SUFFIXES and not file.name.startswith(".")]
    if not files:
        raise InputError(f"corpus {url}: {_NO_TEXT}")
    return [CorpusFile(file, source or inside.name) for file in files]


def _refuse_foreign_name(path: Location) -> None:
    if set(path.suffixes[-2:]) & _FOREIGN_SUFFIXES:
        raise InputError(
            f"corpus {path}: not a text file by its name; give .txt or .jsonl, either also .gz or .zst"
        )


def _files_below(directory: Path) -> list[Path]:
    files = []
    for folder, folders, names in os.walk(directory, onerror=_refuse_folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(folder, name) for name in names if not name.startswith("."))
        files += [path for path in paths if inner_suffix(path) in _SUFFIXES and path.is_file()]
    files.sort()
    if not files:
        raise InputError(f"corpus {directory}: {_NO_TEXT}")
    return files


def _refuse_folder(error: OSError) -> None:
    """Stop at a folder that cannot be listed: text left out unnoticed would be worse."""
    raise InputError(f"corpus {error.filename}: cannot be read ({error.strerror})") from error


def file_bytes(path: Location) -> int | None:
    """Return the size of a file; ``None``: it is a pipe or standard input."""
    if isinstance(path, RemoteFile):
        return path.num_bytes()
    return path.stat().st_size if str(path) != STANDARD_INPUT and path.is_file() else None


def total_bytes(paths: Sequence[Location]) -> int:
    """Return the size of all files; 0: nobody knows, there is a pipe or standard input among them."""
    sizes = [file_bytes(path) for path in paths]
    return 0 if None in sizes else sum(size or 0 for size in sizes)
