"""The verb bench: small real comparisons; the keys that other programs read."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.bench import pretraining
from bertsmith.bench.pretraining import Shape
from bertsmith.bundle import save_bundle
from bertsmith.cli import run
from bertsmith.device import computes_bfloat16, multiplies_int8
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForPreTraining
from bertsmith.recipes.bench import bench
from bertsmith.recipes.machine_config import BenchConfig
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.checkup.texts import WORDS, prose
from tests.recipes.tiny import SHAPE, VOCABULARY

HAS_BFLOAT16 = computes_bfloat16(torch.device("cpu"))
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def small_shape(monkeypatch) -> None:
    monkeypatch.setitem(pretraining.SHAPES, "mini", Shape(1, 32, 2, 4, 2))


def test_pretraining_beside_transformers(small_shape, capsys) -> None:
    assert run(["bench", "pretrain", "--shapes", "mini", "--repeats", "2", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    peers = {"mini: transformers float32"}
    peers |= {"mini: transformers bfloat16 autocast"} if HAS_BFLOAT16 else set()
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


def sentences(folder: Path) -> Path:
    rows = "".join(f"good word{letter} so fine\t{n % 2}\n" for n, letter in enumerate("abcdefgh" * 9))
    (folder / "train.tsv").write_text("sentence\tlabel\n" + rows)
    return folder


def questions(folder: Path) -> Path:
    asked = [
        {"id": str(n), "question": "is it", "answers": [{"text": "good", "answer_start": 3}]}
        for n in range(30)
    ]
    passages = [{"context": "so good it is", "qas": asked}]
    path = folder / "train.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": passages}]}))
    return path


def tags(folder: Path) -> Path:
    path = folder / "eng.train"
    path.write_text("so NN O O\ngood NN O I-PER\nfine NN O O\n\n" * 30)
    return path


@pytest.mark.parametrize(
    "task, write, float32_peers, unit, mean",
    [
        ("sst2", sentences, 2, "rows/s", 6.0),
        ("squad1", questions, 2, "windows/s", 9.0),
        ("conll", tags, 1, "words/s", 5.0),
    ],
)
def test_finetuning_beside_transformers(
    tmp_path: Path, capsys, task, write, float32_peers, unit, mean
) -> None:
    model = tmp_path / "model"
    shape = replace(SHAPE, max_positions=384)  # the first peer pads to the limit
    save_bundle(
        model, BertForPreTraining(shape), Tokenizer(VOCABULARY, TokenizerConfig()), {"task": "pretrain"}, ""
    )
    words = ["--task", task, "--data", str(write(tmp_path)), "--model", str(model)]
    assert run(["bench", "finetune", *words, "--repeats", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["peers"]) == float32_peers + HAS_BFLOAT16
    assert found["precision"] == ("bfloat16" if HAS_BFLOAT16 else "float32")
    assert found["unit"] == unit
    assert found["mean_tokens"] == mean


def test_preparing_beside_datasets(tmp_path: Path, capsys) -> None:
    for name, number in (("a.txt", 40), ("b.txt.gz", 30)):
        text = "\n\n".join("\n".join(document) for document in prose(number, seed=number)) + "\n"
        packed = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
        (tmp_path / name).write_bytes(packed)
    Tokenizer([*SPECIAL_TOKENS, ".", *dict.fromkeys(WORDS)], TokenizerConfig()).save(tmp_path / "vocab")
    words = [
        "--corpus",
        str(tmp_path / "a.txt"),
        str(tmp_path / "b.txt.gz"),
        "--vocab",
        str(tmp_path / "vocab"),
    ]
    assert run(["bench", "prepare", *words, "--megabytes", "0.02", "--repeats", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["ours"]) == {"nanotoken", "tokenizers"}
    assert set(found["ratios"]) == {f"{name}: datasets.map + transformers" for name in found["ours"]}
    assert found["unit"] == "MB/s"
    assert {"datasets", "transformers", "tokenizers"} <= set(found["versions"])
    assert min(found["details"]["tokenizers"]["peak_own_mib"].values()) > 10


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"work": "pretain"}, "did you mean 'pretrain'?"),
        ({"work": "embe"}, "did you mean 'embed'?"),
        ({"work": "pretrain", "model": "m"}, "--model would be ignored"),
        ({"work": "pretrain", "shapes": ["huge"]}, "shape 'huge' is unknown"),
        ({"work": "pretrain", "repeats": -1}, "repeats is -1"),
        ({"work": "finetune", "data": "d"}, "--model"),
        ({"work": "finetune", "data": "d", "model": "m", "task": "squad"}, "did you mean 'squad1'"),
        ({"work": "pretrain", "task": "sst2"}, "--task would be ignored"),
        ({"work": "prepare", "corpus": ["c"]}, "--vocab"),
        ({"work": "prepare", "corpus": ["c"], "vocab": "v", "data": "d"}, "--data would be ignored"),
        ({"work": "pretrain", "megabytes": 1.0}, "--megabytes would be ignored"),
        ({"work": "finetune", "data": "d", "model": "m", "shapes": ["mini"]}, "--shapes would be ignored"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        bench(BenchConfig(**settings))


@pytest.mark.parametrize("script", ["pretrain_speed.py", "finetune_speed.py", "prepare_speed.py"])
def test_the_scripts_are_the_verb(script: str) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / script), "--help"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "bertsmith bench" in done.stdout


def test_embedding_beside_sentence_transformers(minilm_path: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts.txt"
    texts.write_text("".join(f"The {word} is not {other}.\n" for word in WORDS[:6] for other in WORDS[:5]))
    found = bench(BenchConfig("embed", data=str(texts), model=str(minilm_path), repeats=1))
    peer = "sentence-transformers float32"
    assert found["ratios"][peer] == pytest.approx(found["ours"] / found["peers"][peer], rel=0.02)
    assert found["unit"] == "sentences/s"
    assert ("int8" in found["variants"]) is multiplies_int8(torch.device("cpu"))
    for name, cosines in found["cosines"].items():
        least = 0.98 if "int8" in name else 0.999
        assert least < cosines["least"] <= cosines["mean"] < 1 + 1e-6
    with pytest.raises(InputError, match=r"needs --data .* and --model"):
        bench(BenchConfig("embed"))
