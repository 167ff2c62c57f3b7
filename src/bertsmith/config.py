"""Settings as frozen dataclasses of JSON types: overlays by path, durations."""

from __future__ import annotations

import dataclasses
import difflib
import re
from collections.abc import Mapping
from contextlib import suppress
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml

from bertsmith.errors import InputError

Settings = TypeVar("Settings")

_LONGEST_NAME = 200
"""Characters of a name that are compared with known ones, which takes time by their square."""

_AMOUNT = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGBT]?)(i?)B?", re.IGNORECASE)
_THOUSANDS = {"": 0, "K": 1, "M": 2, "B": 3, "G": 3, "T": 4}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|m|min|h|d)?")
_UNIT_SECONDS = {"s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, None: 1.0}


def to_dict(settings: Any) -> dict[str, Any]:
    """Return a dataclass of settings as nested dictionaries of JSON types."""
    return dataclasses.asdict(settings)


def nearest(name: str, known: list[str]) -> str:
    """Return a hint that names the nearest of the known names, or all of them if none is near."""
    match = difflib.get_close_matches(name[:_LONGEST_NAME], known, n=1, cutoff=0.5)
    return f"did you mean {match[0]!r}?" if match else f"known: {', '.join(sorted(known))}"


def overlay(settings: Settings, changes: Mapping[str, Any], where: str) -> Settings:
    """Return the settings with nested changes laid over them.

    Raises:
        InputError: a name is unknown; the message names the nearest.
    """
    known = {field.name for field in dataclasses.fields(settings)}  # type: ignore[arg-type]
    types = get_type_hints(type(settings))
    values: dict[str, Any] = {}
    for name, value in changes.items():
        name = str(name).replace("-", "_")
        if name not in known:
            raise InputError(f"{where}: unknown setting {name!r}; {nearest(name, sorted(known))}")
        current = getattr(settings, name)
        if dataclasses.is_dataclass(current) and isinstance(value, Mapping):
            value = overlay(current, value, f"{where}: {name}")
        else:
            value = _checked(value, types[name], f"{where}: {name}")
        values[name] = value
    return dataclasses.replace(settings, **values)  # type: ignore[type-var]


def nested(values: Mapping[str, str], where: str) -> dict[str, Any]:
    """Return texts by path as nested settings, as a YAML file holds them.

    Args:
        values: such as ``{"optimizer.learning_rate": "1e-3"}``.
        where: they are given, for messages.

    Raises:
        InputError: a text is no value.
    """
    changes: dict[str, Any] = {}
    for path, text in values.items():
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            raise InputError(f"{where}: {path}={text} is no value") from None
        *parents, leaf = path.split(".")
        place = changes
        for parent in parents:
            place = place.setdefault(parent, {})
        place[leaf] = value
    return changes


def _checked(value: Any, wanted: Any, where: str) -> Any:
    """Return a value of a YAML file as the type that a setting wants (YAML reads 3e-5 as text)."""
    options = [option for option in get_args(wanted) if option is not type(None)]
    if get_origin(wanted) in (Union, UnionType):
        return None if value is None else _checked(value, options[0], where)
    if get_origin(wanted) is Annotated:
        return _checked(value, options[0], where)
    if get_origin(wanted) is list and isinstance(value, list):
        return [_checked(item, options[0], where) for item in value]
    if wanted is float and isinstance(value, (int, float, str)) and not isinstance(value, bool):
        with suppress(ValueError, OverflowError):
            return float(value)
    if wanted is str and isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    if type(value) is wanted:
        return value
    name = getattr(wanted, "__name__", str(wanted))
    raise InputError(f"{where} is {value!r}; expected {name}")


def duration_seconds(text: str) -> float:
    """Return the seconds of a duration such as 90s, 30m or 1.5h.

    Raises:
        InputError: the text is no positive duration.
    """
    match = _DURATION.fullmatch(text.strip().lower())
    if match is None or float(match[1]) <= 0:
        raise InputError(f"{text!r} is no duration; write for example 90s, 30m or 1.5h")
    return float(match[1]) * _UNIT_SECONDS[match[2]]


def count_of(text: str) -> int:
    """Return the number that a text such as 500M, 3.3B or 1000000 says (K, M, B, T: powers of a thousand).

    Raises:
        InputError: the text is no positive number.
    """
    return _amount(text, 1000, "write for example 500M, 3.3B or 1000000")


def bytes_of(text: str) -> int:
    """Return the bytes of a text such as 16G or 800M (K, M, G, T: powers of 1024).

    Raises:
        InputError: the text is no positive size.
    """
    return _amount(text, 1024, "write for example 16G or 800M")


def _amount(text: str, thousand: int, advice: str) -> int:
    match = _AMOUNT.fullmatch(text.strip().replace(",", "").replace("_", ""))
    value = float(match[1]) * thousand ** _THOUSANDS[match[2].upper()] if match else 0.0
    if value < 1:
        raise InputError(f"{text!r} is no amount; {advice}")
    return round(value)
