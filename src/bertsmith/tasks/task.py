"""The tasks, by name. The recipes read a record's fields and never ask for its name."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.tasks import custom, glue
from bertsmith.tasks.classification import CLASSIFICATION
from bertsmith.tasks.kind import Kind, Task
from bertsmith.tasks.regression import REGRESSION

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (CLASSIFICATION, REGRESSION)}

# The labels of the GLUE tasks are the strings of the published files, in the order of the original.
# Source: run_classifier.py, get_labels of each processor; metrics: the paper, section 4.1.
TASKS: Mapping[str, Task] = {
    "cola": Task(
        "cola",
        CLASSIFICATION,
        ("0", "1"),
        ("matthews", "accuracy"),
        "matthews",
        partial(glue.read_split, glue.GLUE["cola"]),
    ),
    "sst2": Task(
        "sst2",
        CLASSIFICATION,
        ("0", "1"),
        ("accuracy",),
        "accuracy",
        partial(glue.read_split, glue.GLUE["sst2"]),
    ),
    "mrpc": Task(
        "mrpc",
        CLASSIFICATION,
        ("0", "1"),
        ("f1", "accuracy"),
        "f1",
        partial(glue.read_split, glue.GLUE["mrpc"]),
    ),
    "stsb": Task(
        "stsb",
        REGRESSION,
        None,
        ("pearson", "spearman"),
        "spearman",
        partial(glue.read_split, glue.GLUE["stsb"]),
    ),
    "rte": Task(
        "rte",
        CLASSIFICATION,
        ("entailment", "not_entailment"),
        ("accuracy",),
        "accuracy",
        partial(glue.read_split, glue.GLUE["rte"]),
    ),
    "classify": Task(
        "classify",
        CLASSIFICATION,
        None,
        ("accuracy", "macro_f1", "matthews"),
        "accuracy",
        custom.read_split,
    ),
    "regress": Task(
        "regress",
        REGRESSION,
        None,
        ("pearson", "spearman", "rmse"),
        "pearson",
        custom.read_split,
        scale_values=True,
    ),
}


def find_task(name: str) -> Task:
    """Return a task by its name.

    Raises:
        InputError: there is none of that name; the message names the nearest.
    """
    if name not in TASKS:
        raise InputError(f"task {name!r} is unknown; {nearest(name, list(TASKS))}")
    return TASKS[name]
