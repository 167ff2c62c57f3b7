from __future__ import annotations

import json
import math
import os
import random
import signal
import subprocess
import sys
import time

import pytest
import torch

from bertsmith.data.loader import PretrainingLoader
from bertsmith.errors import InputError, RunError
from bertsmith.recipes.pretrain import pretrain
from bertsmith.runlog import write_config
from bertsmith.training.config import OptimizerConfig
from tests.ranks import run_ranks, values_of
from tests.recipes.pretraining import events, settings, timeless, weights
from tests.recipes.ranks import losses

# Rates at which the tiny model really diverges, and factors that bring them down to one at which it learns.
OVERFLOWS = OptimizerConfig(learning_rate=1e30, max_grad_norm=0.0, warmup_fraction=0.0)
JUMPS = OptimizerConfig(learning_rate=3.0, warmup_fraction=0.5)


def rolling(data, out, optimizer, **changes):
    defaults = {
        "on_divergence": "rollback",
        "optimizer": optimizer,
        "rollback_rate_factor": 1e-33 if optimizer is OVERFLOWS else 0.01,
        "checkpoint_steps": 5,
    }
    return settings(data, out, **(defaults | changes))


@pytest.fixture
def batches_read(monkeypatch):
    """Note which batches of the data are read."""
    read: list[int] = []
    batch = PretrainingLoader.batch

    def noting(loader, number, *cuts, **options):
        read.append(number)
        return batch(loader, number, *cuts, **options)

    monkeypatch.setattr(PretrainingLoader, "batch", noting)
    return read


def test_a_run_whose_loss_is_not_finite_goes_back_and_ends_well(pretraining_data, tmp_path, batches_read):
    metrics = pretrain(rolling(pretraining_data, tmp_path / "run", OVERFLOWS))
    assert metrics["step"] == 12
    assert math.isfinite(metrics["heldout_loss"])
    assert (metrics["rollbacks"], metrics["rate_factor"]) == (1, 1e-33)
    (found,) = metrics["findings"]
    assert (found["kind"], found["back_to"]) == ("not_finite", 0)
    broken = found["step"]
    assert metrics["skipped_batches"] == broken
    # The data goes on after the batch that was not finite; no batch is read twice.
    assert batches_read == list(range(12 + broken))
    log = events(tmp_path / "run")
    assert (log[0]["step"], log[0]["finding"], log[0]["text"]) == (1, "not_finite", found["text"])
    assert [event["step"] for event in log if "loss" in event] == list(range(1, 13))
    assert log[1]["learning_rate"] == pytest.approx(1e-3)


def test_without_skipping_the_same_batches_are_tried_at_a_lower_rate(
    pretraining_data, tmp_path, batches_read
):
    run = rolling(pretraining_data, tmp_path / "run", OVERFLOWS, rollback_skips_batches=False)
    metrics = pretrain(run)
    broken = metrics["findings"][0]["step"]
    assert metrics["skipped_batches"] == 0
    assert batches_read == [*range(broken), *range(12)]


def test_after_a_jump_the_run_goes_back_to_the_last_good_checkpoint(pretraining_data, tmp_path):
    run = tmp_path / "run"
    metrics = pretrain(rolling(pretraining_data, run, JUMPS, steps=200, checkpoint_steps=5))
    assert metrics["step"] == 200
    jump = metrics["findings"][0]
    assert jump["kind"] == "loss_jump"
    onset = int(jump["text"].split("since step ")[1].split()[0])
    # The newest checkpoint whose weights were still normal at the step after it.
    assert jump["back_to"] == (onset - 2) // 5 * 5
    assert metrics["rollbacks"] >= 1
    assert metrics["heldout_mlm_loss"] < metrics["uniform_entropy"]
    log = events(run)
    steps = [event["step"] for event in log if "loss" in event]
    assert steps == list(range(1, 201))
    before = [event["mlm_loss"] for event in log if "loss" in event and event["step"] < onset]
    assert max(before) < metrics["uniform_entropy"] * 1.1


def test_a_run_that_diverges_again_and_again_ends_with_an_explanation(pretraining_data, tmp_path):
    run = rolling(pretraining_data, tmp_path / "run", OVERFLOWS, rollback_rate_factor=0.9, max_rollbacks=2)
    with pytest.raises(RunError, match=r"after 2 rollbacks .*0\.81.*step-00000000; start anew: lower --opt"):
        pretrain(run)
    assert not (tmp_path / "run" / "model").exists()
    kinds = [event["finding"] for event in events(tmp_path / "run") if "finding" in event]
    assert kinds == ["not_finite"] * 3


def test_a_run_that_stopped_at_a_divergence_can_go_on_with_rollbacks(pretraining_data, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(RunError, match="--resume --on-divergence rollback"):
        pretrain(settings(pretraining_data, out, optimizer=OVERFLOWS))
    metrics = pretrain(rolling(pretraining_data, out, OVERFLOWS, resume=True))
    assert metrics["step"] == 12
    assert metrics["rollbacks"] == 1


def test_without_a_checkpoint_from_before_there_is_no_way_back(pretraining_data, tmp_path):
    out = tmp_path / "run"
    with pytest.raises(RunError):
        pretrain(settings(pretraining_data, out, optimizer=OVERFLOWS, checkpoint_steps=1))
    # All that is left is the checkpoint of the step that broke the weights.
    with pytest.raises(RunError, match="no checkpoint from before step 2 is left"):
        pretrain(rolling(pretraining_data, out, OVERFLOWS, resume=True))


def test_a_run_that_stays_well_is_the_same_with_and_without_rollbacks(
    finished_run, pretraining_data, tmp_path
):
    ready = settings(pretraining_data, tmp_path / "run", checkpoint_steps=5, on_divergence="rollback")
    pretrain(ready)
    assert weights(tmp_path / "run") == weights(finished_run)
    assert timeless(tmp_path / "run") == timeless(finished_run)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"on_divergence": "panic"}, "--on-divergence 'panic' is unknown"),
        ({"max_rollbacks": 5}, "--max-rollbacks 5 would be ignored"),
        ({"rollback_rate_factor": 0.1}, "--rollback-rate-factor 0.1 would be ignored"),
        ({"on_divergence": "rollback", "max_rollbacks": 0}, "--max-rollbacks is 0"),
        ({"on_divergence": "rollback", "rollback_rate_factor": 0.0}, "--rollback-rate-factor is 0.0"),
        ({"on_divergence": "rollback", "rollback_rate_factor": math.nan}, "--rollback-rate-factor is nan"),
        (
            {"on_divergence": "rollback", "rollback_rate_factor": 1.0, "rollback_skips_batches": False},
            "would diverge again",
        ),
        ({"on_divergence": "rollback", "keep_checkpoints": 1}, "needs at least 2"),
    ],
)
def test_wrong_settings_are_refused(changes, message, pretraining_data, tmp_path):
    with pytest.raises(InputError, match=message):
        pretrain(settings(pretraining_data, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_all_ranks_go_back_together(sharding, pretraining_data, tmp_path):
    alone = pretrain(rolling(pretraining_data, tmp_path / "alone", OVERFLOWS, dropout=0.0))
    config = rolling(pretraining_data, tmp_path / "ranks", OVERFLOWS, dropout=0.0, sharding=sharding)
    summaries = values_of(run_ranks(2, pretrain, config))
    assert summaries[0] == summaries[1]
    assert summaries[0]["rollbacks"] == 1
    assert summaries[0]["findings"] == alone["findings"]
    assert losses(tmp_path / "ranks") == pytest.approx(losses(tmp_path / "alone"), abs=1e-5)
    found = [event for event in events(tmp_path / "ranks") if "finding" in event]
    assert [event["step"] for event in found] == [1]


def start(config) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "bertsmith", "pretrain", "--config", str(config), "--resume"],
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def test_killed_while_it_goes_back_and_on_the_run_ends_as_if_never_killed(pretraining_data, tmp_path):
    whole, run = tmp_path / "whole", tmp_path / "killed"
    metrics = pretrain(rolling(pretraining_data, whole, JUMPS, steps=200))
    assert metrics["rollbacks"] >= 1
    write_config(tmp_path, rolling(pretraining_data, run, JUMPS, steps=200))
    log = run / "metrics.jsonl"
    moments = random.Random(7)
    for awaited in ('"loss"', '"finding"', '"finding"'):
        process = start(tmp_path / "config.yaml")
        begun = log.stat().st_mtime if log.exists() else 0.0
        while process.poll() is None and not (
            log.exists() and log.stat().st_mtime != begun and awaited in log.read_text()
        ):
            time.sleep(0.03)
        time.sleep(moments.uniform(0.0, 0.4))
        process.kill()
        process.communicate(timeout=60)
        assert process.returncode in (-signal.SIGKILL, 0)
    process = start(tmp_path / "config.yaml")
    _, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors.decode()
    assert weights(run) == weights(whole)
    assert timeless(run) == timeless(whole)
    stored = [json.loads((path / "metrics.json").read_text()) for path in (run, whole)]
    assert stored[0]["findings"] == stored[1]["findings"]
    assert stored[0]["skipped_batches"] == stored[1]["skipped_batches"]
