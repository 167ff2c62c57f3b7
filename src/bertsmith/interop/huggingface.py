"""What Hugging Face calls settings: config.json, and what it says of a head."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError
from bertsmith.interop import roberta
from bertsmith.model.config import FAMILIES, BertConfig

logger = logging.getLogger(__name__)

_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}
_ACTIVATION_NAMES = {"gelu": "gelu", "gelu_tanh": "gelu_new", "relu": "relu"}
_ARCHITECTURE_KEYS = {
    "vocab_size": "vocab_size",
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "intermediate_size": "intermediate_size",
}
_OPTIONAL_KEYS = {
    "max_positions": "max_position_embeddings",
    "num_segments": "type_vocab_size",
    "hidden_dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
    "layer_norm_eps": "layer_norm_eps",
    "initializer_std": "initializer_range",
}
_LSTM = "bertsmith-lstm"
_MODEL_TYPES = (*FAMILIES, roberta.PRE_NORM, _LSTM)
SEQUENCE_CLASSIFICATION = "BertForSequenceClassification"
MULTIPLE_CHOICE = "BertForMultipleChoice"
TOKEN_CLASSIFICATION = "BertForTokenClassification"
# A head's problem type in config.json, and the task for own data.
_HEADS = {
    "classification": ("single_label_classification", "classify"),
    "regression": ("regression", "regress"),
    "multi-label": ("multi_label_classification", "multilabel"),
}


def config_from_huggingface(values: Mapping[str, Any], path: Path) -> BertConfig:
    """Return the architecture that config.json describes.

    Args:
        values: content of config.json; the original's bert_config.json, without model_type, will do.
        path: the file, for messages.

    Raises:
        InputError: it is no BERT encoder, or a setting is missing or not supported.
    """
    model_type = values.get("model_type", "bert")
    if model_type not in _MODEL_TYPES:
        raise InputError(
            f"{path}: model_type is {model_type!r}; supported are {', '.join(map(repr, _MODEL_TYPES))} "
            "(encoders with absolute positions)"
        )
    if values.get("position_embedding_type", "absolute") != "absolute":
        raise InputError(f"{path}: relative positions are not supported, only absolute ones, as BERT's")
    if values.get("add_cross_attention"):
        raise InputError(f"{path}: a decoder with cross-attention is not supported, only a stack of its own")
    activation = values.get("hidden_act", "gelu")
    if not isinstance(activation, str) or activation not in _ACTIVATIONS:
        raise InputError(
            f"{path}: hidden_act is {activation!r}; supported: {', '.join(sorted(_ACTIVATIONS))}"
        )
    if missing := [key for key in _ARCHITECTURE_KEYS.values() if key not in values]:
        raise InputError(f"{path}: {', '.join(missing)} missing; is this the config.json of a BERT?")
    settings = {ours: values[theirs] for ours, theirs in _ARCHITECTURE_KEYS.items()}
    settings |= {ours: values[theirs] for ours, theirs in _OPTIONAL_KEYS.items() if theirs in values}
    for name, value in settings.items():
        kinds = (int,) if isinstance(getattr(BertConfig, name), int) else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds):
            wanted = "a number" if float in kinds else "a whole number"
            raise InputError(f"{path}: {name} is {value!r}, expected {wanted}")
    if values.get("classifier_dropout") not in (None, settings.get("hidden_dropout", 0.1)):
        logger.warning("%s: classifier_dropout is not used; hidden_dropout is in its place", path)
    settings |= _settings_of_kind(model_type, settings, pad_id_of(values))
    settings["mixing"] = "lstm" if model_type == _LSTM else "attention"
    settings["context"] = "left" if values.get("is_decoder") else "both"
    settings["recurrent_top"] = bool(values.get("recurrent_top"))
    settings["tied_decoder"] = values.get("tie_word_embeddings") is not False
    try:
        return BertConfig(activation=_ACTIVATIONS[activation], **settings)
    except InputError as error:
        raise InputError(f"{path}: {error}") from error


def activation_name(activation: str) -> str:
    """Return Hugging Face's name of one of our activations.

    Raises:
        InputError: there is none of that name.
    """
    if activation not in _ACTIVATION_NAMES:
        raise InputError(f"activation {activation!r} is unknown; take one of {', '.join(_ACTIVATION_NAMES)}")
    return _ACTIVATION_NAMES[activation]


def _settings_of_kind(model_type: str, settings: Mapping[str, Any], pad_id: int) -> dict[str, Any]:
    """Return the settings that follow from a kind of model."""
    if model_type == _LSTM:
        return {}
    kind: dict[str, Any] = {"norm": "pre"} if model_type == roberta.PRE_NORM else {"family": model_type}
    if model_type in roberta.MODEL_TYPES:
        stored = settings.get("max_positions", BertConfig.max_positions)
        kind["max_positions"] = stored - roberta.position_offset(pad_id)
    return kind


def model_type_of(config: BertConfig) -> str:
    """Return the kind of model as which other programs know an architecture, or do not."""
    if config.mixing == "lstm":
        return _LSTM
    return roberta.PRE_NORM if config.norm == "pre" else config.family


def class_of(bert_class: str, model_type: str) -> str:
    """Return the class of transformers that in a kind of model stands for one of BERT's."""
    return roberta.class_name(bert_class, model_type) if model_type in roberta.MODEL_TYPES else bert_class


def pad_id_of(values: Mapping[str, Any]) -> int:
    """Return the id of the padding that config.json names, or its kind of model has."""
    pad_id = values.get("pad_token_id")
    default = 1 if values.get("model_type") in roberta.MODEL_TYPES else 0
    return pad_id if type(pad_id) is int and pad_id >= 0 else default


def config_to_huggingface(
    config: BertConfig,
    architecture: str,
    task: Mapping[str, Any] | None,
    pad_id: int,
    num_outputs: int | None,
) -> dict[str, Any]:
    """Return the content of config.json.

    Args:
        config: the architecture.
        architecture: BERT's class of transformers that loads the weights with nothing missing; for another
            kind of model its own takes its place.
        task: the content of task.json, for label names and the problem's type.
        pad_id: id of [PAD].
        num_outputs: scores of the classification head, ``None`` without one.
    """
    keys = _ARCHITECTURE_KEYS | _OPTIONAL_KEYS
    model_type = model_type_of(config)
    values: dict[str, Any] = {
        "architectures": [class_of(architecture, model_type)],
        "model_type": model_type,
        **{theirs: getattr(config, ours) for ours, theirs in keys.items()},
        "hidden_act": _ACTIVATION_NAMES[config.activation],
        "position_embedding_type": "absolute",
        "pad_token_id": pad_id,
        "tie_word_embeddings": config.tied_decoder,
        "dtype": "float32",
    }
    if config.context == "left":
        values["is_decoder"] = True
    if config.recurrent_top:
        values["recurrent_top"] = True
    if model_type in roberta.MODEL_TYPES:
        values["max_position_embeddings"] += roberta.position_offset(pad_id)
    if num_outputs is not None:
        names: Sequence[str] = (task or {}).get("labels") or [f"LABEL_{i}" for i in range(num_outputs)]
        assert len(names) == num_outputs, f"{len(names)} label names for {num_outputs} outputs"
        if architecture == SEQUENCE_CLASSIFICATION:
            default = "regression" if num_outputs == 1 else "classification"
            values["problem_type"], _ = _HEADS[(task or {}).get("head", default)]
        values["id2label"] = {str(index): name for index, name in enumerate(names)}
        values["label2id"] = {name: index for index, name in enumerate(names)}
    return values


def task_from_huggingface(values: Mapping[str, Any], num_outputs: int, path: Path) -> dict[str, Any]:
    """Return what config.json tells about a classification head, in the form of task.json.

    Raises:
        InputError: the label names do not fit the head.
    """
    default = "regression" if num_outputs == 1 else "classification"
    problem = values.get("problem_type") or _HEADS[default][0]
    for head, (name, task) in _HEADS.items():
        if name == problem:
            labels = None if head == "regression" else label_names(values, num_outputs, path)
            return {"task": task, "head": head, "labels": labels}
    raise InputError(f"{path}: problem_type is {problem!r}, which is unknown")


def label_names(values: Mapping[str, Any], num_outputs: int, path: Path) -> list[str]:
    """Return the names that config.json gives a head's outputs, LABEL_0 and so on where it gives none.

    Raises:
        InputError: they do not fit the head.
    """
    try:
        names = {int(index): str(name) for index, name in (values.get("id2label") or {}).items()}
    except (AttributeError, ValueError):
        raise InputError(f"{path}: id2label is no object of numbers and names; mend it") from None
    if len(names) not in (0, num_outputs):
        raise InputError(f"{path}: id2label names {len(names)} labels but the head has {num_outputs} outputs")
    return [names.get(index, f"LABEL_{index}") for index in range(num_outputs)]
