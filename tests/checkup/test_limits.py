"""The limits, and their table in the documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.checkup.limits import LIMITS, NEVER

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "doctor.md"


@pytest.mark.parametrize("name", LIMITS)
def test_limits_rise_and_have_a_reason(name: str) -> None:
    limits = LIMITS[name]
    assert 0 < limits.note <= limits.warning <= limits.error
    assert limits.why
    assert limits.why.startswith("no error") == (limits.error >= NEVER)


def test_the_documentation_says_the_same() -> None:
    def cell(share: float) -> str:
        return "never" if share >= NEVER else "any" if share < 1e-6 else f"{100 * share:g} %"

    rows = []
    for name, limits in LIMITS.items():
        levels = " | ".join(cell(share) for share in (limits.note, limits.warning, limits.error))
        rows.append(f"| `{name}` | {limits.of} | {levels} | {limits.why} |")
    written = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    assert written == rows
