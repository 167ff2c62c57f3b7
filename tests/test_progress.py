"""Progress: plain lines without a terminal, a bar on one."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from bertsmith import progress
from bertsmith.progress import StageProgress


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    return now


def test_plain_lines_come_every_ten_seconds(clock) -> None:
    stream = io.StringIO()
    with StageProgress("prepare: encode", "characters", Console(file=stream, width=200)) as stage:
        for second in range(1, 26):
            clock[0] = 100.0 + second
            stage.add(2e6, second / 40)
    assert stream.getvalue().splitlines() == [
        "prepare: encode  25%  20.0 million characters, 2.00 million/s, about 0:00:30 left",
        "prepare: encode  50%  40.0 million characters, 2.00 million/s, about 0:00:20 left",
    ]


def test_without_a_known_end_no_time_is_promised(clock) -> None:
    stream = io.StringIO()
    with StageProgress("prepare: encode", "characters", Console(file=stream, width=200)) as stage:
        clock[0] = 110.0
        stage.add(5e6, None)
    assert stream.getvalue() == "prepare: encode  5.0 million characters, 0.50 million/s\n"


def test_a_terminal_shows_a_bar(clock) -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=120, force_terminal=True)
    with StageProgress("prepare: pair train", "pieces", console) as stage:
        clock[0] = 101.0
        stage.add(3e6, 0.5)
    shown = stream.getvalue()
    assert "50%" in shown
    assert "3.0 million pieces" in shown
    assert "\x1b[" in shown
