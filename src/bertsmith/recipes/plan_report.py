"""What ``plan`` found, for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

_GIB = 1 << 30


def show_plan(summary: Mapping[str, Any], console: Console) -> None:
    """Print what ``plan`` returned.

    Args:
        summary: the object that ``--json`` prints.
        console: where to.
    """
    for line in _lines(summary):
        console.print(line, soft_wrap=True, markup=False)
    table = Table("devices", "tokens/s", "tokens", "time", "device hours", "cost", box=None, pad_edge=False)
    for row in summary["devices"]:
        cost = "-" if row["cost"] is None else f"{row['cost']:,.2f}"
        hours = f"{row['device_hours']:,.1f}"
        table.add_row(
            str(row["devices"]),
            f"{row['tokens_per_second']:,.0f}",
            _big(row["tokens"]),
            _time(row["seconds"]),
            hours,
            cost,
        )
    console.print(table)
    for line in summary["assumptions"]:
        console.print(f"assumed: {line}", soft_wrap=True, markup=False)


def _lines(summary: Mapping[str, Any]) -> list[str]:
    memory, disk = summary["memory"], summary["disk"]
    available = memory["available_bytes"]
    room = "unknown" if available is None else f"{available / _GIB:.1f} GiB"
    verdict = {True: "fits", False: "does NOT fit", None: "may fit"}[memory["fits"]]
    data = disk["data_bytes"] or disk["data_bytes_per_billion_tokens"]
    kind = "of the data" if disk["data_bytes"] else "of a billion tokens"
    return [
        f"{summary['preset']}: {summary['parameters'] / 1e6:,.1f} M parameters on {summary['device']} "
        f"({summary['precision']}, threads: {summary['threads']})",
        f"speed: {summary['tokens_per_second']:,.0f} tokens/s at batch {summary['batch_size']} x "
        f"{summary['seq_len']}, micro_batch_size {summary['micro_batch_size']} (recommended); "
        f"{summary['gflops']:,.0f} GFLOP/s, {100 * summary['fraction_of_product_rate']:.0f} % of the "
        f"matrix-product rate ({summary['product_gflops']:,.0f}); "
        f"{summary['model_flops_per_token'] / 1e6:,.0f} million operations a token",
        "  tried: "
        + "; ".join(
            f"{row['micro_batch_size']}: {row['tokens_per_second']:,.0f} tokens/s, "
            f"{row['peak_bytes'] / _GIB:.2f} GiB"
            for row in summary["measurements"]
        ),
        f"memory: {memory['total_bytes'] / _GIB:.2f} GiB {verdict} into {room}: weights "
        f"{memory['weights_bytes'] / _GIB:.2f}, gradients {memory['gradients_bytes'] / _GIB:.2f}, optimiser "
        f"{memory['optimizer_bytes'] / _GIB:.2f}, activations {memory['activations_bytes'] / _GIB:.2f}; peak "
        f"of this process {memory['peak_bytes'] / _GIB:.2f}",
        f"disk: {data / _GIB:,.1f} GiB {kind}, checkpoints {disk['checkpoints_bytes'] / _GIB:.2f} "
        f"({disk['checkpoint_bytes'] / _GIB:.2f} each), model {disk['model_bytes'] / _GIB:.2f}",
    ]


def _big(number: int) -> str:
    for size, name in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        if number >= size:
            return f"{number / size:.3g}{name}"
    return f"{number:,}"


def _time(seconds: float) -> str:
    for size, name in ((365.25 * 86400, "years"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:.0f} seconds"
