"""What the benchmarks share: turns, medians, the machine's rate, the report."""

from __future__ import annotations

import ctypes
import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

import torch

from bertsmith.device import describe, keep_freed_memory

OURS = "bertsmith"


@dataclass(frozen=True)
class Contender:
    """One side of a comparison.

    Attributes:
        step: takes the number of the repetition; does one training step; returns the units of work in it
            (tokens without padding, or rows).
        keeps_memory: it runs with ``keep_freed_memory``, as our training does; the others with the C
            library's defaults, as they would by themselves.
    """

    step: Callable[[int], int]
    keeps_memory: bool = False


def interleave(contenders: Mapping[str, Contender], repeats: int) -> dict[str, float]:
    """Let all contenders take turns; return each one's median speed in units a second.

    The first two turns warm up and are not counted.
    """
    speeds: dict[str, list[float]] = {name: [] for name in contenders}
    for repeat in range(-2, repeats):
        for name, contender in contenders.items():
            _set_memory(contender.keeps_memory)
            begun = time.perf_counter()
            units = contender.step(repeat + 2)
            speed = units / (time.perf_counter() - begun)
            if repeat >= 0:
                speeds[name].append(speed)
    return {name: statistics.median(values) for name, values in speeds.items()}


def _set_memory(keep: bool) -> None:
    """Choose how the C library treats freed blocks, for the contender whose turn it is."""
    if not keep_freed_memory() or keep:
        return
    set_option = ctypes.CDLL(None).mallopt
    # Where glibc's own adjustment ends after some large blocks: apart from 32 MiB, trimmed from 64 MiB.
    for option, value in ((-4, 65536), (-3, 32 << 20), (-1, 64 << 20)):
        set_option(option, value)


def plain_step(
    model: Any,
    optimizer: torch.optim.Optimizer,
    dtype: torch.dtype,
    inputs: Sequence[Mapping[str, torch.Tensor]],
    units: Sequence[int],
) -> Callable[[int], int]:
    """Return a peer's step on a processor: forward, backward, clipping, optimiser.

    Args:
        model: of transformers', gives a loss.
        optimizer: of its weights.
        dtype: bfloat16: under autocast.
        inputs: of each step.
        units: of work in each step.
    """

    def step(index: int) -> int:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = model(**inputs[index]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return units[index]

    return step


def product_rate(
    rows: int, inner: int, columns: int, dtype: torch.dtype, device: torch.device | None = None
) -> float:
    """Return the best measured rate of a matrix product of that shape, in GFLOP/s.

    Args:
        rows: of the left matrix.
        inner: its columns, rows of the right one.
        columns: of the right one.
        dtype: of both.
        device: where; ``None``: the processor.
    """
    left = torch.randn(rows, inner, device=device).to(dtype)
    right = torch.randn(inner, columns, device=device).to(dtype)
    out = torch.empty(rows, columns, dtype=dtype, device=device)
    seconds = []
    for _ in range(12):
        synchronize(device)
        begun = time.perf_counter()
        torch.mm(left, right, out=out)
        synchronize(device)
        seconds.append(time.perf_counter() - begun)
    return 2 * rows * inner * columns / min(seconds) / 1e9


def synchronize(device: torch.device | None) -> None:
    """Wait until a GPU has done what it was told; the processor never lags behind."""
    if device is not None and device.type == "cuda":
        torch.cuda.synchronize(device)


def peer_is_installed(package: str) -> bool:
    """Return whether a peer can be measured here."""
    return find_spec(package) is not None


def versions(*packages: str) -> dict[str, Any]:
    """Return what the figures depend on; of ``packages`` those that are installed."""
    found: dict[str, Any] = {}
    for name in ("bertsmith", "torch", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {
        **found,
        "python": platform.python_version(),
        "processor": describe(torch.device("cpu")),
        "threads": torch.get_num_threads(),
    }


def report(title: str, speeds: Mapping[str, float], unit: str, **more: Any) -> dict[str, Any]:
    """Return the result object of one comparison."""
    peers = {name: speed for name, speed in speeds.items() if name != OURS}
    return {
        "title": title,
        "ours": round(speeds[OURS], 1),
        "peers": {name: round(speed, 1) for name, speed in peers.items()},
        "ratios": {name: round(speeds[OURS] / speed, 2) for name, speed in peers.items()},
        "unit": unit,
        **more,
        "versions": versions("transformers"),
    }


def together(results: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return several comparisons in one object; peers carry the comparison's name before theirs."""
    merged: dict[str, Any] = {"ours": {}, "peers": {}, "ratios": {}, "unit": "", "details": {}}
    for name, result in results.items():
        merged["ours"][name] = result["ours"]
        for key in ("peers", "ratios"):
            merged[key] |= {f"{name}: {peer}": figure for peer, figure in result[key].items()}
        merged["details"][name] = {key: value for key, value in result.items() if key != "versions"}
        merged |= {"unit": result["unit"], "versions": result["versions"]}
    return merged


def lines_of(result: Mapping[str, Any]) -> list[str]:
    """Return one comparison as lines for people."""
    lines = [f"{result['title']}: {result['ours']:,.0f} {result['unit']}"]
    lines += [
        f"  {result['ratios'][name]:5.2f} x {name} ({speed:,.0f})" for name, speed in result["peers"].items()
    ]
    if not result["peers"]:
        lines.append("  no peer is installed: pip install transformers")
    known = ("title", "ours", "peers", "ratios", "unit", "versions")
    return lines + [
        f"  {name.replace('_', ' ')}: {value}" for name, value in result.items() if name not in known
    ]
