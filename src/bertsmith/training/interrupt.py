"""Being asked to stop: finish the step first, then stop in order."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Notes SIGTERM and Ctrl-C instead of dying of them; a second one quits at once.

    A context manager. Outside the main thread, where Python allows no handlers, it does nothing.

    Args:
        echo_seconds: a signal that soon after the first is the same one: a cluster's scheduler signals a
            launcher and its processes, and the launcher passes it on.

    Attributes:
        requested: the first signal has come.
    """

    def __init__(self, echo_seconds: float = 1.0) -> None:
        self.requested = False
        self._echo_seconds = echo_seconds
        self._first = 0.0
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if time.monotonic() - self._first < self._echo_seconds:
                return
            raise KeyboardInterrupt
        self.requested = True
        self._first = time.monotonic()
        # Not through print or the console: a handler may run in the middle of either.
        os.write(2, b"\nstopping after this step; once more quits at once\n")
