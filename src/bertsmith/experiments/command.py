"""The command line that repeats a run."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from bertsmith import presets
from bertsmith.config import to_dict
from bertsmith.experiments.runs import PRETRAINING, Run
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune_recipes import RECIPES

_NOT_SET = object()


def command_of(run: Run) -> str:
    """Return the command with every setting that differs from its default; empty without a config.yaml."""
    if not run.config:
        return ""
    if run.kind == PRETRAINING:
        preset = presets.PRESETS.get(str(run.config.get("preset")), presets.bert_mini)
        verb, defaults = "pretrain", _defaults(preset("", "")) | {"preset": _NOT_SET}
    else:
        task, features = str(run.config.get("task")), run.config.get("features")
        recipe = RECIPES.get(str(run.config.get("recipe")), RECIPES["default"])
        settings = recipe(FinetuneConfig(task, "", "", "", features=features))
        verb, defaults = "finetune", _defaults(settings) | {"recipe": "default", "features": None}
    return shlex.join(["bertsmith", verb, *_flags(run.config, defaults, "")])


def flags_of(settings: Any, defaults: Any, positional: str) -> list[str]:
    """Return a dataclass's settings as flags, but for those that are as in ``defaults``."""
    values = {name: value for name, value in to_dict(settings).items() if name != positional}
    return list(_flags(values, _defaults(defaults), ""))


def flat(settings: Any) -> dict[str, str]:
    """Return every setting of a dataclass by its path, as text."""
    return dict(_flat(to_dict(settings), ""))


def _required(settings: Any) -> list[str]:
    """Return the names of a dataclass's fields that have no default."""
    fields = dataclasses.fields(settings)
    missing = dataclasses.MISSING
    return [field.name for field in fields if field.default is missing and field.default_factory is missing]


def _defaults(settings: Any) -> dict[str, Any]:
    return to_dict(settings) | dict.fromkeys(_required(settings), _NOT_SET)


def settings_of(run: Run) -> dict[str, str]:
    """Return every setting of a run by its path, as text."""
    return dict(_flat(run.config, ""))


def _flags(values: Mapping[str, Any], defaults: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for name, value in values.items():
        default = defaults.get(name, _NOT_SET)
        if isinstance(value, Mapping):
            inner = default if isinstance(default, Mapping) else {}
            yield from _flags(value, inner, f"{prefix}{name.replace('_', '-')}.")
        elif value != default or type(value) is not type(default):
            yield from _flag(f"{prefix}{name.replace('_', '-')}", value)


def _flag(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, bool):
        head, _, last = name.rpartition(".")
        yield f"--{head}{'.' if head else ''}{'' if value else 'no-'}{last}"
        return
    yield f"--{name}"
    yield from map(str, value) if isinstance(value, list) else (str(value),)


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", ", ".join(map(str, value)) if isinstance(value, list) else str(value)
