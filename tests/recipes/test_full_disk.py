"""Verbs on a disk that is full: one line, nothing half written, what was there before as it was."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bertsmith import cli
from tests.experiments.test_ablation import SMALL
from tests.recipes import tiny


def fill(disk: Path, leave: int) -> Path:
    state = os.statvfs(disk)
    ballast = disk / "ballast"
    ballast.write_bytes(b"x" * (state.f_bavail * state.f_frsize - leave))
    return ballast


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    rows = ({"text": f"{text} {number}"} for number, (text, _) in enumerate(tiny.make_rows(400)))
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("embed", "--input", "{texts}", "--out", "{disk}/vectors.npy"),
        ("search", "--corpus", "{texts}", "--queries", "{texts}", "--out", "{disk}/found.jsonl"),
        ("search", "so", "--corpus", "{texts}", "--index", "{disk}/index"),
        ("convert", "--out", "{disk}/converted"),
        (
            *("finetune", "--task", "classify", "--data", "{data}", "--seq-len", "32", "--epochs", "1"),
            *("--resume", "--out", "{disk}/run"),
        ),
    ],
    ids=lambda words: "-".join(words[:2]),
)
def test_a_full_disk_is_told_in_a_line_and_leaves_nothing_half_written(
    words: tuple[str, ...], model: Path, data: Path, texts: Path, small_disk: Path, capfd
) -> None:
    places = {"texts": texts, "disk": small_disk, "data": data}
    command = [word.format(**places) for word in words]
    command += ["--input" if words[0] == "convert" else "--model", str(model)]
    ballast = fill(small_disk, leave=8192)
    assert cli.run(command) == cli.FAILED
    said = capfd.readouterr().err
    assert "Traceback" not in said
    last = said.splitlines()[-1]
    assert last.startswith(f"bertsmith {words[0]}: [Errno 28] No space left on device")
    assert last.endswith("make room, and start it again")
    left = {path.name.partition(".tfevents")[0] for path in small_disk.rglob("*") if path.is_file()}
    of_finetune = {"config.yaml", "environment.json", "metrics.jsonl", "events.out"}
    assert left - of_finetune == {ballast.name}
    ballast.unlink()
    assert cli.run(command) == cli.DONE


def test_a_study_on_a_full_disk_goes_on_when_there_is_room(
    pretraining_data: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run could not write is no divergence, which would be kept as its result."""
    command = [
        *("ablate", "masking", "--data", str(pretraining_data), "--out", str(small_disk / "study")),
        *("--steps", "2", "--seeds", "1", "--tasks", "none", "--mixtures", "80/10/10"),
        *("--pretraining", *SMALL, "--json"),
    ]
    ballast = fill(small_disk, leave=90_000)
    assert cli.run(command) == cli.FAILED
    assert "the model could not be written" in capsys.readouterr().err.splitlines()[-1]
    assert not list(small_disk.rglob("result.json"))
    ballast.unlink()
    assert cli.run(command) == cli.DONE
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["seeds"] == [0]
