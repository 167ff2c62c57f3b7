"""RoBERTa's files are BERT's under other names, with three differences.

Positions are counted from behind the padding's number, so the table of positions has as many rows more at its
beginning, which no token reads. The dense layer with tanh that BERT calls its pooler is part of the head for
classes. There is no next sentence prediction.

Source: transformers, modeling_roberta.py; fairseq, models/roberta/model.py and utils.make_positions.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

# What BERT's name begins with, and RoBERTa's; the first that fits counts.
_BEGINNINGS = (
    ("cls.predictions.transform.dense.", "lm_head.dense."),
    ("cls.predictions.transform.LayerNorm.", "lm_head.layer_norm."),
    ("cls.predictions.decoder.", "lm_head.decoder."),
    ("cls.predictions.bias", "lm_head.bias"),
    ("bert.", "roberta."),
)
_HEAD_BEGINNINGS = (("bert.pooler.dense.", "classifier.dense."), ("classifier.", "classifier.out_proj."))
_POSITIONS = "embeddings.position_embeddings.weight"
_NOT_STORED = ("cls.seq_relationship.", "bert.pooler.")


def class_name(bert_class: str) -> str:
    """Return the class of transformers that stands for one of BERT's."""
    return bert_class.replace("Bert", "Roberta").replace("ForPreTraining", "ForMaskedLM")


def position_offset(pad_id: int) -> int:
    """Return the number of the first position."""
    return pad_id + 1


def roberta_name(name: str) -> str:
    """Return RoBERTa's name of a weight with BERT's name (the pooler is in the head for classes)."""
    return _renamed(name, (*_HEAD_BEGINNINGS, *_BEGINNINGS))


def to_roberta(stored: Mapping[str, Tensor], pad_id: int) -> dict[str, Tensor]:
    """Return weights with BERT's names under RoBERTa's.

    Args:
        stored: of a model; a pooler is left out unless a head for classes reads it, and so is the head of
            next sentence prediction, which nothing has trained.
        pad_id: id of the padding.
    """
    pairs: tuple[tuple[str, str], ...] = _BEGINNINGS
    if any(name.startswith("classifier.") for name in stored):
        pairs = (*_HEAD_BEGINNINGS, *_BEGINNINGS)
    result = {}
    for name, value in stored.items():
        theirs = _renamed(name, pairs)
        if name.endswith(_POSITIONS):
            unused = torch.zeros(position_offset(pad_id), value.shape[1], dtype=value.dtype)
            value = torch.cat([unused, value])
        if theirs.startswith("classifier.") or not name.startswith(_NOT_STORED):
            result[theirs] = value
    return result


def from_roberta(stored: Mapping[str, Tensor], pad_id: int) -> dict[str, Tensor]:
    """Return weights with RoBERTa's names under BERT's, positions from 0; unknown names stay."""
    back = tuple((theirs, ours) for ours, theirs in (*_HEAD_BEGINNINGS, *_BEGINNINGS))
    result = {_renamed(name, back): value for name, value in stored.items()}
    for name, value in result.items():
        if name.endswith(_POSITIONS):
            result[name] = value[position_offset(pad_id) :].contiguous()
    return result


def _renamed(name: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for old, new in pairs:
        if name.startswith(old):
            return new + name.removeprefix(old)
    return name
