"""Runs under torchrun itself: killed ranks, stops, two nodes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from bertsmith.runlog import write_config
from tests.recipes.pretraining import settings, timeless, weights
from tests.recipes.ranks import pretrain_on

TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
TIMEOUT_SECONDS = 120


Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return a function that starts pretraining under torchrun; what still runs at the end is ended."""
    started: list[subprocess.Popen[str]] = []

    def run(
        config: Path, *options: str, prefix: tuple[str, ...] = (), **environment: str
    ) -> subprocess.Popen[str]:
        command = [*TORCHRUN, *options, "-m", "bertsmith", "pretrain", "--config", str(config), "--resume"]
        started.append(
            subprocess.Popen(
                [*prefix, *command],
                env=os.environ | {"OMP_NUM_THREADS": "1"} | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=60)


def wait_for_steps(process: subprocess.Popen[str], run: Path, step: int) -> None:
    """Wait until a run has logged that step."""
    log = run / "metrics.jsonl"
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        found = re.findall(r'"step": (\d+)', log.read_text()) if log.exists() else []
        if found and int(found[-1]) >= step:
            return
        time.sleep(0.005)
    process.terminate()
    raise AssertionError(f"the run did not reach step {step}: {process.communicate(timeout=60)[1][-3000:]}")


def worker(process: subprocess.Popen[str], rank: int) -> psutil.Process:
    for child in psutil.Process(process.pid).children():
        if child.environ().get("RANK") == str(rank):
            return child
    raise AssertionError(f"no process of rank {rank}")


def test_a_killed_rank_is_restarted_and_the_weights_are_those_of_the_undisturbed_run(
    pretraining_data, tmp_path, start
):
    changes = {"steps": 120, "checkpoint_steps": 7, "log_steps": 3}
    pretrain_on(2, settings(pretraining_data, tmp_path / "whole", **changes))
    run = tmp_path / "killed"
    write_config(tmp_path, settings(pretraining_data, run, **changes))
    process = start(tmp_path / "config.yaml", "--standalone", "--nproc-per-node=2", "--max-restarts=3")
    wait_for_steps(process, run, 30)
    worker(process, 1).send_signal(signal.SIGKILL)
    output, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 0, errors
    assert "going on after step" in errors
    assert weights(run) == weights(tmp_path / "whole")
    assert timeless(run) == timeless(tmp_path / "whole")
    assert output.count("step: 120") == 1, "one rank reports"


def test_sigterm_stops_all_ranks_in_order(pretraining_data, tmp_path, start):
    run = tmp_path / "run"
    write_config(tmp_path, settings(pretraining_data, run, steps=100_000, checkpoint_seconds=1000))
    process = start(tmp_path / "config.yaml", "--standalone", "--nproc-per-node=2")
    wait_for_steps(process, run, 5)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode != 0
    (saved,) = (run / "checkpoints").iterdir()
    command = "torchrun --nproc-per-node 2 -m bertsmith pretrain"
    assert f"saved in {saved}; to go on: {command}" in errors
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert saved.name == f"step-{last['step']:08d}"
    assert not re.search(r"Traceback.*bertsmith/", errors, re.DOTALL), errors


def network_namespaces() -> tuple[str, str]:
    """Return the names of two network namespaces that see each other as 10.77.0.1 and 10.77.0.2."""
    names = (f"bertsmith-{os.getpid()}-a", f"bertsmith-{os.getpid()}-b")
    if shutil.which("ip") is None:
        pytest.skip("no ip command: two nodes need network namespaces")
    commands = [f"netns add {names[0]}", f"netns add {names[1]}"]
    commands += [f"-n {names[0]} link add veth0 type veth peer name veth0 netns {names[1]}"]
    for number, name in enumerate(names, 1):
        commands += [f"-n {name} addr add 10.77.0.{number}/24 dev veth0", f"-n {name} link set veth0 up"]
        commands += [f"-n {name} link set lo up"]
    for command in commands:
        done = subprocess.run(["ip", *command.split()], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            remove(names)
            pytest.skip(f"network namespaces are not permitted here: ip {command}: {done.stderr.strip()}")
    return names


def remove(names: tuple[str, ...]) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.slow
def test_two_nodes_with_their_own_addresses(pretraining_data, tmp_path, start):
    pretrain_on(2, settings(pretraining_data, tmp_path / "one-node"))
    write_config(tmp_path, settings(pretraining_data, tmp_path / "two-nodes"))
    names = network_namespaces()
    try:
        processes = [
            start(
                tmp_path / "config.yaml",
                "--nnodes=2",
                "--nproc-per-node=1",
                f"--node-rank={number}",
                "--master-addr=10.77.0.1",
                "--master-port=29577",
                prefix=("ip", "netns", "exec", name),
                GLOO_SOCKET_IFNAME="veth0",
            )
            for number, name in enumerate(names)
        ]
        for process in processes:
            _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
            assert process.returncode == 0, errors
    finally:
        remove(names)
    assert weights(tmp_path / "two-nodes") == weights(tmp_path / "one-node")
    assert timeless(tmp_path / "two-nodes") == timeless(tmp_path / "one-node")
