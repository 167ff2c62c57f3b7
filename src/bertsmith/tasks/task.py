"""The tasks, by name. The recipes read a record's fields and never ask for its name."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from bertsmith.bundle import Bundle, load_encoder, load_pretraining_model
from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.tasks import choice_rows, custom, embedding_rows, glue, squad, tagged_source
from bertsmith.tasks.choice import CHOICE
from bertsmith.tasks.classification import CLASSIFICATION
from bertsmith.tasks.embedding import EMBEDDING, measured_by
from bertsmith.tasks.feature_rows import FEATURE_CLASSIFICATION, FEATURE_MULTI_LABEL, FEATURE_REGRESSION
from bertsmith.tasks.feature_tagging import FEATURE_TAGGING
from bertsmith.tasks.kind import Kind, Labels, Task
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.regression import REGRESSION
from bertsmith.tasks.retrieval import RETRIEVAL_METRICS
from bertsmith.tasks.spans import SPANS
from bertsmith.tasks.tagging import TAGGING

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        *(CLASSIFICATION, REGRESSION, MULTI_LABEL, CHOICE, SPANS, TAGGING, EMBEDDING),
        *(FEATURE_CLASSIFICATION, FEATURE_REGRESSION, FEATURE_MULTI_LABEL, FEATURE_TAGGING),
    )
}

_NO_OR_YES = ("0", "1")
_ENTAILED_OR_NOT = ("entailment", "not_entailment")
_INFERENCE = ("contradiction", "entailment", "neutral")


def _glue(name: str, labels: Labels, metrics: tuple[str, ...], main_metric: str) -> Task:
    files = glue.GLUE[name]
    return Task(
        name,
        REGRESSION if labels is None else CLASSIFICATION,
        labels,
        metrics,
        main_metric,
        partial(glue.read_split, files),
        other_dev=tuple(split for split in files.splits if split.startswith("dev_")),
        frozen_kind=FEATURE_REGRESSION if labels is None else FEATURE_CLASSIFICATION,
    )


def _questions(name: str, files: str | None, more_metrics: tuple[str, ...] = ()) -> Task:
    metrics = (*more_metrics, "f1", "exact_match")
    return Task(name, SPANS, None, metrics, metrics[0], partial(squad.read_split, files))


def _words(name: str) -> Task:
    metrics = ("f1", "precision", "recall", "strict_f1", "macro_f1", "accuracy")
    return Task(name, TAGGING, None, metrics, "f1", tagged_source.read_split, frozen_kind=FEATURE_TAGGING)


# The labels of the GLUE tasks are the strings of the published files, in the order of the original where it
# has the task. Source: run_classifier.py, get_labels of each processor; metrics: the paper, section 4.1, and
# for the diagnostic set the GLUE leaderboard.
TASKS: Mapping[str, Task] = {
    "cola": _glue("cola", _NO_OR_YES, ("matthews", "accuracy"), "matthews"),
    "sst2": _glue("sst2", _NO_OR_YES, ("accuracy",), "accuracy"),
    "mrpc": _glue("mrpc", _NO_OR_YES, ("f1", "accuracy"), "f1"),
    "stsb": _glue("stsb", None, ("pearson", "spearman"), "spearman"),
    "qqp": _glue("qqp", _NO_OR_YES, ("f1", "accuracy"), "f1"),
    "mnli": _glue("mnli", _INFERENCE, ("accuracy",), "accuracy"),
    "qnli": _glue("qnli", _ENTAILED_OR_NOT, ("accuracy",), "accuracy"),
    "rte": _glue("rte", _ENTAILED_OR_NOT, ("accuracy",), "accuracy"),
    "wnli": _glue("wnli", _NO_OR_YES, ("accuracy",), "accuracy"),
    "ax": _glue("ax", _INFERENCE, ("matthews", "accuracy"), "matthews"),
    "squad1": _questions("squad1", "{}-v1.1*"),
    "squad2": _questions("squad2", "{}-v2.0*"),
    "cmrc2018": _questions("cmrc2018", "cmrc2018_{}*", ("average",)),
    "answer": _questions("answer", None),
    "classify": Task(
        "classify",
        CLASSIFICATION,
        None,
        ("accuracy", "macro_f1", "matthews"),
        "accuracy",
        custom.read_split,
        frozen_kind=FEATURE_CLASSIFICATION,
    ),
    "swag": Task("swag", CHOICE, None, ("accuracy",), "accuracy", choice_rows.read_swag_split),
    "choose": Task("choose", CHOICE, None, ("accuracy",), "accuracy", choice_rows.read_split),
    "multilabel": Task(
        "multilabel",
        MULTI_LABEL,
        None,
        ("micro_f1", "macro_f1", "exact_match", "micro_f1_at_half", "macro_f1_at_half"),
        "micro_f1",
        partial(custom.read_split, several=True),
        frozen_kind=FEATURE_MULTI_LABEL,
    ),
    "regress": Task(
        "regress",
        REGRESSION,
        None,
        ("pearson", "spearman", "rmse"),
        "pearson",
        custom.read_split,
        scale_values=True,
        frozen_kind=FEATURE_REGRESSION,
    ),
    "conll": _words("conll"),
    "tag": _words("tag"),
    "embed": Task(
        "embed",
        EMBEDDING,
        None,
        RETRIEVAL_METRICS,
        RETRIEVAL_METRICS[0],
        embedding_rows.read_split,
        measured_by=measured_by,
    ),
}


def stored_model(bundle: Bundle) -> nn.Module:
    """Return a model directory's model with the head that is stored, or the encoder alone.

    Raises:
        InputError: a weight is NaN or infinite, so that no answer would be one.
    """
    for name, value in bundle.state.items():
        if not all(math.isfinite(bound) for bound in torch.aminmax(value)):
            raise InputError(
                f"{bundle.directory}: {name} holds NaN or infinity, the model is broken; get it again, or "
                "train it anew at a lower rate"
            )
    kind = KINDS.get((bundle.task or {}).get("head") or "")
    if kind is not None:
        return kind.load_model(bundle, None)
    if "mlm_head.dense.weight" in bundle.state:
        return load_pretraining_model(bundle)
    return load_encoder(bundle)


def find_task(name: str, head: str | None = None) -> Task:
    """Return a task by its name.

    Args:
        name: of the task.
        head: of a model for it, which may be of the task's other kind.

    Raises:
        InputError: there is none of that name; the message names the nearest.
    """
    if name not in TASKS:
        raise InputError(f"task {name!r} is unknown; {nearest(name, list(TASKS))}")
    task = TASKS[name]
    if task.frozen_kind is not None and head == task.frozen_kind.name:
        return dataclasses.replace(task, kind=task.frozen_kind)
    return task


def settings_of(
    task: Task, given: Mapping[str, Any], begun: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the settings that only tasks of this kind have: as given, inherited, or their defaults.

    Args:
        task: the task.
        given: values by name, of every setting that any kind has; ``None`` where nothing was given.
        begun: task.json of the model that training begins with; ``None`` where it has no head.

    Raises:
        InputError: a setting of another kind was given, which would be ignored.
    """
    for name, value in given.items():
        if value is not None and name not in task.kind.settings:
            fitting = ", ".join(known.name for known in TASKS.values() if _has_setting(known, name))
            raise InputError(
                f"--{name.replace('_', '-')} {value} would be ignored: it is for {fitting}, not for "
                f"{task.name}; leave it out"
            )
    defaults = dict(task.kind.settings)
    if begun is not None and begun.get("head") == task.kind.name:
        stored = begun.get("settings") or {}
        defaults |= {name: stored[name] for name in task.kind.inherited if name in stored}
    return {name: default if given[name] is None else given[name] for name, default in defaults.items()}


def _has_setting(task: Task, name: str) -> bool:
    kinds = (task.kind, task.frozen_kind or task.kind)
    return any(name in kind.settings for kind in kinds)


def all_settings() -> list[str]:
    """Return the names of the settings that only some kinds of tasks have."""
    return sorted({name for kind in KINDS.values() for name in kind.settings})
