"""The facts of BERT as lines: what was compared with what, and by how much it differed at most."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tests.conformance.deviations import section

HEADER = ("fact", "what", "reference", "largest difference")
TOP = """\
# Conformance: is this BERT?

Written by `make conformance` from the run of `tests/conformance`; do not edit it. Each numbered fact about
the original (google-research/bert at its head, and the paper, arXiv 1810.04805v2) is a test named after its
number that holds this code to a reference written a second time, or by others. "equal" is equality, bit for
bit or item for item; a difference is the largest one met, beside what the test allows; "deliberate" is where
this code differs on purpose. The "plain version" is the original's algorithm written a second time, on lists
of pieces, as simply as can be, and given the same random numbers.
"""


@dataclass
class Fact:
    """One line: a fact, or one side of it. A test calls exactly one of the four methods, as its last act.

    Attributes:
        number: of the fact.
        what: is compared.
        reference: it is compared with.
        largest: difference met, where one is measured.
        result: as it is shown; empty until the test has come to its end.
    """

    number: int
    what: str
    reference: str
    largest: float | None = None
    result: str = ""

    def difference(self, largest: float, tolerance: float) -> None:
        """Hold the largest absolute difference to a tolerance; a NaN never fits."""
        assert largest <= tolerance, f"fact {self.number}: {self.what} differs by {largest}, not {tolerance}"
        self.largest = float(largest)
        self.result = f"{self.largest:.1e} (at most {tolerance:.0e})"

    def exact(self) -> None:
        """Say that the test found both sides equal."""
        self.result = "equal"

    def deliberate(self, reason: str) -> None:
        """Say that the test found the difference that is meant."""
        self.result = f"deliberate: {reason}"

    def not_shown(self, reason: str) -> None:
        """Say why the test cannot compare what the fact says."""
        self.result = f"not shown: {reason}"

    @property
    def columns(self) -> tuple[str, str, str, str]:
        """Return the line as text."""
        return str(self.number), self.what, self.reference, self.result


def merged(facts: Iterable[Fact]) -> list[Fact]:
    """Return one line for all cases of a test, that of the largest difference, sorted by number."""
    lines: dict[tuple[int, str, str], Fact] = {}
    for fact in facts:
        known = lines.setdefault((fact.number, fact.what, fact.reference), fact)
        assert (known.largest is None) == (fact.largest is None), f"fact {fact.number}: two kinds of result"
        if known.largest is not None and fact.largest is not None and fact.largest > known.largest:
            lines[fact.number, fact.what, fact.reference] = fact
    return sorted(lines.values(), key=lambda fact: fact.number)


def printed(facts: Iterable[Fact]) -> list[str]:
    """Return a line a fact, its columns one below the other."""
    rows = [fact.columns for fact in merged(facts)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def page(facts: Iterable[Fact]) -> str:
    """Return docs/conformance.md."""
    rows = [HEADER, ("---:", "---", "---", "---"), *(fact.columns for fact in merged(facts))]
    return "\n".join([TOP, *(f"| {' | '.join(row)} |" for row in rows), ""]) + section()
