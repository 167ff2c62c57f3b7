from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import torch

from bertsmith.recipes.pretrain import pretrain
from bertsmith.runlog import write_config
from tests.recipes.pretraining import settings, timeless, weights

KILLS = 10
STEPS = 250


def start(config: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "bertsmith", "pretrain", "--config", str(config), "--resume"],
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def wait_for_a_step(process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the process adds to its log (after it has cut off what came after the checkpoint)."""
    sizes = [log.stat().st_size if log.exists() else 0]
    while process.poll() is None and sizes[-1] <= min(sizes):
        time.sleep(0.005)
        sizes.append(log.stat().st_size if log.exists() else 0)


def test_ten_times_killed_and_resumed_the_weights_are_those_of_the_run_never_stopped(
    pretraining_data, tmp_path
):
    begun = time.monotonic()
    pretrain(settings(pretraining_data, tmp_path / "whole", steps=STEPS, checkpoint_steps=7, log_steps=3))
    seconds = time.monotonic() - begun
    run = tmp_path / "killed"
    write_config(tmp_path, settings(pretraining_data, run, steps=STEPS, checkpoint_steps=7, log_steps=3))
    moments = random.Random(11)
    for life in range(KILLS):
        process = start(tmp_path / "config.yaml")
        if life % 5 == 4:  # while it starts
            time.sleep(moments.uniform(0.1, 2.0))
        else:  # while it trains, saves, evaluates: ten such parts are less than the whole run
            wait_for_a_step(process, run / "metrics.jsonl")
            time.sleep(moments.uniform(0.0, seconds / (1.5 * KILLS)))
        process.kill()
        _, errors = process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, errors.decode()
    process = start(tmp_path / "config.yaml")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors.decode()
    assert "going on after step" in errors.decode()
    assert weights(run) == weights(tmp_path / "whole")
    assert timeless(run) == timeless(tmp_path / "whole")
