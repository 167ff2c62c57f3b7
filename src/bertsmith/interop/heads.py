"""Which of BERT's classes in transformers given weights are for, and what belongs to it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bertsmith.interop.huggingface import MULTIPLE_CHOICE, SEQUENCE_CLASSIFICATION, TOKEN_CLASSIFICATION
from bertsmith.interop.weight_names import DECODER_WEIGHT
from bertsmith.stored_task import FROZEN

_DENSE = ("dense.weight", "dense.bias")
_LINEAR = ("weight", "bias")
_WEIGHTS: dict[str, tuple[str, ...]] = {
    "pooler": _DENSE,
    "mlm_head": (*_DENSE, "norm.weight", "norm.bias", "bias"),
    "nsp_head": _LINEAR,
    "classifier": _LINEAR,
    "span_scores": _LINEAR,
}
_PARTS: dict[str, tuple[str, ...]] = {
    "BertModel": ("pooler",),
    "BertForPreTraining": ("pooler", "mlm_head", "nsp_head"),
    "BertForMaskedLM": ("pooler", "mlm_head"),
    "BertForNextSentencePrediction": ("pooler", "nsp_head"),
    SEQUENCE_CLASSIFICATION: ("pooler", "classifier"),
    MULTIPLE_CHOICE: ("pooler", "classifier"),
    "BertForQuestionAnswering": ("span_scores",),
    TOKEN_CLASSIFICATION: ("classifier",),
}
_OF_HEAD = {
    "classification": SEQUENCE_CLASSIFICATION,
    "regression": SEQUENCE_CLASSIFICATION,
    "multi-label": SEQUENCE_CLASSIFICATION,
    "choice": MULTIPLE_CHOICE,
    "spans": "BertForQuestionAnswering",
    "tagging": TOKEN_CLASSIFICATION,
    "embedding": "BertModel",
}
_FEATURE_PARTS = ("lstm", "mix", "reading", "hidden", "classifier")


@dataclass(frozen=True)
class Heads:
    """What is on an encoder.

    Attributes:
        bert_class: BERT's class of transformers that reads it.
        parts: what our names of the weights begin with.
    """

    bert_class: str
    parts: tuple[str, ...]

    def own(self, name: str) -> bool:
        """Say whether our name of a weight is one of these heads'."""
        return name.partition(".")[0] in self.parts

    def missing(self, names: Iterable[str], tied_decoder: bool) -> list[str]:
        """Return our names of the weights that are missing.

        Args:
            names: those that are there.
            tied_decoder: the masked language model has no decoder of its own.
        """
        needed = [f"{part}.{name}" for part in self.parts for name in _WEIGHTS.get(part, ())]
        if "mlm_head" in self.parts and not tied_decoder:
            needed.append(DECODER_WEIGHT)
        present = set(names)
        return [name for name in needed if name not in present]


def heads_of(head: str | None, names: Iterable[str]) -> Heads:
    """Return the heads of a model.

    Args:
        head: as task.json names it; ``None`` or one for pretraining: the weights tell.
        names: our names of the weights.
    """
    if (head or "").startswith(FROZEN):
        return Heads("BertModel", _FEATURE_PARTS)
    bert_class = _OF_HEAD.get(head or "") or _pretrained_class({name.partition(".")[0] for name in names})
    return Heads(bert_class, _PARTS[bert_class])


def _pretrained_class(present: set[str]) -> str:
    if "mlm_head" in present:
        return "BertForPreTraining" if {"pooler", "nsp_head"} <= present else "BertForMaskedLM"
    return "BertForNextSentencePrediction" if {"pooler", "nsp_head"} <= present else "BertModel"
