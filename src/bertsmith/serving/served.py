"""A loaded model under a name."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bertsmith import predictor
from bertsmith.config import nearest
from bertsmith.device import dtype_name, pick_device, pick_precision
from bertsmith.errors import InputError
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.refusal import Refusal

_MODEL_OF_A_RUN = "model"


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A model that answers.

    Attributes:
        name: what requests call it.
        predictor: used by one thread at a time, but for its tokenizer, which any number may use.
        precision: that it computes in, "float32", "bfloat16" or "int8".
        created: seconds since 1970.
    """

    name: str
    predictor: predictor.Predictor
    precision: str
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def reads_pairs(self) -> bool | None:
        """Whether its head reads pairs of texts, or single ones; ``None``: either, or nobody knows."""
        columns = (self.predictor.bundle.task or {}).get("columns")
        return columns.get("second_text") is not None if columns else None

    @property
    def description(self) -> dict[str, Any]:
        """What ``/v1/models`` says about it."""
        bundle, task = self.predictor.bundle, self.predictor.bundle.task or {}
        config = bundle.config
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "bertsmith",
            "verbs": list(self.predictor.can),
            "task": task.get("task"),
            "head": task.get("head"),
            "labels": self.predictor.labels,
            "pairs": self.reads_pairs,
            "seq_len": self.predictor.seq_len,
            "truncation": self.predictor.truncation,
            "mask_token": "[MASK]" if "fill" in self.predictor.can else None,
            "pooling": (task.get("settings") or {}).get("pooling", "mean"),
            "precision": self.precision,
            "architecture": {
                "family": config.family,
                "layers": config.num_layers,
                "heads": config.num_heads,
                "hidden_size": config.hidden_size,
                "intermediate_size": config.intermediate_size,
                "vocab_size": config.vocab_size,
                "max_positions": config.max_positions,
                "parameters": sum(weight.numel() for weight in bundle.state.values()),
            },
        }


def load_models(config: ServeConfig) -> list[ServedModel]:
    """Load the model directories that the settings name.

    Raises:
        InputError: a directory is no model, two have one name, or the longest text of one does not fit into a
            forward pass.
    """
    computed = config.quantize or dtype_name(pick_precision(config.precision, pick_device()))
    found: dict[str, ServedModel] = {}
    for given in config.model:
        name, directory = _name_of(given)
        if name in found:
            other = found[name].predictor.bundle.directory
            raise InputError(f"--model {given} and {other} are both called {name!r}; give NAME=DIR")
        threads = config.threads or None
        model = predictor.load(directory, config.precision, config.batch_tokens, threads, config.quantize)
        if model.seq_len > config.batch_tokens:
            limit = f"--batch-tokens {config.batch_tokens} is less than {model.seq_len}"
            raise InputError(f"{limit}, the pieces that a text of {given} may have; raise it")
        found[name] = ServedModel(name, model, computed)
    return list(found.values())


def _name_of(given: str) -> tuple[str, Path]:
    name, equals, directory = given.partition("=")
    if equals and name and "/" not in name and not Path(given).exists():
        return name, Path(directory)
    path = Path(given)
    place = path.resolve()
    return place.parent.name if place.name == _MODEL_OF_A_RUN else place.name, path


def find(models: Sequence[ServedModel], name: str | None, verb: str) -> ServedModel:
    """Return the model that a request means.

    Raises:
        Refusal: there is no such model, or it cannot do that.
    """
    able = [model for model in models if verb in model.predictor.can]
    if name is None:
        if not able:
            raise Refusal(422, "cannot", f"no model that is loaded can {verb}; see /v1/models", "model")
        return min(able, key=lambda model: model.predictor.can.index(verb))  # what it is made for is first
    for model in models:
        if model.name == name:
            if model not in able:
                can = ", ".join(model.predictor.can)
                raise Refusal(422, "cannot", f"model {name} cannot {verb}; it can {can}", "model")
            return model
    known = nearest(name, [model.name for model in models])
    raise Refusal(404, "unknown_model", f"unknown model {name!r}; {known}", "model")
