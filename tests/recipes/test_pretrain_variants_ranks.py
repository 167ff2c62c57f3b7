"""The other optimisers, growing batches and recomputed layers train on two ranks what they train on one."""

from __future__ import annotations

import dataclasses

import pytest

from bertsmith.training.config import OptimizerConfig
from tests.recipes.pretraining import settings, weights
from tests.recipes.ranks import losses, pretrain_on

OPTIMIZERS = {
    "lamb": OptimizerConfig(name="lamb", learning_rate=1e-2),
    "muon": OptimizerConfig(name="muon", learning_rate=5e-3, adam_rate=2e-3),
}


@pytest.mark.parametrize("name", ["lamb", pytest.param("muon", marks=pytest.mark.slow)])
def test_two_ranks_whole_and_sharded_are_one(name, pretraining_data, tmp_path):
    alone = settings(
        pretraining_data,
        tmp_path / "alone",
        dropout=0.0,
        steps=8,
        optimizer=OPTIMIZERS[name],
        batch_warmup_fraction=0.5,
        checkpoint_activations=True,
    )
    _, expected, _ = pretrain_on(1, alone)
    assert len({len(examples) for examples in expected.values()}) > 2
    # Muon's products are bfloat16: a rounding that goes the other way is 1e-3 of a step.
    tolerance = 1e-5 if name == "lamb" else 1e-3
    for sharding in ("none", "fsdp"):
        config = dataclasses.replace(alone, out=str(tmp_path / sharding), sharding=sharding)
        _, seen, _ = pretrain_on(2, config)
        assert seen == expected
        assert losses(tmp_path / sharding) == pytest.approx(losses(tmp_path / "alone"), abs=tolerance)


@pytest.mark.parametrize("name", ["muon", pytest.param("lamb", marks=pytest.mark.slow)])
def test_a_sharded_run_resumes_bit_by_bit(name, pretraining_data, tmp_path):
    whole = settings(
        pretraining_data, tmp_path / "whole", steps=8, optimizer=OPTIMIZERS[name], sharding="fsdp"
    )
    pretrain_on(2, whole)
    cut = dataclasses.replace(whole, out=str(tmp_path / "cut"))
    pretrain_on(2, cut, stop_after=4)
    pretrain_on(2, dataclasses.replace(cut, resume=True))
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
