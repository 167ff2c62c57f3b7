from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
import torch

from bertsmith.bundle import load_bundle, load_pretraining_model
from bertsmith.errors import InputError
from bertsmith.recipes.pretrain import pretrain
from bertsmith.recipes.pretrain_probes import probe, read_probes
from bertsmith.tasks.inference import Inference
from tests.ranks import run_ranks, values_of
from tests.recipes.pretraining import WORDS, events, settings, start, timeless, weights


def sentence(draw: random.Random) -> str:
    return " ".join(draw.choices(WORDS, k=draw.randint(3, 8)))


@pytest.fixture(scope="module")
def glue(tmp_path_factory) -> Path:
    """Made-up rows of three tasks: whether a word is in the text, and how many words two texts share."""
    folder = tmp_path_factory.mktemp("glue")
    draw = random.Random(2)
    for split, number in (("train", 300), ("dev", 120)):
        texts = [sentence(draw) for _ in range(number)]
        signs = [draw.randint(0, 1) for _ in texts]
        texts = [
            f"{text.replace('ba', 'ben')}{' ba' * 2 * sign}" for text, sign in zip(texts, signs, strict=True)
        ]
        rows = list(zip(texts, signs, strict=True))
        (folder / "SST-2").mkdir(exist_ok=True)
        lines = ["sentence\tlabel", *(f"{text}\t{sign}" for text, sign in rows)]
        (folder / "SST-2" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
        (folder / "CoLA").mkdir(exist_ok=True)
        lines = [f"x\t{sign}\t\t{text}" for text, sign in rows]
        (folder / "CoLA" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
        (folder / "STS-B").mkdir(exist_ok=True)
        lines = ["sentence1\tsentence2\tscore"]
        for _ in range(number):
            words = draw.choices(WORDS, k=5)
            shared = draw.randint(0, 5)
            other = words[:shared] + draw.choices(WORDS, k=5 - shared)
            lines.append(f"{' '.join(words)}\t{' '.join(other)}\t{shared}")
        (folder / "STS-B" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_probes_are_logged_and_change_nothing(glue, finished_run, pretraining_data, tmp_path):
    run = settings(
        pretraining_data,
        tmp_path / "run",
        checkpoint_steps=5,
        probes=["sst2", "cola", "stsb"],
        probe_data=str(glue),
        probe_steps=4,
    )
    metrics = pretrain(run)
    log = [event for event in events(tmp_path / "run") if "probe_sst2_accuracy" in event]
    assert [event["step"] for event in log] == [0, 4, 8, 12]
    assert log[0].keys() == {
        "step",
        "probe_sst2_accuracy",
        "probe_cola_matthews",
        "probe_cola_accuracy",
        "probe_stsb_pearson",
        "probe_stsb_spearman",
    }
    assert metrics["probe_sst2_accuracy"] == log[-1]["probe_sst2_accuracy"] > 0.8
    assert metrics["probe_cola_matthews"] > 0.6
    assert metrics["probe_stsb_spearman"] > 0.4
    assert weights(tmp_path / "run") == weights(finished_run)
    assert [event for event in timeless(tmp_path / "run") if "probe_sst2_accuracy" not in event] == timeless(
        finished_run
    )


def test_a_sharded_encoder_is_probed_as_a_whole(glue, pretraining_data, tmp_path):
    probed = []
    for sharding, world in (("none", 1), ("fsdp", 2)):
        run = settings(
            pretraining_data,
            tmp_path / sharding,
            steps=4,
            dropout=0.0,
            sharding=sharding,
            probes=["sst2", "stsb"],
            probe_data=str(glue),
            probe_steps=2,
        )
        summaries = [pretrain(run)] if world == 1 else values_of(run_ranks(world, pretrain, run))
        assert all(summary == summaries[0] for summary in summaries)
        probed.append([event for event in events(tmp_path / sharding) if "probe_sst2_accuracy" in event])
    assert [event["step"] for event in probed[1]] == [0, 2, 4]
    for one, other in zip(*probed, strict=True):
        assert other == pytest.approx(one, abs=0.02)


def test_probes_come_about_ten_times_by_themselves_and_at_the_end(glue, pretraining_data, tmp_path):
    run = settings(pretraining_data, tmp_path / "run", steps=20, probes=["sst2"], probe_data=str(glue))
    pretrain(run)
    steps = [event["step"] for event in events(tmp_path / "run") if "probe_sst2_accuracy" in event]
    assert steps == list(range(0, 21, 2))


def test_probes_stay_within_their_share_of_a_time_budget(glue, pretraining_data, tmp_path):
    run = settings(
        pretraining_data,
        tmp_path / "run",
        steps=None,
        budget="3s",
        probes=["sst2", "cola", "stsb"],
        probe_data=str(glue),
    )
    metrics = pretrain(run)
    assert metrics["seconds"] < 3.5
    steps = [event["step"] for event in events(tmp_path / "run") if "probe_sst2_accuracy" in event]
    assert (steps[0], steps[-1]) == (0, metrics["step"])
    assert len(steps) <= 8


STOPPED = """
import os, signal, sys
from bertsmith.recipes import pretrain as recipe
from bertsmith.cli import run
take = recipe._take
def take_and_kill(parts, standing, step, log):
    if step.step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    take(parts, standing, step, log)
recipe._take = take_and_kill
sys.exit(run(sys.argv[1:]))
"""


def test_a_killed_run_with_probes_ends_with_the_weights_and_the_log_of_one_never_stopped(
    glue, finished_run, pretraining_data, tmp_path
):
    from bertsmith.runlog import write_config

    probing = {"probes": ["sst2"], "probe_data": str(glue), "probe_steps": 3, "checkpoint_steps": 5}
    pretrain(settings(pretraining_data, tmp_path / "whole", **probing))
    write_config(tmp_path, settings(pretraining_data, tmp_path / "cut", **probing))
    process = start(STOPPED, "pretrain", "--config", str(tmp_path / "config.yaml"))
    _, errors = process.communicate(timeout=120)
    assert process.returncode == -9, errors
    pretrain(settings(pretraining_data, tmp_path / "cut", **probing, resume=True))
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole") == weights(finished_run)
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")


def test_a_probe_leaves_mode_and_random_numbers_as_they_are(glue, finished_run):
    bundle = load_bundle(finished_run / "model")
    model = load_pretraining_model(bundle)
    config = settings(Path("data"), Path("run"), probes=["sst2", "stsb"], probe_data=str(glue))
    probes = read_probes(config, bundle.tokenizer, bundle.config.max_positions)
    model.train()
    state = torch.get_rng_state()
    first = probe(probes, model.bert, Inference(torch.device("cpu"), torch.float32))
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert all(module.training for module in model.modules())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert probe(probes, model.bert, Inference(torch.device("cpu"), torch.float32)) == first


def test_a_probe_takes_no_more_rows_than_it_needs(glue, tmp_path, finished_run):
    (tmp_path / "SST-2").mkdir()
    for split, number in (("train", 2500), ("dev", 1500)):
        lines = ["sentence\tlabel", *(f"ba {WORDS[row % 60]}\t{row % 2}" for row in range(number))]
        (tmp_path / "SST-2" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    bundle = load_bundle(finished_run / "model")
    config = settings(Path("data"), Path("run"), probes=["sst2"], probe_data=str(tmp_path))
    (found,) = read_probes(config, bundle.tokenizer, 64)
    assert (len(found.train.texts), len(found.dev.texts)) == (2000, 1000)
    assert len(found.dev.gold) == 1000
    (again,) = read_probes(config, bundle.tokenizer, 64)
    assert (again.dev.gold == found.dev.gold).all()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"probes": ["sst2"]}, "--probes sst2 needs --probe-data"),
        ({"probe_data": "GLUE"}, "would be ignored; add --probes"),
        ({"probe_steps": 4}, "would be ignored; add --probes"),
        ({"probes": ["sst3"], "probe_data": "GLUE"}, "did you mean 'sst2'"),
        ({"probes": ["sst2", "sst2"], "probe_data": "GLUE"}, "more than once"),
        ({"probes": ["sst2"], "probe_data": "GLUE", "probe_steps": -1}, "--probe-steps is -1"),
        ({"probes": ["sst2"], "probe_data": "/nowhere"}, "/nowhere"),
    ],
)
def test_wrong_settings_are_refused(changes, message, pretraining_data, tmp_path):
    with pytest.raises(InputError, match=message):
        pretrain(settings(pretraining_data, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_probes_are_read_from_a_settings_file(glue, pretraining_data, tmp_path):
    from bertsmith.cli import run
    from bertsmith.runlog import write_config

    write_config(tmp_path, settings(pretraining_data, tmp_path / "run", steps=2))
    flags = ["--probes", "sst2", "cola", "--probe-data", str(glue)]
    assert run(["pretrain", "--config", str(tmp_path / "config.yaml"), *flags]) == 0
    stored = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert {"probe_sst2_accuracy", "probe_cola_matthews"} <= stored.keys()
