"""Own data through every verb: several labels, choices, long texts in windows, weighted labels."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import predictor
from bertsmith.bundle import load_bundle
from bertsmith.errors import InputError
from bertsmith.recipes.config import EvaluateConfig, PredictConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.predict import predict
from tests.recipes import tiny


def write_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def labelled(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows whose labels are the signs in the text: none, one or several."""
    draw, rows = random.Random(seed), []
    for _ in range(number):
        labels = [label for label in ("neg", "neu", "pos") if draw.random() < 0.4]
        words = [draw.choice(tiny.WORDS[6:]) for _ in range(draw.randint(1, 6))]
        words += [draw.choice(tiny.SIGNS[label]) for label in labels]
        draw.shuffle(words)
        rows.append({"text": " ".join(words), "labels": labels})
    return rows


def chosen(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows in which one of two to five choices is good."""
    draw, rows = random.Random(seed), []
    for _ in range(number):
        choices = [draw.choice(tiny.SIGNS["neg"]) for _ in range(draw.randint(1, 4))]
        label = draw.randint(0, len(choices))
        choices.insert(label, draw.choice(tiny.SIGNS["pos"]))
        choices = [f"{choice} {draw.choice(tiny.WORDS[6:])}" for choice in choices]
        rows.append({"context": draw.choice(tiny.WORDS), "choices": choices, "label": label})
    return rows


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module")
def several(start: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run of a task of several labels, and what it returned."""
    path = tmp_path_factory.mktemp("several")
    train = write_json(path / "train.jsonl", labelled(200))
    dev = write_json(path / "dev.jsonl", labelled(80, seed=1))
    config = tiny.config(start, train, path / "run", task="multilabel", dev=str(dev), epochs=8)
    return path, finetune(config)


def test_several_labels_are_learnt_and_every_verb_agrees(several: tuple[Path, dict[str, Any]]) -> None:
    path, summary = several
    assert summary["labels"] == ["neg", "neu", "pos"]
    assert summary["dev"]["micro_f1"] > 0.9
    assert set(summary["dev"]) == {
        "micro_f1", "macro_f1", "exact_match", "micro_f1_at_half", "macro_f1_at_half",
    }  # fmt: skip
    again = evaluate(EvaluateConfig(model=str(path / "run" / "model"), data=str(path / "dev.jsonl")))
    assert again["metrics"] == summary["dev"]
    rows = lines_of(path / "dev.jsonl")
    stored = lines_of(path / "run" / "predictions-dev.jsonl")
    out = path / "predictions.jsonl"
    counts = predict(PredictConfig(str(path / "run" / "model"), str(path / "dev.jsonl"), str(out)))
    assert counts["rows"] == 80
    model = predictor.load(path / "run" / "model")
    answers = model.multilabel([row["text"] for row in rows])
    for row, kept, line, answer in zip(rows, stored, lines_of(out), answers, strict=True):
        assert kept["gold"] == row["labels"]
        assert kept["labels"] == line["labels"] == answer.labels
        assert line["probabilities"] == pytest.approx(answer.probabilities, abs=1e-5)
    exact = np.mean([kept["labels"] == kept["gold"] for kept in stored])
    assert exact == pytest.approx(summary["dev"]["exact_match"])
    assert len((load_bundle(path / "run" / "model").task or {})["tuned"]["thresholds"]) == 3
    with pytest.raises(InputError, match="cannot classify, it has no classification head; it can multilabel"):
        model.classify(["good"])


def test_c033_every_row_counts_whatever_the_batch(several: tuple[Path, dict[str, Any]]) -> None:
    path, summary = several
    config = EvaluateConfig(model=str(path / "run" / "model"), data=str(path / "dev.jsonl"))
    for size in (1, 30):
        found = evaluate(dataclasses.replace(config, batch_tokens=size))
        assert (found["examples"], found["metrics"]) == (80, summary["dev"])
    one = write_json(path / "one.jsonl", labelled(1, seed=4))
    assert evaluate(dataclasses.replace(config, data=str(one)))["examples"] == 1


def test_c031_a_file_with_fewer_labels_or_an_unknown_one(several: tuple[Path, dict[str, Any]]) -> None:
    path, _ = several
    model = str(path / "run" / "model")
    few = write_json(path / "few.jsonl", [{"text": "so", "labels": ["pos"]}, {"text": "so", "labels": []}])
    given = predictor.load(model).multilabel(["so"])[0].labels
    found = evaluate(EvaluateConfig(model=model, data=str(few)))["metrics"]
    assert found["exact_match"] == np.mean([given == ["pos"], given == []])
    unknown = write_json(path / "unknown.jsonl", [{"text": "so", "labels": ["pos", "mixed"]}])
    with pytest.raises(InputError, match="line 1: label 'mixed' is unknown to the model"):
        evaluate(EvaluateConfig(model=model, data=str(unknown)))


def test_a_separator_is_stored_and_never_ignored(start: Path, tmp_path: Path) -> None:
    rows = [(row["text"], "|".join(row["labels"])) for row in labelled(60)]
    train = tiny.write_csv(tmp_path / "train.csv", rows, ("text", "labels"))
    config = tiny.config(start, train, tmp_path / "run", task="multilabel", epochs=1)
    with pytest.raises(InputError, match="several labels need --label-separator"):
        finetune(config)
    summary = finetune(dataclasses.replace(config, label_separator="|"))
    assert summary["labels"] == ["neg", "neu", "pos"]
    assert evaluate(EvaluateConfig(model=str(tmp_path / "run" / "model"), data=str(train)))["examples"] == 60
    listed = write_json(tmp_path / "a.jsonl", labelled(20))
    again = dataclasses.replace(config, out=str(tmp_path / "other"), data=str(listed), label_separator="|")
    with pytest.raises(InputError, match="is a list: --label-separator would be ignored"):
        finetune(again)
    with pytest.raises(InputError, match=r"--label-separator \| would be ignored: it is for multilabel, not"):
        finetune(dataclasses.replace(again, task="classify"))


def test_choices_are_learnt_and_every_verb_agrees(start: Path, tmp_path: Path) -> None:
    train = write_json(tmp_path / "train.jsonl", chosen(120))
    dev = write_json(tmp_path / "dev.jsonl", chosen(80, seed=1))
    config = tiny.config(start, train, tmp_path / "run", task="choose", dev=str(dev), epochs=4)
    summary = finetune(config)
    assert summary["dev"]["accuracy"] > 0.9
    model = str(tmp_path / "run" / "model")
    for size in (1, 40, 4096):
        found = evaluate(EvaluateConfig(model=model, data=str(dev), batch_tokens=size))
        assert (found["examples"], found["metrics"]) == (80, summary["dev"])
    rows = lines_of(dev)
    holed = [*rows[:3], {"context": "good", "choices": ["bad"]}, {"choices": ["a", "b"]}, *rows[3:]]
    source, out = write_json(tmp_path / "holed.jsonl", holed), tmp_path / "out.jsonl"
    assert predict(PredictConfig(model, str(source), str(out)))["rows_without_text"] == 2
    written = lines_of(out)
    assert [line["row"] for line in written] == list(range(82))
    assert written[3]["error"] == "line 4: no choices"
    answers = predictor.load(model).choose([(row["context"], row["choices"]) for row in rows])
    stored = lines_of(tmp_path / "run" / "predictions-dev.jsonl")
    for row, kept, line, answer in zip(rows, stored, [*written[:3], *written[5:]], answers, strict=True):
        assert kept["gold"] == row["label"]
        assert kept["choice"] == line["choice"] == answer.choice
        assert answer.text == row["choices"][answer.choice]
        assert line["probabilities"] == pytest.approx(answer.probabilities, abs=1e-5)
        assert len(answer.probabilities) == len(row["choices"])
        assert sum(answer.probabilities) == pytest.approx(1.0)
    right = np.mean([kept["choice"] == kept["gold"] for kept in stored])
    assert right == pytest.approx(summary["dev"]["accuracy"])
    assert predictor.load(model).choose([]) == []
    for item in ("text", ("context", "abc"), ("context", ["one"]), ("c",), ("c", ["a", 1]), (1, ["a", "b"])):
        with pytest.raises(InputError, match=r"item number 1 is no \(context, \[two or more choices\]\)"):
            predictor.load(model).choose([("good", ["a", "b"]), item])  # type: ignore[list-item]


def test_c031_a_choice_of_codahs_form_in_another_directory(start: Path, tmp_path: Path) -> None:
    lines = []
    for row in chosen(60):
        choices = [*row["choices"], "so", "so", "so"][:4]
        if row["label"] < 4:
            lines.append("\t".join(["n", row["context"], *choices, str(row["label"])]) + "\n")
    for name in ("train", "dev", "test"):
        (tmp_path / f"{name}.tsv").write_text("".join(lines))
    summary = finetune(tiny.config(start, tmp_path, tmp_path / "run", task="swag", epochs=1))
    model = str(tmp_path / "run" / "model")
    for split in ("dev", "test"):
        found = evaluate(EvaluateConfig(model=model, data=str(tmp_path), split=split))
        assert found["metrics"] == summary["dev"]
    out = tmp_path / "out.jsonl"
    predict(PredictConfig(model, str(tmp_path / "test.tsv"), str(out)))
    assert len(lines_of(out)) == len(lines)


def long_rows(number: int, seed: int = 0) -> list[tuple[str, str]]:
    """Rows whose sign stands anywhere in up to sixty words."""
    draw, rows = random.Random(seed), []
    for _ in range(number):
        label = draw.choice(["pos", "neg"])
        words = [draw.choice(tiny.WORDS[6:]) for _ in range(draw.randint(1, 60))]
        words.insert(draw.randint(0, len(words)), draw.choice(tiny.SIGNS[label]))
        rows.append((" ".join(words), label))
    return rows


def test_windows_read_what_the_other_policies_cut(start: Path, tmp_path: Path) -> None:
    train = tiny.write_csv(tmp_path / "train.csv", long_rows(120))
    dev = tiny.write_csv(tmp_path / "dev.csv", long_rows(60, seed=1))
    summaries = {}
    for truncation in ("tail", "windows"):
        config = tiny.config(
            start, train, tmp_path / truncation, dev=str(dev), truncation=truncation, seq_len=16, epochs=5
        )
        summaries[truncation] = finetune(config)
    assert summaries["tail"]["truncated_rows"] > 60
    assert summaries["windows"]["truncated_rows"] == 0
    accuracies = {name: summary["dev"]["accuracy"] for name, summary in summaries.items()}
    assert accuracies["windows"] > 0.9 > accuracies["tail"]
    model = str(tmp_path / "windows" / "model")
    found = evaluate(EvaluateConfig(model=model, data=str(dev)))
    assert (found["examples"], found["truncated_rows"]) == (60, 0)
    assert found["metrics"] == summaries["windows"]["dev"]
    stored = lines_of(tmp_path / "windows" / "predictions-dev.jsonl")
    loaded = predictor.load(model)
    answers = loaded.classify([text for text, _ in long_rows(60, seed=1)])
    assert [answer.label for answer in answers] == [line["label"] for line in stored]
    assert not any(answer.truncated for answer in answers)
    predict(PredictConfig(model, str(dev), str(tmp_path / "out.jsonl")))
    assert [line["label"] for line in lines_of(tmp_path / "out.jsonl")] == [line["label"] for line in stored]
    assert loaded.embed(["so " * 50]).truncated == [True], "vectors are of the beginning"


def test_a_value_of_a_long_text_is_the_mean_of_its_windows(start: Path, tmp_path: Path) -> None:
    rows = [(text, f"{len(text.split())}") for text, _ in long_rows(60)]
    train = tiny.write_csv(tmp_path / "train.csv", rows, ("text", "score"))
    config = tiny.config(
        start, train, tmp_path / "run", task="regress", truncation="windows", seq_len=16, epochs=2
    )
    summary = finetune(config)
    stored = lines_of(tmp_path / "run" / "predictions-dev.jsonl")
    model = predictor.load(tmp_path / "run" / "model")
    texts = {int(line): text for line, (text, _) in enumerate(rows, start=2)}
    answers = model.regress([texts[line["line"]] for line in stored])
    assert [answer.value for answer in answers] == pytest.approx([line["value"] for line in stored], abs=1e-3)
    found = evaluate(EvaluateConfig(model=str(tmp_path / "run" / "model"), data=str(train)))
    assert found["truncated_rows"] == summary["truncated_rows"] == 0


def test_balanced_classes_find_more_of_a_rare_label(start: Path, tmp_path: Path) -> None:
    draw = random.Random(0)
    rows = [("so " + draw.choice(tiny.WORDS[6:]), "yes" if draw.random() < 0.2 else "no") for _ in range(200)]
    train = tiny.write_csv(tmp_path / "train.csv", rows)
    given = {}
    for weights in (None, "balanced"):
        config = tiny.config(start, train, tmp_path / str(weights), class_weights=weights, epochs=3)
        finetune(config)
        model = tmp_path / str(weights) / "model"
        answers = predictor.load(model).classify([text for text, _ in rows])
        temperature = json.loads((model / "task.json").read_text())["tuned"]["temperature"]
        shares = np.array([list(answer.probabilities.values()) for answer in answers]) ** temperature
        given[weights] = (shares[:, 1] / shares.sum(axis=1)).mean()  # of "yes", as trained
    assert given[None] < 0.3, "as rare as it is"
    assert given["balanced"] == pytest.approx(0.5, abs=0.15), "as if it were as frequent as the other"


@pytest.mark.parametrize(
    "changes, message",
    [
        (
            {"task": "regress", "class_weights": "balanced"},
            "--class-weights balanced would be ignored: it is for .*, not for regress",
        ),
        ({"class_weights": "inverse"}, "class-weights is 'inverse'; the weights there are: balanced"),
        (
            {"task": "choose", "truncation": "windows"},
            "truncation windows does not fit choose; take one of tail",
        ),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    start: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    train = tiny.write_csv(tmp_path / "train.csv", tiny.make_rows(10))
    with pytest.raises(InputError, match=message):
        finetune(tiny.config(start, train, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()
