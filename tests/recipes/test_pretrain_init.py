"""Continued pretraining from a model directory."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from safetensors.torch import load_file

from bertsmith.bundle import load_bundle
from bertsmith.errors import InputError
from bertsmith.recipes.pretrain import pretrain
from bertsmith.training.config import OptimizerConfig
from tests.recipes.pretraining import SHAPE, settings


@pytest.fixture(scope="module")
def first_run(pretraining_data, tmp_path_factory):
    out = tmp_path_factory.mktemp("first") / "run"
    return pretrain(settings(pretraining_data, out, steps=30)) | {"out": out}


def test_it_goes_on_from_the_weights_with_the_models_architecture(first_run, pretraining_data, tmp_path):
    still = OptimizerConfig(learning_rate=1e-12, weight_decay=0.0)
    config = settings(
        pretraining_data,
        tmp_path / "run",
        init=first_run["model"],
        steps=1,
        optimizer=still,
        architecture=replace(SHAPE, num_layers=1),
    )
    result = pretrain(config)
    before, after = (load_file(f"{path}/model.safetensors") for path in (first_run["model"], result["model"]))
    assert before.keys() == after.keys()
    assert all((before[name] - after[name]).abs().max() < 1e-6 for name in before)
    assert result["heldout_mlm_loss"] == pytest.approx(first_run["heldout_mlm_loss"], abs=1e-4)
    assert load_bundle(result["model"]).config.num_layers == SHAPE.num_layers


def test_dropout_overrides_the_models(first_run, pretraining_data, tmp_path):
    config = settings(pretraining_data, tmp_path / "run", init=first_run["model"], steps=1, dropout=0.25)
    assert load_bundle(pretrain(config)["model"]).config.hidden_dropout == 0.25


def test_a_resumed_run_does_not_start_from_the_model_again(first_run, pretraining_data, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for out in (whole, cut):
        pretrain(
            settings(
                pretraining_data,
                out,
                init=first_run["model"],
                steps=6,
                checkpoint_steps=3,
                keep_checkpoints=9,
            )
        )
    shutil.rmtree(cut / "checkpoints" / "step-00000006")
    pretrain(
        settings(pretraining_data, cut, init=first_run["model"], steps=6, checkpoint_steps=3, resume=True)
    )
    files = [path / "model" / "model.safetensors" for path in (whole, cut)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_model_of_another_vocabulary_is_refused(first_run, pretraining_data, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(first_run["model"], model)
    lines = (model / "vocab.txt").read_text().splitlines()
    (model / "vocab.txt").write_text("\n".join([*lines[:5], *reversed(lines[5:])]) + "\n")
    with pytest.raises(InputError, match=f"prepare it with --vocab {model}"):
        pretrain(settings(pretraining_data, tmp_path / "run", init=str(model)))
    assert not (tmp_path / "run").exists()


def test_a_directory_that_is_no_model_is_refused(pretraining_data, tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        pretrain(settings(pretraining_data, tmp_path / "run", init=str(tmp_path / "nowhere")))
    assert not (tmp_path / "run").exists()
