"""Fine-tuning: learns, repeats bit by bit, equals a plain transformers loop, says what went wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith import predictor
from bertsmith.bundle import load_bundle, load_classification_model, save_bundle
from bertsmith.errors import InputError
from bertsmith.randomness import seed_of
from bertsmith.recipes import finetune_run as recipe
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.finetune import finetune
from bertsmith.tasks.encode import TrainingRows, batch_of, encode_rows
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import TASKS
from bertsmith.text.tokenizer import SPECIAL_TOKENS
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import NonFiniteLoss
from tests.recipes import tiny

transformers = pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, model: Path, data: Path) -> Path:
    out = tmp_path_factory.mktemp("run") / "run"
    finetune(tiny.config(model, data, out, dev=str(data.parent / "dev.csv"), seeds=2))
    return out


def weights(directory: Path) -> dict[str, torch.Tensor]:
    return load_bundle(directory).state


def test_the_run_directory_holds_what_it_should(run: Path) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["task"] == "classify"
    assert metrics["dev"]["accuracy"] > 0.95
    assert [seed["seed"] for seed in metrics["seeds"]] == [0, 1]
    best = metrics["seeds"][metrics["best_seed"]]
    assert best["dev"] == metrics["dev"]
    epochs = [epoch["dev"]["accuracy"] for epoch in best["epochs"]]
    assert epochs.index(max(epochs)) + 1 == best["best_epoch"]
    both = [seed["dev"]["accuracy"] for seed in metrics["seeds"]]
    assert metrics["mean"]["accuracy"] == pytest.approx(np.mean(both))
    assert metrics["std"]["accuracy"] == pytest.approx(np.std(both, ddof=1))
    assert (metrics["train_rows"], metrics["dev_rows"], metrics["truncated_rows"]) == (160, 40, 0)
    assert metrics["train_seconds"] > 0
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if "loss" in event] == list(range(1, 161))
    assert len([event for event in events if "dev_accuracy" in event]) == 16
    names = {path.name for path in run.iterdir()}
    assert {"config.yaml", "environment.json", "model", "predictions-dev.jsonl"} <= names
    card = (run / "model" / "README.md").read_text()
    assert metrics["data_sha256"]["train"] in card
    assert "accuracy" in card


def test_predictions_on_dev_are_those_of_the_saved_model(run: Path, data: Path) -> None:
    lines = [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]
    rows = tiny.make_rows(40, seed=1)
    assert [line["line"] for line in lines] == list(range(2, 42))
    assert [line["gold"] for line in lines] == [label for _, label in rows]
    answers = predictor.load(run / "model").classify([text for text, _ in rows])
    for line, answer in zip(lines, answers, strict=True):
        assert line["label"] == answer.label
        assert line["probabilities"] == pytest.approx(answer.probabilities, abs=1e-5)
    right = np.mean([line["label"] == line["gold"] for line in lines])
    assert right == json.loads((run / "metrics.json").read_text())["dev"]["accuracy"]


def test_transformers_loads_the_model_with_the_same_logits_and_labels(run: Path) -> None:
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    assert theirs.config.id2label == {0: "neg", 1: "pos"}
    assert json.loads((run / "model" / "task.json").read_text())["labels"] == ["neg", "pos"]
    text = "wordb fine wordc"
    with torch.no_grad():
        shares = torch.softmax(theirs(**tokenizer(text, return_tensors="pt")).logits[0], dim=-1)
    answer = predictor.load(run / "model").classify([text])[0]
    assert list(answer.probabilities.values()) == pytest.approx(shares.tolist(), abs=1e-5)


def test_a_seed_gives_the_same_run_bit_by_bit_alone_or_among_others(
    run: Path, model: Path, data: Path, tmp_path: Path
) -> None:
    dev = str(data.parent / "dev.csv")
    best = json.loads((run / "metrics.json").read_text())["best_seed"]
    torch.manual_seed(12345)  # what was drawn before must not matter
    finetune(tiny.config(model, data, tmp_path / "same", dev=dev, seed=best))
    finetune(tiny.config(model, data, tmp_path / "other", dev=dev, seed=best + 7))
    expected, same, other = (weights(path / "model") for path in (run, tmp_path / "same", tmp_path / "other"))
    assert all(torch.equal(same[name], value) for name, value in expected.items())
    assert not torch.equal(other["classifier.weight"], expected["classifier.weight"])


def in_process(hash_seed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "bertsmith", *arguments]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_c031_labels_are_stored_and_used_in_other_processes(model: Path, tmp_path: Path) -> None:
    train = tiny.write_csv(tmp_path / "train.csv", tiny.make_rows(240, ("pos", "neg", "neu")))
    rows = tiny.make_rows(30, ("neu", "pos"), seed=5)
    rows.sort(key=lambda row: row[1])
    dev = tiny.write_csv(tmp_path / "dev.csv", rows)
    out = tmp_path / "run"
    flags = ["--model", str(model), "--data", str(train), "--dev", str(dev), "--out", str(out), "--json"]
    flags += ["--epochs", "8", "--batch-size", "16", "--seq-len", "32", "--precision", "float32"]
    trained = in_process("1", "finetune", "--task", "classify", *flags, "--optimizer.learning-rate", "3e-3")
    assert trained.returncode == 0, trained.stderr
    accuracy = json.loads(trained.stdout)["dev"]["accuracy"]
    assert accuracy > 0.9
    config = json.loads((out / "model" / "config.json").read_text())
    assert config["id2label"] == {"0": "neg", "1": "neu", "2": "pos"}
    evaluated = in_process("2", "evaluate", "--model", str(out / "model"), "--data", str(dev), "--json")
    assert evaluated.returncode == 0, evaluated.stderr
    assert json.loads(evaluated.stdout)["metrics"]["accuracy"] == accuracy
    mixed = tiny.write_csv(tmp_path / "mixed.csv", [*rows[:3], ("so wordc", "mixed")])
    refused = in_process("3", "evaluate", "--model", str(out / "model"), "--data", str(mixed))
    assert refused.returncode == 2
    assert "line 5: label 'mixed' is unknown to the model (it knows neg, neu, pos)" in refused.stderr
    assert len(refused.stderr.strip().splitlines()) == 1


def test_c031_an_unseen_label_in_dev_stops_before_training(model: Path, data: Path, tmp_path: Path) -> None:
    dev = tiny.write_csv(tmp_path / "dev.csv", [("good", "pos"), ("so", "neu")])
    with pytest.raises(InputError, match=r"dev\.csv, line 3: label 'neu' is unknown"):
        finetune(tiny.config(model, data, tmp_path / "run", dev=str(dev)))
    assert not (tmp_path / "run").exists()


def test_c010_a_vocabulary_without_mask_is_refused_by_name(model: Path, data: Path, tmp_path: Path) -> None:
    broken = tmp_path / "model"
    broken.mkdir()
    for path in model.iterdir():
        (broken / path.name).write_bytes(path.read_bytes())
    kept = [token for token in tiny.VOCABULARY if token != SPECIAL_TOKENS[4]]
    (broken / "vocab.txt").write_text("\n".join(kept) + "\n")
    with pytest.raises(InputError, match=r"vocab\.txt: the special token \[MASK\] is missing"):
        finetune(tiny.config(broken, data, tmp_path / "run"))


def test_columns_that_are_not_read_are_named(model: Path, tmp_path: Path, capsys: Any) -> None:
    rows = [(text, label, str(number)) for number, (text, label) in enumerate(tiny.make_rows(40))]
    data = tiny.write_csv(tmp_path / "rows.csv", rows, ("text", "label", "id"))
    finetune(tiny.config(model, data, tmp_path / "run", epochs=1))
    assert "; 2 labels; columns not read: id\n" in capsys.readouterr().err


def test_without_dev_a_tenth_is_kept_and_it_is_said(
    model: Path, data: Path, tmp_path: Path, capsys: Any
) -> None:
    summary = finetune(tiny.config(model, data, tmp_path / "run", limit_rows=50, epochs=1))
    assert (summary["train_rows"], summary["dev_rows"]) == (50, 16)
    assert summary["dev_source"] == "a tenth of the training rows, chosen by seed 0"
    assert "a tenth of the training rows" in capsys.readouterr().err
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "predictions-dev.jsonl").read_text().splitlines()
    ]
    assert len({line["line"] for line in lines}) == 16


def test_what_is_cut_or_left_out_is_counted(model: Path, tmp_path: Path) -> None:
    rows = [*tiny.make_rows(30), ("good " * 40, "pos"), ("", "neg"), ("bad", "")]
    data = tiny.write_csv(tmp_path / "train.csv", rows)
    dev = tiny.write_csv(tmp_path / "dev.csv", [("good", "pos"), ("bad " * 50, "neg")])
    with pytest.raises(InputError, match=r"2 rows lack a value: line 33 \(text\), line 34 \(label\)"):
        finetune(tiny.config(model, data, tmp_path / "run", dev=str(dev)))
    summary = finetune(tiny.config(model, data, tmp_path / "run", dev=str(dev), missing="skip", epochs=1))
    assert summary["truncated"] == {"train": 1, "dev": 1}
    assert summary["truncated_rows"] == 2
    assert summary["missing_rows"] == {"train": 2, "dev": 0}
    assert summary["train_rows"] == 31
    with pytest.raises(InputError, match=r"train\.csv, line 32: has 42 pieces, more than seq-len 32"):
        settings = {"missing": "skip", "truncation": "error"}
        finetune(tiny.config(model, data, tmp_path / "other", dev=str(dev), **settings))


def test_pairs_are_learnt_and_their_second_text_counts(model: Path, tmp_path: Path) -> None:
    texts = [text for text, _ in tiny.make_rows(300, seed=3)]
    rows = [(text, ("good", "bad")[n % 2], ("yes", "no")[n % 2]) for n, text in enumerate(texts)]
    data = tiny.write_csv(tmp_path / "train.csv", rows, ("sentence1", "sentence2", "label"))
    summary = finetune(tiny.config(model, data, tmp_path / "run"))
    assert summary["dev"]["accuracy"] > 0.95
    stored = json.loads((tmp_path / "run" / "model" / "task.json").read_text())
    assert '[("a text", "its second text")]' in (tmp_path / "run" / "model" / "README.md").read_text()
    assert stored["columns"] == {"text": "sentence1", "second_text": "sentence2", "label": "label"}


def test_regression_learns_values_of_any_size_and_saves_them_in_the_head(model: Path, tmp_path: Path) -> None:
    rows = [(text, str(250_000 if label == "pos" else 100_000)) for text, label in tiny.make_rows(300)]
    data = tiny.write_csv(tmp_path / "train.csv", rows, ("text", "score"))
    summary = finetune(tiny.config(model, data, tmp_path / "run", task="regress", epochs=6))
    assert summary["dev"]["pearson"] > 0.95
    assert summary["dev"]["rmse"] < 30_000
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "predictions-dev.jsonl").read_text().splitlines()
    ]
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "run" / "model"
    ).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "run" / "model")
    assert theirs.config.problem_type == "regression"
    for line in lines[:5]:
        text = rows[line["line"] - 2][0]
        with torch.no_grad():
            value = float(theirs(**tokenizer(text, return_tensors="pt")).logits[0, 0])
        assert value == pytest.approx(line["value"], rel=1e-5)
        assert predictor.load(tmp_path / "run" / "model").regress([text])[0].value == pytest.approx(
            value, rel=1e-5
        )


def test_random_weights_need_no_weights_and_depend_on_the_seed_alone(
    model: Path, data: Path, tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "vocab.txt", "tokenizer_config.json"):
        (bare / name).write_bytes((model / name).read_bytes())
    for name, start in (("a", bare), ("b", model)):
        finetune(tiny.config(start, data, tmp_path / name, random_weights=True, epochs=1))
    first, second = weights(tmp_path / "a" / "model"), weights(tmp_path / "b" / "model")
    assert all(torch.equal(first[name], value) for name, value in second.items())
    with pytest.raises(InputError, match="no weights"):
        finetune(tiny.config(bare, data, tmp_path / "c"))


def test_a_run_that_stayed_at_one_answer_is_named(model: Path, data: Path, tmp_path: Path) -> None:
    still = OptimizerConfig(learning_rate=1e-12)
    summary = finetune(tiny.config(model, data, tmp_path / "run", optimizer=still, epochs=1, dropout=0.0))
    outputs = (tmp_path / "run" / "predictions-dev.jsonl").read_text().splitlines()
    assert len({json.loads(line)["label"] for line in outputs}) == 1
    failed = {"seed": 0, "settings": {}, "why": "constant predictions", "replaced_by": None}
    assert summary["failed_runs"] == [failed]
    assert summary["settings"]["dropout"] == 0.0


def test_a_run_that_diverged_is_named_and_another_is_kept(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = recipe.train

    def breaking(*arguments: Any) -> Any:
        if arguments[4].seed == 0:
            raise NonFiniteLoss(3, {"loss": float("nan")})
        yield from train(*arguments)

    monkeypatch.setattr(recipe, "train", breaking)
    summary = finetune(tiny.config(model, data, tmp_path / "run", seeds=2))
    failed = {"seed": 0, "settings": {}, "why": "diverged", "replaced_by": None}
    assert summary["failed_runs"] == [failed]
    assert summary["best_seed"] == 1
    assert summary["seeds"][0]["dev"] is None
    assert summary["mean"] == summary["seeds"][1]["dev"] == summary["dev"]


def test_when_every_run_diverges_the_rate_is_blamed(model: Path, data: Path, tmp_path: Path) -> None:
    wild = OptimizerConfig(learning_rate=1e38, warmup_fraction=0.0)
    with pytest.raises(InputError, match=r"every run diverged; lower --optimizer\.learning-rate"):
        finetune(tiny.config(model, data, tmp_path / "run", optimizer=wild))


@pytest.mark.parametrize("name", ["epochs", "batch_size", "seeds"])
def test_counts_below_one_are_refused(model: Path, data: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name.replace('_', '-')} is 0; it has to be at least 1"):
        finetune(tiny.config(model, data, tmp_path / "run", **{name: 0}))


def test_data_that_teaches_nothing_is_refused(model: Path, tmp_path: Path) -> None:
    rows = tiny.write_csv(tmp_path / "train.csv", [("good", "1"), ("bad", "1"), ("so", "1")])
    with pytest.raises(InputError, match="every row has the label '1'"):
        finetune(tiny.config(model, rows, tmp_path / "run"))
    with pytest.raises(InputError, match=r"every row has the value 1\.0"):
        finetune(tiny.config(model, rows, tmp_path / "run", task="regress"))
    stamps = tiny.write_csv(tmp_path / "stamps.csv", [("good", str(1_700_000_000 + n)) for n in range(9)])
    with pytest.raises(InputError, match=r"17\d+\.0 to 17\d+\.0 are one float32"):
        finetune(tiny.config(model, stamps, tmp_path / "run", task="regress"))


def real_pairs(shared_data: Path, tmp_path: Path) -> tuple[Path, Path]:
    """Write the 80 shortest training pairs and 40 shortest dev pairs of MRPC as own data."""
    files = []
    for split, number in (("train", 80), ("dev", 40)):
        read = TASKS["mrpc"].read(DataSource(str(shared_data / "glue" / "MRPC")), split)
        assert read is not None
        shortest = sorted(read.rows, key=lambda row: (sum(map(len, map(str, row.texts))), row.line))
        rows = [(*map(str, row.texts), str(row.label)) for row in shortest[:number]]
        files.append(tiny.write_csv(tmp_path / f"{split}.csv", rows, ("sentence1", "sentence2", "label")))
    return files[0], files[1]


def test_twenty_steps_equal_a_plain_transformers_loop(
    shared_data: Path, minilm_path: Path, tmp_path: Path
) -> None:
    train, dev = real_pairs(shared_data, tmp_path)
    settings = {"epochs": 1, "batch_size": 4, "seq_len": 128, "dropout": 0.0, "seed": 3}
    rate = OptimizerConfig(learning_rate=5e-5)
    finetune(tiny.config(minilm_path, train, tmp_path / "run", dev=str(dev), optimizer=rate, **settings))
    events = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    losses = [event["loss"] for event in events if "loss" in event]

    bundle = load_bundle(minilm_path)
    torch.manual_seed(seed_of(3, "weights"))
    save_bundle(tmp_path / "start", load_classification_model(bundle, 2), bundle.tokenizer, None, "card")
    theirs = transformers.BertForSequenceClassification.from_pretrained(
        tmp_path / "start", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )
    plain = [value for name, value in theirs.named_parameters() if value.ndim < 2]
    decayed = [value for name, value in theirs.named_parameters() if value.ndim >= 2]
    groups = [{"params": decayed, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=5e-5, eps=1e-6)
    scheduler = transformers.get_linear_schedule_with_warmup(optimizer, 2, 20)
    read = TASKS["classify"].read(DataSource(str(train), dev=str(dev)), "train")
    held = TASKS["classify"].read(DataSource(str(train), dev=str(dev)), "dev")
    assert read is not None
    assert held is not None
    encoded = encode_rows([row.texts for row in read.rows], bundle.tokenizer, 128)
    order = TrainingRows(len(encoded), lambda units: batch_of(encoded, units), 4, 3)
    tokenizer = transformers.AutoTokenizer.from_pretrained(minilm_path)

    def inputs(chosen: list[Any]) -> Any:
        first, second = [row.texts[0] for row in chosen], [row.texts[1] for row in chosen]
        return tokenizer(first, second, padding=True, return_tensors="pt")

    theirs.train()
    for step in range(20):
        chosen = [read.rows[index] for index in order.indices(step)]
        labels = torch.tensor([int(str(row.label)) for row in chosen])
        loss = theirs(**inputs(chosen), labels=labels).loss
        assert losses[step] == pytest.approx(loss.item(), abs=1e-4), f"step {step}"
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
    theirs.eval()
    with torch.no_grad():
        logits = theirs(**inputs(held.rows)).logits
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "predictions-dev.jsonl").read_text().splitlines()
    ]
    ours = [list(line["probabilities"].values()) for line in lines]
    temperature = json.loads((tmp_path / "run" / "metrics.json").read_text())["tuned"]["temperature"]
    np.testing.assert_allclose(ours, torch.softmax(logits / temperature, dim=-1).numpy(), atol=1e-4)


def test_weights_that_broke_at_an_epochs_last_step_are_not_kept(
    model: Path, data: Path, tmp_path: Path
) -> None:
    """The loop notices only at the next step; the run used to be saved with NaN in its outputs."""
    wild = OptimizerConfig(learning_rate=1e38, warmup_fraction=0.0)
    settings = {"optimizer": wild, "batch_size": 200, "dev": str(data.parent / "dev.csv"), "epochs": 2}
    with pytest.raises(InputError, match="every run diverged"):
        finetune(tiny.config(model, data, tmp_path / "run", **settings))
    assert not (tmp_path / "run" / "model").exists()


def test_a_run_directory_whose_content_would_be_lost_is_refused(
    model: Path, data: Path, tmp_path: Path
) -> None:
    finished = tiny.save_model(tmp_path / "run" / "model")
    before = (finished / "model.safetensors").read_bytes()
    (tmp_path / "pretraining" / "checkpoints").mkdir(parents=True)
    for out, kept in (("run", "model"), ("run/model", "config.json"), ("pretraining", "checkpoints")):
        with pytest.raises(InputError, match=f"holds {kept}, which would be lost; choose another --out"):
            finetune(tiny.config(model, data, tmp_path / out))
    assert (finished / "model.safetensors").read_bytes() == before
    with pytest.raises(InputError, match=r"train\.csv is a file; give a directory"):
        finetune(tiny.config(model, data, data))


def test_a_new_head_is_no_reason_for_a_warning(
    model: Path, data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, is_random in (("a", False), ("b", True)):
        finetune(tiny.config(model, data, tmp_path / name, epochs=1, random_weights=is_random))
    assert not caplog.records


def test_dev_metrics_are_those_that_evaluate_finds_whatever_the_precision_of_the_training(
    model: Path, data: Path, tmp_path: Path
):
    dev = data.parent / "dev.csv"
    out = tmp_path / "run"
    result = finetune(tiny.config(model, data, out, dev=str(dev), precision="bfloat16"))
    found = evaluate(EvaluateConfig(model=str(out / "model"), data=str(dev)))
    assert found["metrics"] == result["dev"]
    assert found["loss"] == pytest.approx(
        next(seed for seed in result["seeds"] if seed["seed"] == result["best_seed"])["dev_loss"], rel=1e-6
    )
