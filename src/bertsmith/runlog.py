"""What a run leaves behind and shows while it runs.

``metrics.jsonl`` (one object a log event), TensorBoard events where it is installed, ``environment.json``,
``config.yaml``; on the console, all of it on standard error, a progress bar on a terminal and plain lines
elsewhere.
"""

from __future__ import annotations

import contextlib
import datetime
import errno
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import yaml
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from bertsmith import files
from bertsmith.config import to_dict

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter

_PACKAGES = ("bertsmith", "torch", "numpy", "tokenizers", "safetensors", "transformers")
_PLAIN_SECONDS = 10.0
_BAR_SECONDS = 0.5


def truncate_metrics(path: Path, last_step: int) -> None:
    """Keep the lines of a metrics.jsonl up to a step, so that a resumed run neither repeats nor skips one.

    What follows is from a run that was killed after its last checkpoint; a line cut in the middle goes too.
    """
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            is_kept = json.loads(line)["step"] <= last_step
        except (ValueError, TypeError, KeyError):
            break
        if is_kept:
            kept.append(line + "\n")
    files.write_text(path, "".join(kept))


class Means:
    """Means of what each step reported since the last log event; a checkpoint keeps them exactly.

    Args:
        state: what ``state`` returned before a resume.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        self._sums: dict[str, float] = dict(state["sums"]) if state else {}
        self._counts: dict[str, int] = dict(state["counts"]) if state else {}

    def __bool__(self) -> bool:
        return bool(self._sums)

    def add(self, values: Mapping[str, float]) -> None:
        """Take the values of one step; a name may be absent in some steps."""
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """Return the means, in the order of their first appearance, and start anew."""
        means = {name: total / self._counts[name] for name, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, JSON types."""
        return {"sums": dict(self._sums), "counts": dict(self._counts)}


class RunLog:
    """The log of one run; use it as a context manager.

    Args:
        directory: the run directory; it exists.
        last_step: steps that a resumed run keeps; what was logged beyond is dropped.
        title: the name beside the progress bar.
        console: where people look; default: standard error.
    """

    def __init__(
        self, directory: Path, last_step: int = 0, title: str = "training", console: Console | None = None
    ) -> None:
        self.directory = directory
        self.console = console or Console(stderr=True, highlight=False)
        self._open(last_step)
        self._title = title
        self._bar: Progress | None = None
        self._shown = float("-inf")
        self._first: tuple[float, float] | None = None  # time and fraction of the first progress
        if self.console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[text]}"),
                console=self.console,
                auto_refresh=False,
                transient=True,
            )
            self._task = self._bar.add_task(title, total=1.0, text="")
            self._bar.start()

    def _open(self, last_step: int) -> None:
        path = self.directory / "metrics.jsonl"
        truncate_metrics(path, last_step)
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115 (closed in close)
        self._waiting = b""  # lines that found no room on the disk
        try:
            self._writer = _tensorboard_writer(self.directory, last_step)
        except OSError as error:
            self._without_tensorboard(error)

    def __enter__(self) -> RunLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def log(self, values: Mapping[str, Any]) -> None:
        """Append one event; it holds ``step`` and is on its way to the disk when this returns.

        On a full disk it waits in memory, and the run goes on.
        """
        had_room = not self._waiting
        self._waiting += (json.dumps(values) + "\n").encode()
        try:
            self._write_waiting()
        except OSError as error:
            if had_room:
                self.note(f"WARNING: {self._file.name}: {error}; the log waits in memory until there is room")
        if self._writer is None:
            return
        try:
            for name, value in values.items():
                if name != "step" and isinstance(value, int | float):
                    self._writer.add_scalar(name, value, values["step"])
        except OSError as error:
            self._without_tensorboard(error)

    def _without_tensorboard(self, error: OSError) -> None:
        self._writer = None
        self.note(f"WARNING: {error}; nothing more goes to TensorBoard, all goes to {self._file.name}")

    def _write_waiting(self) -> None:
        """Append whole lines or nothing: half a line would be the end of the log for whoever reads it."""
        size = os.fstat(self._file.fileno()).st_size
        try:
            if self._file.write(self._waiting) != len(self._waiting):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            self._file.truncate(size)
            raise
        self._waiting = b""

    def progress(self, fraction: float, text: str) -> None:
        """Show how far the run is: the bar at most twice a second, a plain line at most every ten seconds.

        Args:
            fraction: share of the run that is done.
            text: what to say beside it, such as the loss and the speed.
        """
        now = time.monotonic()
        if now - self._shown < (_PLAIN_SECONDS if self._bar is None else _BAR_SECONDS):
            return
        self._shown = now
        if self._bar is None:
            self._print(f"{self._title} {fraction:4.0%}  {self._time_left(now, fraction)}{text}")
        else:
            self._bar.update(self._task, completed=fraction, text=text, refresh=True)

    def _time_left(self, now: float, fraction: float) -> str:
        if self._first is None:
            self._first = (now, fraction)
        begun, first_fraction = self._first
        if fraction <= first_fraction:
            return ""
        seconds = round((now - begun) * (1.0 - fraction) / (fraction - first_fraction))
        return f"{datetime.timedelta(seconds=seconds)} left  "

    def note(self, text: str) -> None:
        """Show one line that stays."""
        self._print(text)

    def sync(self) -> None:
        """Wait until what was logged is on the disk; call it before a checkpoint that counts on it.

        Raises:
            OSError: there is no room.
        """
        self._write_waiting()
        os.fsync(self._file.fileno())

    def rewind(self, last_step: int) -> None:
        """Drop what was logged after a step: the run goes on from there."""
        self._close_files()
        self._open(last_step)

    def close(self) -> None:
        """End the bar and close the files."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        self._close_files()

    def _close_files(self) -> None:
        with contextlib.suppress(OSError):  # a full disk was told of
            if self._writer is not None:
                self._writer.close()
            self._write_waiting()
        self._writer = None
        self._file.close()

    def _print(self, text: str) -> None:
        self.console.print(escape(text), soft_wrap=True)


class SilentLog(RunLog):
    """The log of a rank that writes and shows nothing, because the main one does."""

    def __init__(self) -> None:
        pass

    def log(self, values: Mapping[str, Any]) -> None:
        """Do nothing."""

    def progress(self, fraction: float, text: str) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Do nothing."""

    def sync(self) -> None:
        """Do nothing."""

    def rewind(self, last_step: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def _tensorboard_writer(directory: Path, last_step: int) -> SummaryWriter | None:
    if importlib.util.find_spec("tensorboard") is None:
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(directory), purge_step=last_step + 1)


def write_config(directory: Path, settings: Any, name: str = "config.yaml") -> None:
    """Write the resolved settings as YAML, ready for ``--config``."""
    text = yaml.safe_dump(to_dict(settings), sort_keys=False, allow_unicode=True)
    files.write_text(directory / name, text)


def write_environment(directory: Path, **facts: Any) -> None:
    """Write environment.json: versions, commit, and the facts that the caller adds (device, threads, ...)."""
    versions: dict[str, str | None] = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = None
    environment = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": versions,
        "commit": source_commit(),
        **facts,
    }
    files.write_json(directory / "environment.json", environment)


def source_commit() -> str | None:
    """Return the git commit of this package's source, with "-dirty" if it was changed; ``None`` elsewhere."""
    source = Path(__file__).resolve().parent
    if not (source.parents[1] / ".git").exists():  # installed: not a checkout of this project
        return None
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=source,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip() or None
