"""Models named as on the Hugging Face hub, org/name: found in the local cache, or fetched into it."""

from __future__ import annotations

import re
from pathlib import Path

from bertsmith.errors import InputError

_NAME = re.compile(r"([\w-][\w.-]*)/([\w-][\w.-]*)(?:@([\w./-]+))?")
_FILES = [
    *("config.json", "task.json", "README.md", "*.index.json"),
    *("vocab.txt", "vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json"),
    *("modules.json", "sentence_*_config.json", "config_sentence_transformers.json", "1_Pooling/config.json"),
]
_WEIGHTS = ("model*.safetensors", "pytorch_model*.bin")


def local_directory(name: Path | str) -> Path:
    """Return a model's directory on this machine.

    Args:
        name: a path; or, where there is none of that name, org/name of a model on the hub, with @ and a
            branch, tag or commit behind it if that matters.

    Raises:
        InputError: it is the form of a name on the hub, but cannot be had from there.
    """
    path = Path(name)
    match = _NAME.fullmatch(str(name))
    if match is None or path.exists() or Path(match[1]).exists():
        return path
    return _fetched(f"{match[1]}/{match[2]}", match[3])


def _fetched(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        for weights in _WEIGHTS:  # the second kind of file only where there is none of the first
            directory = Path(snapshot_download(name, revision=revision, allow_patterns=[*_FILES, weights]))
            if any(directory.glob(weights)):
                break
        return directory
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise InputError(
            f"{name}: no such directory, and no model of that name can be had from the Hugging Face hub "
            f"({reason}); give a directory, or fetch the model where the hub can be reached and set HF_HOME"
        ) from error
