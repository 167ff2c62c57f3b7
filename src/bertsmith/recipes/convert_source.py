"""What ``convert`` reads: weights, settings and vocabulary of a model, from the files of either tool."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from bertsmith.errors import InputError
from bertsmith.interop import hub, model_files, tensor_bundle, tensorflow
from bertsmith.interop.huggingface import config_from_huggingface
from bertsmith.recipes.convert_config import ConvertConfig
from bertsmith.text.tokenizer import Tokenizer

FORMATS = ("auto", "hf", "tf1")
_CONFIGS = {"hf": ("config.json",), "tf1": ("bert_config.json", "config.json")}


@dataclass(frozen=True)
class Source:
    """A model of another tool.

    Attributes:
        format: "hf" or "tf1".
        directory: where its files lie.
        weights: the weights' file or files, for people.
        values: content of its config.json.
        stored: weights under the names of Hugging Face's tools.
        tokenizer: its vocabulary.
        names: what the files call a weight, where that is another name than in ``stored``.
        unused: why variables that were not read are left out, by name.
    """

    format: str
    directory: Path
    weights: Path
    values: dict[str, Any]
    stored: dict[str, Tensor]
    tokenizer: Tokenizer
    names: Mapping[str, str] = field(default_factory=dict)
    unused: Mapping[str, str] = field(default_factory=dict)


def read_source(config: ConvertConfig) -> Source:
    """Read everything that the conversion needs.

    Raises:
        InputError: there is no model, not of the named kind, or a file is missing or broken.
    """
    if config.from_format not in FORMATS:
        raise InputError(f"--from is {config.from_format!r}; take one of {', '.join(FORMATS)}")
    path = hub.local_directory(config.input)
    if path.is_dir() and not (path / "config.json").exists() and (path / "model" / "config.json").is_file():
        raise InputError(f"{path}: a run, not a model; its model is {path / 'model'}")
    format = _format_of(path) if config.from_format == "auto" else config.from_format
    return _READERS[format](path, config)


def _format_of(path: Path) -> str:
    """Return what lies at a path.

    Raises:
        InputError: nothing that can be read, or both.
    """
    prefix = tensor_bundle.find_prefix(path)
    directory = path if path.is_dir() else path.parent
    is_model = model_files.has_state(directory) and (path.is_dir() or model_files.is_state(path))
    if is_model and prefix is not None:
        raise InputError(
            f"{path}: holds a model of Hugging Face's tools and a checkpoint; name one with --from"
        )
    if is_model:
        return "hf"
    if prefix is not None or tensor_bundle.is_old_checkpoint(path):
        return "tf1"
    if not path.exists():
        raise InputError(f"{path}: no such file or directory, nor a checkpoint of that prefix")
    raise InputError(
        f"{path}: no weights; expected model.safetensors, pytorch_model.bin, or a checkpoint of TensorFlow 1 "
        "(PREFIX.index and PREFIX.data-…)"
    )


def _read_huggingface(path: Path, config: ConvertConfig) -> Source:
    directory = path.parent if path.is_file() else path
    if not directory.is_dir():
        raise InputError(f"{path}: no such file or directory")
    values = _values(directory, config, "hf")
    tokenizer = _tokenizer(directory, config)
    stored = model_files.read_state(directory)
    return Source("hf", directory, directory, values, stored, tokenizer)


def _read_original(path: Path, config: ConvertConfig) -> Source:
    prefix = tensor_bundle.find_prefix(path)
    if prefix is None and tensor_bundle.is_old_checkpoint(path):
        raise InputError(f"{path}: a checkpoint of TensorFlow before 0.12; save it again with a later one")
    if prefix is None:
        what = "no checkpoint of TensorFlow 1 in it" if path.is_dir() else "no such file"
        raise InputError(f"{path}: {what}; give the prefix of PREFIX.index and PREFIX.data-…")
    values = _values(prefix.parent, config, "tf1")
    tokenizer = _tokenizer(prefix.parent, config)
    read = tensorflow.read_weights(prefix)
    return Source("tf1", prefix.parent, prefix, values, read.stored, tokenizer, read.names, read.unused)


_READERS: dict[str, Callable[[Path, ConvertConfig], Source]] = {
    "hf": _read_huggingface,
    "tf1": _read_original,
}


def _tokenizer(directory: Path, config: ConvertConfig) -> Tokenizer:
    try:
        return Tokenizer.load(config.vocab or directory)
    except InputError as error:
        hint = "" if config.vocab else "; or name another vocabulary with --vocab"
        raise InputError(f"{error}{hint}") from error


def _values(directory: Path, config: ConvertConfig, format: str) -> dict[str, Any]:
    """Return the settings of the architecture."""
    names = _CONFIGS[format]
    paths = [directory / name for name in names if (directory / name).is_file()]
    if config.architecture is not None:
        paths = [Path(config.architecture)]
    if not paths:
        raise InputError(f"{directory}: no {' or '.join(names)}; name it with --architecture")
    values = model_files.read_config(paths[0])
    config_from_huggingface(values, paths[0])  # what is wrong with it is said with the file's own name
    return values
