"""Whole runs with other optimisers, schedules, masks and batches: they learn, and resume bit by bit."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import pytest

from bertsmith.data.config import MaskingConfig
from bertsmith.errors import InputError
from bertsmith.recipes.pretrain import pretrain
from bertsmith.training.config import OptimizerConfig
from tests.recipes.pretraining import SHAPE, events, settings, timeless, weights

VARIANTS: dict[str, dict[str, Any]] = {
    "muon, wsd": {
        "optimizer": OptimizerConfig(name="muon", learning_rate=5e-3, adam_rate=2e-3, schedule="wsd"),
    },
    "lamb, power, growing batch, a decoder of its own": {
        "architecture": replace(SHAPE, tied_decoder=False),
        "optimizer": OptimizerConfig(name="lamb", learning_rate=1e-2, schedule="power"),
        "batch_warmup_fraction": 0.5,
        "batch_warmup_start": 2,
    },
    "cosine, spans, pre-LN, recomputed": {
        "optimizer": OptimizerConfig(learning_rate=2e-3, schedule="cosine"),
        "masking": MaskingConfig(span_mean=3.8),
        "architecture": replace(SHAPE, norm="pre"),
        "checkpoint_activations": True,
    },
}


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_a_run_learns_and_a_resumed_one_is_the_same(changes, pretraining_data, tmp_path):
    run = {"checkpoint_steps": 7, "keep_checkpoints": 9, "steps": 24} | changes
    metrics = pretrain(settings(pretraining_data, tmp_path / "whole", **run))
    assert metrics["heldout_mlm_loss"] < metrics["uniform_entropy"] - 0.15
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for step in (14, 21, 24):
        shutil.rmtree(tmp_path / "cut" / "checkpoints" / f"step-{step:08d}")
    pretrain(settings(pretraining_data, tmp_path / "cut", resume=True, **run))
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")


def test_the_rate_and_the_batch_follow_their_settings(pretraining_data, tmp_path):
    changes = VARIANTS["lamb, power, growing batch, a decoder of its own"]
    metrics = pretrain(settings(pretraining_data, tmp_path / "run", steps=12, **changes))
    logged = [event for event in events(tmp_path / "run") if "loss" in event]
    rates = [event["learning_rate"] for event in logged]
    assert rates[0] == 0.0
    assert rates[2:] == pytest.approx([1e-2 * ((1 - step / 12) / 0.9) ** 0.5 for step in range(2, 12)])
    tokens = [event["tokens"] for event in logged]
    taken = [after - before for before, after in zip([0, *tokens], tokens, strict=False)]
    assert max(taken[:2]) < min(taken[6:]) / 2  # 2 and 3 instances against 8
    assert metrics["epochs"] > 0


def test_a_pre_norm_run_goes_on_from_its_model(pretraining_data, tmp_path):
    shape = replace(SHAPE, norm="pre")
    first = pretrain(settings(pretraining_data, tmp_path / "first", architecture=shape))
    still = OptimizerConfig(learning_rate=1e-12, weight_decay=0.0)
    model = str(tmp_path / "first" / "model")
    second = pretrain(
        settings(pretraining_data, tmp_path / "second", init=model, optimizer=still, steps=1, dropout=0.0)
    )
    assert second["heldout_loss"] == pytest.approx(first["heldout_loss"], abs=1e-4)


def test_recomputing_activations_changes_nothing_and_may_change_on_resuming(pretraining_data, tmp_path):
    for name, recomputed in (("kept", False), ("recomputed", True)):
        changes = {"checkpoint_activations": recomputed, "steps": 4, "checkpoint_steps": 2}
        pretrain(settings(pretraining_data, tmp_path / name, **changes))
    assert weights(tmp_path / "kept") == weights(tmp_path / "recomputed")
    shutil.rmtree(tmp_path / "kept" / "checkpoints" / "step-00000004")
    changes = {"checkpoint_activations": True, "steps": 4, "checkpoint_steps": 2, "resume": True}
    pretrain(settings(pretraining_data, tmp_path / "kept", **changes))
    assert weights(tmp_path / "kept") == weights(tmp_path / "recomputed")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # PyTorch's compiler warns of what it does itself
def test_a_compiled_run_is_near_the_other_one_and_resumes(pretraining_data, tmp_path):
    run = {"checkpoint_steps": 7, "keep_checkpoints": 9, "dropout": 0.0}
    plain = pretrain(settings(pretraining_data, tmp_path / "plain", **run))
    compiled = pretrain(settings(pretraining_data, tmp_path / "whole", compile=True, **run))
    assert compiled["heldout_loss"] == pytest.approx(plain["heldout_loss"], abs=1e-3)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000012")
    pretrain(settings(pretraining_data, tmp_path / "cut", compile=True, resume=True, **run))
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    for event, peer in zip(events(tmp_path / "whole"), events(tmp_path / "plain"), strict=True):
        if "loss" in event:
            assert event["loss"] == pytest.approx(peer["loss"], abs=1e-3)
    with pytest.raises(InputError, match="compile was True, is now False"):
        pretrain(settings(pretraining_data, tmp_path / "cut", resume=True, **run))
