"""Findings: what is wrong, how much of it, what it costs, how to mend it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bertsmith.checkup.limits import LIMITS

LEVELS = ("error", "warning", "note")
"""The levels, worst first. An error means that training (or the evaluation) would be wasted."""

_EXCERPT_CHARACTERS = 90
_BEFORE_CHARACTERS = 30


@dataclass(frozen=True)
class Example:
    """One place where a finding shows.

    Attributes:
        place: file and line, such as ``books.txt:17``.
        text: what stands there, cut short.
    """

    place: str
    text: str


@dataclass(frozen=True)
class Finding:
    """One thing that a check found.

    Attributes:
        name: the key of its limits.
        level: "error", "warning" or "note".
        what: what was found, one sentence.
        count: how many.
        share: of the whole that the limits name, 0 to 1.
        cost: what it costs, in plain words.
        remedy: the flag or command that mends it.
        examples: at most two places.
    """

    name: str
    level: str
    what: str
    count: int
    share: float
    cost: str
    remedy: str
    examples: tuple[Example, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON types, the limits that set the level among them."""
        limits = LIMITS[self.name]
        return {
            **asdict(self),
            "share": round(self.share, 6),
            "examples": [asdict(example) for example in self.examples],
            "share_of": limits.of,
            "error_from": limits.error,
            "warning_from": limits.warning,
            "why": limits.why,
        }


def judge(
    name: str,
    share: float,
    what: str,
    count: int,
    cost: str,
    remedy: str,
    examples: Sequence[Example] = (),
) -> list[Finding]:
    """Return a finding with the level that its limits give to the share; none below the lowest limit."""
    level = LIMITS[name].level(share)
    if level is None or count == 0:
        return []
    return [Finding(name, level, what, count, share, cost, remedy, tuple(examples))]


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings by level, and within a level by how far they are beyond its limit."""

    def order(finding: Finding) -> tuple[int, float]:
        return LEVELS.index(finding.level), -LIMITS[finding.name].severity(finding.share)

    return sorted(findings, key=order)


def excerpt(text: str, around: re.Pattern[str] | None = None) -> str:
    """Return a part of a text on one line, odd characters spelled out.

    Args:
        text: any text.
        around: what has to be in the part; ``None``: the beginning is shown.
    """
    found = around.search(text) if around is not None else None
    start = max(0, found.start() - _BEFORE_CHARACTERS) if found else 0
    shown = ("…" if start else "") + text[start:]
    if len(shown) > _EXCERPT_CHARACTERS:
        shown = shown[: _EXCERPT_CHARACTERS - 1] + "…"
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in shown.strip()
    )


def percent(share: float) -> str:
    """Return a share for people: two digits that count, never "0 %" of something that is there."""
    return f"{100 * share:.3g} %" if share >= 1e-5 or share == 0 else "under 0.001 %"


def many(number: int, noun: str) -> str:
    """Return a number with its noun: "1 line", "1,200 lines"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
