"""Data that is damaged after it was prepared: the run ends with the file's name and keeps its checkpoints."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.data.config import MaskingConfig
from bertsmith.data.loader import PretrainingLoader
from bertsmith.data.shards import Instances
from bertsmith.recipes.pretrain import pretrain
from bertsmith.runlog import write_config
from bertsmith.text.tokenizer import Tokenizer
from tests.ranks import run_ranks
from tests.recipes.pretraining import settings, timeless, weights

READ_IN_STEP = 7


@pytest.fixture
def damaged(pretraining_data: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Data in which an instance of a late step holds a piece that no vocabulary has, and the file."""
    data = tmp_path / "data"
    shutil.copytree(pretraining_data, data)
    instances = Instances.open(data, "train")
    loader = PretrainingLoader(instances, Tokenizer.load(data), MaskingConfig(), 0, 8)
    index = int(loader.example_ids(READ_IN_STEP - 1)[0])
    path = instances.file_of(index, "ids")
    start = sum(int(instances.lengths(np.array([before]))[0]) for before in range(index))
    del instances, loader
    ids = np.load(path)
    ids[start + 2] = 65535
    np.save(path, ids)
    return data, path


def test_the_run_ends_in_one_line_and_goes_on_when_the_file_is_restored(
    damaged, finished_run, pretraining_data, tmp_path
):
    data, path = damaged
    run = tmp_path / "run"
    write_config(tmp_path, settings(data, run, checkpoint_steps=5))
    words = ["pretrain", "--config", str(tmp_path / "config.yaml")]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "bertsmith", *words],
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"bertsmith pretrain: {path}: damaged: instance ")
    assert "one of its pieces is 65535" in last
    assert "--resume goes on" in last
    assert "Traceback" not in done.stderr
    assert [path.name for path in (run / "checkpoints").iterdir()] == ["step-00000005"]
    shutil.copyfile(pretraining_data / "train" / path.name, path)
    pretrain(settings(data, run, checkpoint_steps=5, resume=True))
    assert weights(run) == weights(finished_run)
    assert timeless(run) == timeless(finished_run)


def test_the_rank_that_reads_it_says_so_and_no_rank_hangs(damaged, tmp_path):
    data, path = damaged
    config = settings(data, tmp_path / "run", checkpoint_steps=5)
    ended = run_ranks(2, pretrain, dataclasses.replace(config, resume=True))
    assert all(one.code for one in ended)
    told = [one.error for one in ended if f"InputError: {path}: damaged" in one.error]
    lost = [one.error for one in ended if "RunError: lost contact with another rank" in one.error]
    assert (len(told), len(lost)) == (1, 1), ended
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == ["step-00000005"]
