"""Checkpoints of the original, google-research/bert: its names of weights, and what else lies in them.

Source: modeling.py, run_pretraining.py, run_classifier.py, run_squad.py and optimization.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

from bertsmith.errors import InputError
from bertsmith.interop.model_files import State
from bertsmith.interop.tensor_bundle import TensorBundle

# Names that say nothing of a layer. Unlike kernels, these weights are (outputs, inputs), as in PyTorch.
_HEADS = {
    "cls/predictions/output_bias": "cls.predictions.bias",
    "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
    "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
    "cls/squad/output_weights": "qa_outputs.weight",
    "cls/squad/output_bias": "qa_outputs.bias",
    "output_weights": "classifier.weight",
    "output_bias": "classifier.bias",
}
_KINDS = {"kernel": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_TRAINING = re.compile(
    r"(.*/)?(global_step|beta[12]_power|(current_)?loss_scale|(good|bad)_steps)"
    r"|.*/(adam_[mv]|lamb_[mv]|Adam\w*|LAMB\w*|Momentum|ExponentialMovingAverage)(_\d+)?"
)
_OBJECTS = "/.ATTRIBUTES/VARIABLE_VALUE"
TRAINING = "state of the training"
UNKNOWN = "unknown name"


@dataclass(frozen=True)
class OriginalWeights:
    """What a checkpoint holds.

    Attributes:
        stored: weights under transformers' names for a BERT, kernels transposed.
        names: the checkpoint's name of each.
        unused: why other variables are left out, by name.
    """

    stored: State
    names: dict[str, str]
    unused: dict[str, str]


def read_weights(prefix: Path) -> OriginalWeights:
    """Read a checkpoint; what belongs to an optimiser alone is not read from the disk.

    Raises:
        InputError: it is broken, or no checkpoint of TensorFlow 1.
    """
    bundle = TensorBundle(prefix)
    if any(name.endswith(_OBJECTS) for name in bundle.entries):
        raise InputError(
            f"{prefix}: a checkpoint of TensorFlow 2 objects, not of google-research/bert; save the weights "
            "under the names of TensorFlow 1, or with transformers"
        )
    found = OriginalWeights({}, {}, {})
    for name in bundle.entries:
        theirs = _transformers_name(name)
        if _TRAINING.fullmatch(name):
            found.unused[name] = TRAINING
        elif theirs is None:
            found.unused[name] = UNKNOWN
        else:
            values = torch.from_numpy(bundle.read(name))
            is_kernel = name.endswith("/kernel") and values.ndim == 2
            found.stored[theirs] = values.T.contiguous() if is_kernel else values
            found.names[theirs] = name
    return found


def _transformers_name(name: str) -> str | None:
    """Return transformers' name of a variable, ``None`` for one of a form that BERT does not have."""
    if name in _HEADS:
        return _HEADS[name]
    *path, kind = re.sub(r"\blayer_(\d+)\b", r"layer/\1", name).split("/")
    if kind.endswith("_embeddings"):
        return ".".join([*path, kind, "weight"])
    return ".".join([*path, _KINDS[kind]]) if kind in _KINDS else None
