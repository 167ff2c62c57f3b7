"""Tasks with several dev sets, and models whose labels stand in another order."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from bertsmith.bundle import load_bundle, load_classification_model, save_bundle
from bertsmith.errors import InputError
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.finetune import finetune
from bertsmith.training.config import OptimizerConfig
from tests.recipes import tiny

NAMES = {"pos": "entailment", "neg": "contradiction", "neu": "neutral"}


def write_mnli(folder: Path, name: str, number: int, seed: int, mislabel: int = 0) -> None:
    rows = tiny.make_rows(number, ("pos", "neg", "neu"), seed)
    lines = ["sentence1\tsentence2\tgold_label"]
    for index, (text, label) in enumerate(rows):
        lines.append(f"{text}\tword{'abc'[index % 3]}\t{'neutral' if index < mislabel else NAMES[label]}")
    (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mnli")
    tiny.save_model(folder / "model")
    write_mnli(folder, "train.part", 300, 0)
    write_mnli(folder, "dev_matched", 60, 1)
    write_mnli(folder, "dev_mismatched", 50, 2, mislabel=20)
    return folder


def test_both_dev_sets_are_reported_and_the_first_one_chooses(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    summary = finetune(tiny.config(folder / "model", folder, out, task="mnli", epochs=4, seeds=2))
    assert set(summary["dev"]) == {"accuracy", "mismatched_accuracy"}
    assert set(summary["mean"]) == set(summary["std"]) == set(summary["dev"])
    assert summary["dev"]["accuracy"] > 0.9 > summary["dev"]["mismatched_accuracy"]
    best = next(run for run in summary["seeds"] if run["seed"] == summary["best_seed"])
    accuracies = [epoch["dev"]["accuracy"] for epoch in best["epochs"]]
    assert best["best_epoch"] == accuracies.index(max(accuracies)) + 1
    assert (summary["dev_rows"], summary["other_dev_rows"]) == (60, {"dev_mismatched": 50})
    assert summary["partial"] == {"train": True, "dev": False, "dev_mismatched": False}
    assert set(summary["data_sha256"]) == {"train", "dev", "dev_mismatched"}
    events = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert sum("dev_mismatched_accuracy" in event for event in events) == 8
    assert len((out / "predictions-dev.jsonl").read_text().splitlines()) == 60

    found = evaluate(EvaluateConfig(str(out / "model"), str(folder)))
    assert found["metrics"] == summary["dev"]
    assert found["other_dev"]["dev_mismatched"]["examples"] == 50
    alone = evaluate(EvaluateConfig(str(out / "model"), str(folder), split="dev_mismatched"))
    assert alone["metrics"] == {"accuracy": summary["dev"]["mismatched_accuracy"]}
    assert alone["other_dev"] == {}


def test_one_dev_set_is_reported_alone(folder: Path, tmp_path: Path) -> None:
    for name in ("train.part", "dev_matched"):
        (tmp_path / f"{name}.tsv").write_bytes((folder / f"{name}.tsv").read_bytes())
    summary = finetune(tiny.config(folder / "model", tmp_path, tmp_path / "run", task="mnli", epochs=1))
    assert set(summary["dev"]) == {"accuracy"}
    own = finetune(
        tiny.config(
            folder / "model",
            tmp_path / "train.part.tsv",
            tmp_path / "own",
            task="mnli",
            epochs=1,
            dev=str(tmp_path / "dev_matched.tsv"),
        )
    )
    assert own["dev"] == summary["dev"], "the same rows as own files"


def save_in_order(path: Path, trained: Path, names: list[str]) -> Path:
    """Write a trained classifier with its outputs in the order of these names."""
    bundle = load_bundle(trained)
    assert bundle.task is not None
    model = load_classification_model(bundle, None)
    order = [bundle.task["labels"].index(name) for name in names]
    with torch.no_grad():
        model.classifier.weight.copy_(model.classifier.weight[order])
        model.classifier.bias.copy_(model.classifier.bias[order])
    save_bundle(path, model, bundle.tokenizer, {**bundle.task, "labels": names}, "card")
    return path


def test_another_order_of_labels_gives_the_same_accuracy(folder: Path, tmp_path: Path) -> None:
    """Tools number MNLI's labels differently; the names are stored, so the order is never guessed."""
    finetune(tiny.config(folder / "model", folder, tmp_path / "run", task="mnli", epochs=4))
    trained = tmp_path / "run" / "model"
    other = save_in_order(tmp_path / "other", trained, ["entailment", "neutral", "contradiction"])
    first, second = (evaluate(EvaluateConfig(str(path), str(folder))) for path in (trained, other))
    assert first["metrics"] == second["metrics"]
    assert first["metrics"]["accuracy"] > 0.9
    assert first["loss"] == pytest.approx(second["loss"])
    mrpc = tmp_path / "MRPC"
    mrpc.mkdir()
    (mrpc / "dev.tsv").write_text("Quality\t#1 String\t#2 String\n1\tgood\tbad\n0\tbad\tgood\n")
    with pytest.raises(InputError, match="the labels of mrpc are 0, 1, the model's entailment, neutral"):
        evaluate(EvaluateConfig(str(other), str(mrpc), task="mrpc"))


def test_the_diagnostic_set_teaches_nothing(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "diagnostic.tsv").write_text("index\tsentence1\tsentence2\n0\tgood\tbad\n")
    with pytest.raises(InputError, match="no training file of ax in it"):
        finetune(tiny.config(folder / "model", tmp_path, tmp_path / "run", task="ax"))


def test_tiny_values_can_be_learnt(folder: Path, tmp_path: Path) -> None:
    """They used to be taken for one value."""
    rows = [(text, str(5e-9 if label == "pos" else 1e-9)) for text, label in tiny.make_rows(200)]
    data = tiny.write_csv(tmp_path / "train.csv", rows, ("text", "score"))
    rate = OptimizerConfig(learning_rate=3e-3)
    summary = finetune(
        tiny.config(folder / "model", data, tmp_path / "run", task="regress", epochs=6, optimizer=rate)
    )
    assert summary["dev"]["pearson"] > 0.9
