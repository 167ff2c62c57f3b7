"""Run directories: whole, cut short, broken, and what is none."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.experiments.runs import FINE_TUNING, PRETRAINING, points, read_run, read_runs


def test_whole_runs_have_no_problems(classified: Path, pretrained: Path) -> None:
    one, other = read_runs([str(classified), str(pretrained)])
    assert (one.kind, one.problems, len(one.predictions)) == (FINE_TUNING, [], 60)
    assert (other.kind, other.problems) == (PRETRAINING, [])
    assert one.tuned == one.task["tuned"]
    assert one.predictions[-3]["texts"] == ["坏的句子，不是好的 good 𠮷"]
    assert one.predictions[-2]["texts"][0].count("\u2028") == 1  # no end of a line of the file


def test_what_is_missing_is_named(classified: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    shutil.copy(classified / "metrics.jsonl", run)
    assert read_run(run).problems == [
        "config.yaml is missing",
        "metrics.json is missing",
        "predictions-dev.jsonl is missing",
        "task.json is missing",
        "environment.json is missing",
    ]


def test_what_is_broken_is_named_and_the_rest_is_read(classified: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(classified, run)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    (run / "metrics.jsonl").write_text("\ufeff" + "\r\n".join([*lines, "[1]", '{"step": 99, "lo']))
    (run / "metrics.json").write_text("{")
    (run / "config.yaml").write_text("a: [")
    (run / "environment.json").write_text("[" * 100_000)
    (run / "predictions-dev.jsonl").write_bytes(b'{"line": 2, "gold": "\xff"}\n\n')
    found = read_run(run)
    assert len(found.events) == len(lines)
    assert (found.config, found.metrics, found.environment) == ({}, {}, {})
    assert found.predictions == [{"line": 2, "gold": "\N{REPLACEMENT CHARACTER}"}]
    assert found.problems == [
        "config.yaml is broken and was left out",
        "metrics.json is broken and was left out",
        f"2 of {len(lines) + 2} lines of metrics.jsonl are broken and were left out",
        "predictions-dev.jsonl holds bytes that are no UTF-8; they are shown as \N{REPLACEMENT CHARACTER}",
        "environment.json is broken and was left out",
    ]


def test_what_is_no_run_is_refused(classified: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such directory"):
        read_run(tmp_path / "none")
    with pytest.raises(InputError, match=r"no run: .*; name the run above it"):
        read_run(classified / "model")
    with pytest.raises(InputError, match=rf"name the runs in it: .*{classified.name}"):
        read_run(classified.parent)
    with pytest.raises(InputError, match="name the --out of a finetune or pretrain"):
        read_run(tmp_path)
    with pytest.raises(InputError, match="is named twice"):
        read_runs([str(classified), f"{classified}/../{classified.name}"])
    with pytest.raises(InputError, match="no run is named"):
        read_runs([])


def test_points_are_finite_numbers() -> None:
    events = [
        {"step": 1, "loss": 2.0},
        {"step": 2, "loss": math.nan},
        {"step": 3, "loss": "x"},
        {"loss": 1.0},
    ]
    events += [{"step": 4, "loss": True}, json.loads('{"step": 5, "loss": Infinity}'), {"step": 6, "loss": 1}]
    assert points(events, "loss") == ([1, 6], [2.0, 1])
