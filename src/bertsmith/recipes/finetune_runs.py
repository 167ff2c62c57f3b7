"""The runs of a fine-tuning on the disk: a finished one is never repeated, whatever stopped the others.

``runs/NAME/run.json`` holds what a run found and what made it: all its settings, its rows, its start. The
name ends in a hash of these, so a run is found again if and only if it would be the same. The weights of the
best run so far lie beside its record; the others' are let go.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from bertsmith import files
from bertsmith.errors import InputError
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune_grid import Cell, settings_of
from bertsmith.recipes.finetune_run import LEARNED, Place, SeedRun, Setup

RUNS = "runs"
_RECORD, _WEIGHTS = "run.json", "weights.safetensors"
_FINISHED = f"[!.]*/{_RECORD}"  # what begins with a dot was being written


def check_out(config: FinetuneConfig) -> None:
    """Refuse a run directory that is none, and one whose content would be lost.

    Raises:
        InputError: it is a file, a pretraining run, a model, or holds runs and ``resume`` is not set.
    """
    out = Path(config.out)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a directory")
    has_runs = (out / RUNS).is_dir()
    if has_runs and not config.resume:
        raise InputError(
            f"--out {out} holds runs of an earlier call; add --resume to go on with them, or choose another "
            "--out"
        )
    for name in ("config.json", "checkpoints") if has_runs else ("model", "config.json", "checkpoints"):
        if (out / name).exists():
            raise InputError(f"--out {out} holds {name}, which would be lost; choose another --out")


def origin_of(setup: Setup, precision: torch.dtype) -> dict[str, str]:
    """Return what all runs have in common: hashes of the rows and of the weights before the first step."""
    rows = hashlib.sha256()
    for split in setup.data.splits.values():
        rows.update(repr(split.rows.rows).encode("utf-8", "surrogatepass"))
    return {"start": setup.bundle.identity(), "rows": rows.hexdigest(), "precision": str(precision)}


@dataclass(frozen=True)
class Wanted:
    """A run to be had.

    Attributes:
        cell: its settings.
        seed: of head, order and dropout.
        origin: see ``origin_of``.
    """

    cell: Cell
    seed: int
    origin: Mapping[str, str]

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides what the run becomes."""
        settings = settings_of(self.cell.config)
        return {**settings, "seed": self.seed, "origin": dict(self.origin)}

    @property
    def name(self) -> str:
        """Name of its directory: what the grid gave it, its seed, and a hash of its identity."""
        digest = hashlib.sha256(json.dumps(self.identity, sort_keys=True).encode()).hexdigest()
        parts = [f"{path.rpartition('.')[2]}{value}" for path, value in self.cell.values.items()]
        return "-".join([*parts, f"seed{self.seed}", digest[:8]])


class Runs:
    """The runs in a directory.

    Args:
        directory: ``runs`` in the run directory; made when the first run is written.
        main_metric: what the best is chosen by.
    """

    def __init__(self, directory: Path, main_metric: str) -> None:
        self.directory = directory
        self.main_metric = main_metric

    @property
    def logged_steps(self) -> int:
        """Steps in metrics.jsonl that belong to finished runs; what follows is of one that was killed."""
        records = [self._read(path) for path in self.directory.glob(_FINISHED)]
        return max((record["run"]["last_step"] for record in records if record), default=0)

    def find(self, wanted: Wanted) -> SeedRun | None:
        """Return a finished run, without its weights; ``None`` when there is none."""
        record = self._read(self.directory / wanted.name / _RECORD)
        if record is None or record["identity"] != json.loads(json.dumps(wanted.identity)):
            return None
        return SeedRun.from_dict(record["run"], self.main_metric)

    def _read(self, path: Path) -> dict[str, Any] | None:
        try:
            record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        return record if {"identity", "run"} <= record.keys() else None

    def write(self, wanted: Wanted, run: SeedRun, keep_weights: bool) -> None:
        """Write a finished run, whole or not at all; its weights, if it is the best so far, leave memory."""
        place = self.directory / wanted.name
        with files.atomic_directory(place) as temporary, files.storage_errors(place):
            if keep_weights:
                save_file(run.state, temporary / _WEIGHTS)
            files.write_json(temporary / _RECORD, {"identity": wanted.identity, "run": run.to_dict()})
        run.state = {}

    def has_weights(self, wanted: Wanted) -> bool:
        """Say whether the weights of a run are there."""
        return (self.directory / wanted.name / _WEIGHTS).is_file()

    def weights(self, wanted: Wanted) -> dict[str, Tensor]:
        """Return the weights of a run that is kept."""
        return load_file(self.directory / wanted.name / _WEIGHTS)

    def let_go(self, wanted: Wanted) -> None:
        """Delete the weights of a run that is not the best any more."""
        (self.directory / wanted.name / _WEIGHTS).unlink(missing_ok=True)

    def keep_only(self, wanted: Wanted) -> None:
        """Delete the weights of all runs but the best, also of earlier plans."""
        for path in self.directory.glob(f"*/{_WEIGHTS}"):
            if path.parent.name != wanted.name:
                path.unlink()


@dataclass(frozen=True)
class Slot:
    """A place in the plan, and who filled it.

    Attributes:
        cell: settings.
        runs: the attempts, in their order; all but the last failed.
    """

    cell: Cell
    runs: tuple[SeedRun, ...]

    @property
    def run(self) -> SeedRun:
        """The run that counts."""
        return max(self.runs, key=_rank)


def _rank(run: SeedRun) -> tuple[bool, float]:
    """A run that learnt counts; where none did, the best one stands."""
    return run.status == LEARNED, run.value


Execute = Callable[[Cell, int, Place], SeedRun]
"""Makes a run from settings, a seed and its place among the others."""


def carry_out(
    cells: Sequence[Cell], runs: Runs, origin: Mapping[str, str], execute: Execute
) -> tuple[list[Slot], Wanted | None]:
    """Have every run of the plan, finished ones from the disk; the weights of the best stay there.

    Args:
        cells: the grid.
        runs: those on the disk.
        origin: see ``origin_of``.
        execute: makes a run.

    Returns:
        The slots, cell by cell and seed by seed, and which run is the best (of equals the first); ``None``
        when every run diverged.
    """
    places = [Wanted(cell, cell.config.seed + n, origin) for cell in cells for n in range(cell.config.seeds)]
    slots: list[Slot] = []
    best: Wanted | None = None
    to_beat = float("-inf")
    for number, first in enumerate(places):

        def make(wanted: Wanted, number: int = number) -> SeedRun:
            return execute(wanted.cell, wanted.seed, Place(runs.logged_steps, number, len(places)))

        attempts = _attempts(first, runs, make, to_beat)
        slots.append(Slot(first.cell, tuple(run for _, run in attempts)))
        wanted, run = max(attempts, key=lambda attempt: _rank(attempt[1]))
        if run.value > to_beat:
            if best is not None:
                runs.let_go(best)
            best, to_beat = wanted, run.value
    if best is not None and not runs.has_weights(best):  # another run was better, in an earlier plan
        again = execute(best.cell, best.seed, Place(runs.logged_steps, len(places) - 1, len(places)))
        runs.write(best, again, keep_weights=True)
    return slots, best


def _attempts(
    first: Wanted, runs: Runs, make: Callable[[Wanted], SeedRun], to_beat: float
) -> list[tuple[Wanted, SeedRun]]:
    """Have one run, and others while they fail, as often as is wished.

    The seeds of replacements are ``seeds`` apart, so no two runs of a cell have the same.
    """
    config = first.cell.config
    attempts: list[tuple[Wanted, SeedRun]] = []
    for attempt in range(1 + config.restart_failed):
        wanted = replace(first, seed=first.seed + attempt * config.seeds)
        run = runs.find(wanted)
        if run is None:
            run = make(wanted)
            runs.write(wanted, run, keep_weights=run.value > to_beat)
        attempts.append((wanted, run))
        if run.status == LEARNED:
            break
    return attempts
