"""Made-up instances have the shape of real ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.bench.synthetic import mean_length, operations, random_batches
from bertsmith.data.config import MaskingConfig
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig


@pytest.mark.parametrize("seq_len", [16, 128, 512])
def test_lengths_and_picks(seq_len: int) -> None:
    fetch = random_batches(1000, 64, seq_len, MaskingConfig())
    for step in range(5):
        (batch,) = fetch(step)
        lengths = np.array(batch.tokens.layout.lengths)
        assert lengths.max() == seq_len
        assert lengths.min() >= 8
        assert (lengths == seq_len).mean() > 0.7
        rows = np.searchsorted(batch.tokens.layout.starts, batch.picks.numpy(), side="right") - 1
        assert np.bincount(rows, minlength=64).tolist() == [
            min(int(np.ceil(0.15 * seq_len - 1e-9)), max(1, round(0.15 * n))) for n in lengths
        ]
        places = batch.picks.numpy() - np.array(batch.tokens.layout.starts)[rows]
        assert (places > 0).all()
        assert (places < lengths[rows] - 1).all(), "neither [CLS] nor [SEP] is predicted"


def test_the_same_step_is_the_same_batch() -> None:
    first, second = (random_batches(1000, 8, 32, MaskingConfig())(3)[0] for _ in range(2))
    assert torch.equal(first.tokens.input_ids, second.tokens.input_ids)
    assert torch.equal(first.picks, second.picks)
    other = random_batches(1000, 8, 32, MaskingConfig())(4)[0]
    assert not torch.equal(first.picks, other.picks)


def test_instances_without_pairs_have_one_segment() -> None:
    (batch,) = random_batches(1000, 8, 32, MaskingConfig(), pairs=False)(0)
    assert batch.tokens.segment_ids.max() == 0
    assert batch.count_pairs() == 0


def test_operations_are_what_pytorch_counts() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    config = BertConfig(vocab_size=500, hidden_size=64, num_layers=3, num_heads=2, intermediate_size=128)
    model = BertForPreTraining(config).train()  # the fused attention of evaluation is not counted
    (batch,) = random_batches(500, 4, 64, MaskingConfig())(0)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(batch.tokens, batch.picks)
    # Forward is a third of a step; our count leaves out the pooler and attention's padding.
    assert operations(config, batch) / 3 == pytest.approx(counter.get_total_flops(), rel=0.05)


def test_the_mean_length_is_that_of_many_instances():
    (batch,) = random_batches(500, 20_000, 32, MaskingConfig())(0)
    assert mean_length(32) == 0.9 * 32 + 0.1 * 20
    assert np.mean(batch.tokens.layout.lengths) == pytest.approx(mean_length(32), rel=0.01)
