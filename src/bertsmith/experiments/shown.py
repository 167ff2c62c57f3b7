"""Values as text for people."""

from __future__ import annotations

import datetime
import math
import re
from typing import Any

from bertsmith.experiments.runs import writable

# C0, DEL and C1 but tab and line end: no character of a page may be one of them.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def text(value: Any, longest: int = 600) -> str:
    """Return a value as text that a page can hold: controls become symbols, long texts are cut and say so."""
    shown = _CONTROLS.sub(_symbol, writable(value if isinstance(value, str) else str(value)))
    if len(shown) <= longest:
        return shown
    return f"{shown[:longest]} … ({len(shown):,} characters)"


def _symbol(match: re.Match[str]) -> str:
    code = ord(match[0])
    return (
        chr(0x2400 + code)
        if code < 0x20
        else "\N{SYMBOL FOR DELETE}"
        if code == 0x7F
        else "\N{REPLACEMENT CHARACTER}"
    )


def number(value: Any) -> str:
    """Return a number with as many digits as say something; a dash where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "–" if value is None else text(value)
    if not math.isfinite(value):
        return str(value)
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4f}" if 1e-3 <= abs(value) < 100 or value == 0 else f"{value:,.6g}"


def spread(mean: Any, deviation: Any, runs: int) -> str:
    """Return a mean with its standard deviation; the mean alone where there is one run."""
    return number(mean) if runs < 2 else f"{number(mean)} ± {number(deviation)}"


def share(part: int, whole: int) -> str:
    """Return a number of rows with its share of all."""
    return f"{part:,} of {whole:,} ({part / whole:.1%})" if whole else f"{part:,}"


def duration(seconds: Any) -> str:
    """Return seconds as 12.3 s or 1:02:03."""
    if not isinstance(seconds, int | float) or not math.isfinite(seconds):
        return "–"
    return f"{seconds:.1f} s" if seconds < 120 else str(datetime.timedelta(seconds=round(seconds)))
