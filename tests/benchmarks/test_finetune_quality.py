"""The quality benchmark's bookkeeping: what may be compared with what."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bertsmith.tasks.glue import GLUE
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import TASKS

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as when the script is run: its folder comes first
    return importlib.import_module("finetune_quality")


@pytest.fixture
def files(benchmark: ModuleType) -> ModuleType:
    return importlib.import_module("glue_files")


@pytest.fixture
def peer(benchmark: ModuleType) -> ModuleType:
    return importlib.import_module("finetune_quality_peer")


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
        names.append(benchmark.settings_of("rte", benchmark.parse())["model"])
    assert names == [str(tmp_path / "models" / "a"), str(tmp_path / "models" / "b")]


def test_both_sides_read_the_same_limited_rows(files: ModuleType, tmp_path: Path) -> None:
    rows = [f"sentence {number}\u2028goes on\t{number % 2}\n" for number in range(20)]
    (tmp_path / "SST-2").mkdir()
    for split in ("train", "dev"):
        (tmp_path / "SST-2" / f"{split}.tsv").write_text("sentence\tlabel\n" + "".join(rows), "utf-8")
    (tmp_path / "limited").mkdir()
    whole = files.path_of(tmp_path, "sst2", "train")
    files.write_limited("sst2", whole, tmp_path, 7, 3, 5, tmp_path / "limited")
    train = files.read("sst2", "train", tmp_path / "limited")
    assert len(train) == len(set(train)) == 7
    assert set(train) < set(files.read("sst2", "train", tmp_path))
    dev = files.read("sst2", "dev", tmp_path / "limited")
    assert len(dev) == len(set(dev)) == 5
    assert set(dev) < set(files.read("sst2", "dev", tmp_path))
    ours = TASKS["sst2"].read(DataSource(str(tmp_path / "limited")), "train")
    assert ours is not None
    assert [(row.texts[0], row.label) for row in ours.rows] == [(row[0], str(row[2])) for row in train]


@pytest.mark.parametrize("name", ["cola", "mrpc", "stsb", "rte", "wnli", "qqp", "mnli", "qnli"])
def test_the_peer_reads_the_rows_that_we_read(files: ModuleType, shared_data: Path, name: str) -> None:
    glue = shared_data / "glue"
    task = TASKS[name]
    for split, theirs in zip(("dev", *task.other_dev), files.TASKS[name].dev, strict=True):
        read = task.read(DataSource(str(glue)), split)
        assert read is not None
        numbers = None if task.labels is None else {label: n for n, label in enumerate(task.labels)}
        ours = [
            (*row.texts, float(str(row.label)) if numbers is None else numbers[str(row.label)])
            for row in read.rows
        ]
        assert files.read(name, theirs, glue) == ours
    assert files.TASKS[name].main_metric == task.main_metric


def test_every_glue_task_that_is_trained_is_compared(files: ModuleType) -> None:
    assert set(files.TASKS) == set(GLUE) - {"ax"}


def test_metrics_of_the_peer_are_named_as_ours(peer: ModuleType, files: ModuleType) -> None:
    draw = np.random.default_rng(0)
    for name, record in files.TASKS.items():
        width = 1 if record.labels is None else len(record.labels)
        gold = draw.integers(max(width, 2), size=40).tolist()
        found = peer.metrics_of(name, draw.normal(size=(40, width)), gold)
        assert set(found) == set(TASKS[name].metrics)


def test_a_derived_training_file_is_part_of_the_settings(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["finetune_quality.py", "--data", str(tmp_path), "--model", "m"]
    monkeypatch.setattr(sys, "argv", words)
    settings = benchmark.settings_of("qnli", benchmark.parse())
    assert (settings["train"], settings["limit_rows"]) == ("made from SQuAD", 3000)
    (tmp_path / "QNLI").mkdir()
    (tmp_path / "QNLI" / "train.tsv").touch()
    monkeypatch.setattr(sys, "argv", [*words, "--limit-rows", "0"])
    settings = benchmark.settings_of("qnli", benchmark.parse())
    assert "train" not in settings
    assert settings["limit_rows"] == 0
