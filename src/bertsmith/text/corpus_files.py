"""Which files make up a corpus, and which source (books, wiki and so on) each belongs to."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.errors import InputError
from bertsmith.text.streams import STANDARD_INPUT, inner_suffix

_STANDARD_INPUT_SOURCE = "standard-input"
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
        path: where it lies, or ``-``.
        source: name of the part of the corpus that it belongs to.
    """

    path: Path
    source: str


def list_sources(paths: Sequence[str]) -> list[CorpusFile]:
    """Return the files of a corpus with their sources, directories searched recursively and in sorted order.

    Args:
        paths: files, directories (of which the .txt and .jsonl files are taken, also .gz and .zst), or ``-``;
            each may be written NAME=PATH. Without a name, the source is called after the directory, for a
            file after the one it lies in.

    Raises:
        InputError: nothing is named, a path does not exist, a directory holds no text, a file is named twice
            or is of a kind that is no text.
    """
    if not paths:
        raise InputError("no corpus is named: give files, directories or - for standard input")
    found = [file for path in paths for file in _files_of(path)]
    seen: set[Path] = set()
    for file in found:
        real = file.path if str(file.path) == STANDARD_INPUT else file.path.resolve()
        if real in seen:
            raise InputError(f"corpus {file.path}: named twice, its text would count double; name it once")
        seen.add(real)
    return found


def list_files(paths: Sequence[str]) -> list[Path]:
    """Return the files of a corpus; see ``list_sources``."""
    return [file.path for file in list_sources(paths)]


def _files_of(argument: str) -> list[CorpusFile]:
    named = _NAMED.fullmatch(argument)
    if named is None or Path(argument).exists():  # a path may hold a "=" itself
        source, name = "", argument
    else:
        source, name = named[1], named[2]
    path = Path(name)
    if name == STANDARD_INPUT:
        return [CorpusFile(path, source or _STANDARD_INPUT_SOURCE)]
    if path.is_dir():
        source = source or path.resolve().name
        return [CorpusFile(file, source) for file in _files_below(path)]
    if not path.exists():
        raise InputError(f"corpus {name}: no such file or directory")
    if set(path.suffixes[-2:]) & _FOREIGN_SUFFIXES:
        raise InputError(
            f"corpus {name}: not a text file by its name; give .txt or .jsonl, either also .gz or .zst"
        )
    return [CorpusFile(path, source or path.absolute().parent.name)]


def _files_below(directory: Path) -> list[Path]:
    files = []
    for folder, folders, names in os.walk(directory, onerror=_refuse_folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        paths = (Path(folder, name) for name in names if not name.startswith("."))
        files += [path for path in paths if inner_suffix(path) in _SUFFIXES and path.is_file()]
    files.sort()
    if not files:
        raise InputError(
            f"corpus {directory}: no .txt or .jsonl file (also .gz, .zst) in this directory; name the files"
        )
    return files


def _refuse_folder(error: OSError) -> None:
    """Stop at a folder that cannot be listed: text left out unnoticed would be worse."""
    raise InputError(f"corpus {error.filename}: cannot be read ({error.strerror})") from error
