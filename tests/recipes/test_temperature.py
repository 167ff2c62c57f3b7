"""The temperature that fine-tuning chooses: stored, used wherever probabilities are printed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith import predictor
from bertsmith.calibration import confidence_of, expected_error
from bertsmith.errors import InputError
from bertsmith.metrics import classification_loss
from bertsmith.recipes.config import EvaluateConfig, PredictConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.predict import predict
from tests.recipes import tiny

transformers = pytest.importorskip("transformers")


def noisy(number: int, seed: int) -> list[tuple[str, str]]:
    """Rows of which a third have a label at random, so that no model can be sure of them."""
    draw = random.Random(seed)
    rows = tiny.make_rows(number, seed=seed)
    return [(text, draw.choice(("pos", "neg")) if draw.random() < 0.33 else label) for text, label in rows]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("noisy")
    train = tiny.write_csv(folder / "train.csv", noisy(160, 0))
    dev = tiny.write_csv(folder / "dev.csv", noisy(400, 1))
    model = tiny.save_model(folder / "start")
    finetune(tiny.config(model, train, folder / "run", dev=str(dev), epochs=20))
    return folder / "run"


def dev_lines(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]


def logits_of(run: Path, texts: list[str]) -> np.ndarray:
    """The scores of transformers, which knows of no temperature."""
    theirs = transformers.AutoModelForSequenceClassification.from_pretrained(run / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(run / "model")
    with torch.no_grad():
        return theirs(**tokenizer(texts, return_tensors="pt", padding=True)).logits.numpy()


def test_it_is_that_of_the_least_loss_of_the_models_own_scores(run: Path) -> None:
    temperature = json.loads((run / "model" / "task.json").read_text())["tuned"]["temperature"]
    metrics = json.loads((run / "metrics.json").read_text())
    assert metrics["tuned"] == {"temperature": temperature}
    assert temperature > 1.05, "the model learned the noise, so it is too sure"
    lines = dev_lines(run)
    logits = logits_of(run, [line["texts"][0] for line in lines])
    gold = np.array([["neg", "pos"].index(line["gold"]) for line in lines])
    losses = {
        t: classification_loss(logits / t, gold) for t in (temperature, 1.0, *np.geomspace(0.3, 9, 200))
    }
    assert min(losses.values()) == pytest.approx(losses[temperature], abs=1e-6)
    for name, scale in (("error_as_trained", 1.0), ("error", temperature)):
        shares = torch.softmax(torch.tensor(logits, dtype=torch.float64) / scale, dim=-1).numpy()
        expected = expected_error(*confidence_of(shares, gold))
        assert metrics["calibration"][name] == pytest.approx(expected, abs=0.01)


def test_all_that_print_probabilities_use_it_and_the_metrics_do_not(run: Path, tmp_path: Path) -> None:
    lines = dev_lines(run)
    texts = [line["texts"][0] for line in lines]
    temperature = json.loads((run / "metrics.json").read_text())["tuned"]["temperature"]
    expected = torch.softmax(torch.tensor(logits_of(run, texts)) / temperature, dim=-1).numpy()
    (tmp_path / "texts.txt").write_text("\n".join(texts) + "\n")
    out = tmp_path / "out.jsonl"
    predict(PredictConfig(model=str(run / "model"), input=str(tmp_path / "texts.txt"), out=str(out)))
    predicted = [json.loads(line) for line in out.read_text().splitlines()]
    answers = predictor.load(run / "model").classify(texts)
    for number, share in enumerate(expected):
        for found in (lines[number], predicted[number]):
            assert list(found["probabilities"].values()) == pytest.approx(share, abs=1e-5)
        assert list(answers[number].probabilities.values()) == pytest.approx(share, abs=1e-5)
        assert answers[number].label == ["neg", "pos"][int(share.argmax())]
    result = evaluate(EvaluateConfig(model=str(run / "model"), data=str(run.parent / "dev.csv")))
    assert result["metrics"] == json.loads((run / "metrics.json").read_text())["dev"]
    gold = np.array([["neg", "pos"].index(line["gold"]) for line in lines])
    assert result["loss"] == pytest.approx(classification_loss(logits_of(run, texts), gold), abs=1e-5)


@pytest.mark.parametrize("temperature", [0, -1.0, "2", float("nan"), float("inf"), None, True])
def test_a_temperature_that_cannot_be_is_refused(run: Path, tmp_path: Path, temperature: object) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for path in (run / "model").iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    task = json.loads((model / "task.json").read_text())
    task["tuned"]["temperature"] = temperature
    (model / "task.json").write_text(json.dumps(task))
    with pytest.raises(InputError, match=r"task\.json: temperature is .*; expected a number above 0"):
        predictor.load(model)
