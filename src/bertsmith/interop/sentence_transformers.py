"""Pooling files of sentence-transformers: how an encoder's output becomes one vector a text.

Source: sentence-transformers, base/model.py (modules.json) and sentence_transformer/modules/pooling.py.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from bertsmith.errors import InputError
from bertsmith.interop.model_files import read_config, read_json

logger = logging.getLogger(__name__)

MODULES_FILE = "modules.json"
_POOLING_FILE = "1_Pooling/config.json"
_LENGTH_FILE = "sentence_bert_config.json"
_MODULES = ("Transformer", "Pooling", "Normalize")
_FLAGS = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
}


@dataclass(frozen=True)
class StoredPooling:
    """How a directory's model makes vectors.

    Attributes:
        pooling: "mean", "max" or "cls".
        normalize: vectors are scaled to length 1.
        seq_len: pieces of the longest text, special tokens counted; ``None``: not said.
    """

    pooling: str
    normalize: bool
    seq_len: int | None


def pooling_files(pooling: str, normalize: bool, seq_len: int, hidden: int) -> dict[str, Any]:
    """Return the files that make a model directory one of sentence-transformers.

    They are in the form that all its versions and other programs (text-embeddings-inference) read.

    Args:
        pooling: "mean", "max" or "cls".
        normalize: scale vectors to length 1.
        seq_len: pieces of the longest text, special tokens counted.
        hidden: width of a vector.

    Returns:
        What each file holds, JSON, by its name in the directory.
    """
    names = _MODULES if normalize else _MODULES[:2]
    modules = [
        {
            "idx": number,
            "name": str(number),
            "path": f"{number}_{name}" if number else "",
            "type": f"sentence_transformers.models.{name}",
        }
        for number, name in enumerate(names)
    ]
    flags = {flag: name == pooling for name, flag in _FLAGS.items()}
    return {
        MODULES_FILE: modules,
        _POOLING_FILE: {
            "word_embedding_dimension": hidden,
            **flags,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
        _LENGTH_FILE: {"max_seq_length": seq_len, "do_lower_case": False},
    }


def read_pooling(directory: Path) -> StoredPooling | None:
    """Return how the vectors of a directory of sentence-transformers are made.

    ``None`` where it is no such directory, and, with a warning, where something is done to vectors or texts
    that Bertsmith does not do (a dense layer, several poolings side by side, a prompt before every text).

    Raises:
        InputError: a file is broken.
    """
    path = directory / MODULES_FILE
    if not path.is_file():
        return None
    modules = _modules(path)
    names = tuple(name for name, _ in modules)
    if "Pooling" not in names:  # such as a cross-encoder
        return None
    settings = _pooling_settings(directory, dict(modules)["Pooling"])
    length = next(iter(sorted(directory.glob("sentence_*_config.json"))), None)
    text = {} if length is None else read_config(length)
    tokenizer = _optional(directory / "tokenizer_config.json")
    modes = _modes(settings)
    reason = _unsupported(names, modes, text, tokenizer) or _prompt(directory)
    if reason is not None:
        logger.warning(
            "%s: its sentence-transformers pipeline has %s, which is not supported here: vectors will differ",
            directory,
            reason,
        )
        return None
    seq_len = text.get("max_seq_length") or tokenizer.get("model_max_length")
    return StoredPooling(modes[0], "Normalize" in names, seq_len if type(seq_len) is int else None)


def _modules(path: Path) -> list[tuple[str, str]]:
    """Return class and folder of each module."""
    modules = read_json(path)
    try:
        return [(module["type"].rpartition(".")[2], str(module["path"])) for module in modules]
    except (TypeError, KeyError, AttributeError):
        raise InputError(f"{path}: expected a list of modules with type and path; copy it again") from None


def _pooling_settings(directory: Path, folder: str) -> dict[str, Any]:
    inside = PurePosixPath(folder)
    if inside.is_absolute() or ".." in inside.parts:
        raise InputError(f"{directory / MODULES_FILE}: path {folder!r} leads out of the directory; mend it")
    return read_config(directory / inside / "config.json")


def _optional(path: Path) -> dict[str, Any]:
    return read_config(path) if path.is_file() else {}


def _modes(settings: Mapping[str, Any]) -> list[str]:
    """Return the names of the poolings whose results are put side by side."""
    if (mode := settings.get("pooling_mode")) is not None:
        return [str(name) for name in mode] if isinstance(mode, list) else [str(mode)]
    names = {flag: name for name, flag in _FLAGS.items()}
    flags = [key for key, value in settings.items() if key.startswith("pooling_mode_") and value]
    return [names.get(flag, flag) for flag in flags] or ["mean"]


def _unsupported(
    names: tuple[str, ...], modes: list[str], text: Mapping[str, Any], tokenizer: Mapping[str, Any]
) -> str | None:
    """Say what of a pipeline Bertsmith does not do."""
    if names not in (_MODULES, _MODULES[:2]):
        return f"the modules {', '.join(names)}"
    if len(modes) != 1 or modes[0] not in _FLAGS:
        return f"the pooling {' and '.join(modes)}"
    if text.get("do_lower_case") and not tokenizer.get("do_lower_case", True):
        return "texts in lower case before a cased vocabulary"
    return None


def _prompt(directory: Path) -> str | None:
    values = _optional(directory / "config_sentence_transformers.json")
    prompts, default = values.get("prompts"), values.get("default_prompt_name")
    if isinstance(prompts, dict) and prompts.get(default):
        return f"the prompt {prompts[default]!r} before every text"
    return None
