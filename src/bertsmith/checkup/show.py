"""Findings for people: compact, coloured on a terminal, plain elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.text import Text

from bertsmith.checkup.finding import LEVELS, many

_COLOURS = {"error": "bold red", "warning": "yellow", "note": "cyan"}
_INDENT = 8
_BAR = 40


def show_findings(summary: Mapping[str, Any], console: Console) -> None:
    """Print what ``doctor`` returned.

    Args:
        summary: the object that ``--json`` prints.
        console: where to.
    """
    for finding in summary["findings"]:
        level = finding["level"]
        _print(console, (f"{level:<{_INDENT}}", _COLOURS[level]), finding["what"])
        for example in finding["examples"]:
            _print(console, " " * _INDENT, (example["place"], "dim"), "  ", example["text"])
        _print(console, " " * _INDENT, "costs: ", finding["cost"])
        _print(console, " " * _INDENT, "mend:  ", finding["remedy"])
        if level == "error":
            _print(console, " " * _INDENT, f"an error {_limit(finding)}: {finding['why']}")
    if summary.get("lengths"):
        _show_lengths(summary["lengths"], console)
    counts = ", ".join(many(summary[f"{level}s"], level) for level in LEVELS)
    verdict = ("mend this first", "bold red") if summary["errors"] else ("ready for training", "green")
    _print(console, verdict, f" ({counts}; {summary['read']})")


def _show_lengths(lengths: Mapping[str, Any], console: Console) -> None:
    """Print how many train rows are how long, as bars; those beyond the limit in another colour."""
    most = max(part["rows"] for part in lengths["histogram"])
    _print(console, f"pieces of a train row: median {lengths['median']:,}, longest {lengths['longest']:,}")
    for part in lengths["histogram"]:
        beyond = part["up_to"] > lengths["limit"]
        bar = "#" * -(-_BAR * part["rows"] // most)
        label = f"{'to':>{_INDENT}} {part['up_to']:>6,} {part['rows']:>9,} "
        _print(
            console,
            label,
            (bar, _COLOURS["warning"] if beyond else ""),
            " beyond the limit" if beyond else "",
        )


def _limit(finding: Mapping[str, Any]) -> str:
    share = finding["error_from"]
    return "always" if share < 1e-6 else f"from {100 * share:g} % of the {finding['share_of']} on"


def _print(console: Console, *parts: str | tuple[str, str]) -> None:
    console.print(Text.assemble(*parts), soft_wrap=True, highlight=False)
