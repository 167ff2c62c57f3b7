from __future__ import annotations

import pytest
import torch

from bertsmith.layout import Tokens, padded, unpadded


def test_unpadded_rows_lie_end_to_end():
    layout = unpadded([3, 1, 5])
    assert (layout.batch, layout.places, layout.num_tokens, layout.starts) == (3, 9, 9, (0, 3, 4))


def test_padded_rows_take_the_same_places():
    layout = padded([3, 1, 5])
    assert (layout.batch, layout.places, layout.num_tokens, layout.starts) == (3, 15, 9, (0, 5, 10))
    assert padded([3, 1], 8).starts == (0, 8)


def test_impossible_layouts():
    with pytest.raises(AssertionError):
        unpadded([3, 0])
    with pytest.raises(AssertionError):
        padded([3, 9], 8)


def test_tokens_move_together():
    ids = torch.arange(4)
    moved = Tokens(ids, ids, ids, unpadded([4])).to("meta")
    assert {moved.input_ids.device.type, moved.segment_ids.device.type, moved.position_ids.device.type} == {
        "meta"
    }
