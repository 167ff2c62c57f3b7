"""Arrays in files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.arrays import RowsFile, is_whole, load_arrays, save_arrays


@pytest.fixture
def file(tmp_path: Path) -> Path:
    save_arrays(tmp_path / "a" / "b.npz", {"ids": np.arange(1000, dtype=np.uint16), "none": np.zeros(0)})
    return tmp_path / "a" / "b.npz"


def test_arrays_come_back(file: Path) -> None:
    assert is_whole(file)
    arrays = load_arrays(file)
    assert arrays["ids"].tolist() == list(range(1000))
    assert (arrays["ids"].dtype, arrays["none"].shape) == (np.uint16, (0,))
    assert os.listdir(file.parent) == ["b.npz"]


@pytest.mark.parametrize("damage", ["cut", "empty", "flip", "zeros", "missing"])
def test_a_file_that_is_not_whole_is_seen(file: Path, damage: str) -> None:
    content = bytearray(file.read_bytes())
    if damage == "flip":
        content[500] ^= 1
    changed = {"cut": content[:-100], "empty": b"", "zeros": bytes(len(content))}.get(damage, content)
    file.write_bytes(changed)
    if damage == "missing":
        file.unlink()
    assert not is_whole(file)


def test_rows_of_an_unknown_number_are_an_array_of_numpy(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((1234, 5)).astype(np.float32)
    for count in (0, 1, 1234):
        path = tmp_path / f"{count}.npy"
        with RowsFile(path, 5) as written:
            for start in range(0, count, 100):
                written.append(rows[start : min(count, start + 100)])
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        assert (found.shape, found.dtype) == ((count, 5), np.float32)
        assert np.array_equal(found, rows[:count])
