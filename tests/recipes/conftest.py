"""Prepared data and a finished run, made once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertsmith.recipes.pretrain import pretrain
from tests.recipes import pretraining, tiny

_DISK_BYTES = 2 << 20


@pytest.fixture(scope="session")
def pretraining_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a small corpus; not to be changed."""
    return pretraining.prepared(tmp_path_factory.mktemp("pretraining"))


@pytest.fixture(scope="session")
def finished_run(pretraining_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pretraining run that never stopped; not to be changed."""
    out = tmp_path_factory.mktemp("run") / "whole"
    pretrain(pretraining.settings(pretraining_data, out, checkpoint_steps=5))
    return out


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model's directory, as pretraining leaves it."""
    return tiny.save_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of rows that the tiny model can learn; dev.csv is beside it."""
    folder = tmp_path_factory.mktemp("data")
    tiny.write_csv(folder / "dev.csv", tiny.make_rows(40, seed=1))
    return tiny.write_csv(folder / "train.csv", tiny.make_rows(160))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 2 MiB; skips where mounting is not permitted."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_BYTES}", "tmpfs", str(place)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("no mount command")
    if done.returncode != 0:
        pytest.skip(f"mounting a small file system is not permitted here: {done.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)
