"""Where the data of a task lies in a directory of published data sets."""

from __future__ import annotations

from pathlib import Path

from bertsmith.errors import InputError
from bertsmith.tasks.glue import GLUE

_OTHERS = {"squad1": ("squad", "SQuAD"), "conll": ("conll2003", "conll")}


def task_directory(root: str | None, task: str) -> Path:
    """Return the directory of a task's data.

    Args:
        root: holds directories under their published names, GLUE's also in a folder ``glue``.
        task: as finetune names it.

    Raises:
        InputError: it is not there.
    """
    if root is None:
        raise InputError(
            f"--task-data is missing: the directory that holds the data of {task}; or --tasks none"
        )
    names = (GLUE[task].directory,) if task in GLUE else _OTHERS[task]
    places = [Path(root) / folder / name for folder in ("", "glue", "GLUE") for name in names]
    for place in places:
        if place.is_dir():
            return place
    raise InputError(f"--task-data {root} holds no {' or '.join(names)}, the data of {task}; put it there")
