"""task.json: what a model directory says of its head, looked at whole before anything uses it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError

EMBEDDING = "embedding"
"""The head of embedding models; it has no weights, its settings say how vectors are made."""
FROZEN = "feature-"
"""Begins the name of a head on a frozen encoder; the rest is the head that answers alike."""
_NAMED = ("classification", "multi-label", "tagging")
"""Heads whose outputs have names."""
MOST_CELLS = 1 << 14
"""Of an LSTM in one direction; beyond is a mistake."""
_POOLINGS = ("mean", "max", "cls")
_NEEDED = {"text", "second_text", "label"}
_TYPES: Mapping[str, tuple[type, str]] = {
    "task": (str, "a name"),
    "head": (str, "a name"),
    "truncation": (str, "a name"),
    "labels": (list, "a list of names"),
    "settings": (dict, "an object of settings"),
    "columns": (dict, "an object: text, second_text and label"),
    "tuned": (dict, "an object of numbers"),
}


def plain_head(head: str | None) -> str:
    """Return the head that answers as this one, trained as a whole; empty without one."""
    return (head or "").removeprefix(FROZEN)


def check_stored_task(task: Mapping[str, Any], path: Path, max_positions: int, outputs: int | None) -> None:
    """Refuse a task.json that was edited or belongs to other weights.

    Args:
        task: its content.
        path: the file, for messages.
        max_positions: of the model.
        outputs: of the stored classifier; ``None`` without one.

    Raises:
        InputError: a value is not what the model can use; it is named.
    """
    for name, (expected, words) in _TYPES.items():
        value = task.get(name)
        if value is not None and not isinstance(value, expected):
            raise InputError(f"{path}: {name} is {value!r}; expected {words}")
    seq_len = task.get("seq_len")
    if seq_len is not None and (type(seq_len) is not int or not 3 <= seq_len <= max_positions):
        raise InputError(f"{path}: seq_len is {seq_len!r}; expected 3 to {max_positions}")
    _check_labels(task, path, outputs)
    if task.get("head") == EMBEDDING:
        _check_embedding(task.get("settings") or {}, path)
    if (task.get("head") or "").startswith(FROZEN):
        _check_lstm(task.get("settings") or {}, path)
    _check_columns(task.get("columns"), path)
    _check_tuned(task.get("tuned") or {}, path, outputs)


def _check_labels(task: Mapping[str, Any], path: Path, outputs: int | None) -> None:
    labels = task.get("labels")
    names = labels or []
    right = len(names) == len(set(map(str, names))) and all(isinstance(name, str) and name for name in names)
    if plain_head(task.get("head")) in _NAMED and not (right and len(names) == outputs):
        raise InputError(f"{path}: labels is {labels!r}; expected {outputs} names, one for each output")


def _check_embedding(settings: Mapping[str, Any], path: Path) -> None:
    if settings.get("pooling") not in _POOLINGS:
        raise InputError(f"{path}: pooling is {settings.get('pooling')!r}; expected {', '.join(_POOLINGS)}")
    if not isinstance(settings.get("normalize"), bool):
        raise InputError(f"{path}: normalize is {settings.get('normalize')!r}; expected true or false")


def _check_lstm(settings: Mapping[str, Any], path: Path) -> None:
    size = settings.get("lstm_size", 1)
    if type(size) is not int or not 1 <= size <= MOST_CELLS:
        raise InputError(f"{path}: lstm_size is {size!r}; expected a whole number, 1 to {MOST_CELLS}")


def _check_columns(columns: Mapping[str, Any] | None, path: Path) -> None:
    if columns is None:
        return
    is_known = _NEEDED <= columns.keys() <= {*_NEEDED, "label_separator"}
    if not is_known or not all(value is None or isinstance(value, str) for value in columns.values()):
        raise InputError(
            f"{path}: columns is {columns!r}; expected text, second_text and label, each a column or null"
        )
    if not columns["text"]:
        raise InputError(f"{path}: columns, text is {columns['text']!r}; expected the name of a column")


def _check_tuned(tuned: Mapping[str, Any], path: Path, outputs: int | None) -> None:
    thresholds = tuned.get("thresholds")
    if thresholds is not None:
        if not isinstance(thresholds, list) or len(thresholds) != outputs:
            number = len(thresholds) if isinstance(thresholds, list) else repr(thresholds)
            raise InputError(f"{path}: {number} thresholds; expected {outputs}, one for each label")
        for value in thresholds:
            if not _is_number(value) or not 0.0 <= value <= 1.0:
                raise InputError(f"{path}: a threshold is {value!r}; expected a probability, 0 to 1")
    temperature = tuned.get("temperature", 1.0)
    if not _is_number(temperature) or temperature <= 0.0:
        raise InputError(f"{path}: temperature is {temperature!r}; expected a number above 0")
    score_range = tuned.get("score_range")
    if score_range is not None and not _is_range(score_range):
        raise InputError(f"{path}: score_range is {score_range!r}; expected [lowest, highest]")
    null_threshold = tuned.get("null_threshold")
    if null_threshold is not None and not _is_number(null_threshold):
        raise InputError(f"{path}: null_threshold is {null_threshold!r}; expected a number")


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)) and value[0] < value[1]


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
