"""Levels, order and texts of findings."""

from __future__ import annotations

import re

import pytest

from bertsmith.checkup.finding import LEVELS, Finding, excerpt, judge, percent, worst_first


@pytest.mark.parametrize(
    "share, level",
    [(0.0, None), (0.0019, None), (0.002, "note"), (0.05, "warning"), (0.3, "error"), (1.0, "error")],
)
def test_the_share_says_the_level(share: float, level: str | None) -> None:
    found = judge("repeated_lines", share, "what", 3, "cost", "remedy")
    assert [finding.level for finding in found] == ([level] if level else [])


def test_nothing_is_found_where_nothing_is() -> None:
    assert judge("one_document", 1.0, "what", 0, "cost", "remedy") == []


def test_worst_first() -> None:
    def finding(name: str, level: str, share: float) -> Finding:
        return Finding(name, level, "", 1, share, "", "")

    ordered = [
        finding("repeated_lines", "error", 0.9),
        finding("repeated_lines", "error", 0.4),
        finding("mojibake", "warning", 0.05),
        finding("mojibake", "warning", 0.01),
        finding("mojibake", "note", 0.0001),
    ]
    assert worst_first(reversed(ordered)) == ordered
    assert [LEVELS.index(f.level) for f in ordered] == sorted(LEVELS.index(f.level) for f in ordered)


def test_excerpts_are_one_short_readable_line() -> None:
    assert excerpt("a\x00b\n c\u200b") == "a\\x00b\\n c\\u200b"
    assert excerpt("begin " * 50 + "here " + "end " * 50, re.compile("here")) == (
        "…" + "begin " * 5 + "here " + ("end " * 50)[:53] + "…"
    )
    assert len(excerpt("word " * 100)) == 90


def test_small_shares_are_not_nothing() -> None:
    assert [percent(share) for share in (0, 1e-7, 0.00012, 0.5)] == [
        "0 %",
        "under 0.001 %",
        "0.012 %",
        "50 %",
    ]
