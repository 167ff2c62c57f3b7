"""Encoding and pairing over processes, and the choice of held-out documents."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.build import (
    PairCounts,
    choose_heldout,
    encode_documents,
    open_documents,
    pair_documents,
    pair_tasks,
)
from bertsmith.data.config import PairingConfig
from bertsmith.data.pairing import Documents, num_units
from bertsmith.text.config import CorpusConfig, TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from tests.data.conftest import rows_of

WORDS = ["red", "blue", "one", "two", "three", "."]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS], TokenizerConfig())


def encode(documents: list[list[str]], tokenizer: Tokenizer, directory: Path, workers: int = 1):
    directory.mkdir()
    characters: list[float] = []
    counts = encode_documents(
        [(0, document) for document in documents],
        tokenizer,
        CorpusConfig(sentences="line"),
        directory,
        workers,
        characters.append,
    )
    assert sum(characters) == sum(len(line) for document in documents for line in document)
    return counts, open_documents(directory, tokenizer.vocab_size)


def test_documents_become_flat_ids(tokenizer, tmp_path) -> None:
    counts, documents = encode(
        [["red one", "\u200b", "red two ."], ["\u200b"], ["blue"]], tokenizer, tmp_path / "work"
    )
    assert documents.ids.tolist() == [5, 7, 5, 8, 10, 6]
    assert documents.ids.dtype == np.uint16
    assert documents.sentence_starts.tolist() == [0, 2, 5, 6]
    assert documents.document_starts.tolist() == [0, 2, 3]
    assert (counts.documents, counts.sentences, counts.empty_documents, counts.pieces) == (2, 5, 1, 6)
    assert documents.bounds(1) == [5, 6]


@pytest.mark.parametrize("workers", [1, 2])
def test_many_batches_make_the_same_files_as_one(tokenizer, tmp_path, monkeypatch, workers) -> None:
    draw = np.random.default_rng(0)
    texts = [
        [" ".join(draw.choice(WORDS, draw.integers(1, 6))) for _ in range(draw.integers(1, 5))]
        for _ in range(40)
    ]
    monkeypatch.setattr("bertsmith.data.build._TASK_CHARACTERS", 60)
    counts, documents = encode(texts, tokenizer, tmp_path / "work", workers)
    expected = Documents.from_lists([tokenizer.encode_batch(document) for document in texts])
    assert counts.documents == 40
    np.testing.assert_array_equal(documents.ids, expected.ids)
    np.testing.assert_array_equal(documents.sentence_starts, expected.sentence_starts)
    np.testing.assert_array_equal(documents.document_starts, expected.document_starts)
    np.testing.assert_array_equal(documents.chosen, expected.chosen)


def test_nothing_at_all_is_encoded_to_nothing(tokenizer, tmp_path) -> None:
    counts, documents = encode([], tokenizer, tmp_path / "work")
    assert counts.documents == len(documents) == 0


def test_literal_special_tokens_stay_text(tokenizer, tmp_path) -> None:
    _, documents = encode([["red [SEP] blue [CLS]"]], tokenizer, tmp_path / "work")
    assert not set(documents.ids.tolist()) & {0, 2, 3, 4}


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


@pytest.mark.parametrize("pairing, settings", [("nsp", {"short_seq_prob": 0.0}), ("full-sentences", {})])
def test_rows_have_their_special_tokens(tokenizer, tmp_path, pairing, settings) -> None:
    _, documents = encode(
        [["red one", "red two", "red three"], ["blue one", "blue two"]], tokenizer, tmp_path / "work"
    )
    config = PairingConfig(pairing, 16, passes=4, **settings)
    for rows in pair_documents(tmp_path / "work", documents.chosen, config, 0, tokenizer, 1):
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
