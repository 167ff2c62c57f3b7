"""The fixture that tests of facts record themselves with; ``--conformance FILE`` shows the lines."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

from bertsmith.files import write_text
from tests.conformance.facts import Fact, page, printed
from tests.conformance.prepared import MOST, Prepared, prepare_both, write_corpus

RECORDED = pytest.StashKey[list[Fact]]()
PASSED = pytest.StashKey[bool]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--conformance", metavar="FILE", help="print a line a fact, and write the page FILE")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[RECORDED] = []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture
def fact(request: pytest.FixtureRequest) -> Iterator[Callable[[int, str, str], Fact]]:
    """Begin a line: (number, what, reference), written out in the test, see ``Fact``."""
    made: list[Fact] = []

    def begin(number: int, what: str, reference: str) -> Fact:
        made.append(Fact(number, what, reference))
        return made[-1]

    yield begin
    if request.node.stash.get(PASSED, False):
        assert made, "a test of a fact has to begin its line"
        assert all(one.result for one in made), "a test of a fact has to say what it found"
        request.config.stash.setdefault(RECORDED, []).extend(made)


@pytest.fixture(scope="session")
def corpus(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real text in the original's form."""
    return write_corpus(shared_data, tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def prepared(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int, Prepared]:
    """The corpus in rows of two lengths; at 32 most pairs have to be cut."""
    return {length: prepare_both(corpus, tmp_path_factory.mktemp("data"), length) for length in MOST}


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    config = terminalreporter.config
    target = config.getoption("--conformance", default=None)
    if target is None:
        return
    for line in printed(config.stash[RECORDED]):
        terminalreporter.write_line(line)
    if exitstatus != 0 or terminalreporter.stats.get("skipped"):
        terminalreporter.write_line(f"{target} is not written: not every fact was shown")
    else:
        write_text(Path(target), page(config.stash[RECORDED]))
