"""Checkpoints: whole or absent, newest few kept, tensors and JSON only (nothing that could run code).

``RUN/checkpoints/step-00001000/`` holds ``model.safetensors``, ``optimizer.safetensors`` and ``state.json``
(the caller's state, and the hashes of the other files). Sharded models have ``sharded_checkpoint``.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from bertsmith.errors import InputError
from bertsmith.files import atomic_directory, sha256_of, storage_errors

logger = logging.getLogger(__name__)

FORMAT_VERSION = 1
_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_NAME = re.compile(r"step-(\d{8,})")
_ABSENT = object()


@dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint on disk.

    Attributes:
        directory: where it is.
        step: completed optimiser steps.
        state: what the caller stored with it, JSON types.
    """

    directory: Path
    step: int
    state: dict[str, Any]

    @property
    def is_sharded(self) -> bool:
        """Whether ranks wrote it in parts."""
        return not (self.directory / _MODEL).exists()


def save(
    run: Path,
    step: int,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    state: Mapping[str, Any],
    keep: int,
) -> Path:
    """Write a checkpoint, then delete the old ones.

    Args:
        run: the run directory.
        step: completed optimiser steps.
        model: its parameters and buffers are stored, tied ones once.
        optimizer: its state of every parameter is stored.
        state: what else a resumed run needs, JSON types.
        keep: newest checkpoints to keep, at least 1. Older ones go only when the new one is whole; so do
            later ones, which can only be damaged (a resumed run starts at the latest whole one).

    Returns:
        The checkpoint's directory.

    Raises:
        OSError: it cannot be written, because the disk is full for example; older ones are whole.
    """
    assert keep >= 1, "the checkpoint just written is kept"
    clear_leftovers(run)
    directory = run / "checkpoints" / name_of(step)
    with atomic_directory(directory) as temporary, storage_errors(directory):
        save_model(model, str(temporary / _MODEL))
        save_file(optimizer_tensors(model, optimizer), temporary / _OPTIMIZER)
        write_state(temporary, step, state)
    keep_newest(run, step, keep)
    return directory


def clear_leftovers(run: Path) -> None:
    """Delete what a process that was killed while it saved has left."""
    for leftover in (run / "checkpoints").glob(".step-*"):
        shutil.rmtree(leftover, ignore_errors=True)


def write_state(directory: Path, step: int, state: Mapping[str, Any]) -> None:
    """Write state.json with the hashes of all files that are there."""
    hashes = {path.name: sha256_of(path) for path in sorted(directory.iterdir())}
    content = {"format": FORMAT_VERSION, "step": step, "sha256": hashes, "state": dict(state)}
    (directory / _STATE).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def keep_newest(run: Path, step: int, keep: int) -> None:
    """Delete all checkpoints but the newest up to that of ``step``, which is whole; see ``save``."""
    steps = dict(_directories(run))
    kept = sorted(found for found in steps if found <= step)[-keep:]
    for found, old in steps.items():
        if found not in kept:
            shutil.rmtree(old)


def name_of(step: int) -> str:
    """Return the name of a step's checkpoint directory."""
    return f"step-{step:08d}"


def _directories(run: Path) -> list[tuple[int, Path]]:
    """Return (step, directory) of what is named like a checkpoint, newest first."""
    found = [(_NAME.fullmatch(path.name), path) for path in (run / "checkpoints").glob("step-*")]
    return sorted(((int(match[1]), path) for match, path in found if match), reverse=True)


def latest(run: Path, up_to: int | None = None) -> Checkpoint | None:
    """Return the newest whole checkpoint of a run; ``None`` if there is none.

    A damaged one is named in a warning and passed over.

    Args:
        run: the run directory.
        up_to: leave out those of later steps; ``None``: none.

    Raises:
        InputError: there are checkpoints and none is whole, or they are of another version.
    """
    directories = [found for found in _directories(run) if up_to is None or found[0] <= up_to]
    for step, directory in directories:
        try:
            return Checkpoint(directory, step, _read_state(directory, step))
        except (OSError, ValueError, KeyError, TypeError) as error:
            if isinstance(error, InputError):
                raise
            logger.warning("%s is damaged and passed over: %s", directory, error)
    if directories:
        raise InputError(
            f"{run / 'checkpoints'}: {len(directories)} checkpoints and all are damaged; start a new run "
            "with another --out, or delete this one"
        )
    return None


def discard_after(run: Path, step: int) -> None:
    """Delete the checkpoints of later steps: the run has gone back to this one."""
    for found, directory in _directories(run):
        if found > step:
            shutil.rmtree(directory)


def _read_state(directory: Path, step: int) -> dict[str, Any]:
    content = json.loads((directory / _STATE).read_text(encoding="utf-8"))
    if content["format"] != FORMAT_VERSION:
        raise InputError(
            f"{directory / _STATE}: checkpoint format {content['format']}, but this bertsmith reads "
            f"{FORMAT_VERSION}; resume with the version that wrote it"
        )
    if content["step"] != step:
        raise ValueError(f"{_STATE} is of step {content['step']}")
    for name, digest in content["sha256"].items():
        if sha256_of(directory / name) != digest:
            raise ValueError(f"{name} is not the file that was written")
    state = content["state"]
    if not isinstance(state, dict):
        raise ValueError(f"{_STATE} holds no state")
    return state


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Fill a model and its optimiser, on the device where they are.

    Raises:
        InputError: the tensors are not those of this model and this optimiser, or no tensors at all.
    """
    try:
        load_model(model, str(checkpoint.directory / _MODEL))
        stored = load_file(checkpoint.directory / _OPTIMIZER)
    except (RuntimeError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{checkpoint.directory}: cannot be read as this model's checkpoint ({reason})"
        ) from error
    states: dict[str, dict[str, Tensor]] = {}
    for key, tensor in stored.items():
        name, _, kind = key.rpartition("/")
        states.setdefault(name, {})[kind] = tensor
    parameters = dict(model.named_parameters())
    if unknown := sorted(states.keys() - parameters.keys()):
        raise InputError(
            f"{checkpoint.directory}: optimiser state of unknown parameters, first {unknown[0]!r}"
        )
    optimizer.state.clear()
    for name, state in states.items():
        parameter = parameters[name]
        optimizer.state[parameter] = {
            # The step count stays where the optimiser's kernel wants it: beside the parameter.
            kind: tensor.to(parameter.device)
            for kind, tensor in state.items()
        }


def optimizer_tensors(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the optimiser's tensors as ``parameter name/kind``."""
    return {
        f"{name}/{kind}": value
        for name, parameter in model.named_parameters()
        for kind, value in optimizer.state.get(parameter, {}).items()
    }


def require_same_settings(
    checkpoint: Checkpoint,
    settings: Mapping[str, Any],
    given: Mapping[str, Any],
    defaults: Mapping[str, Any],
) -> None:
    """Refuse to resume with settings under which the run would have gone another way.

    Args:
        checkpoint: its state holds the settings of its run under "settings".
        settings: those of now, nested dictionaries of JSON types.
        given: all settings of now, for those that only the checkpoint names.
        defaults: of all settings, for those that only ``settings`` names: the version that wrote the
            checkpoint may not have known them.

    Raises:
        InputError: they differ; the message names each setting and both values.
    """
    stored = _flat(checkpoint.state["settings"])
    current = _flat(json.loads(json.dumps(settings)))  # tuples become lists, as in the file
    then, now = _flat(defaults) | stored, _flat(given) | current
    changed = [
        f"{name} was {_shown(then.get(name, _ABSENT))}, is now {_shown(now.get(name, _ABSENT))}"
        for name in dict.fromkeys([*stored, *current])
        if then.get(name, _ABSENT) != now.get(name, _ABSENT)
    ]
    if changed:
        raise InputError(
            f"cannot resume {checkpoint.directory}: {'; '.join(changed)}; give the old value, or start a new "
            "run with another --out"
        )


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else repr(value)
