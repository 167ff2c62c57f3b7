"""Evaluation: every row, the whole set at once, whatever the batch size."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from bertsmith import predictor
from bertsmith.errors import InputError
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.finetune import finetune
from tests.recipes import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier that is not perfect, and ten labelled rows."""
    path = tmp_path_factory.mktemp("evaluate")
    start = tiny.save_model(path / "start")
    train = tiny.write_csv(path / "train.csv", tiny.make_rows(100))
    finetune(tiny.config(start, train, path / "run", epochs=2))
    tiny.write_csv(path / "ten.csv", tiny.make_rows(10, seed=9))
    return path


def settings(folder: Path, **changes: object) -> EvaluateConfig:
    config = EvaluateConfig(model=str(folder / "run" / "model"), data=str(folder / "ten.csv"))
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def test_c033_every_row_counts_for_every_batch_size(folder: Path) -> None:
    results = [evaluate(settings(folder, batch_tokens=size)) for size in (1, 12, 25, 60, 4096)]
    assert {result["examples"] for result in results} == {10}
    assert len({json.dumps(result["metrics"]) for result in results}) == 1
    for result in results:
        assert result["loss"] == pytest.approx(results[0]["loss"], abs=1e-6)


def test_c046_metrics_are_those_of_all_rows_at_once(folder: Path) -> None:
    sklearn = pytest.importorskip("sklearn.metrics")
    rows = tiny.make_rows(10, seed=9)
    answers = predictor.load(folder / "run" / "model").classify([text for text, _ in rows])
    gold, predicted = [label for _, label in rows], [answer.label for answer in answers]
    result = evaluate(settings(folder, batch_tokens=12))
    assert result["metrics"]["accuracy"] == pytest.approx(sklearn.accuracy_score(gold, predicted))
    assert result["metrics"]["macro_f1"] == pytest.approx(sklearn.f1_score(gold, predicted, average="macro"))
    temperature = json.loads((folder / "run" / "metrics.json").read_text())["tuned"]["temperature"]
    losses = []
    for answer, label in zip(answers, gold, strict=True):
        as_trained = {name: share**temperature for name, share in answer.probabilities.items()}
        losses.append(-np.log(as_trained[label] / sum(as_trained.values())))
    assert result["loss"] == pytest.approx(np.mean(losses), abs=1e-6)


def test_c031_the_stored_labels_number_the_rows_of_a_file_with_fewer(folder: Path, tmp_path: Path) -> None:
    rows = [("fine worda", "pos"), ("so good", "pos")]
    one = tiny.write_csv(tmp_path / "one.csv", rows)
    answers = predictor.load(folder / "run" / "model").classify([text for text, _ in rows])
    right = np.mean([answer.label == "pos" for answer in answers])
    assert evaluate(settings(folder, data=str(one)))["metrics"]["accuracy"] == right


def test_what_was_left_out_or_cut_is_counted_and_written(folder: Path, tmp_path: Path) -> None:
    data = tiny.write_csv(tmp_path / "rows.csv", [("good", "pos"), ("", "neg"), ("bad " * 50, "neg")])
    with pytest.raises(InputError, match=r"line 3 \(text\)"):
        evaluate(settings(folder, data=str(data)))
    out = tmp_path / "metrics.json"
    result = evaluate(settings(folder, data=str(data), missing="skip", out=str(out)))
    assert (result["examples"], result["missing_rows"], result["truncated_rows"]) == (2, 1, 1)
    assert json.loads(out.read_text()) == result


def test_glue_layout_and_a_part_of_a_split(folder: Path, tmp_path: Path) -> None:
    start = folder / "start"
    glue = tmp_path / "SST-2"
    glue.mkdir()
    numbers = {"pos": "1", "neg": "0"}
    for name, seed, count in (("train.tsv", 0, 60), ("dev.part.tsv", 1, 10)):
        lines = [f"{text}\t{numbers[label]}\n" for text, label in tiny.make_rows(count, seed=seed)]
        (glue / name).write_text("sentence\tlabel\n" + "".join(lines))
    (glue / "test.tsv").write_text("index\tsentence\n0\tgood\n")
    summary = finetune(tiny.config(start, glue, tmp_path / "run", task="sst2", epochs=1))
    assert summary["partial"] == {"train": False, "dev": True}
    model = str(tmp_path / "run" / "model")
    result = evaluate(EvaluateConfig(model=model, data=str(glue)))
    assert (result["task"], result["partial"], result["examples"]) == ("sst2", True, 10)
    assert result["metrics"] == summary["dev"]
    assert evaluate(EvaluateConfig(model=model, data=str(glue), split="train"))["examples"] == 60
    with pytest.raises(InputError, match="the test rows have no labels; use bertsmith predict"):
        evaluate(EvaluateConfig(model=model, data=str(glue), split="test"))
    with pytest.raises(InputError, match="--task stsb needs a regression head, the model has classification"):
        evaluate(EvaluateConfig(model=model, data=str(glue), task="stsb"))


def test_a_model_without_a_head_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="stores no task to evaluate; fine-tune it"):
        evaluate(settings(folder, model=str(folder / "start")))
    with pytest.raises(InputError, match="needs a classification head, the model has pretraining"):
        evaluate(settings(folder, model=str(folder / "start"), task="classify"))


def test_labels_that_are_not_the_tasks_are_refused(folder: Path) -> None:
    """F1 is of label number 1: under other labels it would be another figure."""
    with pytest.raises(InputError, match=r"the labels of mrpc are 0, 1, the model's neg, pos"):
        evaluate(settings(folder, task="mrpc"))


def test_a_split_of_a_file_would_be_ignored_and_a_directory_cannot_be_written(
    folder: Path, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match="--split train would be ignored"):
        evaluate(settings(folder, split="train"))
    with pytest.raises(InputError, match="is a directory; name the file to write"):
        evaluate(settings(folder, out=str(tmp_path), model="not even looked at"))
