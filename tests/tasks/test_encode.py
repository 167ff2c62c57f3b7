"""Encoding: the original's truncation, counted; batches that hold every row once."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.errors import InputError
from bertsmith.tasks.encode import (
    EncodedRow,
    TrainingRows,
    batch_of,
    check_seq_len,
    count_truncated,
    encode_rows,
    longest_first,
    token_batches,
)
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import TASKS
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = [f"w{letter}" for letter in "abcdefghij"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer([*SPECIAL_TOKENS, *WORDS], TokenizerConfig())


def pieces(tokenizer: Tokenizer, row: EncodedRow) -> list[str]:
    return [tokenizer.token(id) for id in row.ids]


def lose_one_at_a_time(first: int, second: int, space: int) -> tuple[int, int]:
    """The original's loop, as a reference. Source: run_classifier.py, _truncate_seq_pair."""
    while first + second > space:
        if first > second:
            first -= 1
        else:
            second -= 1
    return first, second


def test_truncation_of_pairs_is_the_originals_loop() -> None:
    for first, second, space in itertools.product(range(14), range(14), range(1, 12)):
        assert longest_first(first, second, space) == lose_one_at_a_time(first, second, space)


def test_single_texts_and_pairs(tokenizer: Tokenizer) -> None:
    single, pair, empty, empty_pair = encode_rows(
        [("wa wb", None), ("wa", "wb wc"), ("\u0000 \u200b", None), ("", "")], tokenizer, 16
    )
    assert pieces(tokenizer, single) == ["[CLS]", "wa", "wb", "[SEP]"]
    assert single.second_start == 4
    assert pieces(tokenizer, pair) == ["[CLS]", "wa", "[SEP]", "wb", "wc", "[SEP]"]
    assert pair.second_start == 3
    assert pieces(tokenizer, empty) == ["[CLS]", "[SEP]"], "a text without pieces still gives a row"
    assert pieces(tokenizer, empty_pair) == ["[CLS]", "[SEP]", "[SEP]"]
    assert not any(row.truncated for row in (single, pair, empty))


def test_what_is_too_long_is_cut_and_counted(tokenizer: Tokenizer) -> None:
    texts = [("wa wb wc wd we wf wg", None), ("wa wb wc wd we wf", None), ("wa wb wc wd", "we wf wg")]
    tail = encode_rows(texts, tokenizer, 8, "tail")
    assert count_truncated(tail) == 2
    assert pieces(tokenizer, tail[0]) == ["[CLS]", "wa", "wb", "wc", "wd", "we", "wf", "[SEP]"]
    assert not tail[1].truncated
    assert pieces(tokenizer, tail[2]) == ["[CLS]", "wa", "wb", "wc", "[SEP]", "we", "wf", "[SEP]"]
    head = encode_rows(texts, tokenizer, 8, "head")
    assert pieces(tokenizer, head[0]) == ["[CLS]", "wb", "wc", "wd", "we", "wf", "wg", "[SEP]"]
    assert pieces(tokenizer, head[2]) == ["[CLS]", "wb", "wc", "wd", "[SEP]", "wf", "wg", "[SEP]"]
    both = encode_rows([(" ".join(WORDS), None)], tokenizer, 10, "head+tail")
    assert pieces(tokenizer, both[0]) == ["[CLS]", "wa", "wb", *WORDS[4:], "[SEP]"], (
        "a quarter, three quarters"
    )
    with pytest.raises(InputError, match=r"t\.csv, line 2 has 9 pieces, more than seq-len 8"):
        encode_rows(texts, tokenizer, 8, "error", where=lambda index: f"t.csv, line {index + 2}")


def test_head_and_tail_are_kept_as_published(tokenizer: Tokenizer) -> None:
    """128 pieces of the head and 382 of the tail, of 510. Source: Sun et al., section 5.3.1."""
    text = " ".join(WORDS[number % 10] for number in range(700))
    whole = tokenizer.encode(text)
    (row,) = encode_rows([(text, None)], tokenizer, 512, "head+tail")
    assert row.ids[1:-1].tolist() == whole[:128] + whole[-382:]


def test_lengths_and_policies_out_of_range_are_refused() -> None:
    check_seq_len(512, 512, "tail")
    with pytest.raises(InputError, match="seq-len is 513"):
        check_seq_len(513, 512, "tail")
    with pytest.raises(InputError, match="seq-len is 7"):
        check_seq_len(7, 512, "tail")
    with pytest.raises(InputError, match="truncation is 'middle'"):
        check_seq_len(128, 512, "middle")


def test_real_pairs_equal_transformers(shared_data: Path, minilm_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    read = TASKS["mrpc"].read(DataSource(str(shared_data / "glue" / "MRPC")), "dev")
    assert read is not None
    texts = [row.texts for row in read.rows]
    theirs = transformers.AutoTokenizer.from_pretrained(minilm_path)(
        [a for a, _ in texts], [b for _, b in texts], truncation=False
    )
    ours = encode_rows(texts, Tokenizer.load(minilm_path), 512)
    for row, ids, segments in zip(ours, theirs["input_ids"], theirs["token_type_ids"], strict=True):
        assert row.ids.tolist() == ids
        tokens = batch_of([row], [0]).tokens
        assert tokens.segment_ids.tolist() == segments


def some_rows(lengths: list[int]) -> list[EncodedRow]:
    return [EncodedRow(np.full(n, i, dtype=np.int64), n, False) for i, n in enumerate(lengths)]


def test_a_batch_keeps_labels_with_their_rows() -> None:
    rows = some_rows([5, 2, 3, 2])
    batch = batch_of(rows, [0, 2, 3], np.array([10, 11, 12, 13]))
    assert batch.tokens.layout.lengths == (2, 3, 5)
    assert batch.rows.tolist() == [3, 2, 0]
    assert batch.labels.tolist() == [13, 12, 10]
    assert batch.labels.dtype == torch.int64
    assert batch.tokens.input_ids.tolist() == [3] * 2 + [2] * 3 + [0] * 5
    assert batch_of(rows, [0], np.array([0.5, 1, 1, 1])).labels.dtype == torch.float32


def test_an_epoch_holds_every_row_once_and_depends_on_seed_and_epoch_alone() -> None:
    rows = TrainingRows(10, lambda units: batch_of(some_rows([2] * 10), units), batch_size=4, seed=3)
    assert rows.steps_per_epoch == 3
    first = np.concatenate([rows.indices(step) for step in range(3)])
    second = np.concatenate([rows.indices(step) for step in range(3, 6)])
    assert sorted(first) == sorted(second) == list(range(10))
    assert first.tolist() != second.tolist()
    again = dataclasses.replace(rows, batch_size=10)
    assert again.indices(0).tolist() == first.tolist()
    other = dataclasses.replace(rows, batch_size=10, seed=4)
    assert other.indices(0).tolist() != first.tolist()


@given(st.lists(st.integers(2, 60), max_size=40), st.integers(1, 200))
def test_token_batches_hold_every_row_once_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = list(token_batches(lengths, budget))
    assert sorted(itertools.chain.from_iterable(batches)) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or sum(lengths[row] for row in batch) <= budget


def test_a_budget_without_tokens_is_refused() -> None:
    with pytest.raises(InputError, match="batch-tokens is 0"):
        list(token_batches([2], 0))
