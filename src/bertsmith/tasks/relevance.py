"""Scores of pairs (query, text): what a model that was trained on pairs says about a text's relevance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.stored_task import plain_head

_ENTAILMENT = "entailment"


def reads_pairs(task: Mapping[str, Any] | None) -> bool:
    """Say whether a model scores pairs of texts.

    One that was trained here says so by its columns. Of other origin, a single output is what cross-encoders
    have; several outputs are taken for a classifier of single texts.

    Args:
        task: content of task.json.
    """
    head = plain_head((task or {}).get("head"))
    if task is None or head not in ("classification", "regression"):
        return False
    columns = task.get("columns")
    return head == "regression" if columns is None else columns["second_text"] is not None


def relevant_label(labels: Sequence[str], wanted: str | None, where: str) -> str:
    """Return the label whose probability is the score of a text.

    Args:
        labels: of the classifier.
        wanted: named by the user; ``None``: "entailment" where there is such a label, or the second of two
            (as in "0", "1" or "no", "yes").
        where: the model, for messages.

    Raises:
        InputError: the label is unknown, or none can be chosen.
    """
    if wanted is not None:
        if wanted not in labels:
            raise InputError(f"{where}: label {wanted!r} is unknown; {nearest(wanted, list(labels))}")
        return wanted
    if _ENTAILMENT in labels:
        return _ENTAILMENT
    if len(labels) == 2:
        return labels[1]
    raise InputError(f"{where}: name the label that means relevant, one of {', '.join(labels)}")
