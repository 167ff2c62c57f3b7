"""The benchmark of exported models, run in small."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from bertsmith.recipes.finetune import finetune
from tests.recipes import tiny

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_side_has_a_speed_and_an_accuracy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("openvino")
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as when a script is run: its folder comes first
    script = importlib.import_module("export_speed")
    rows = tiny.write_csv(tmp_path / "rows.csv", tiny.make_rows(60))
    finetune(tiny.config(tiny.save_model(tmp_path / "start"), rows, tmp_path / "run", epochs=1))
    capsys.readouterr()
    model = str(tmp_path / "run" / "model")
    assert script.main(["--model", model, "--data", str(rows), "--repeats", "1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    names = {"onnxruntime fp32", "onnxruntime int8", "openvino bf16"}
    assert result["peers"].keys() == {f"{ours}: {peer}" for ours in script.OURS_IN for peer in names}
    assert min(result["peers"].values()) > 0 < min(result["ours"].values())
    for part in result["details"].values():
        assert part["accuracy"].keys() == {*(f"bertsmith {ours}" for ours in script.OURS_IN), *names}
        assert part["accuracy"]["onnxruntime fp32"] == part["accuracy"]["bertsmith float32"]
    assert {"onnx", "onnxruntime", "openvino"} <= result["versions"].keys()
