"""The verb bench: small real comparisons; the keys that other programs read."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertsmith.bench import pretraining
from bertsmith.bench.pretraining import Shape
from bertsmith.bundle import save_bundle
from bertsmith.cli import run
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForPreTraining
from bertsmith.recipes.bench import bench
from bertsmith.recipes.config import BenchConfig
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from tests.recipes.tiny import SHAPE, VOCABULARY

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def small_shape(monkeypatch) -> None:
    monkeypatch.setitem(pretraining.SHAPES, "mini", Shape(1, 32, 2, 4, 2))


def test_pretraining_beside_transformers(small_shape, capsys) -> None:
    assert run(["bench", "pretrain", "--shapes", "mini", "--repeats", "2", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    peers = {"mini: transformers float32", "mini: transformers bfloat16 autocast"}
    assert set(found["peers"]) == set(found["ratios"]) == peers
    assert found["unit"] == "tokens/s"
    assert {"bertsmith", "torch", "transformers"} <= set(found["versions"])
    for name in peers:
        assert found["ratios"][name] == pytest.approx(found["ours"]["mini"] / found["peers"][name], rel=0.02)


def test_pretraining_on_prepared_data(small_shape, pretraining_data: Path, capsys) -> None:
    words = ["bench", "pretrain", "--shapes", "mini", "--repeats", "1", "--data", str(pretraining_data)]
    assert run(words) == 0
    out = capsys.readouterr().out
    assert "pretraining bert-mini, 4 x 128:" in out
    assert " x transformers float32 (" in out


def test_finetuning_beside_transformers(tmp_path: Path, capsys) -> None:
    rows = "".join(f"good word{letter} so fine\t{n % 2}\n" for n, letter in enumerate("abcdefgh" * 5))
    (tmp_path / "train.tsv").write_text("sentence\tlabel\n" + rows)
    model = tmp_path / "model"
    shape = replace(SHAPE, max_positions=128)  # the first peer pads to 128
    save_bundle(
        model, BertForPreTraining(shape), Tokenizer(VOCABULARY, TokenizerConfig()), {"task": "pretrain"}, ""
    )
    words = ["bench", "finetune", "--data", str(tmp_path), "--model", str(model), "--repeats", "1", "--json"]
    assert run(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["peers"]) == 3
    assert found["unit"] == "rows/s"
    assert found["mean_tokens"] == 6.0


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"work": "pretain"}, "did you mean 'pretrain'?"),
        ({"work": "embed"}, "'embed' is unknown"),
        ({"work": "pretrain", "model": "m"}, "--model would be ignored"),
        ({"work": "pretrain", "shapes": ["huge"]}, "shape 'huge' is unknown"),
        ({"work": "pretrain", "repeats": -1}, "repeats is -1"),
        ({"work": "finetune", "data": "d"}, "--model"),
        ({"work": "finetune", "data": "d", "model": "m", "shapes": ["mini"]}, "--shapes would be ignored"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        bench(BenchConfig(**settings))


@pytest.mark.parametrize("script", ["pretrain_speed.py", "finetune_speed.py"])
def test_the_scripts_are_the_verb(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "bertsmith bench" in done.stdout
