"""How far a stage of work is: a bar on a terminal, plain lines elsewhere, on standard error."""

from __future__ import annotations

import datetime
import time
from types import TracebackType

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

_PLAIN_SECONDS = 10.0
_BAR_SECONDS = 0.5


class StageProgress:
    """The progress of one stage; use it as a context manager.

    Args:
        stage: what is done, such as "prepare: encode".
        unit: what is counted, such as "characters"; shown in millions.
        console: where people look; default: standard error.
    """

    def __init__(self, stage: str, unit: str, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True, highlight=False)
        self._stage = stage
        self._unit = unit
        self._done = 0.0
        self._started = self._shown = time.monotonic()
        self._bar: Progress | None = None
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TextColumn("{task.fields[text]}"),
                console=self._console,
                auto_refresh=False,
                transient=True,
            )

    def __enter__(self) -> StageProgress:
        if self._bar is not None:
            self._task = self._bar.add_task(self._stage, total=None, text="")
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def add(self, amount: float, fraction: float | None) -> None:
        """Count work and show it: the bar at most twice a second, a line at most every ten seconds.

        Args:
            amount: done since the last call, in units.
            fraction: share of the stage that is done; ``None``: nobody knows.
        """
        self._done += amount
        now = time.monotonic()
        if now - self._shown < (_PLAIN_SECONDS if self._bar is None else _BAR_SECONDS):
            return
        self._shown = now
        seconds = now - self._started
        text = f"{self._done / 1e6:.1f} million {self._unit}, {self._done / 1e6 / seconds:.2f} million/s"
        if fraction:
            left = datetime.timedelta(seconds=round(seconds * (1.0 / min(fraction, 1.0) - 1.0)))
            text += f", about {left} left"
        if self._bar is not None:
            total = None if fraction is None else 1.0
            self._bar.update(self._task, total=total, completed=fraction or 0.0, text=text, refresh=True)
        else:
            share = "" if fraction is None else f" {fraction:4.0%}"
            self._console.print(escape(f"{self._stage}{share}  {text}"), soft_wrap=True)
