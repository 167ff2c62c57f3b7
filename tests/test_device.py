from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch

from bertsmith import device
from bertsmith.errors import InputError

CPU = torch.device("cpu")


def available() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def machine(root, cgroup: str, **files: str):
    """A root directory with the files of control groups."""
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/cgroup").write_text(cgroup)
    for path, content in files.items():
        target = root / "sys/fs/cgroup" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
    return root


@pytest.fixture(autouse=True)
def eight_processors(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


@pytest.mark.parametrize(
    "content, threads", [("300000 100000", 3), ("150000 100000", 2), ("50000 100000", 1), ("max 100000", 8)]
)
def test_the_quota_of_version_2_limits_the_threads(content, threads, tmp_path):
    root = machine(tmp_path, "0::/\n", **{"cpu.max": content})
    assert device.cpu_threads(root) == threads


def test_the_quota_of_a_parent_group_counts(tmp_path):
    root = machine(
        tmp_path, "0::/jobs/one\n", **{"jobs/cpu.max": "200000 100000", "jobs/one/cpu.max": "max 100000"}
    )
    assert device.cpu_threads(root) == 2


@pytest.mark.parametrize("quota, threads", [("400000", 4), ("-1", 8)])
def test_the_quota_of_version_1_limits_the_threads(quota, threads, tmp_path):
    root = machine(
        tmp_path,
        "9:name=systemd:/\n3:cpu,cpuacct:/docker/abc\n2:cpuset:/x\n",
        **{
            "cpu,cpuacct/docker/abc/cpu.cfs_quota_us": quota,
            "cpu,cpuacct/docker/abc/cpu.cfs_period_us": "100000",
        },
    )
    assert device.cpu_threads(root) == threads


def test_a_container_sees_its_own_group_at_the_top(tmp_path):
    root = machine(
        tmp_path,
        "3:cpu:/docker/not-mounted-here\n",
        **{"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"},
    )
    assert device.cpu_threads(root) == 2


def test_without_control_groups_the_affinity_counts(tmp_path, monkeypatch):
    assert device.cpu_threads(tmp_path) == 8
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert device.cpu_threads(tmp_path) == 1


def test_threads_are_limited_and_never_raised(monkeypatch):
    set_to = []
    monkeypatch.setattr(torch, "set_num_threads", set_to.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 64)
    monkeypatch.setattr(device, "cpu_threads", lambda: 4)
    assert device.limit_threads() == 4
    assert set_to == [4]
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)  # the user asked for one
    assert device.limit_threads() == 1
    assert set_to == [4]


@pytest.mark.parametrize(
    "capabilities, expected",
    [
        ({"avx512_bf16": True}, torch.bfloat16),
        ({"amx_bf16": True}, torch.bfloat16),
        ({"avx512_f": True, "avx512_bf16": False}, torch.float32),
        ({}, torch.float32),
    ],
)
def test_auto_takes_bfloat16_where_the_processor_computes_in_it(capabilities, expected, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert device.pick_precision("auto", CPU) is expected


@pytest.mark.parametrize(
    "capabilities, expected",
    [
        ({"architecture": "x86_64", "avx512_vnni": True}, True),
        ({"architecture": "x86_64", "avx_vnni": True}, True),
        ({"architecture": "x86_64", "avx2": True, "avx512_vnni": False}, False),
        ({"architecture": "aarch64"}, True),
    ],
)
def test_8_bits_are_fast_where_the_processor_has_instructions(capabilities, expected, monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities)
    assert device.multiplies_int8(CPU) is expected


def test_named_precisions_are_taken_as_they_are():
    assert device.pick_precision("float32", CPU) is torch.float32
    assert device.pick_precision("bfloat16", CPU) is torch.bfloat16
    with pytest.raises(InputError, match="'fp16' is unknown; take one of auto, float32, bfloat16"):
        device.pick_precision("fp16", CPU)


def test_the_device_has_a_name():
    assert device.describe(CPU)
    assert device.pick_device().type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.skipif(sys.platform != "linux", reason="a switch of Linux's C library")
def test_freed_memory_is_kept_for_the_next_tensor():
    """In an own process: page faults of a large tensor that is made anew (10 x 16,384 otherwise)."""
    program = """
import resource, torch
from bertsmith.device import keep_freed_memory
kept = keep_freed_memory()
for _ in range(10):
    torch.ones(1 << 24)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    torch.ones(1 << 24)  # 64 MiB
print(kept, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    kept, faults = run.stdout.split()
    if kept == "False":
        pytest.skip("not glibc")
    assert int(faults) < 1_000


def test_memory_is_what_the_system_spares_cut_by_the_groups(tmp_path):
    root = machine(tmp_path, "0::/job\n", **{"job/memory.max": "3000", "job/memory.current": "1000"})
    (root / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:   8 kB\n")
    assert device.available_memory(CPU, root) == 2000
    (root / "sys/fs/cgroup/job/memory.max").write_text("max\n")
    assert device.available_memory(CPU, root) == 8192
    assert device.available_memory(CPU, tmp_path / "elsewhere") is None


def test_the_peak_grows_with_what_is_held():
    code = (
        "import torch; from bertsmith.device import held_memory, peak_memory; cpu = torch.device('cpu')\n"
        "before = peak_memory(cpu); held = torch.ones(64 << 20, dtype=torch.uint8)\n"
        "print(peak_memory(cpu) - before); before = held_memory(cpu); del held\n"
        "print(peak_memory(cpu) - before, before - held_memory(cpu))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    grown, above_held, given_back = map(int, done.stdout.split())
    assert 50 << 20 < grown < 100 << 20
    assert above_held < 30 << 20
    assert 50 << 20 < given_back < 100 << 20


@pytest.mark.parametrize("threads", [0, -1, 100_000])
def test_threads_that_no_machine_has_are_refused(threads: int) -> None:
    before = torch.get_num_threads()
    with pytest.raises(InputError, match=f"threads is {threads}; "):
        device.set_threads(threads)
    assert torch.get_num_threads() == before
