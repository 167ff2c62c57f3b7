from __future__ import annotations

import json
import math
import re
import subprocess
import sys

import pytest

from bertsmith.errors import InputError
from bertsmith.recipes.demo import _fresh_directory, _largest_libraries, _split, _write_rows
from bertsmith.recipes.demo_report import Report, Start, compare
from bertsmith.text.documentation import DocumentedModule


def modules(number: int) -> list[DocumentedModule]:
    """Three libraries whose sentences can be told apart; every tenth sentence names its library."""
    subjects = {"alpha": "the matrix of numbers", "beta": "the open file", "gamma": "a network request"}
    return [
        DocumentedModule(
            library,
            f"{library}.module{index}",
            tuple(
                f"Call number {index * 10 + part} of this function returns {subject}"
                f"{' of ' + library if part == 9 else ''} to its caller."
                for part in range(10)
            ),
        )
        for library, subject in subjects.items()
        for index in range(number)
    ]


def test_a_directory_of_someone_else_is_left_alone(tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="no demo wrote"):
        _fresh_directory(tmp_path)
    assert (tmp_path / "mine.txt").read_text() == "mine"


def test_an_earlier_demo_is_replaced(tmp_path):
    out = _fresh_directory(tmp_path / "demo")
    (out / "report.html").write_text("old")
    assert not (_fresh_directory(out) / "report.html").exists()


def test_train_and_test_modules_are_apart_and_repeatable():
    all_modules = modules(40)
    train, test = _split(all_modules, seed=3)
    assert sorted(module.name for module in train + test) == sorted(module.name for module in all_modules)
    assert 0 < len(test) < len(train)
    assert _split(all_modules, seed=3) == (train, test)
    assert _split(all_modules, seed=4) != (train, test)


def test_rows_name_no_library_and_the_sides_share_none(tmp_path):
    train, test = _split(modules(150), seed=0)
    libraries = _largest_libraries(train, test)
    assert libraries == ["alpha", "beta", "gamma"]
    sides = {}
    for side, some in (("train", train), ("dev", test)):
        _write_rows(tmp_path / f"{side}.jsonl", some, libraries, 90, seed=0)
        sides[side] = [json.loads(line) for line in (tmp_path / f"{side}.jsonl").read_text().splitlines()]
        assert [row["label"] for row in sides[side]] == [name for name in libraries for _ in range(90)]
        assert not any(name in row["text"] for row in sides[side] for name in libraries)
    assert not {row["text"] for row in sides["train"]} & {row["text"] for row in sides["dev"]}


def test_the_difference_in_standard_errors():
    difference, errors = compare([0.6, 0.7, 0.8], [0.4, 0.5, 0.6])
    assert difference == pytest.approx(0.2)
    assert errors == pytest.approx(0.2 / math.sqrt(0.01 / 3 + 0.01 / 3))  # each sample variance is 0.01
    assert compare([0.6], [0.4]) == (pytest.approx(0.2), None)


def test_the_report_needs_nothing_beside_it():
    pytest.importorskip("matplotlib")
    starts = {"pretrained": Start([0.7, 0.8], 0.75, 0.07), "random": Start([0.4, 0.5], 0.45, 0.07)}
    events = [{"step": step, "mlm_loss": 9 - step / 10} for step in range(1, 30)]
    page = Report(
        corpus_bytes=1_234_567,
        num_modules=89,
        budget="4m",
        seconds=123.4,
        pretraining={
            "heldout_mlm_loss": 5.25,
            "heldout_mlm_accuracy": 0.2,
            "heldout_nsp_accuracy": 0.7,
            "heldout_unigram_entropy": 6.5,
            "uniform_entropy": 8.7,
            "tokens_per_second": 20000.0,
        },
        events=[*events, {"step": 20, "heldout_mlm_loss": 7.0}],
        examples=[
            {"text": "a <b> [MASK]", "answer": "tag", "guesses": [{"token": "tag", "probability": 0.5}]}
        ],
        libraries=["alpha", "beta"],
        rows=(200, 100),
        starts=starts,
        environment={"device": "a processor", "torch": "9.9"},
        commands=["bertsmith fill ..."],
    ).html()
    for shown in ("1,234,567", "1.25</b> nats below", "75.0 %", "a &lt;b&gt; [MASK]", "a processor", "<svg"):
        assert shown in page
    assert 'class="guess right"' in page
    outside = re.findall(r"(?:src|href|url)\s*[=(]\s*[\"']?(?!#)([a-z]+:[^\"')\s]*)", page)
    assert outside == []


@pytest.mark.slow
def test_the_whole_demo(tmp_path):
    words = [
        sys.executable,
        "-m",
        "bertsmith",
        "demo",
        "--out",
        "demo",
        "--budget",
        "60s",
        "--seeds",
        "2",
        "--json",
    ]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    pretraining = summary["pretraining"]
    assert pretraining["heldout_mlm_loss"] < pretraining["heldout_unigram_entropy"]
    assert summary["difference"] > 0
    assert (tmp_path / "demo" / "report.html").stat().st_size > 20_000
    assert (tmp_path / summary["model"] / "model.safetensors").exists()
