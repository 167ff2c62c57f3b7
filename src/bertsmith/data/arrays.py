"""Several arrays in one ``.npz`` file that is whole or not there."""

from __future__ import annotations

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
