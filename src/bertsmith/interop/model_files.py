"""Files of a Hugging Face model directory: config.json, safetensors and tensor-only .bin files."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from bertsmith.errors import InputError

State = dict[str, Tensor]
_OTHERS = ("tf_model.h5", "flax_model.msgpack")
_SAFETENSORS, _BIN = "model.safetensors", "pytorch_model.bin"


def read_config(path: Path) -> dict[str, Any]:
    """Return config.json as it is.

    Raises:
        InputError: the file is missing or holds no JSON object.
    """
    values = read_json(path)
    if not isinstance(values, dict):
        raise InputError(f"{path}: holds {type(values).__name__}, expected a JSON object of settings")
    return values


def read_json(path: Path) -> Any:
    """Return what a JSON file of a model directory holds.

    Raises:
        InputError: the file is missing or holds no JSON.
    """
    if not path.is_file():
        expected = "a model directory holds config.json, weights, a vocabulary"
        if (path.parent / "bert_config.json").is_file():
            expected = "this is a checkpoint of google-research/bert: bertsmith convert makes a model of it"
        raise InputError(f"{path}: no such file; {expected}")
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(f"{path}: not valid JSON ({error}); copy the file again") from error


def read_state(directory: Path) -> State:
    """Return the weights of a model directory under their stored names.

    Raises:
        InputError: there are none, a file is broken, or it holds more than tensors.
    """
    for name, read in ((_SAFETENSORS, _read_safetensors), (_BIN, _read_bin)):
        if (directory / name).is_file():
            return read(directory / name)
        index = directory / f"{name}.index.json"
        if index.is_file():
            state: State = {}
            for shard in _shards(index):
                state |= read(shard)
            return state
    others = [name for name in _OTHERS if (directory / name).is_file()]
    hint = f"; {others[0]} is not read, save the model with save_pretrained of PyTorch" if others else ""
    raise InputError(f"{directory}: no weights; expected {_SAFETENSORS} or {_BIN}{hint}")


def has_state(directory: Path) -> bool:
    """Say whether a directory holds weights that ``read_state`` reads."""
    names = (_SAFETENSORS, _BIN)
    return any((directory / name).is_file() or (directory / f"{name}.index.json").is_file() for name in names)


def is_state(path: Path) -> bool:
    """Say whether a file is one of those that ``read_state`` reads in its directory."""
    return path.name in (_SAFETENSORS, _BIN) or path.name.endswith(".index.json")


def _shards(index: Path) -> list[Path]:
    """Return the files that an index names; they lie beside it."""
    names = read_config(index).get("weight_map")
    if not isinstance(names, dict) or not all(isinstance(name, str) for name in names.values()):
        raise InputError(f"{index}: weight_map is no object of weights and files; copy the file again")
    return [index.parent / Path(name).name for name in sorted(set(names.values()))]


def _read_safetensors(path: Path) -> State:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: not a whole safetensors file ({error}); copy it again") from error


def _read_bin(path: Path) -> State:
    """Read a .bin file with the reader that builds tensors and runs no code."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise InputError(
            f"{path}: refused, the file holds more than tensors and may run code when loaded; "
            "get the model as .safetensors from a source you trust"
        ) from error
    except (RuntimeError, EOFError, OSError, KeyError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path}: not a whole PyTorch file ({reason}); copy it again") from error
    for wrapper in ("state_dict", "model"):
        if isinstance(loaded, dict) and isinstance(loaded.get(wrapper), dict):
            loaded = loaded[wrapper]
    if not isinstance(loaded, dict) or not all(isinstance(value, Tensor) for value in loaded.values()):
        raise InputError(f"{path}: expected a dictionary of tensors; save the model's state_dict()")
    return dict(loaded)
