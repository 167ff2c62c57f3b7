"""Prediction: one line a row in the same order, nothing half written."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bertsmith import predictor
from bertsmith.errors import InputError
from bertsmith.recipes import predict as recipe
from bertsmith.recipes.config import PredictConfig
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.predict import predict
from tests.recipes import tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("predict")
    start = tiny.save_model(path / "start")
    train = tiny.write_csv(path / "train.csv", tiny.make_rows(60))
    finetune(tiny.config(start, train, path / "run", epochs=1))
    return path / "run" / "model"


@pytest.fixture(scope="module")
def pair_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs")
    start = tiny.save_model(path / "start")
    rows = [(text, "so", str(len(text))) for text, _ in tiny.make_rows(30)]
    train = tiny.write_csv(path / "train.csv", rows, ("first", "other", "size"))
    columns = {"text": "first", "second_text": "other", "label": "size"}
    finetune(tiny.config(start, train, path / "run", epochs=1, task="regress", **columns))
    return path / "run" / "model"


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("rows, batch_tokens", [(10, 1), (10, 25), (1, 4096)])
@pytest.mark.parametrize("at_once", [3, 2048])
def test_c033_every_row_is_predicted_in_order(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, batch_tokens: int, at_once: int
) -> None:
    monkeypatch.setattr(recipe, "ROWS_AT_ONCE", at_once)
    texts = [text for text, _ in tiny.make_rows(rows, seed=4)]
    data = tiny.write_csv(tmp_path / "rows.csv", [(text,) for text in texts], ("text",))
    out = tmp_path / "out.jsonl"
    summary = predict(PredictConfig(str(model), str(data), str(out), batch_tokens=batch_tokens))
    lines = lines_of(out)
    assert summary["rows"] == len(lines) == rows
    assert [line["row"] for line in lines] == list(range(rows))
    loaded = predictor.load(model)
    for text, line in zip(texts, lines, strict=True):
        alone = loaded.classify([text])[0]
        assert line["label"] == alone.label
        assert line["probabilities"] == pytest.approx(alone.probabilities, abs=1e-5)
        assert line["probability"] == max(line["probabilities"].values())
        assert line["truncated"] is False


def test_rows_without_a_text_keep_their_line_and_cut_ones_say_so(model: Path, tmp_path: Path) -> None:
    data = tiny.write_csv(
        tmp_path / "rows.csv", [("good", "x"), ("", "y"), ("bad " * 50, "z"), ("\u200b", "")]
    )
    out = tmp_path / "out.jsonl"
    summary = predict(PredictConfig(str(model), str(data), str(out)))
    lines = lines_of(out)
    assert lines[1] == {"row": 1, "error": "line 3: no text"}
    assert [line.get("truncated") for line in lines] == [False, None, True, False]
    assert "label" in lines[3], "a text without pieces is a text"
    assert (summary["rows"], summary["rows_without_text"], summary["truncated_rows"]) == (4, 1, 1)


def test_pairs_and_values(pair_model: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.jsonl"
    data.write_text('{"first": "good", "other": "so"}\n{"first": "good", "other": null}\n{"other": "so"}\n')
    predict(PredictConfig(str(pair_model), str(data), str(tmp_path / "out.jsonl")))
    lines = lines_of(tmp_path / "out.jsonl")
    expected = predictor.load(pair_model).regress([("good", "so")])[0].value
    assert lines[0] == {"row": 0, "value": pytest.approx(expected, rel=1e-5), "truncated": False}
    assert lines[1:] == [{"row": 1, "error": "line 2: no other"}, {"row": 2, "error": "line 3: no first"}]
    single = tiny.write_csv(tmp_path / "single.csv", [("good",)], ("text",))
    with pytest.raises(InputError, match="no column is known to be the text"):
        predict(PredictConfig(str(pair_model), str(single), str(tmp_path / "x.jsonl")))


def test_text_lines_from_standard_input_to_standard_output(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = io.TextIOWrapper(io.BytesIO(b'good, "so"\r\n\nbad\tNA\n'))
    monkeypatch.setattr(sys, "stdin", source)
    summary = predict(PredictConfig(str(model), "-", "-"))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [("label" in line, line.get("error")) for line in lines] == [
        (True, None),
        (False, "line 2: no text"),
        (True, None),
    ]
    assert summary["rows"] == 3


def test_a_broken_row_leaves_the_old_file_untouched(model: Path, tmp_path: Path) -> None:
    data = tmp_path / "rows.tsv"
    data.write_text("text\tother\ngood\t1\nbad\n")
    out = tmp_path / "out.jsonl"
    out.write_text("before")
    with pytest.raises(InputError, match="line 3: 1 fields, expected 2"):
        predict(PredictConfig(str(model), str(data), str(out)))
    assert out.read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"rows.tsv", "out.jsonl"}


def test_a_model_without_a_head_is_refused(model: Path, tmp_path: Path) -> None:
    data = tiny.write_csv(tmp_path / "rows.csv", [("good",)], ("text",))
    start = model.parent.parent / "start"
    config = PredictConfig(str(start), str(data), str(tmp_path / "out.jsonl"))
    with pytest.raises(InputError, match="no head to predict with; fine-tune it first"):
        predict(config)
    with pytest.raises(InputError, match="no such file"):
        predict(dataclasses.replace(config, model=str(model), input=str(tmp_path / "none.csv")))


def test_an_output_that_is_the_input_or_a_directory_is_refused(model: Path, tmp_path: Path) -> None:
    data = tiny.write_csv(tmp_path / "rows.csv", [("good",)], ("text",))
    before = data.read_bytes()
    with pytest.raises(InputError, match="is the input, which would be lost"):
        predict(PredictConfig(str(model), str(data), str(tmp_path / "." / "rows.csv")))
    assert data.read_bytes() == before
    with pytest.raises(InputError, match="is a directory; name the file to write"):
        predict(PredictConfig("not even looked at", str(data), str(tmp_path)))
