"""Two fine-tunings beside each other: official tests of what they left behind."""

from __future__ import annotations

import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, ttest_ind

from bertsmith.cli import run as command_line
from bertsmith.errors import InputError
from bertsmith.recipes.compare import compare_runs
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.finetune import finetune
from bertsmith.tasks.task import TASKS
from bertsmith.training.config import OptimizerConfig
from tests.recipes import tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs on the same rows, one of which hardly learns."""
    folder = tmp_path_factory.mktemp("runs")
    model = tiny.save_model(folder / "model")
    train = tiny.write_csv(folder / "train.csv", tiny.make_rows(160))
    dev = tiny.write_csv(folder / "dev.csv", tiny.make_rows(60, seed=1))
    for name, rate, epochs in (("weak", 1e-3, 3), ("strong", 3e-3, 6)):
        settings = {"optimizer": OptimizerConfig(learning_rate=rate), "epochs": epochs, "seeds": 3}
        finetune(tiny.config(model, train, folder / name, dev=str(dev), **settings))
    return folder


def lines_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]


def test_the_comparison_is_of_the_stored_answers(runs: Path) -> None:
    found = compare_runs(str(runs / "weak"), str(runs / "strong"))
    right = {
        name: np.array([line["gold"] == line["label"] for line in lines_of(runs / name)])
        for name in ("weak", "strong")
    }
    assert (found["task"], found["metric"], found["rows"]) == ("classify", "accuracy", 60)
    assert [one["value"] for one in found["runs"]] == [right["weak"].mean(), right["strong"].mean()]
    assert found["difference"] == pytest.approx(right["strong"].mean() - right["weak"].mean())
    only_weak = int(np.sum(right["weak"] & ~right["strong"]))
    only_strong = int(np.sum(right["strong"] & ~right["weak"]))
    assert only_strong > only_weak + 10, "otherwise this shows little"
    test = found["mcnemar"]
    assert (test["only_first"], test["only_second"]) == (only_weak, only_strong)
    assert test["p_value"] == pytest.approx(binomtest(only_weak, only_weak + only_strong).pvalue)
    assert found["p_value"] < 0.01
    assert 0 < found["interval"]["low"] < found["difference"] < found["interval"]["high"]
    seeds = [
        [seed["dev"]["accuracy"] for seed in json.loads((runs / name / "metrics.json").read_text())["seeds"]]
        for name in ("weak", "strong")
    ]
    assert found["seeds"]["means"] == pytest.approx([np.mean(side) for side in seeds])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # seeds may agree
        assert found["seeds"]["p_value"] == pytest.approx(ttest_ind(*seeds, equal_var=False).pvalue)
    other = compare_runs(str(runs / "strong"), str(runs / "weak"))
    assert other["difference"] == -found["difference"]
    assert other["mcnemar"]["p_value"] == pytest.approx(test["p_value"])


def test_a_run_does_not_differ_from_itself(runs: Path) -> None:
    found = compare_runs(str(runs / "weak"), str(runs / "weak"))
    assert (found["difference"], found["p_value"], found["mcnemar"]["p_value"]) == (0.0, 1.0, 1.0)


def test_evaluate_compares_and_writes(runs: Path, tmp_path: Path, capsys: Any) -> None:
    pair = [str(runs / "weak"), str(runs / "strong")]
    assert command_line(["evaluate", "--compare", *pair, "--out", str(tmp_path / "c.json"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads((tmp_path / "c.json").read_text()) == compare_runs(*pair)


def test_what_cannot_be_compared_is_refused(runs: Path, tmp_path: Path) -> None:
    weak = str(runs / "weak")
    with pytest.raises(InputError, match="names 1 directories; give two"):
        evaluate(EvaluateConfig(compare=[weak]))
    with pytest.raises(InputError, match="--batch-tokens 7 would be ignored"):
        evaluate(EvaluateConfig(compare=[weak, weak], batch_tokens=7))
    with pytest.raises(InputError, match="needs --model and --data, or --compare"):
        evaluate(EvaluateConfig(model=weak))
    with pytest.raises(InputError, match="holds no finished fine-tuning"):
        compare_runs(weak, str(tmp_path))
    changed = tmp_path / "changed"
    shutil.copytree(runs / "strong", changed)
    lines = lines_of(changed)

    def write(rows: list[dict[str, Any]]) -> None:
        (changed / "predictions-dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    write(lines[1:])
    with pytest.raises(InputError, match=r"different dev rows \(60 and 59\)"):
        compare_runs(weak, str(changed))
    wrong = {"neg": "pos", "pos": "neg"}[lines[0]["label"]]
    write([{**lines[0], "label": wrong}, *lines[1:]])
    with pytest.raises(InputError, match="they are of different runs"):
        compare_runs(weak, str(changed))
    write(lines)
    metrics = json.loads((changed / "metrics.json").read_text())
    (changed / "metrics.json").write_text(json.dumps(metrics | {"task": "sst2"}))
    with pytest.raises(InputError, match="task is classify and sst2"):
        compare_runs(weak, str(changed))


SCORED = [{"f1": 1.0, "exact_match": 1.0}, {"f1": 0.5, "exact_match": 0.0}]


def entity(label: str, start: int) -> dict[str, Any]:
    return {"label": label, "start": start, "end": start + 3, "text": "abc"}


@pytest.mark.parametrize(
    "task, gold, answers, labels, value",
    [
        ("swag", [0, 1, 2, 0], [{"choice": 0}, {"choice": 1}, {"choice": 0}, {"choice": 3}], None, 0.5),
        (
            "multilabel",
            [["a"], ["a", "b"], []],
            [{"labels": ["a", "b"]}, {"labels": ["b"]}, {"labels": []}],
            ("a", "b"),
            2 * 2 / (3 + 3),
        ),
        (
            "squad1",
            [["x"], ["y"]],
            SCORED,
            None,
            0.75,
        ),
        (
            "cmrc2018",
            [["x"], ["y"]],
            SCORED,
            None,
            0.625,
        ),
        (
            "conll",
            [[entity("PER", 0), entity("LOC", 9)], []],
            [{"entities": [entity("PER", 0), entity("ORG", 9)]}, {"entities": [entity("LOC", 2)]}],
            ("O", "B-PER"),
            2 * 1 / (2 + 3),
        ),
        ("stsb", [0.0, 1.0, 3.0], [{"value": 1.0}, {"value": 2.0}, {"value": 9.0}], None, 1.0),
    ],
)
def test_every_kind_of_task_can_be_compared(
    task: str, gold: list[Any], answers: list[Any], labels: Any, value: float
) -> None:
    record = TASKS[task]
    sample = record.kind.sample(record.main_metric, gold, answers, labels)
    assert sample is not None
    assert float(sample.metric(sample.gold, sample.predicted)) == pytest.approx(value)
    twice = np.concatenate([np.arange(len(gold))] * 2)[None]  # (1, 2 * rows)
    assert sample.metric(sample.gold[twice], sample.predicted[twice]) == pytest.approx([value])


def test_no_kind_was_forgotten() -> None:
    lacking = {name for name, task in TASKS.items() if task.kind.sample.__name__ == "_no_sample"}
    assert not lacking
