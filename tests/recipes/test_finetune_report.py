"""What a fine-tuning leaves behind, whatever its texts hold."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from bertsmith.recipes.config import PredictConfig
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.predict import predict
from tests.recipes import tiny


def test_texts_come_back_from_the_predictions_as_they_were(tmp_path: Path) -> None:
    rows = [{"text": text, "label": label} for text, label in tiny.make_rows(40)]
    odd = ["lone \ud800 half", "a \u2028 line", "好的 𠮷 good", '"quoted" \\ud800', "tab\tand\nline"]
    dev = [{"text": text, "label": "pos"} for text in odd]
    for name, some in (("train.jsonl", [*rows, *dev]), ("dev.jsonl", dev)):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in some))
    model = tiny.save_model(tmp_path / "start")
    settings = {"dev": str(tmp_path / "dev.jsonl"), "epochs": 1}
    finetune(tiny.config(model, tmp_path / "train.jsonl", tmp_path / "run", **settings))
    content = (tmp_path / "run" / "predictions-dev.jsonl").read_text(encoding="utf-8")
    lines = [json.loads(line) for line in content.rstrip("\n").split("\n")]
    assert [line["texts"] for line in lines] == [[text] for text in odd]
    assert [line["line"] for line in lines] == [1, 2, 3, 4, 5]
    out = tmp_path / "out.jsonl"
    counts = predict(
        PredictConfig(model=str(tmp_path / "run" / "model"), input=str(tmp_path / "dev.jsonl"), out=str(out))
    )
    assert counts["rows"] == 5
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [answer["label"] for answer in answers] == [line["label"] for line in lines]


def test_labels_that_utf8_cannot_hold_are_stored_and_come_back(tmp_path: Path) -> None:
    odd = "pos \ud800"
    rows = [{"text": text, "label": odd if label == "pos" else label} for text, label in tiny.make_rows(40)]
    data = tmp_path / "train.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    finetune(tiny.config(tiny.save_model(tmp_path / "start"), data, tmp_path / "run", epochs=1))
    model = str(tmp_path / "run" / "model")
    assert json.loads((tmp_path / "run" / "model" / "task.json").read_text())["labels"] == ["neg", odd]
    found = subprocess.run(
        [sys.executable, "-m", "bertsmith", "predict", "--model", model, "--input", str(data), "--out", "-"],
        capture_output=True,
        check=True,
    )
    answers = [json.loads(line) for line in found.stdout.decode("utf-8").splitlines()]
    assert len(answers) == 40
    assert {answer["label"] for answer in answers} <= {"neg", odd}
    assert set(answers[0]["probabilities"]) == {"neg", odd}
