"""Files behind URLs (s3://, gs://, https://, memory://, file://), through fsspec.

Credentials and endpoints are fsspec's matter: environment variables and its own configuration files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from bertsmith.errors import InputError


@dataclass(frozen=True)
class RemoteFile:
    """A file behind a URL, with the part of ``pathlib.Path`` that reading a corpus needs."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return PurePosixPath(self.url).name

    @property
    def suffix(self) -> str:
        """Suffix of the name, with its dot."""
        return PurePosixPath(self.url).suffix

    @property
    def suffixes(self) -> list[str]:
        """All suffixes of the name."""
        return PurePosixPath(self.url).suffixes

    def open(self) -> BinaryIO:
        """Open the file for reading."""
        system, path = file_system(self.url)
        return cast(BinaryIO, system.open(path, "rb"))

    def num_bytes(self) -> int:
        """Return the size of the file."""
        system, path = file_system(self.url)
        return int(system.size(path) or 0)

    def stamp(self) -> str:
        """Return what changes when the file does, as far as its store tells (time, ETag, version)."""
        system, path = file_system(self.url)
        return str(system.ukey(path))


Location = Path | RemoteFile


def is_url(name: str) -> bool:
    """Say whether a name is a URL rather than a local path."""
    return "://" in name


def file_system(url: str) -> tuple[Any, str]:
    """Return the fsspec file system of a URL, and the path in it.

    Raises:
        InputError: nobody knows the protocol, or its package is not installed.
    """
    from fsspec.core import url_to_fs

    try:
        system, path = url_to_fs(url)
    except ImportError as error:
        raise InputError(f"{url}: needs another package: {error}") from error  # fsspec names it
    except ValueError as error:
        raise InputError(f"{url}: cannot be used ({error}); see fsspec's list of protocols") from error
    return system, path


def files_below(url: str) -> list[RemoteFile] | None:
    """Return the files below a directory behind a URL, sorted; ``None``: it is a file.

    Raises:
        InputError: there is nothing, or it cannot be read.
    """
    system, path = file_system(url)
    try:
        if not system.exists(path):
            raise InputError(f"corpus {url}: no such file or directory")
        if not system.isdir(path):
            return None
        return [RemoteFile(system.unstrip_protocol(name)) for name in sorted(system.find(path))]
    except OSError as error:
        raise InputError(f"corpus {url}: cannot be read ({error})") from error


def exists(url: str) -> bool:
    """Say whether there is a file, or a directory that holds something, behind a URL."""
    system, path = file_system(url)
    return bool(system.isfile(path) or (system.isdir(path) and system.ls(path)))


def upload(directory: Path, url: str, last: str) -> None:
    """Copy the files of a directory to a URL; the one named ``last`` (a manifest) after all others.

    Whoever finds that file there finds everything.
    """
    system, target = file_system(url)
    files = sorted(path for path in directory.rglob("*") if path.is_file())
    for path in sorted(files, key=lambda path: path == directory / last):
        place = f"{target.rstrip('/')}/{path.relative_to(directory).as_posix()}"
        system.makedirs(place.rpartition("/")[0], exist_ok=True)
        system.put_file(str(path), place)
