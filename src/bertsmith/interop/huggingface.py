"""What Hugging Face calls things: the settings in config.json, the names of weights."""

from __future__ import annotations

import dataclasses
import logging
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertsmith.errors import InputError
from bertsmith.interop import roberta
from bertsmith.interop.model_files import State
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
_WRAPPERS = ("module.", "_orig_mod.")
_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_LSTM = "bertsmith-lstm"
_MODEL_TYPES = (*FAMILIES, roberta.PRE_NORM, _LSTM)
_QKV = ("query", "key", "value")
SEQUENCE_CLASSIFICATION = "BertForSequenceClassification"
MULTIPLE_CHOICE = "BertForMultipleChoice"
# A head's problem type in config.json, and the task for own data.
_HEADS = {
    "classification": ("single_label_classification", "classify"),
    "regression": ("regression", "regress"),
    "multi-label": ("multi_label_classification", "multilabel"),
}
WORD_EMBEDDINGS = "bert.embeddings.word.weight"
DECODER_WEIGHT = "mlm_head.decoder.weight"
DECODER_BIAS = "mlm_head.decoder.bias"

# Hugging Face's name of a module (before ".weight" or ".bias") and ours.
_MODULES = {
    "bert.embeddings.word_embeddings": "bert.embeddings.word",
    "bert.embeddings.position_embeddings": "bert.embeddings.position",
    "bert.embeddings.token_type_embeddings": "bert.embeddings.segment",
    "bert.embeddings.LayerNorm": "bert.embeddings.norm",
    "bert.LayerNorm": "bert.norm",
    "bert.pooler.dense": "pooler.dense",
    "cls.predictions.transform.dense": "mlm_head.dense",
    "cls.predictions.transform.LayerNorm": "mlm_head.norm",
    "cls.predictions": "mlm_head",
    "cls.predictions.decoder": "mlm_head.decoder",
    "cls.seq_relationship": "nsp_head",
    "classifier": "classifier",
    "qa_outputs": "span_scores",
}
# The same within a layer, without query, key and value, which we keep in one tensor.
_LAYER_MODULES = {
    "attention.output.dense": "attention.output",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "intermediate",
    "output.dense": "output",
    "output.LayerNorm": "output_norm",
}
_THEIR_LAYER = re.compile(r"bert\.encoder\.layer\.(\d+)\.(.+)\.(weight|bias)")
_OUR_LAYER = re.compile(r"bert\.layers\.(\d+)\.(.+)\.(weight|bias)")


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


def state_from_huggingface(stored: Mapping[str, Tensor], model_type: str = "bert", pad_id: int = 0) -> State:
    """Return the weights under our names, in float32.

    Buffers of positions are left out. The decoder's own bias, where there is one, is the bias of the word
    scores. Unknown names stay as they are.

    Args:
        stored: under Hugging Face's names.
        model_type: kind of the model.
        pad_id: id of the padding; RoBERTa's positions depend on it.

    Raises:
        InputError: two names stand for one weight.
    """
    names = bert_names(stored, model_type)
    named = {names[name]: value for name, value in stored.items()}
    if model_type in roberta.MODEL_TYPES:
        named = roberta.without_unused_positions(named, pad_id)
    state: State = {}
    for name, value in named.items():
        if not is_buffer(name):
            state[_our_name(name)] = value.float().contiguous() if value.is_floating_point() else value
    _fuse_qkv(state)
    if DECODER_BIAS in state:
        state["mlm_head.bias"] = state.pop(DECODER_BIAS)
    return state


def bert_names(stored: Iterable[str], model_type: str = "bert") -> dict[str, str]:
    """Return for each stored name the one that transformers gives the weight in a BERT with heads today.

    What wraps the model (``module.`` and the like) is dropped, a missing ``bert.`` added, gamma and beta of a
    LayerNorm are its weight and bias. Unknown names stay as they are.

    Raises:
        InputError: two names stand for one weight.
    """
    stored = list(stored)
    wrapper = _wrapper(stored)
    names = {name: _settled_name(name.removeprefix(wrapper)) for name in stored}
    if model_type in roberta.MODEL_TYPES:
        names = roberta.bert_names(names, model_type)
    if not any(name.startswith("bert.") for name in names.values()):
        parts = ("embeddings.", "encoder.", "LayerNorm.", "pooler.")
        names = {
            name: f"bert.{settled}" if settled.startswith(parts) else settled
            for name, settled in names.items()
        }
    first: dict[str, str] = {}
    for name, settled in names.items():
        if first.setdefault(settled, name) != name:
            raise InputError(f"weights {first[settled]} and {name} are both {settled}; remove one of them")
    return names


def is_buffer(name: str) -> bool:
    """Say whether BERT's name is that of a buffer that holds no weights."""
    return name.endswith(_BUFFERS)


def _wrapper(stored: Sequence[str]) -> str:
    """Return what stands before the names of the one BERT that other modules wrap."""
    found = [name for name in stored if name.endswith(_WORD_EMBEDDINGS)]
    if len(found) != 1:
        return ""
    return re.sub(
        r"(^|(?<=\.))(bert|roberta|roberta_prelayernorm)\.$", "", found[0].removesuffix(_WORD_EMBEDDINGS)
    )


def _settled_name(name: str) -> str:
    while name.startswith(_WRAPPERS):
        name = name.split(".", 1)[1]
    return re.sub(r"(?<=LayerNorm\.)(gamma|beta)$", lambda m: "weight" if m[1] == "gamma" else "bias", name)


def _our_name(name: str) -> str:
    if match := _THEIR_LAYER.fullmatch(name):
        index, module, kind = match.groups()
        return f"bert.layers.{index}.{_LAYER_MODULES.get(module, module)}.{kind}"
    module, _, kind = name.rpartition(".")
    return f"{_MODULES[module]}.{kind}" if module in _MODULES else name


def _fuse_qkv(state: State) -> None:
    for name in [name for name in state if ".attention.self.query." in name]:
        parts = [name.replace(".query.", f".{part}.") for part in _QKV]
        if all(part in state for part in parts):
            fused = torch.cat([state.pop(part) for part in parts])
            state[name.replace(".attention.self.query.", ".attention.qkv.")] = fused


def settle_decoder(state: State, config: BertConfig) -> BertConfig:
    """Drop a decoder that is the word embeddings, and say whether there is one of its own.

    What is stored counts, as in transformers: a decoder that differs is one of its own, whatever config.json
    says.
    """
    decoder, words = state.get(DECODER_WEIGHT), state.get(WORD_EMBEDDINGS)
    if decoder is None:
        return config
    if config.tied_decoder and (words is None or torch.equal(decoder, words)):
        state[WORD_EMBEDDINGS] = state.pop(DECODER_WEIGHT)
    return dataclasses.replace(config, tied_decoder=DECODER_WEIGHT not in state)


def their_name(name: str, model_type: str = "bert") -> str:
    """Return Hugging Face's name of one of our weights (of a fused one: the query's)."""
    theirs = _bert_name(name)
    return roberta.roberta_name(theirs, model_type) if model_type in roberta.MODEL_TYPES else theirs


def _bert_name(name: str) -> str:
    if match := _OUR_LAYER.fullmatch(name):
        index, module, kind = match.groups()
        modules = {ours: theirs for theirs, ours in _LAYER_MODULES.items()}
        theirs = modules.get(module, module).replace("attention.qkv", "attention.self.query")
        return f"bert.encoder.layer.{index}.{theirs}.{kind}"
    module, _, kind = name.rpartition(".")
    modules = {ours: theirs for theirs, ours in _MODULES.items()}
    return f"{modules[module]}.{kind}" if module in modules else name


def missing_names(name: str, state: Mapping[str, Tensor], model_type: str = "bert") -> list[str]:
    """Return Hugging Face's names of what one of our weights lacks; parts of a fused one may be there."""
    if ".attention.qkv." not in name:
        return [their_name(name, model_type)]
    parts = [(part, _bert_name(name).replace(".query.", f".{part}.")) for part in _QKV]
    query = their_name(name, model_type)
    return [query.replace(".query.", f".{part}.") for part, theirs in parts if _our_name(theirs) not in state]


def state_to_huggingface(
    state: Mapping[str, Tensor],
    model_type: str = "bert",
    pad_id: int = 0,
    architecture: str = SEQUENCE_CLASSIFICATION,
) -> State:
    """Return weights with our names under Hugging Face's, on the host, contiguous.

    Args:
        state: of a model; the encoder's names begin with "bert.".
        model_type: kind of the model.
        pad_id: id of the padding; RoBERTa's positions depend on it.
        architecture: BERT's class of transformers; where RoBERTa has the pooler depends on it.
    """
    stored: State = {}
    for name, value in state.items():
        value = value.detach().cpu().contiguous()
        theirs = _bert_name(name)
        if ".attention.qkv." in name:
            for part, piece in zip(_QKV, value.chunk(3), strict=True):
                stored[theirs.replace(".query.", f".{part}.")] = piece.contiguous()
        else:
            stored[theirs] = value
    if DECODER_WEIGHT in state:
        stored[_bert_name(DECODER_BIAS)] = stored["cls.predictions.bias"].clone()
    if model_type not in roberta.MODEL_TYPES:
        return stored
    return roberta.to_roberta(stored, model_type, pad_id, architecture)
