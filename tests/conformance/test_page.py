"""docs/conformance.md says what the tests say; read from their source, so that nothing has to run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from bertsmith.presets import PRESETS
from tests.conformance.deviations import deviations_of, section
from tests.conformance.facts import TOP, Fact, merged, page
from tests.conftest import ROOT

NUMBERS = range(1, 35)
REASONED = ("deliberate", "not_shown")


class Begun(NamedTuple):
    """A call of the fixture in a test."""

    test: str
    number: int
    what: str
    reference: str
    reasons: list[str]


def begun() -> Iterator[Begun]:
    """Yield what the tests of facts begin, with the reasons that they give."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        for test in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(test, ast.FunctionDef) and "fact" in {one.arg for one in test.args.args}:
                calls = [node for node in ast.walk(test) if isinstance(node, ast.Call)]
                reasons = [
                    ast.literal_eval(call.args[0])
                    for call in calls
                    if isinstance(call.func, ast.Attribute) and call.func.attr in REASONED
                ]
                for call in calls:
                    if isinstance(call.func, ast.Name) and call.func.id == "fact":
                        yield Begun(test.name, *map(ast.literal_eval, call.args), reasons)


def test_tests_of_facts_are_named_after_them():
    for one in begun():
        assert one.test.startswith(f"test_fact_{one.number:02d}_"), one
    assert {one.number for one in begun()} == set(NUMBERS), "each fact has a test"


def test_the_page_is_current():
    """Measured differences vary with the machine; facts, references and reasons do not."""
    text = (ROOT / "docs" / "conformance.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]
    stale = "docs/conformance.md is stale: run `make conformance`"
    expected = {(str(one.number), one.what, one.reference) for one in begun()}
    assert {tuple(row[:3]) for row in rows if row[0].isdecimal()} == expected, stale
    assert all(f": {reason} |" in text for one in begun() for reason in one.reasons), stale
    assert text.startswith(TOP), stale
    assert text.endswith(section()), stale


def test_every_deviation_of_a_preset_has_a_number():
    for preset in PRESETS:
        assert all(number in NUMBERS for number, _, _ in deviations_of(preset))
    assert deviations_of("bert-exact") == []
    assert deviations_of("bert-base") == [
        (1, "precision", "auto"),
        (2, "architecture.activation", "gelu"),
        (11, "masking.dynamic", True),
        (13, "masking.random_specials", False),
        (14, "long_batch_size", 0),
        (18, "optimizer.schedule", "linear"),
    ]


def test_a_line_holds_its_largest_difference():
    facts = [Fact(3, "later", "b"), Fact(2, "a sum", "NumPy"), Fact(2, "a sum", "NumPy")]
    facts[0].exact()
    facts[1].difference(2e-7, 1e-6)
    facts[2].difference(3e-7, 1e-6)
    assert [one.columns for one in merged(facts)] == [
        ("2", "a sum", "NumPy", "3.0e-07 (at most 1e-06)"),
        ("3", "later", "b", "equal"),
    ]
    assert "| 2 | a sum | NumPy | 3.0e-07 (at most 1e-06) |" in page(facts)


@pytest.mark.parametrize("value", [2e-6, float("nan")])
def test_a_difference_that_is_too_large_is_a_failure(value):
    with pytest.raises(AssertionError, match="a sum differs"):
        Fact(2, "a sum", "NumPy").difference(value, 1e-6)
