"""Settings as frozen dataclasses of JSON types: overlays by path, durations."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from bertsmith.errors import InputError

Settings = TypeVar("Settings")

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)?")
_UNIT_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def to_dict(settings: Any) -> dict[str, Any]:
    """Return a dataclass of settings as nested dictionaries of JSON types."""
    return dataclasses.asdict(settings)


def paths_of(settings: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted path of every setting of a dataclass instance or type."""
    for field in dataclasses.fields(settings):
        yield prefix + field.name
        value = getattr(settings, field.name, None)
        if field.default_factory is not dataclasses.MISSING:
            value = field.default_factory()
        if dataclasses.is_dataclass(value):
            yield from paths_of(value, f"{prefix}{field.name}.")


def nearest(name: str, known: list[str]) -> str:
    """Return a hint that names the nearest of the known names, or all of them if none is near."""
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"did you mean {match[0]!r}?" if match else f"known: {', '.join(sorted(known))}"


def overlay(settings: Settings, changes: Mapping[str, Any], where: str) -> Settings:
    """Return the settings with nested changes laid over them.

    Raises:
        InputError: a name is unknown; the message names the nearest.
    """
    known = {field.name for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for name, value in changes.items():
        name = name.replace("-", "_")
        if name not in known:
            raise InputError(f"{where}: unknown setting {name!r}; {nearest(name, sorted(known))}")
        current = getattr(settings, name)
        if dataclasses.is_dataclass(current) and isinstance(value, Mapping):
            value = overlay(current, value, f"{where}: {name}")
        values[name] = value
    return dataclasses.replace(settings, **values)  # type: ignore[type-var]


def duration_seconds(text: str) -> float:
    """Return the seconds of a duration such as 90s, 30m or 1.5h.

    Raises:
        InputError: the text is no positive duration.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"{text!r} is no duration; write for example 90s, 30m or 1.5h")
    return float(match[1]) * _UNIT_SECONDS[match[2]]
