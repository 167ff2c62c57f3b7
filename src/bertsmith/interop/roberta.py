"""RoBERTa's files are BERT's under other names, with three differences.

Positions are counted from behind the padding's number, so the table of positions has as many rows more at its
beginning, which no token reads. The dense layer with tanh that BERT calls its pooler is part of the head for
classes. There is no next sentence prediction.

RoBERTa-PreLayerNorm is the same with LayerNorm before the sublayers; so its norms have other names and one is
new. That is how other programs know our BERT with ``norm`` "pre"; of it, pooler and head of next sentence
prediction are kept, which those programs pass over.

Source: transformers, modeling_roberta.py and modeling_roberta_prelayernorm.py; fairseq,
    models/roberta/model.py and utils.make_positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

PRE_NORM = "roberta-prelayernorm"
_BASES = {"roberta": "roberta.", PRE_NORM: "roberta_prelayernorm."}
_CLASSES = {"roberta": "Roberta", PRE_NORM: "RobertaPreLayerNorm"}
MODEL_TYPES = tuple(_BASES)

# What BERT's name begins with, and RoBERTa's; the first that fits counts.
_BEGINNINGS = (
    ("cls.predictions.transform.dense.", "lm_head.dense."),
    ("cls.predictions.transform.LayerNorm.", "lm_head.layer_norm."),
    ("cls.predictions.decoder.", "lm_head.decoder."),
    ("cls.predictions.bias", "lm_head.bias"),
)
_HEAD_BEGINNINGS = (("bert.pooler.dense.", "classifier.dense."), ("classifier.", "classifier.out_proj."))
# The same for norms within a layer of RoBERTa-PreLayerNorm; in this order, the second is part of the first.
_NORMS = (
    (".attention.output.LayerNorm.", ".attention.LayerNorm."),
    (".output.LayerNorm.", ".intermediate.LayerNorm."),
)
_POSITIONS = "embeddings.position_embeddings.weight"
_NOT_STORED = ("cls.seq_relationship.", "bert.pooler.")


def class_name(bert_class: str, model_type: str) -> str:
    """Return the class of transformers that stands for one of BERT's."""
    name = bert_class.replace("Bert", _CLASSES[model_type])
    return name.replace("ForPreTraining", "ForMaskedLM").replace("LMHeadModel", "ForCausalLM")


def position_offset(pad_id: int) -> int:
    """Return the number of the first position."""
    return pad_id + 1


def roberta_name(name: str, model_type: str) -> str:
    """Return RoBERTa's name of a weight with BERT's name (the pooler is in the head for classes)."""
    return _renamed(name, model_type, with_head=True)


def to_roberta(
    stored: Mapping[str, Tensor], model_type: str, pad_id: int, bert_class: str
) -> dict[str, Tensor]:
    """Return weights with BERT's names under RoBERTa's.

    Args:
        stored: of a model; of "roberta", a pooler is left out where heads do not read it, and so is the head
            of next sentence prediction, which nothing has trained.
        model_type: one of ``MODEL_TYPES``.
        pad_id: id of the padding.
        bert_class: BERT's class of transformers. A head for classes takes the pooler in; one for choices
            and no head at all leave it where BERT has it.
    """
    with_head = bert_class == "BertForSequenceClassification"
    keeps_all = model_type == PRE_NORM or bert_class in ("BertForMultipleChoice", "BertModel")
    result = {}
    for name, value in stored.items():
        theirs = _renamed(name, model_type, with_head)
        if name.endswith(_POSITIONS):
            unused = torch.zeros(position_offset(pad_id), value.shape[1], dtype=value.dtype)
            value = torch.cat([unused, value])
        if keeps_all or not name.startswith(_NOT_STORED) or theirs.startswith("classifier."):
            result[theirs] = value
    return result


def without_unused_positions(stored: Mapping[str, Tensor], pad_id: int) -> dict[str, Tensor]:
    """Return weights with BERT's names and the positions from 0."""
    result = dict(stored)
    for name, value in result.items():
        if name.endswith(_POSITIONS):
            result[name] = value[position_offset(pad_id) :].contiguous()
    return result


def _renamed(name: str, model_type: str, with_head: bool) -> str:
    pairs = (*(_HEAD_BEGINNINGS if with_head else ()), *_BEGINNINGS, ("bert.", _BASES[model_type]))
    if model_type == PRE_NORM:
        for old, new in _NORMS:
            name = name.replace(old, new)
    return _with_beginning(name, pairs)


def bert_names(names: Mapping[str, str], model_type: str) -> dict[str, str]:
    """Return for each stored name BERT's, from RoBERTa's; unknown ones stay.

    A head for classes has its own dense layer in the place of the pooler; an encoder's pooler beside it,
    which old files have, keeps its name.
    """
    has_own = any(name.startswith("classifier.dense.") for name in names.values())
    pooler = f"{_BASES[model_type]}pooler."
    return {
        stored: name if has_own and name.startswith(pooler) else _bert_name(name, model_type)
        for stored, name in names.items()
    }


def _bert_name(name: str, model_type: str) -> str:
    pairs = (*_HEAD_BEGINNINGS, *_BEGINNINGS, ("bert.", _BASES[model_type]))
    name = _with_beginning(name, tuple((theirs, ours) for ours, theirs in pairs))
    if model_type == PRE_NORM:
        for ours, theirs in _NORMS:
            name = name.replace(theirs, ours)
    return name


def _with_beginning(name: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for old, new in pairs:
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
