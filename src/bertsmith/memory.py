"""The memory that a piece of work takes, over all its processes."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType

_PROC = Path("/proc")
_SECONDS = 0.2


class PeakMemory:
    """Watches this process and its children; use it as a context manager.

    What counts is memory of their own: pages of mapped files are left out, the kernel takes them back when
    memory is short. A thread looks five times a second. Only Linux tells.
    """

    def __init__(self) -> None:
        self._peak = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def mebibytes(self) -> int | None:
        """The peak so far; ``None``: nobody knows."""
        self._peak = max(self._peak, own_memory_bytes())
        return round(self._peak / (1 << 20)) or None

    def _watch(self) -> None:
        while not self._ended.wait(_SECONDS):
            self._peak = max(self._peak, own_memory_bytes())


def own_memory_bytes() -> int:
    """Return the memory of this process and its children without mapped files; 0 where nobody knows."""
    return sum(map(_own_bytes, ["self", *_children()]))


def _children() -> list[str]:
    found: list[str] = []
    for file in _PROC.glob("self/task/*/children"):
        try:
            found += file.read_text().split()
        except OSError:  # the thread has ended
            continue
    return found


def _own_bytes(process: str) -> int:
    try:
        _, resident, shared, *_ = (_PROC / process / "statm").read_text().split()
    except (OSError, ValueError):  # it has ended, or this is no Linux
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
