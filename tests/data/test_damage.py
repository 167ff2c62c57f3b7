from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.config import MaskingConfig
from bertsmith.data.loader import PretrainingLoader
from bertsmith.data.shards import Instances
from bertsmith.errors import InputError


def overwrite(path: Path, place: int, value: int) -> None:
    """Change one number of an array on disk; the file keeps its size."""
    stored = np.load(path)
    stored[place] = value
    np.save(path, stored)


def read_all(directory: Path, vocabulary) -> None:
    loader = PretrainingLoader(Instances.open(directory, "train"), vocabulary, MaskingConfig(), 0, 8)
    for step in range(loader.steps_per_epoch):
        loader.batch(step)


@pytest.mark.parametrize(
    "array, value, told",
    [
        ("ids", 1000, "one of its pieces is 1000"),
        ("ids", 65535, "one of its pieces is 65535"),
        ("offsets", 10**12, "its length is"),
        ("offsets", 0, "its length is"),
        ("offsets", -5, "its length is"),
        ("second_starts", 4000, "the start of its second text is 4000"),
        ("second_starts", -1, "the start of its second text is -1"),
        ("labels", 7, "its label is 7"),
    ],
)
def test_damage_is_found_when_a_batch_is_made(array, value, told, pairs, vocabulary):
    instances = pairs(60, shard_pieces=400)
    directory, first = instances.directory, instances.example(0)
    del instances
    read_all(directory, vocabulary)
    path = directory / "train" / f"{array}-00001.npy"
    assert path.is_file(), "the data has several shards"
    overwrite(path, 2, value)
    with pytest.raises(InputError) as caught:
        read_all(directory, vocabulary)
    message = str(caught.value)
    assert message.startswith(f"{path}: damaged: instance ")
    assert told in message
    assert "prepare the data again" in message
    assert Instances.open(directory, "train").example(0).ids.tolist() == first.ids.tolist()
