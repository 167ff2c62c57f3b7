"""The unfinished build of a data directory: what is whole of it, and whether a later run may go on with it.

It lies beside the directory that it will become, under a hidden name, and holds::

    plan.json   inputs, settings and vocabulary; a run that goes on must have the same
    encoded/    stage one: a file for each block of text, a record for each file of the corpus
    flat/       the same as flat files
    rows/       rows of stage two that a cluster made
    journal/    a record of each whole shard
    data/       what becomes the data directory
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError, RunError
from bertsmith.files import sync_files, write_json

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class BuildDirectory:
    """The places of an unfinished build.

    Attributes:
        root: the hidden directory.
        was_there: an earlier run began it.
    """

    root: Path
    was_there: bool

    @classmethod
    def beside(cls, out: Path) -> BuildDirectory:
        """Return the build of a data directory."""
        root = out.with_name(f".{out.name}.build")
        return cls(root, (root / "plan.json").is_file())

    @property
    def plan(self) -> Path:
        """Inputs and settings."""
        return self.root / "plan.json"

    @property
    def encoded(self) -> Path:
        """Encoded blocks."""
        return self.root / "encoded"

    @property
    def flat(self) -> Path:
        """Flat files of all documents."""
        return self.root / "flat"

    @property
    def data(self) -> Path:
        """What becomes the data directory."""
        return self.root / "data"

    def rows(self, split: str) -> Path:
        """Rows of a split that a cluster made."""
        return self.root / "rows" / split

    def journal(self, split: str) -> Path:
        """Records of the whole shards of a split."""
        return self.root / "journal" / split

    def begin(self, plan: dict[str, Any]) -> None:
        """Clear the place and write the plan."""
        for path in self.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
        write_json(self.plan, plan)

    def check_plan(self, plan: dict[str, Any]) -> None:
        """Refuse to go on with other inputs or settings.

        Raises:
            InputError: they differ; names which.
        """
        stored = json.loads(self.plan.read_text(encoding="utf-8"))
        changes = _changes(stored, plan)
        if changes:
            shown = "; ".join(changes[:5]) + ("" if len(changes) <= 5 else f"; {len(changes) - 5} more")
            raise InputError(
                f"the unfinished build {self.root} cannot be resumed: {shown}; restore that, or remove "
                "the directory to begin anew"
            )

    def finish(self, out: Path) -> None:
        """Let the data directory appear."""
        sync_files(self.data)
        os.replace(self.data, out)
        self.remove()

    def remove(self) -> None:
        """Remove the build."""
        shutil.rmtree(self.root, ignore_errors=True)


@contextmanager
def locked_build(out: Path, plan: dict[str, Any], resume: bool) -> Iterator[BuildDirectory]:
    """Yield the build of a data directory, for this process alone.

    When the block ends with an ``InputError``, the build is removed: it could not be resumed. After any other
    error, and when the process is killed, what is whole stays for a run with ``resume``.

    Args:
        out: the data directory to be.
        plan: inputs and settings, as JSON types.
        resume: go on with a build that is there; without one, begin.

    Raises:
        InputError: another process builds there; a build is there and ``resume`` is false; the plan differs.
    """
    root = BuildDirectory.beside(out).root
    root.mkdir(parents=True, exist_ok=True)
    with open(root / "lock", "w") as lock:  # the system lets go of it when the process ends, however it does
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another prepare is writing {out} (in {root}); wait for it") from None
        build = BuildDirectory.beside(out)
        if not build.was_there:
            build.begin(plan)
        elif resume:
            build.check_plan(plan)
        else:
            raise InputError(
                f"an unfinished build of {out} is there: add --resume to go on with it, or remove {root}"
            )
        try:
            yield build
        except InputError:
            build.remove()
            raise
        except (KeyboardInterrupt, OSError, RunError):
            _LOG.warning("what is whole of %s stays in %s: the same command with --resume goes on", out, root)
            raise


def _changes(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Return what differs between two plans, in words."""
    settings = [_flat({name: plan[name] for name in plan if name != "inputs"}) for plan in (before, now)]
    found = [
        f"{name.removeprefix('settings.')} was {settings[0].get(name)!r}, is {value!r}"
        for name, value in settings[1].items()
        if settings[0].get(name) != value
    ]
    old = {entry["file"]: entry for entry in before["inputs"]}
    new = {entry["file"]: entry for entry in now["inputs"]}
    found += [f"{file} is missing" for file in old.keys() - new.keys()]
    found += [f"{file} is new" for file in new.keys() - old.keys()]
    found += [f"{file} has changed" for file in old.keys() & new.keys() if old[file] != new[file]]
    if not found and list(old) != list(new):
        found.append("the files of the corpus have another order")
    return sorted(found)


def _flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values by their paths, such as ``settings.text.sentences``."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat
