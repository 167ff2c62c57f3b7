"""Encoding and pairing over processes, and the choice of held-out documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.arrays import is_whole
from bertsmith.data.build import (
    PairCounts,
    PairingJob,
    choose_heldout,
    pair_documents,
    pair_tasks,
    write_rows,
)
from bertsmith.data.config import PairingConfig
from bertsmith.data.encoded import EncodingJob, encode_files
from bertsmith.data.flat import join, open_documents
from bertsmith.data.pairing import Documents, num_units
from bertsmith.text.config import CorpusConfig, TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from tests.data.conftest import rows_of

WORDS = ["red", "blue", "one", "two", "three", "."]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], TokenizerConfig())


def make_job(tmp_path: Path, tokenizer: Tokenizer, text: str, config: PairingConfig) -> PairingJob:
    (tmp_path / "a.txt").write_text(text)
    job = EncodingJob(tokenizer, CorpusConfig(sentences="line", prose_only=False), "tokenizers", 1 << 20)
    encode_files([(0, tmp_path / "a.txt")], job, tmp_path / "encoded", 1, lambda *_: None)
    join(tmp_path / "encoded", [0], tmp_path / "flat")
    chosen = open_documents(tmp_path / "flat", tokenizer.vocab_size).chosen
    separators = (tokenizer.cls_id, tokenizer.sep_id)
    return PairingJob(
        tmp_path / "flat", chosen, config, 0, tokenizer.vocab_size, separators, tmp_path / "rows"
    )


def test_tasks_cover_every_unit_once_in_each_pass() -> None:
    draw = np.random.default_rng(0)
    lengths = [draw.integers(1, 30_000, draw.integers(1, 20)).tolist() for _ in range(60)]
    sentences = [length for document in lengths for length in document]
    documents = Documents(
        np.zeros(sum(sentences), np.uint16),
        np.cumsum([0, *sentences]),
        np.cumsum([0, *map(len, lengths)]),
        np.arange(5, 60),
    )
    for pairing in ("nsp", "full-sentences"):
        config = PairingConfig(pairing, passes=3)
        tasks = pair_tasks(documents, config)
        units = [(task.pass_, unit) for task in tasks for unit in range(task.first, task.last)]
        assert units == [(p, unit) for p in range(3) for unit in range(num_units(documents, config))]
    assert len(pair_tasks(documents, PairingConfig())) > 10


TEXT = "red one\nred two\nred three\n\nblue one\nblue two\n"


@pytest.mark.parametrize("pairing, settings", [("nsp", {"short_seq_prob": 0.0}), ("full-sentences", {})])
def test_rows_have_their_special_tokens(tokenizer, tmp_path, pairing, settings) -> None:
    job = make_job(tmp_path, tokenizer, TEXT, PairingConfig(pairing, 16, passes=4, **settings))
    tasks = pair_tasks(job.open(), job.config)
    assert len(tasks) == 4
    for rows in pair_documents(job, tasks, 1):
        for row, second_start, label in zip(
            np.split(rows.ids, rows.offsets[1:-1]), rows.second_starts, rows.labels, strict=True
        ):
            assert row[0] == 2
            assert row[-1] == 3
            assert set(row[1:-1].tolist()) <= {3, 5, 6, 7, 8, 9}
            if pairing == "nsp":
                assert row[second_start - 1] == 3
                assert row.tolist().count(3) == 2
                assert label in (0, 1)
            else:
                assert second_start == len(row)
                assert label == -1


def test_rows_that_lie_in_files_are_taken_from_there(tokenizer, tmp_path) -> None:
    job = make_job(tmp_path, tokenizer, TEXT, PairingConfig("nsp", 16, passes=4))
    tasks = pair_tasks(job.open(), job.config)
    computed = list(pair_documents(job, tasks, 1))
    write_rows(job, tasks[1:3])
    paths = sorted((tmp_path / "rows").iterdir())
    assert len(paths) == 2
    paths[0].write_bytes(paths[0].read_bytes()[:-30])  # a crash of the machine: computed again
    assert not is_whole(paths[0])
    np.savez(paths[1], **{**vars(computed[2]), "labels": 1 - computed[2].labels})
    found = list(pair_documents(job, tasks, 1))
    for place, (one, two) in enumerate(zip(computed, found, strict=True)):
        assert one.ids.tolist() == two.ids.tolist()
        assert (one.labels == two.labels).all() == (place != 2)
    times = paths[1].stat().st_mtime_ns
    write_rows(job, tasks[1:3])
    assert is_whole(paths[0])
    assert paths[1].stat().st_mtime_ns == times


def test_heldout_documents_are_a_share_and_disjoint() -> None:
    train, heldout = choose_heldout(1000, 0.05, "nsp", 0)
    assert len(heldout) == 50
    assert np.array_equal(np.sort(np.concatenate([train, heldout])), np.arange(1000))
    assert (np.diff(train) > 0).all()
    assert not np.array_equal(choose_heldout(1000, 0.05, "nsp", 1)[1], heldout)
    assert set(choose_heldout(1000, 0.02, "nsp", 0)[1].tolist()) <= set(heldout.tolist())


@pytest.mark.parametrize(
    ("documents", "share", "pairing", "expected"),
    [
        (2, 0.01, "nsp", 0),
        (19, 0.01, "nsp", 0),
        (20, 0.01, "nsp", 2),
        (150, 0.01, "nsp", 2),
        (9, 0.01, "sop", 0),
        (10, 0.01, "sop", 1),
        (1000, 0.0, "nsp", 0),
        (4, 0.5, "nsp", 2),
        (3, 0.6, "nsp", 0),
        (1, 0.5, "sop", 0),
    ],
)
def test_few_documents_are_held_out_with_sense(documents, share, pairing, expected) -> None:
    train, heldout = choose_heldout(documents, share, pairing, 0)
    assert len(heldout) == expected
    assert len(train) == documents - expected


def test_pairs_are_counted() -> None:
    counts = PairCounts.of(3, 16, 2)
    counts.add(rows_of([[2, 5, 3, 6, 3], [2, 5, 3, 6, 6, 3]], [3, 3], [0, 1], [1, 0]))
    counts.add(rows_of([[2, *range(5, 18), 3, 5][:16]], [3], [1], [1]))
    assert counts.to_dict("nsp", ["books", "wiki"]) == {
        "documents": 3,
        "instances": 3,
        "pieces": 27,
        "mean_length": 9.0,
        "lengths": {
            "1-2": 0, "3-4": 0, "5-6": 2, "7-8": 0, "9-10": 0, "11-12": 0, "13-14": 0, "15-16": 1,
        },
        "sources": {"books": 1, "wiki": 2},
        "nsp": {"next": 1, "random": 2, "random_share": 0.6667},
    }  # fmt: skip
    assert "nsp" not in counts.to_dict("doc-sentences", ["a", "b"])
    assert counts.to_dict("sop", ["a", "b"])["sop"]["swapped"] == 2
