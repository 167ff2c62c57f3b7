"""The quality benchmark's bookkeeping: what may be compared with what."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as when the script is run: its folder comes first
    return importlib.import_module("finetune_quality")


def write_run(out: Path, side: str, seed: int, accuracy: float, **settings: Any) -> None:
    run = {"task": "rte", "side": side, "seed": seed, "settings": {"epochs": 3, **settings}, "seconds": 1.0}
    (out / f"rte-{side}-seed{seed}.json").write_text(json.dumps(run | {"dev": {"accuracy": accuracy}}))


def test_means_deviations_and_the_difference_in_standard_errors(
    benchmark: ModuleType, tmp_path: Path
) -> None:
    for seed, (ours, peer) in enumerate([(0.6, 0.5), (0.7, 0.6), (0.8, 0.7)]):
        write_run(tmp_path, "ours", seed, ours)
        write_run(tmp_path, "peer", seed, peer)
    result = benchmark.collect(tmp_path, ["rte"])
    assert result["ours"]["rte"]["accuracy"]["mean"] == pytest.approx(0.7)
    assert result["ours"]["rte"]["accuracy"]["std"] == pytest.approx(0.1)
    assert result["ratios"]["transformers"]["rte"] == pytest.approx(0.7 / 0.6)
    assert result["difference_in_standard_errors"]["rte"] == pytest.approx(0.1 / (2 * 0.1**2 / 3) ** 0.5)
    assert "0.7000 ± 0.1000" in benchmark.table(result)


def test_runs_of_different_settings_have_no_common_mean(benchmark: ModuleType, tmp_path: Path) -> None:
    write_run(tmp_path, "ours", 0, 0.6)
    write_run(tmp_path, "ours", 1, 0.6, epochs=1)
    with pytest.raises(SystemExit, match="runs of rte with different settings"):
        benchmark.collect(tmp_path, ["rte"])


def test_models_in_directories_of_one_name_are_told_apart(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = []
    for model in ("models/a", "models/b"):
        words = ["finetune_quality.py", "--data", "x", "--model", str(tmp_path / model)]
        monkeypatch.setattr(sys, "argv", words)
        names.append(benchmark.settings_of(benchmark.parse())["model"])
    assert names == [str(tmp_path / "models" / "a"), str(tmp_path / "models" / "b")]


def test_both_sides_read_the_same_limited_rows(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [f"sentence {number}\u2028goes on\t{number % 2}\n" for number in range(20)]
    (tmp_path / "SST-2").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows), "utf-8")
    monkeypatch.setattr(
        sys, "argv", ["finetune_quality.py", "--data", str(tmp_path), "--model", "m", "--limit-rows", "7"]
    )
    arguments = benchmark.parse()
    (tmp_path / "limited").mkdir()
    glue = benchmark.limited("sst2", 3, arguments, tmp_path / "limited")
    train = benchmark.read("sst2", "train", glue)
    assert len(train) == len(set(train)) == 7
    assert set(train) < set(benchmark.read("sst2", "train", tmp_path))
    assert benchmark.read("sst2", "dev", glue) == benchmark.read("sst2", "dev", tmp_path)
