"""Findings for people: compact, coloured on a terminal, plain elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from bertsmith.checkup.finding import LEVELS, many

_COLOURS = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def show_findings(summary: Mapping[str, Any], console: Console) -> None:
    """Print what ``doctor`` returned.

    Args:
        summary: the object that ``--json`` prints.
        console: where to.
    """
    for finding in summary["findings"]:
        colour = _COLOURS[finding["level"]]
        _print(console, f"[{colour}]{finding['level']:<8}[/]{escape(finding['what'])}")
        for example in finding["examples"]:
            _print(console, f"        [dim]{escape(example['place'])}[/]  {escape(example['text'])}")
        _print(console, f"        costs: {escape(finding['cost'])}")
        _print(console, f"        mend:  {escape(finding['remedy'])}")
        if finding["level"] == "error":
            reason = f"from {100 * finding['error_from']:.3g} % of the {finding['share_of']} on" * (
                finding["error_from"] >= 1e-6
            )
            _print(console, f"        an error {reason or 'always'}: {escape(finding['why'])}")
    _print(console, _verdict(summary))


def _verdict(summary: Mapping[str, Any]) -> str:
    counts = ", ".join(many(summary[f"{level}s"], level) for level in LEVELS)
    read = escape(summary["read"])
    if summary["errors"]:
        return f"[bold red]mend this first[/] ({counts}; {read})"
    return f"[green]ready for training[/] ({counts}; {read})"


def _print(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False)
