"""Arrays on disk: several in one ``.npz`` file that is whole or not there; rows appended to a ``.npy``."""

from __future__ import annotations

import contextlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays under a temporary name, then rename the file.

    The file's own checksums tell whether a crash of the whole machine spared it; see ``is_whole``.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)  # there after a failure alone, such as a full disk


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays of a file.

    Raises:
        zipfile.BadZipFile: a checksum is wrong.
    """
    with np.load(path, allow_pickle=False) as file:
        return dict(file)


def is_whole(path: Path) -> bool:
    """Say whether a file is there and agrees with its checksums."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


class RowsFile(contextlib.AbstractContextManager["RowsFile"]):
    """Float32 rows appended to a ``.npy`` file, so that all of them never have to be in memory.

    The file is whole when the context ends: then it is known how many there are.

    Args:
        path: the file to write.
        width: of a row.
    """

    def __init__(self, path: Path, width: int) -> None:
        self._file = open(path, "wb")  # noqa: SIM115
        self._width = width
        self._count = 0
        self._write_header()

    def append(self, rows: NDArray[np.float32]) -> None:
        """Write rows, float32 ``(rows, width)``, behind those that are there."""
        assert rows.dtype == np.float32, "float32 rows"
        assert rows.shape[1:] == (self._width,), "rows as wide as the file's"
        self._file.write(np.ascontiguousarray(rows).data)
        self._count += len(rows)

    def __exit__(self, *_: object) -> None:
        self._file.seek(0)
        self._write_header()
        self._file.close()

    def _write_header(self) -> None:
        """Write the head, which NumPy makes as long for any number of rows."""
        shape = (self._count, self._width)
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)
