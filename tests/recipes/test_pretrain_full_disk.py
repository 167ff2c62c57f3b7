"""A disk that is full while a run saves: real file systems, real limits."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import torch

from bertsmith.runlog import write_config
from bertsmith.training import checkpoint
from tests.recipes.pretraining import settings, timeless, weights


def run(config: Path, limit_bytes: int | None = None) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        if limit_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))

    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "bertsmith", "pretrain", "--config", str(config), "--resume"],
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
        capture_output=True,
        text=True,
        timeout=120,
        preexec_fn=limit,
        check=False,
    )


def free(disk: Path) -> int:
    state = os.statvfs(disk)
    return state.f_bavail * state.f_frsize


def fill(disk: Path, leave: int) -> Path:
    ballast = disk / "ballast"
    with open(ballast, "wb") as file:
        file.write(b"x" * (free(disk) - leave))
    return ballast


def test_a_full_disk_costs_a_checkpoint_and_not_the_run(finished_run, pretraining_data, small_disk, tmp_path):
    out = small_disk / "run"
    changes = {"checkpoint_steps": 5, "keep_checkpoints": 1}
    write_config(tmp_path, settings(pretraining_data, out, **changes))
    size = sum(file.stat().st_size for file in (finished_run / "checkpoints/step-00000010").iterdir())
    ballast = fill(small_disk, leave=2 * size - size // 8)
    done = run(tmp_path / "config.yaml")
    # Two checkpoints side by side find no room: the first stays whole, the model is written all the same.
    assert done.returncode == 0, done.stderr
    warnings = [line for line in done.stderr.splitlines() if "WARNING" in line]
    assert len(warnings) == 2, done.stderr
    assert "step 10 is not saved" in warnings[0]
    assert "No space left on device" in warnings[0]
    assert f"the last whole one: {out / 'checkpoints' / 'step-00000005'}" in warnings[0]
    assert "Traceback" not in done.stderr
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000005"]
    found = checkpoint.latest(out)
    assert found is not None
    assert found.step == 5
    assert weights(out) == weights(finished_run)
    assert timeless(out) == timeless(finished_run)

    ballast.unlink()
    done = run(tmp_path / "config.yaml")
    assert done.returncode == 0, done.stderr
    assert "going on after step 5" in done.stderr
    assert weights(out) == weights(finished_run)
    assert timeless(out) == timeless(finished_run)


def test_without_any_room_the_run_fails_in_one_line_and_resumes_later(
    finished_run, pretraining_data, small_disk, tmp_path
):
    out = small_disk / "run"
    write_config(tmp_path, settings(pretraining_data, out, checkpoint_steps=5))
    ballast = fill(small_disk, leave=48 << 10)  # for settings and a little of the log
    done = run(tmp_path / "config.yaml")
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("bertsmith pretrain: ")
    assert "the model could not be written" in last
    assert "No space left on device" in last
    assert "Traceback" not in done.stderr
    assert not (out / "model").exists()
    for line in (out / "metrics.jsonl").read_text().splitlines():
        json.loads(line)  # none is cut

    ballast.unlink()
    done = run(tmp_path / "config.yaml")
    assert done.returncode == 0, done.stderr
    assert weights(out) == weights(finished_run)
    assert timeless(out) == timeless(finished_run)


def test_a_file_that_may_not_grow_is_the_same_as_a_full_disk(finished_run, pretraining_data, tmp_path):
    out = tmp_path / "run"
    write_config(tmp_path, settings(pretraining_data, out, checkpoint_steps=5))
    sizes = {
        file.name: file.stat().st_size for file in (finished_run / "checkpoints/step-00000010").iterdir()
    }
    # The weights fit, the optimiser's state, twice as large, does not.
    done = run(tmp_path / "config.yaml", limit_bytes=sizes["optimizer.safetensors"] * 3 // 4)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("WARNING: a checkpoint could not be written") == 3
    assert not list((out / "checkpoints").iterdir())
    assert weights(out) == weights(finished_run)
