"""Reading run directories: what is there, what is missing, what is broken."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bertsmith.errors import InputError

PRETRAINING, FINE_TUNING = "pretraining", "fine-tuning"
_SIGNS = ("metrics.jsonl", "metrics.json", "config.yaml")

Event = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What one run directory holds.

    Attributes:
        path: the directory, as it was named.
        kind: PRETRAINING or FINE_TUNING.
        config: content of config.yaml; empty when there is none.
        environment: content of environment.json; empty when there is none.
        metrics: content of metrics.json; empty when there is none, as in a run that was stopped.
        events: lines of metrics.jsonl.
        predictions: lines of predictions-dev.jsonl.
        task: content of the model's task.json; empty when there is none.
        problems: what is missing or broken, a sentence each.
    """

    path: Path
    kind: str
    config: dict[str, Any]
    environment: dict[str, Any]
    metrics: dict[str, Any]
    events: list[Event]
    predictions: list[dict[str, Any]]
    task: dict[str, Any]
    problems: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The last two parts of the path, as text that can be written."""
        return writable("/".join(self.path.parts[-2:]))

    @property
    def seeds(self) -> list[dict[str, Any]]:
        """The runs of a fine-tuning, one a seed, as metrics.json has them."""
        return [seed for seed in self.metrics.get("seeds") or [] if isinstance(seed, dict)]

    @property
    def tuned(self) -> dict[str, Any]:
        """What was chosen on dev and is stored with the model, such as the temperature."""
        return self.metrics.get("tuned") or self.task.get("tuned") or {}


def writable(text: str) -> str:
    """Return a text without lone surrogates, which no file can hold."""
    return text.encode("utf-8", "replace").decode("utf-8")


def points(events: Sequence[Event], key: str, x: str = "step") -> tuple[list[float], list[float]]:
    """Return the places and the finite values of one name over the events."""
    found = [(event[x], event[key]) for event in events if _is_number(event, key) and _is_number(event, x)]
    return [place for place, _ in found], [value for _, value in found]


def _is_number(event: Event, key: str) -> bool:
    value = event.get(key)
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def read_runs(paths: Sequence[str]) -> list[Run]:
    """Read run directories, each once, in the order given.

    Raises:
        InputError: none is named, one is named twice or is no run.
    """
    if not paths:
        raise InputError("no run is named; name at least one run directory")
    runs: dict[Path, Run] = {}
    for name in paths:
        if Path(name).resolve() in runs:
            raise InputError(f"{name} is named twice; name each run once")
        runs[Path(name).resolve()] = read_run(Path(name))
    return list(runs.values())


def read_run(path: Path) -> Run:
    """Read one run directory; what is missing or broken is named in ``problems``.

    Raises:
        InputError: the path is no run directory.
    """
    if not path.is_dir():
        raise InputError(
            f"{path}: no such directory; expected a run directory, as finetune or pretrain write"
        )
    if not any((path / name).is_file() for name in _SIGNS):
        hint = "name the run above it" if (path / "config.json").is_file() else _runs_below(path)
        raise InputError(f"{path}: no run: it has none of {', '.join(_SIGNS)}; {hint}")
    problems: list[str] = []
    config = _read_one(path / "config.yaml", yaml.safe_load, problems)
    metrics = _read_one(path / "metrics.json", json.loads, problems)
    events = _read_lines(path / "metrics.jsonl", problems)
    kind = _kind_of(config, metrics, events)
    if kind == PRETRAINING:
        predictions: list[dict[str, Any]] = []
        task: dict[str, Any] = {}
    else:
        predictions = _read_lines(path / "predictions-dev.jsonl", problems)
        task = _read_one(path / "model" / "task.json", json.loads, problems)
    environment = _read_one(path / "environment.json", json.loads, problems)
    return Run(path, kind, config, environment, metrics, events, predictions, task, problems)


def _runs_below(path: Path) -> str:
    below = sorted(str(one) for one in path.iterdir() if any((one / name).is_file() for name in _SIGNS))
    return (
        f"name the runs in it: {' '.join(below[:8])}" if below else "name the --out of a finetune or pretrain"
    )


def _kind_of(config: dict[str, Any], metrics: dict[str, Any], events: Sequence[Event]) -> str:
    is_pretraining = "preset" in config or "uniform_entropy" in metrics
    return PRETRAINING if is_pretraining or any("mlm_loss" in event for event in events) else FINE_TUNING


def _read_text(path: Path, problems: list[str]) -> str:
    """Return a file's text, or none if it is missing; bytes that are no UTF-8 are replaced and named."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        problems.append(f"{path.name} is missing")
        return ""
    except OSError as error:
        problems.append(f"{path.name} cannot be read ({error.strerror})")
        return ""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        problems.append(
            f"{path.name} holds bytes that are no UTF-8; they are shown as \N{REPLACEMENT CHARACTER}"
        )
        return content.decode("utf-8-sig", "replace")


def _read_one(path: Path, parse: Callable[[str], Any], problems: list[str]) -> dict[str, Any]:
    text = _read_text(path, problems)
    if not text:
        return {}
    try:
        content = parse(text)
    except (ValueError, RecursionError, yaml.YAMLError):
        content = None
    if isinstance(content, dict):
        return content
    problems.append(f"{path.name} is broken and was left out")
    return {}


def _read_lines(path: Path, problems: list[str]) -> list[dict[str, Any]]:
    # Not splitlines(): a text may hold characters such as U+2028 at which that would cut.
    lines = [line for line in _read_text(path, problems).split("\n") if line.strip()]
    found, broken = [], 0
    for line in lines:
        try:
            content = json.loads(line)
        except (ValueError, RecursionError):
            content = None
        if isinstance(content, dict):
            found.append(content)
        else:
            broken += 1
    if broken:
        problems.append(f"{broken} of {len(lines)} lines of {path.name} are broken and were left out")
    return found
