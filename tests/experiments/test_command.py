"""The command that repeats a run: the command line itself reads it back to the same settings."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from bertsmith import cli, presets
from bertsmith.config import to_dict
from bertsmith.experiments.command import command_of, settings_of
from bertsmith.experiments.runs import FINE_TUNING, PRETRAINING, Run
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.training.config import OptimizerConfig


def run_of(kind: str, config: dict[str, Any]) -> Run:
    return Run(Path("run"), kind, config, {}, {}, [], [], {})


def read_back(command: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    words = shlex.split(command)
    assert words[0] == "bertsmith"
    assert cli.run([*words[1:], "--print-config"]) == 0
    found: dict[str, Any] = yaml.safe_load(capsys.readouterr().out)
    return found


def test_a_fine_tuning_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    settings = FinetuneConfig(
        task="classify",
        model="a model",
        data="it's/数据.csv",
        out="--out",
        dropout=0.2,
        random_weights=True,
        optimizer=OptimizerConfig(learning_rate=3e-5, schedule="cosine"),
    )
    settings = dataclasses.replace(settings, out="run")
    config = yaml.safe_load(yaml.safe_dump(to_dict(settings)))
    command = command_of(run_of(FINE_TUNING, config))
    assert read_back(command, capsys) == config
    assert "--random-weights" in command
    assert "--epochs" not in command  # a default


@pytest.mark.parametrize(
    "changes, flags",
    [
        ({"task": "squad2", "seq_len": 128}, "--seq-len 128"),
        ({"task": "squad2", "seq_len": 384}, ""),
        ({"features": "last", "optimizer": OptimizerConfig(learning_rate=1e-3)}, "--features last"),
        ({"features": "last"}, "--features last --optimizer.learning-rate 2e-05"),
        ({"recipe": "stable"}, "--recipe stable --epochs 3"),
    ],
)
def test_defaults_of_task_and_recipe_are_known(
    changes: dict[str, Any], flags: str, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = FinetuneConfig("conll", "m", "d", "o", optimizer=OptimizerConfig(learning_rate=2e-5))
    config = to_dict(dataclasses.replace(plain, **changes))
    command = command_of(run_of(FINE_TUNING, config))
    assert command == f"bertsmith finetune --task {config['task']} --model m --data d --out o {flags}".strip()
    assert read_back(command, capsys) == config


def test_a_pretraining_is_read_back(capsys: pytest.CaptureFixture[str]) -> None:
    settings = dataclasses.replace(
        presets.bert_base("data", "run"),
        steps=100,
        probes=["sst2", "cola"],
        probe_data="glue",
        rollback_skips_batches=False,
        masking=dataclasses.replace(presets.bert_base("", "").masking, rate=0.3),
    )
    config = yaml.safe_load(yaml.safe_dump(to_dict(settings)))
    command = command_of(run_of(PRETRAINING, config))
    assert read_back(command, capsys) == config
    assert "--masking.rate 0.3" in command
    assert "--optimizer" not in command  # the preset's


def test_a_run_without_settings_has_no_command() -> None:
    assert command_of(run_of(FINE_TUNING, {})) == ""


def test_settings_lie_flat() -> None:
    run = run_of(FINE_TUNING, {"task": "cola", "optimizer": {"name": "adamw"}, "parts": ["a", "b"]})
    assert settings_of(run) == {"task": "cola", "optimizer.name": "adamw", "parts": "a, b"}
