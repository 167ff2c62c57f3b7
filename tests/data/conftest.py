"""A small vocabulary and prepared data in memory, for the tests of data."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith.data.config import PairingConfig
from bertsmith.data.pairing import Documents, instances_of, num_units
from bertsmith.data.shards import FORMAT, FORMAT_VERSION, Instances, Rows, ShardWriter, id_dtype


class SmallVocabulary:
    """The part of a tokenizer that the data code reads: 5 special tokens, then numbered pieces.

    Every third piece continues a word.
    """

    pad_id, unk_id, cls_id, sep_id, mask_id = range(5)
    special_ids = frozenset(range(5))

    def __init__(self, vocab_size: int = 1000) -> None:
        self.vocab_size = vocab_size
        self.continuation = np.arange(vocab_size) % 3 == 0
        self.continuation[:5] = False


@pytest.fixture(scope="session")
def vocabulary() -> SmallVocabulary:
    return SmallVocabulary()


def rows_of(
    sequences: Sequence[Sequence[int]],
    seconds: Sequence[int],
    labels: Sequence[int],
    sources: Sequence[int] | None = None,
) -> Rows:
    return Rows(
        np.array([id for sequence in sequences for id in sequence], dtype=np.uint16),
        np.cumsum([0, *map(len, sequences)], dtype=np.int64),
        np.array(seconds, dtype=np.int32),
        np.array(labels, dtype=np.int8),
        np.array([0] * len(labels) if sources is None else sources, dtype=np.uint16),
    )


def write_split(directory: Path, rows: Rows, seq_len: int, shard_pieces: int = 1 << 25) -> None:
    """Write rows as the train split of a data directory."""
    directory.mkdir(exist_ok=True)
    writer = ShardWriter(directory / "train", id_dtype(1000), shard_pieces)
    writer.append(rows)
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "settings": {"seq_len": seq_len},
        "splits": {"train": {"shards": writer.close()}},
    }
    (directory / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture
def pairs(tmp_path: Path) -> Callable[..., Instances]:
    """Return a function that prepares NSP pairs of random pieces: (number, seq_len, shard_pieces)."""

    def make(number: int, seq_len: int = 32, shard_pieces: int = 1 << 25) -> Instances:
        draw = np.random.default_rng(number)
        documents = Documents.from_lists(
            [
                [draw.integers(5, 1000, draw.integers(1, 14)).tolist() for _ in range(draw.integers(2, 9))]
                for _ in range(number)
            ]
        )
        config = PairingConfig(seq_len=seq_len)
        made = [
            instance
            for unit in range(num_units(documents, config))
            for instance in instances_of(documents, config, 0, 0, unit)
        ][:number]
        assert len(made) == number
        rows = []
        for instance in made:
            row = [2]
            for start, end in instance.parts:
                row += [*documents.ids[start:end].tolist(), 3]
            rows.append(row)
        write_split(
            tmp_path / "data",
            rows_of(rows, [i.second_start for i in made], [i.label for i in made]),
            seq_len,
            shard_pieces,
        )
        return Instances.open(tmp_path / "data", "train")

    return make
