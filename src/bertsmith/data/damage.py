"""Finding damaged data before it reaches the model, where it would end a run without a word of the cause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.shards import Instances
from bertsmith.errors import InputError


def require_sound(
    instances: Instances,
    indices: NDArray[np.int64],
    rows: Sequence[NDArray[Any]],
    second_starts: NDArray[np.int64],
    labels: NDArray[np.int64],
    vocab_size: int,
) -> None:
    """Refuse instances that ``prepare`` cannot have written.

    Sizes and shapes are compared when files are opened; to read every byte then would take long. So what a
    batch is made of is looked at when it is made.

    Args:
        instances: where they are from.
        indices: int64 ``(batch,)``, which.
        rows: their ids.
        second_starts: int64 ``(batch,)``, theirs.
        labels: int64 ``(batch,)``, theirs.
        vocab_size: ids are below it.

    Raises:
        InputError: naming the file and the instance.
    """
    lengths = instances.lengths(indices)
    read = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    _refuse(
        instances, indices, "offsets", lengths, (lengths != read) | (read < 1) | (read > instances.seq_len)
    )
    ids = np.concatenate(rows)
    if ids.max() >= vocab_size or ids.min() < 0:
        worst = np.array([int(row.max()) if row.max() >= vocab_size else int(row.min()) for row in rows])
        _refuse(instances, indices, "ids", worst, (worst >= vocab_size) | (worst < 0))
    is_outside = (second_starts < 1) | (second_starts > lengths)
    _refuse(instances, indices, "second_starts", second_starts, is_outside)
    _refuse(instances, indices, "labels", labels, (labels < -1) | (labels > 1))


_MEANINGS = {
    "offsets": "its length",
    "ids": "one of its pieces",
    "second_starts": "the start of its second text",
    "labels": "its label",
}


def _refuse(
    instances: Instances,
    indices: NDArray[np.int64],
    array: str,
    values: NDArray[np.int64],
    is_damaged: NDArray[np.bool_],
) -> None:
    if not is_damaged.any():
        return
    at = int(is_damaged.argmax())
    index = int(indices[at])
    raise InputError(
        f"{instances.file_of(index, array)}: damaged: instance {index} of {instances.split}: "
        f"{_MEANINGS[array]} is {values[at]}, which cannot be; restore the file or prepare the data again; "
        "a run's checkpoints are kept, --resume goes on from the last one"
    )
