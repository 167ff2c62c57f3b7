"""What this machine computes with: device, precision, threads."""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import sys
from pathlib import Path

import torch

from bertsmith.errors import InputError

_PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_MOST_THREADS = 1024
# Options of glibc's mallopt(3), from malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def pick_device() -> torch.device:
    """Return the GPU if there is one, else the processor."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def computes_bfloat16(device: torch.device) -> bool:
    """Return whether the device computes in bfloat16 (where it does not, float32 is faster)."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


def multiplies_int8(device: torch.device) -> bool:
    """Return whether the processor has instructions for 8-bit products (without them float32 is faster).

    On x86 those are AVX512-VNNI, AVX-VNNI and AMX; other processors are taken to have theirs.
    """
    if device.type != "cpu":
        return False
    capabilities = torch.cpu.get_capabilities()
    if not str(capabilities.get("architecture", "")).startswith("x86"):
        return True
    return any(capabilities.get(name, False) for name in ("avx512_vnni", "avx_vnni", "amx_int8"))


def pick_precision(name: str, device: torch.device) -> torch.dtype:
    """Return the dtype of matrix products: "auto" is bfloat16 where the hardware has it, else float32.

    Raises:
        InputError: the name is unknown.
    """
    if name == "auto":
        return torch.bfloat16 if computes_bfloat16(device) else torch.float32
    if name not in _PRECISIONS:
        raise InputError(f"precision {name!r} is unknown; take one of auto, {', '.join(_PRECISIONS)}")
    return _PRECISIONS[name]


def dtype_name(dtype: torch.dtype) -> str:
    """Return a dtype as settings and files name it, such as "bfloat16"."""
    return str(dtype).removeprefix("torch.")


def _quota_of(group: Path) -> float | None:
    """Return the processors that one control group may use (version 2, then 1); ``None``: no limit."""
    try:
        quota, period = (group / "cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (group / "cpu.cfs_quota_us").read_text().strip()
            period = (group / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if quota == "max" or int(quota) <= 0:
        return None
    return int(quota) / int(period)


def _control_groups(root: Path) -> list[Path]:
    """Return the directories of this process's control groups for the processor, and of their parents."""
    mount = root / "sys/fs/cgroup"
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [mount]
    groups = [mount, mount / "cpu", mount / "cpu,cpuacct"]
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":
            top = mount
        elif "cpu" in controllers.split(","):
            top = mount / controllers
        else:
            continue
        parts = [part for part in path.split("/") if part not in ("", "..")]
        groups += [top.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    return groups


def cpu_threads(root: Path = Path("/")) -> int:
    """Return how many threads this process can really run: its affinity, cut by the control groups' quota.

    Args:
        root: where ``proc`` and ``sys`` are.
    """
    has_affinity = hasattr(os, "sched_getaffinity")  # not on macOS
    available = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    quotas = [quota for group in _control_groups(root) if (quota := _quota_of(group)) is not None]
    return max(1, min([available, *(math.ceil(quota) for quota in quotas)]))


def available_memory(device: torch.device, root: Path = Path("/")) -> int | None:
    """Return the bytes that this process may still take; ``None``: nobody knows.

    On a processor that is what the system has to spare, cut by the control groups' limits.

    Args:
        device: whose memory.
        root: where ``proc`` and ``sys`` are.
    """
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = (root / "proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    free = [1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")]
    for group in _control_groups(root):
        with contextlib.suppress(OSError, ValueError):  # no such group, or "max": no limit
            most = int((group / "memory.max").read_text())
            free.append(max(0, most - int((group / "memory.current").read_text())))
    return min(free, default=None)


def peak_memory(device: torch.device) -> int | None:
    """Return the most bytes that this process has held so far; ``None``: nobody knows."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return _memory_of_process("VmHWM")


def held_memory(device: torch.device) -> int | None:
    """Return the bytes that this process holds now; ``None``: nobody knows."""
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device))
    return _memory_of_process("VmRSS")


def _memory_of_process(name: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def limit_threads() -> int:
    """Keep PyTorch from running more threads than the process may use; return their number.

    Its own default counts the machine's cores, which in a container is far too many. A lower number that the
    user asked for (OMP_NUM_THREADS) stays.
    """
    threads = min(torch.get_num_threads(), cpu_threads())
    if threads < torch.get_num_threads():
        torch.set_num_threads(threads)
    return threads


def set_threads(threads: int | None) -> int:
    """Have PyTorch run that many threads, for the whole process; return their number.

    Args:
        threads: how many; ``None``: see ``limit_threads``.

    Raises:
        InputError: it is below 1.
    """
    if threads is None:
        return limit_threads()
    if threads < 1:
        raise InputError(f"threads is {threads}; it has to be at least 1")
    if threads > _MOST_THREADS:  # the process would die when it starts them
        raise InputError(f"threads is {threads}; take at most {_MOST_THREADS}, best one a processor")
    torch.set_num_threads(threads)
    return threads


def keep_freed_memory() -> bool:
    """Let the C library keep large freed blocks for the next tensor instead of returning them to the system.

    A training step allocates the same large tensors as the step before. glibc returns every block over 32 MiB
    at once, and the system clears each page anew when it is asked again: a tenth of a step of a small model.
    The process then stays at its largest size. Only glibc on Linux knows the switch; elsewhere nothing
    happens.

    Returns:
        Whether it is done.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        set_option = ctypes.CDLL(None).mallopt
    except AttributeError:  # another C library
        return False
    # Never map a block apart from the heap; never give back the end of the heap.
    return bool(set_option(_M_MMAP_MAX, 0)) and bool(set_option(_M_TRIM_THRESHOLD, (1 << 31) - 1))


def describe(device: torch.device) -> str:
    """Return the device's name for people and for environment.json."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return str(torch.cpu.get_capabilities().get("cpu_name") or "cpu")
