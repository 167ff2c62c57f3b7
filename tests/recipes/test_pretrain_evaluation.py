from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch

from bertsmith.bundle import load_bundle, load_pretraining_model
from bertsmith.data.config import MaskingConfig
from bertsmith.data.loader import fixed_batches
from bertsmith.data.shards import Instances
from bertsmith.objectives import PretrainingObjective
from bertsmith.recipes import pretrain as recipe
from bertsmith.recipes.pretrain import pretrain
from bertsmith.recipes.pretrain_evaluation import evaluate_if_due, expect_evaluation
from bertsmith.runlog import RunLog
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import LoopSettings, Step, evaluate
from tests.recipes import pretraining
from tests.recipes.pretraining import events, settings


def test_held_out_losses_are_those_of_each_source_alone(tmp_path):
    data = pretraining.prepared_of_two_sources(tmp_path)
    run = settings(
        data,
        tmp_path / "run",
        steps=60,
        dropout=0.0,
        evaluate_steps=30,
        evaluate_examples=0,
        optimizer=OptimizerConfig(learning_rate=5e-3),
    )
    metrics = pretrain(run)
    assert metrics["heldout_mlm_loss_litany"] < metrics["heldout_mlm_loss_noise"] - 0.5
    assert metrics["heldout_mlm_accuracy_litany"] > metrics["heldout_mlm_accuracy_noise"]
    logged = [event for event in events(tmp_path / "run") if "heldout_mlm_loss_noise" in event]
    assert [event["step"] for event in logged] == [30, 60]
    # Each is what an evaluation of only that source's instances gives.
    heldout = Instances.open(data, "heldout")
    bundle = load_bundle(tmp_path / "run" / "model")
    model = load_pretraining_model(bundle)
    batches = list(fixed_batches(heldout, bundle.tokenizer, MaskingConfig(), 0, 1))
    for number, name in enumerate(heldout.source_names):
        alone = [batch for batch in batches if heldout.sources(batch.example_ids)[0] == number]
        assert alone
        values = evaluate(model, PretrainingObjective(), alone, LoopSettings(0, torch.device("cpu")))
        assert metrics[f"heldout_mlm_loss_{name}"] == pytest.approx(values["mlm_loss"], rel=1e-5)
        assert metrics[f"heldout_mlm_accuracy_{name}"] == pytest.approx(values["mlm_accuracy"])
    # Together they are the whole, weighted by their masked words.
    picks = np.zeros(2)
    for batch in batches:
        picks[heldout.sources(batch.example_ids)[0]] += len(batch.picks)
    losses = [metrics[f"heldout_mlm_loss_{name}"] for name in heldout.source_names]
    assert metrics["heldout_mlm_loss"] == pytest.approx(np.average(losses, weights=picks), rel=1e-6)
    levels = [metrics[f"heldout_unigram_entropy_{name}"] for name in heldout.source_names]
    assert levels[0] < levels[1] - 0.3  # six words are frequent
    assert metrics["heldout_unigram_entropy"] == pytest.approx(np.average(levels, weights=picks))
    assert metrics["heldout_loss"] == pytest.approx(metrics["heldout_mlm_loss"] + metrics["heldout_nsp_loss"])


def test_time_for_the_first_evaluation_is_kept_back_before_it_is_measured(pretraining_data, tmp_path):
    run = settings(pretraining_data, tmp_path / "run", steps=None, budget="100s", evaluate_examples=8)
    parts, standing = recipe._set_up(run, contextlib.ExitStack())
    margin = parts.budget.reserve_seconds

    def took(seconds: float) -> Step:
        return Step(1, {"mlm_loss": 4.0}, {}, 1e-3, 1.0, 200, seconds)

    expect_evaluation(parts, standing, took(30.0))
    assert standing.evaluation_seconds == pytest.approx(10.0)  # eight instances, forward only
    assert parts.budget.reserve_seconds == pytest.approx(margin + 12.0)
    with RunLog(tmp_path, title="test") as log:
        standing.step, standing.tenths = 1, -1  # a tenth has just begun
        evaluate_if_due(parts, standing, log)
    assert not standing.heldout  # ten seconds are more than a tenth of what is over
    for seconds in (3.0, 6.0):  # the first step is the slowest
        expect_evaluation(parts, standing, took(seconds))
        assert standing.evaluation_seconds == pytest.approx(1.0)
    standing.evaluation_seconds = 1000.0
    standing.keep_time_back(parts.budget)
    assert parts.budget.reserve_seconds == 50.0
