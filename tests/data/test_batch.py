"""Rows on one token axis."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.data.batch import PretrainingBatch, tokens_of


def test_rows_lie_end_to_end() -> None:
    tokens = tokens_of([[2, 7, 3, 8, 9, 3], np.array([2, 5, 3], dtype=np.uint16)], [3, 3])
    assert tokens.layout.lengths == (6, 3)
    assert tokens.layout.row_tokens is None
    assert tokens.input_ids.tolist() == [2, 7, 3, 8, 9, 3, 2, 5, 3]
    assert tokens.segment_ids.tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0]
    assert tokens.position_ids.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2]
    assert {t.dtype for t in (tokens.input_ids, tokens.segment_ids, tokens.position_ids)} == {torch.int64}


def test_rows_are_padded() -> None:
    tokens = tokens_of([[2, 7, 3, 8, 3], [2, 5, 3]], [3, 3], padded_to=6, pad_id=4)
    assert tokens.layout.row_tokens == 6
    assert tokens.layout.starts == (0, 6)
    assert tokens.input_ids.tolist() == [2, 7, 3, 8, 3, 4, 2, 5, 3, 4, 4, 4]
    assert tokens.segment_ids.tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert tokens.position_ids.tolist() == [*range(6), *range(6)]


def test_padding_shorter_than_a_row_is_a_programming_error() -> None:
    with pytest.raises(AssertionError, match="longer"):
        tokens_of([[2, 7, 3]], [3], padded_to=2)


def test_a_batch_moves_to_a_device_whole() -> None:
    batch = PretrainingBatch(
        tokens_of([[2, 7, 3]], [3]), torch.tensor([1]), torch.tensor([9]), torch.tensor([0]), np.array([5])
    ).to("meta")
    for tensor in (batch.tokens.input_ids, batch.tokens.segment_ids, batch.tokens.position_ids):
        assert tensor.device.type == "meta"
    assert {t.device.type for t in (batch.picks, batch.pick_labels, batch.nsp_labels)} == {"meta"}
    assert batch.example_ids.tolist() == [5]
