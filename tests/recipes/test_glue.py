"""The verb glue: scores beside one another, a submission of real test rows, a check of any zip."""

from __future__ import annotations

import json
import zipfile
from collections import Counter
from pathlib import Path

import pytest
import torch
from sklearn.metrics import accuracy_score

from bertsmith import cli
from bertsmith.bundle import load_bundle, load_classification_model, save_bundle
from bertsmith.errors import InputError
from bertsmith.predictor import load
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.glue import glue
from bertsmith.recipes.glue_config import GlueConfig
from bertsmith.tasks import glue_submission_check
from bertsmith.tasks.encode import batch_of, encode_rows
from bertsmith.tasks.glue_submission import SUBMISSION
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import TASKS
from tests.recipes import tiny

MODELS = ("cola", "sst2", "mrpc", "stsb", "mnli", "qnli", "rte")
ALIKE = ["wnli", "QQP", "MNLI-m", "mnli-mm"]


def save_task_model(path: Path, name: str) -> str:
    """Write a model of random weights with the task's head, whose answers differ from row to row."""
    task = TASKS[name]
    if not (path / "start").exists():
        tiny.save_model(path / "start")
    bundle = load_bundle(path / "start")
    model = load_classification_model(bundle, task.kind.num_outputs(task.labels)).eval()
    row = encode_rows([("a sentence of some length", None)], bundle.tokenizer, 64)
    with torch.no_grad():
        model.classifier.weight.mul_(100)
        model.classifier.bias.copy_(-model(batch_of(row, [0]).tokens)[0])
    stored = {
        "task": name,
        "head": task.kind.name,
        "labels": task.labels if task.labels is None else list(task.labels),
        "seq_len": 64,
        "truncation": "tail",
    }
    save_bundle(path / name, model, bundle.tokenizer, stored, "card")
    return str(path / name)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("models")
    return [save_task_model(folder, name) for name in MODELS]


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """A world where a submission has three files: for speed."""
    files = tuple(file for file in SUBMISSION if file.name in ("CoLA.tsv", "RTE.tsv", "WNLI.tsv"))
    for module in ("tasks.glue_submission", "tasks.glue_submission_check", "recipes.glue"):
        monkeypatch.setattr(f"bertsmith.{module}.SUBMISSION", files)


def contents(path: Path) -> dict[str, list[str]]:
    with zipfile.ZipFile(path) as archive:
        return {
            name: [line.split("\t")[1] for line in archive.read(name).decode().splitlines()[1:]]
            for name in archive.namelist()
        }


@pytest.mark.usefixtures("short")
def test_some_files_of_a_submission(models: list[str], shared_data: Path, tmp_path: Path) -> None:
    data, out = shared_data / "glue", tmp_path / "out" / "submission.zip"
    chosen = [models[MODELS.index(name)] for name in ("cola", "rte")]
    summary = glue(GlueConfig(models=chosen, data=str(data), out=str(out), majority=["WNLI"]))
    assert (summary["problems"], summary["failed"]) == ([], False)
    assert summary["rows"] == {"CoLA.tsv": 1063, "RTE.tsv": 3000, "WNLI.tsv": 146}
    found = contents(out)
    assert found["WNLI.tsv"] == ["0"] * 146
    test = TASKS["rte"].read(DataSource(str(data)), "test")
    assert test is not None
    texts = [(first, str(second)) for first, second in (row.texts for row in test.rows)]
    assert found["RTE.tsv"] == [answer.label for answer in load(chosen[1]).classify(texts)]
    assert min(Counter(found["RTE.tsv"]).values()) > 100, "both labels are answered"
    assert summary["dev"]["wnli"] == {"accuracy": pytest.approx(40 / 71)}
    for name, model in zip(("cola", "rte"), chosen, strict=True):
        assert summary["dev"][name] == evaluate(EvaluateConfig(model=model, data=str(data)))["metrics"]
    assert set(summary["averages"].values()) == {None}


@pytest.mark.slow
def test_a_submission_of_all_real_test_rows(models: list[str], shared_data: Path, tmp_path: Path) -> None:
    out = tmp_path / "submission.zip"
    summary = glue(GlueConfig(models=models, data=str(shared_data / "glue"), out=str(out), majority=ALIKE))
    assert (summary["problems"], summary["failed"]) == ([], False)
    found = contents(out)
    assert summary["rows"] == {file.name: file.rows for file in SUBMISSION}
    assert {name: len(rows) for name, rows in found.items()} == summary["rows"]
    answers = {"WNLI.tsv": "0", "QQP.tsv": "0", "MNLI-m.tsv": "contradiction", "MNLI-mm.tsv": "contradiction"}
    assert summary["alike"] == answers
    assert all(set(found[name]) == {answer} for name, answer in answers.items())
    assert len(set(found["AX.tsv"])) > 1, "answered by the model of MNLI"
    values = [float(value) for value in found["STS-B.tsv"]]
    assert len(set(values)) > 100
    assert 0 <= min(values) <= max(values) <= 5
    assert set(summary["dev"]) == {*MODELS, "qqp", "wnli"}
    assert summary["dev"]["qqp"] == {"f1": 0.0, "accuracy": pytest.approx(4871 / 7600)}
    assert sorted(summary["partial"]) == ["mnli", "qqp"]
    assert all(value is not None for value in summary["averages"].values())


def test_what_a_submission_lacks_is_said_before_anything_is_computed(
    models: list[str], shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertsmith.recipes.glue.evaluate", lambda config: pytest.fail("computed"))
    out = tmp_path / "x.zip"
    with pytest.raises(InputError, match=r"would lack QQP.tsv \(no model of qqp\), MNLI-m.tsv \(0 of 9,796"):
        glue(GlueConfig(models=models, data=str(shared_data / "glue"), out=str(out), majority=["wnli"]))
    assert not out.exists()


def test_scores_alone_need_no_test_rows(models: list[str], shared_data: Path, capsys) -> None:
    words = ["glue", "--models", models[6], "--majority", "wnli", "--data", str(shared_data / "glue")]
    assert cli.run([*words, "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert set(summary["dev"]) == {"rte", "wnli"}
    assert set(summary["averages"].values()) == {None}
    assert (summary["submission"], summary["rows"]) == (None, {})
    assert cli.run(words) == 0
    shown = capsys.readouterr().out
    assert "wnli    accuracy 0.5634" in shown
    assert "leaderboard_nine_tasks  not known, missing: cola, sst2, mrpc" in shown
    assert "WNLI.tsv: every row is answered 0" in shown


def test_a_foreign_zip_is_checked(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    short = tuple(file for file in SUBMISSION if file.name == "WNLI.tsv")
    monkeypatch.setattr(glue_submission_check, "SUBMISSION", short)
    path = tmp_path / "theirs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("WNLI.tsv", "index\tprediction\n" + "".join(f"{n}\t{n % 2}\n" for n in range(146)))
    assert cli.run(["glue", "--check", str(path)]) == 0
    assert "no problem found" in capsys.readouterr().out
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("notes.txt", "hello")
    assert cli.run(["glue", "--check", str(path)]) == 1
    assert "notes.txt: does not belong to a submission" in capsys.readouterr().out
    assert cli.run(["glue", "--check", str(tmp_path / "none.zip")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_model_that_stores_no_task_is_named_by_hand(models: list[str], tmp_path: Path) -> None:
    wnli = tmp_path / "WNLI"
    wnli.mkdir()
    rows = ["index\tsentence1\tsentence2\tlabel", "0\tgood\tbad\t1", "1\tbad\tgood\t0", "2\tso\tso\t1"]
    (wnli / "dev.tsv").write_text("\n".join(rows) + "\n")
    model = load_bundle(models[0])
    assert model.task is not None
    named = tmp_path / "foreign"
    save_bundle(
        named, load_classification_model(model, None), model.tokenizer, {**model.task, "task": "classify"}, ""
    )
    with pytest.raises(InputError, match=r"its task is 'classify', none of cola, .*; write TASK="):
        glue(GlueConfig(models=[str(named)], data=str(tmp_path)))
    summary = glue(GlueConfig(models=[f"wnli={named}"], data=str(tmp_path)))
    answers = load(named).classify([("good", "bad"), ("bad", "good"), ("so", "so")])
    expected = accuracy_score(["1", "0", "1"], [answer.label for answer in answers])
    assert summary["dev"] == {"wnli": {"accuracy": expected}}


def test_the_labelled_diagnostic_set_is_scored_with_the_model_of_mnli(
    models: list[str], tmp_path: Path
) -> None:
    (tmp_path / "MNLI").mkdir()
    (tmp_path / "diagnostic").mkdir()
    header = "sentence1\tsentence2\tgold_label\n"
    (tmp_path / "MNLI" / "dev_matched.tsv").write_text(f"{header}good\tso\tneutral\n")
    columns = "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain"
    lines = ["\t\t\t\tNews\tgood\tbad\tentailment", "\t\t\t\tNews\tso\tgood\tneutral"]
    (tmp_path / "diagnostic" / "diagnostic-full.tsv").write_text(
        "\n".join([f"{columns}\tPremise\tHypothesis\tLabel", *lines]) + "\n"
    )
    summary = glue(GlueConfig(models=[models[MODELS.index("mnli")]], data=str(tmp_path)))
    assert set(summary["dev"]) == {"mnli", "ax"}
    assert set(summary["dev"]["ax"]) == {"matthews", "accuracy"}


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "give --models and --data"),
        ({"check": "a.zip", "data": "x"}, "--data would be ignored with --check"),
        ({"check": "a.zip", "majority": ["wnli"]}, "--majority would be ignored with --check"),
        ({"majority": ["wnli"], "data": "nowhere"}, "--data nowhere: no such directory"),
        (
            {"majority": ["wnil"], "data": "."},
            "--majority wnil: no file of a submission; did you mean 'wnli'",
        ),
        ({"majority": ["wnli"], "data": ".", "out": "x.tar"}, "--out x.tar: the leaderboard takes a zip"),
        ({"majority": ["wnli"], "data": ".", "missing": "keep"}, "missing is 'keep'"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        glue(GlueConfig(**settings))  # type: ignore[arg-type]


def test_a_task_has_one_model(models: list[str]) -> None:
    with pytest.raises(InputError, match="rte has a model already"):
        glue(GlueConfig(models=[models[6], models[6]], data="."))


def test_the_files_of_the_zip_are_the_eleven_of_the_leaderboard() -> None:
    names = "AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI"
    assert sorted(file.name for file in SUBMISSION) == [f"{name}.tsv" for name in names.split()]
