"""LSTMs in two directions: no half of a place has seen the side that it predicts."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from bertsmith.data.masking import MaskingVocabulary, neighbours
from bertsmith.errors import InputError
from bertsmith.model.bert import Bert, BertForPreTraining
from bertsmith.model.config import BertConfig
from tests.model.rows import VOCAB_SIZE, places_of, random_ids, rows_of

CONFIG = BertConfig(
    vocab_size=VOCAB_SIZE, hidden_size=24, num_layers=3, num_heads=2, intermediate_size=48, mixing="lstm"
)
LENGTHS = (7, 12, 3)


@pytest.fixture
def model() -> BertForPreTraining:
    torch.manual_seed(0)
    return BertForPreTraining(CONFIG).double().eval()


def test_padded_rows_give_what_rows_end_to_end_give(model):
    ids = random_ids(LENGTHS)
    padded = rows_of(ids, 15)
    expected = model.bert(rows_of(ids))
    torch.testing.assert_close(model.bert(padded)[places_of(padded.layout)], expected, rtol=0, atol=1e-12)
    read = torch.tensor([4, 0])
    torch.testing.assert_close(model.bert(rows_of(ids), read), expected[read], rtol=0, atol=1e-12)


def test_a_layer_is_two_lstms_of_pytorch(model):
    """Row by row, forwards and backwards, with the residual."""
    layer = model.bert.layers[0]
    rows = torch.split(torch.randn(sum(LENGTHS), 24, dtype=torch.float64), LENGTHS)
    found = layer(torch.cat(rows), rows_of(random_ids(LENGTHS)).layout)
    expected = []
    for row in rows:
        left, _ = layer.forwards(row[:, None, :12])
        right, _ = layer.backwards(row.flip(0)[:, None, 12:])
        expected.append(row + torch.cat([left[:, 0], right[:, 0].flip(0)], dim=1))
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=1e-12)


def test_no_pick_sees_the_piece_that_it_predicts(model):
    """Another piece in its place, or in any place beyond it, changes no score of the pick."""
    ids = random_ids((9,))[0]
    vocabulary = MaskingVocabulary(4, np.ones(VOCAB_SIZE, dtype=np.bool_), np.arange(5), np.zeros(VOCAB_SIZE))
    _, picks, labels = neighbours(ids.numpy(), vocabulary)
    scores, _ = model(rows_of([ids]), torch.from_numpy(picks))
    for number, (pick, label) in enumerate(zip(picks.tolist(), labels.tolist(), strict=True)):
        place, predicts_before = divmod(pick, 2)
        target = place - 1 if predicts_before else place + 1
        if not 0 <= target < 9:
            continue
        assert ids[target] == label
        changed = ids.clone()
        changed[: target + 1] = 5 if predicts_before else changed[: target + 1]
        changed[target:] = changed[target:] if predicts_before else 5
        others, _ = model(rows_of([changed]), torch.from_numpy(picks))
        torch.testing.assert_close(others[number], scores[number], rtol=0, atol=1e-12)
        seen = ids.clone()
        seen[place] = 5 if ids[place] != 5 else 6
        others, _ = model(rows_of([seen]), torch.from_numpy(picks))
        assert (others[number] - scores[number]).abs().max() > 1e-9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": "left"}, "goes with context both"),
        ({"hidden_size": 25, "num_heads": 5}, "need an even one"),
        ({"mixing": "gru"}, "take one of attention, lstm"),
    ],
)
def test_shapes_that_cannot_be_are_refused(changes, message):
    with pytest.raises(InputError, match=message):
        dataclasses.replace(CONFIG, **changes)


def test_it_has_no_attention_to_show():
    assert not CONFIG.sees_both
    assert {name.split(".")[2] for name in Bert(CONFIG).state_dict() if name.startswith("layers.")} == {
        *("forwards", "backwards")
    }
