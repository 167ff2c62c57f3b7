"""What Hugging Face calls weights, in new files and old ones."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from bertsmith.errors import InputError
from bertsmith.interop import roberta
from bertsmith.interop.huggingface import SEQUENCE_CLASSIFICATION
from bertsmith.interop.model_files import State
from bertsmith.model.config import BertConfig

_WRAPPERS = ("module.", "_orig_mod.")
_WORD_EMBEDDINGS = "embeddings.word_embeddings.weight"
_BUFFERS = ("embeddings.position_ids", "embeddings.token_type_ids")
_QKV = ("query", "key", "value")
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


def settle_decoder(state: State, config: BertConfig, where: Path) -> BertConfig:
    """Drop a decoder that is the word embeddings, and say whether there is one of its own.

    What is stored counts, as in transformers: a decoder that differs is one of its own, whatever config.json
    says.

    Args:
        state: weights under our names, changed in place.
        config: the architecture as config.json says it.
        where: the directory, for messages.

    Raises:
        InputError: there should be one of its own, and the head that it belongs to has none.
    """
    decoder, words = state.get(DECODER_WEIGHT), state.get(WORD_EMBEDDINGS)
    if decoder is None and not config.tied_decoder and "mlm_head.dense.weight" in state:
        raise InputError(
            f"{where}: config.json says that tie_word_embeddings is false, but no decoder is stored; get the "
            "whole file, or say true if it is the word embeddings"
        )
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
