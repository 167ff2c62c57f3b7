"""Prepared data and a finished run, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.recipes.pretrain import pretrain
from tests.recipes import pretraining


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
