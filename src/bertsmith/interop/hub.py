"""Models named as on the Hugging Face hub, org/name: fetched into the local cache, or found in it."""

from __future__ import annotations

import re
from pathlib import Path

from bertsmith.errors import InputError

_NAME = re.compile(r"([\w-][\w.-]*)/([\w-][\w.-]*)(?:@([\w./-]+))?")
_FILES = (
    *("config.json", "task.json", "README.md", "*.index.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"),
    *("modules.json", "sentence_*_config.json", "config_sentence_transformers.json", "1_Pooling/config.json"),
)
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")


def local_directory(name: Path | str) -> Path:
    """Return a model's directory on this machine.

    Args:
        name: a path; or, where there is nothing at it, org/name of a model on the hub, with @ and a branch,
            tag or commit behind it if that matters.

    Raises:
        InputError: it has the form of a name on the hub, but no such model can be had.
    """
    path = Path(name)
    match = _NAME.fullmatch(str(name))
    if match is None or path.exists() or Path(match[1]).exists():
        return path
    return _fetched(f"{match[1]}/{match[2]}", match[3])


def _fetched(name: str, revision: str | None) -> Path:
    from huggingface_hub import errors, snapshot_download

    directory = Path()
    try:
        for weights in _WEIGHTS:  # the second kind of file only where there is none of the first
            patterns = [*_FILES, weights]
            directory = Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
            if any(directory.glob(weights)):
                break
        return directory
    except (OSError, ValueError, errors.HTTPError) as error:  # type: ignore[attr-defined]
        if (cached := _cached(name, revision)) is not None:
            return cached
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{name}: no such directory, and the Hugging Face hub does not give a model of that name: "
            f"{reason[:300]}; give a directory"
        ) from error


def _cached(name: str, revision: str | None) -> Path | None:
    """Return what another program has put into the cache, if it holds a model."""
    from huggingface_hub import try_to_load_from_cache

    try:
        config = try_to_load_from_cache(name, "config.json", revision=revision)
    except ValueError:  # no name of the hub's form
        return None
    if not isinstance(config, str):
        return None
    directory = Path(config).parent
    return directory if any(any(directory.glob(weights)) for weights in _WEIGHTS) else None
