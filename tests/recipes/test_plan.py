"""The verb plan: real measurements of small models, and arithmetic that is checked by hand."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from typing import Any

import pytest

from bertsmith.cli import run
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.recipes.machine_config import PlanConfig
from bertsmith.recipes.plan import plan

SHAPE = BertConfig(vocab_size=500, hidden_size=64, num_layers=6, num_heads=2, intermediate_size=128)
SMALL = [
    *("--preset", "bert-tiny", "--vocab-size", "500", "--architecture.num-layers", "6"),
    *("--architecture.hidden-size", "64", "--architecture.intermediate-size", "128"),
    *("--measure-seconds", "2", "--batch-size", "64", "--precision", "float32", "--json"),
]


def command(*words: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bertsmith", "plan", *SMALL, *words],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def planned() -> dict[str, Any]:
    return command("--tokens", "10M", "--devices", "6", "--device-hour-cost", "2.5")


def test_parameters_and_memory_are_those_of_the_real_model(planned: dict[str, Any]) -> None:
    parameters = sum(parameter.numel() for parameter in BertForPreTraining(SHAPE).parameters())
    memory = planned["memory"]
    assert planned["parameters"] == parameters
    assert memory["weights_bytes"] == memory["gradients_bytes"] == 4 * parameters
    assert memory["optimizer_bytes"] == pytest.approx(
        8 * parameters, rel=0.01
    )  # two moments, and step counts
    parts = ("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes")
    assert memory["total_bytes"] == sum(memory[part] for part in parts)
    assert memory["peak_bytes"] > memory["total_bytes"] * 0.9
    assert memory["fits"] is True


def test_speed_is_a_plausible_share_of_the_machine(planned: dict[str, Any]) -> None:
    assert 0.0 < planned["fraction_of_product_rate"] < 1.2
    assert planned["micro_batch_size"] in [row["micro_batch_size"] for row in planned["measurements"]]
    sizes = [row["micro_batch_size"] for row in planned["measurements"]]
    assert sizes == sorted(sizes)
    assert sizes[0] == 8
    assert all(row["seconds"] > 0 and row["steps"] >= 2 for row in planned["measurements"])


def test_times_and_costs_follow_from_the_speed(planned: dict[str, Any]) -> None:
    rows = planned["devices"]
    assert [row["devices"] for row in rows] == [1, 2, 4, 6]
    for row in rows:
        assert row["tokens"] == 10_000_000
        assert row["seconds"] == pytest.approx(1e7 / row["tokens_per_second"], rel=1e-3)
        assert row["device_hours"] == pytest.approx(row["devices"] * row["seconds"] / 3600, abs=1e-3)
        assert row["cost"] == pytest.approx(2.5 * row["device_hours"], abs=0.01)
    assert rows[1]["tokens_per_second"] < 2 * rows[0]["tokens_per_second"]
    mean_length = 0.9 * 128 + 0.1 * (8 + 128) / 2  # whatever was measured
    assert {row["steps"] for row in rows} == {math.ceil(1e7 / (64 * mean_length))}
    assert any("90 %" in line for line in planned["assumptions"])


def test_disk(planned: dict[str, Any]) -> None:
    disk = planned["disk"]
    memory = planned["memory"]
    assert disk["checkpoint_bytes"] == memory["weights_bytes"] + memory["optimizer_bytes"]
    assert disk["checkpoints_bytes"] == 3 * disk["checkpoint_bytes"]
    assert disk["data_bytes"] == pytest.approx(1e7 * (2 + 13 / 122), rel=1e-6)


def test_a_model_that_does_not_fit_is_extrapolated(planned: dict[str, Any]) -> None:
    found = command("--budget", "1h", "--memory", "3M")
    assert found["measured_layers"] == [1, 3]
    assert found["parameters"] == planned["parameters"]
    assert found["memory"]["optimizer_bytes"] == pytest.approx(planned["memory"]["optimizer_bytes"], rel=1e-6)
    assert found["model_flops_per_token"] == pytest.approx(planned["model_flops_per_token"], rel=0.05)
    assert found["memory"]["fits"] is False
    assert any("measured with 1 and 3 layers" in line for line in found["assumptions"])
    assert found["tokens_per_second"] > 0
    (row,) = found["devices"]
    assert row["seconds"] == 3600
    assert row["tokens"] == pytest.approx(3600 * row["tokens_per_second"], rel=1e-3)


def test_people_get_lines_and_a_table(capsys) -> None:
    words = [word for word in SMALL if word != "--json"]
    assert run(["plan", *words, "--tokens", "1B", "--devices", "2", "--measure-seconds", "0.2"]) == 0
    out = capsys.readouterr().out
    for expected in (
        "bert-tiny: 0.3 M parameters",
        "recommended",
        "memory:",
        "disk:",
        "device hours",
        "assumed:",
    ):
        assert expected in out
    assert " 1B " in out


@pytest.mark.parametrize(
    "settings, words",
    [
        ({}, "either --tokens"),
        ({"tokens": "1M", "budget": "1h"}, "either --tokens"),
        ({"tokens": "many"}, "'many' is no amount"),
        ({"budget": "soon"}, "no duration"),
        ({"tokens": "1M", "devices": 0}, "devices is 0"),
        ({"tokens": "1M", "devices": 64}, "64 devices for a batch of 32"),
        ({"tokens": "1M", "seq_len": 1024}, "seq_len is 1024"),
        ({"tokens": "1M", "scaling_efficiency": 1.5}, "scaling_efficiency is 1.5"),
        ({"tokens": "1M", "device_hour_cost": -1.0}, "device_hour_cost is -1.0"),
        ({"tokens": "1M", "memory": "lots"}, "'lots' is no amount"),
        ({"tokens": "1M", "measure_seconds": 0.0}, "measure_seconds is 0.0"),
    ],
)
def test_settings_that_do_not_fit_are_refused_before_measuring(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        plan(PlanConfig(architecture=SHAPE, **settings))


def test_the_preset_brings_its_architecture(capsys) -> None:
    assert run(["plan", "--preset", "bert-large", "--tokens", "1B", "--print-config"]) == 0
    out = capsys.readouterr().out
    assert "num_layers: 24" in out
    assert "batch_size: 256" in out
    assert run(["plan", "--preset", "bert-larg", "--tokens", "1B"]) == 2
    assert "did you mean 'bert-large'?" in capsys.readouterr().err
