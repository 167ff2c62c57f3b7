"""Labels and values on a frozen encoder, through every verb."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import cli, predictor
from bertsmith.bundle import load_bundle
from bertsmith.errors import InputError
from bertsmith.recipes.finetune import finetune
from tests.recipes import tiny

HEADER = ("sentence1", "sentence2", "label")


def pairs(number: int, seed: int) -> list[tuple[str, ...]]:
    """Rows of two texts with a sign each; what the second one says is the label."""
    draw = random.Random(seed)
    rows = []
    for _ in range(number):
        signs = [draw.choice(("pos", "neg")) for _ in range(2)]
        texts = []
        for sign in signs:
            words = [draw.choice(tiny.WORDS[6:]) for _ in range(draw.randint(1, 4))]
            words.insert(draw.randint(0, len(words)), tiny.SIGNS[sign][0])
            texts.append(" ".join(words))
        rows.append((*texts, signs[1]))
    return rows


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("start") / "model")


def run(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    capsys.readouterr()
    code = cli.run([*map(str, words), "--json"])
    printed = capsys.readouterr()
    assert code == 0, printed.err
    found: dict[str, Any] = json.loads(printed.out)
    return found


SMALL = ("--batch-size", 16, "--seq-len", 32, "--precision", "float32", "--lstm-size", 24)
FAST = (*SMALL, "--optimizer.learning-rate", "1e-2")


def test_pairs_are_told_apart_evaluated_and_used(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tiny.write_csv(tmp_path / "train.csv", pairs(160, 0), HEADER)
    dev = tiny.write_csv(tmp_path / "dev.csv", pairs(60, 1), HEADER)
    asked = ("finetune", "--task", "classify", "--model", start, "--data", data, "--dev", dev)
    out = tmp_path / "run"
    summary = run(capsys, *asked, "--out", out, "--features", "weighted-all", "--epochs", 4, *FAST)
    assert summary["kind"] == "feature-classification"
    assert summary["dev"]["accuracy"] > 0.8  # the most frequent label: about half
    assert len(list((out / "features").iterdir())) == 4  # two layers of train and dev
    model = out / "model"
    stored = json.loads((model / "task.json").read_text())
    assert stored["settings"] == {"class_weights": None, "features": "weighted-all", "lstm_size": 24}
    assert "loads the encoder alone" in (model / "README.md").read_text()
    before, after = load_bundle(start).state, load_bundle(model).state
    frozen = [name for name in after if name.startswith("bert.")]
    assert frozen
    assert all(torch.equal(after[name], before[name]) for name in frozen)
    found = run(capsys, "evaluate", "--model", model, "--data", dev)
    assert found["metrics"] == pytest.approx(summary["dev"])
    answers = tmp_path / "answers.jsonl"
    run(capsys, "predict", "--model", model, "--input", dev, "--out", answers)
    labels = [json.loads(line)["label"] for line in answers.read_text().splitlines()]
    gold = [row[2] for row in pairs(60, 1)]
    assert np.mean([a == b for a, b in zip(labels, gold, strict=True)]) == found["metrics"]["accuracy"]
    loaded = predictor.load(model)
    assert [answer.label for answer in loaded.classify([row[:2] for row in pairs(60, 1)])] == labels
    assert loaded.can[0] == "classify"
    assert len(loaded.rerank("so good", ["so bad", "good"], "pos")) == 2
    with pytest.raises(InputError, match="was trained on pairs"):
        loaded.classify(["good"])


@pytest.mark.parametrize(
    ("task", "metric"),
    [pytest.param("multilabel", "micro_f1", marks=pytest.mark.slow), ("regress", "pearson")],
)
def test_several_labels_and_values(
    start: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], task: str, metric: str
) -> None:
    rows = tiny.make_rows(200)
    values = {"pos": 1050.0, "neg": 950.0}
    objects = [
        {"text": text, "label": [sign] if task == "multilabel" else values[sign]} for text, sign in rows
    ]
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in objects[:150]))
    dev = tmp_path / "dev.jsonl"
    dev.write_text("".join(json.dumps(row) + "\n" for row in objects[150:]))
    out = tmp_path / "run"
    asked = ("finetune", "--task", task, "--model", start, "--data", data, "--dev", dev, "--out", out)
    summary = run(capsys, *asked, "--features", "last", "--epochs", 10, *FAST)
    assert summary["dev"][metric] > 0.7
    found = run(capsys, "evaluate", "--model", out / "model", "--data", dev)
    assert found["metrics"] == pytest.approx(summary["dev"], rel=1e-3)
    model = predictor.load(out / "model")
    if task == "regress":
        low, high = (answer.value for answer in model.regress(["so bad worda", "so good worda"]))
        assert 900 < low < 1000 < high < 1100
    else:
        assert model.multilabel(["so good worda"])[0].labels == ["pos"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "answer"}, "--features last would be ignored.*not for answer"),
        ({"features": "first"}, "features is 'first'; take one of"),
        ({"features": None, "lstm_size": 8}, "lstm-size 8 would be ignored without --features"),
        ({"lstm_size": 0}, "lstm-size is 0; it has to be 1 to 16384"),
        ({"task": "tag", "lstm_size": 8}, "--lstm-size 8 would be ignored: it is for cola, .*not for tag"),
        ({"random_weights": True}, "leave out --random-weights"),
        ({"bilstm": True}, "--features trains no layer"),
        ({"truncation": "all"}, "truncation is .all.; take one of"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(
    start: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    data = tiny.write_csv(tmp_path / "train.csv", tiny.make_rows(40))
    with pytest.raises(InputError, match=message):
        finetune(tiny.config(start, data, tmp_path / "run", **({"features": "last"} | changes)))
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_language_model_of_lstms_reads_real_pairs(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From text to MRPC: vocabulary, pairs, LSTMs in two directions, and the head on them."""
    corpus = shared_data / "corpus" / "starter-en.txt.gz"
    run(capsys, "vocab", "--corpus", corpus, "--out", tmp_path / "vocab.txt", "--size", 2000)
    words = ("--vocab", tmp_path / "vocab.txt", "--pairing", "nsp", "--seq-len", 64)
    run(capsys, "prepare", "--corpus", corpus, "--out", tmp_path / "data", *words, "--workers", 1)
    shape = ("--architecture.mixing", "lstm", "--batch-size", 16, "--precision", "float32")
    lm = ("pretrain", "--data", tmp_path / "data", "--out", tmp_path / "lm", "--preset", "bert-tiny")
    run(capsys, *lm, *shape, "--steps", 30)
    data = shared_data / "glue" / "MRPC"
    out = tmp_path / "run"
    asked = ("finetune", "--task", "mrpc", "--model", tmp_path / "lm" / "model", "--data", data, "--out", out)
    small = ("--features", "weighted-all", "--lstm-size", 32, "--epochs", 4, "--limit-rows", 1200)
    summary = run(capsys, *asked, *small)
    losses = [
        json.loads(line)["loss"]
        for line in (out / "metrics.jsonl").read_text().splitlines()
        if '"loss"' in line
    ]
    assert np.mean(losses[-20:]) < np.mean(losses[:20])
    found = run(capsys, "evaluate", "--model", out / "model", "--data", data)
    assert found["metrics"] == pytest.approx(summary["dev"])
    assert found["examples"] == 408
