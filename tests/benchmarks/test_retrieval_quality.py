"""The benchmark of vectors: which rows both sides read, and that both sides score a model alike."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.recipes import tiny

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as when the script is run: its folder comes first
    return importlib.import_module("retrieval_quality")


def pack(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The published files, small: 12 paragraphs of two questions each."""
    for name in ("train", "dev"):
        paragraphs = [
            {
                "context": f"{word} {tiny.WORDS[number % 4]} {name[0]}",
                "qas": [{"question": f"{word} {sign}"} for sign in ("so", "good")],
            }
            for number, word in enumerate(tiny.WORDS[6:18])
        ]
        content = json.dumps({"data": [{"paragraphs": paragraphs}]})
        pack(tmp_path / "squad" / f"{name}-v1.1.rebuilt.json.gz", content)
        lines = [f"{first} so\t{second}\t{number}.0" for number, (first, second) in enumerate(_pairs())]
        table = "\n".join(["sentence1\tsentence2\tscore", *lines, ""])
        pack(tmp_path / "glue" / "STS-B" / f"{name}.tsv.gz", table)
    return tmp_path


def _pairs() -> list[tuple[str, str]]:
    return list(zip(tiny.WORDS[6:12], tiny.WORDS[10:16], strict=True))


def parsed(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    monkeypatch.setattr(sys, "argv", ["x", *words])
    return benchmark.parse()


@pytest.mark.parametrize("task", ["squad", "stsb"])
def test_both_sides_score_a_model_alike(
    task: str, benchmark: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")
    from sentence_transformers import SentenceTransformer

    model = str(tiny.save_model(tmp_path / "model"))
    words = ("--task", task, "--model", model, "--data", str(data), "--seq-len", "16", "--dev-rows", "7")
    arguments = parsed(benchmark, monkeypatch, *words)
    _, dev = benchmark.write_rows(arguments, 0, tmp_path)
    rows = benchmark.rows_of(dev)
    ours = benchmark.ours_untrained(dev, arguments)
    transformer = modules.Transformer(model, max_seq_length=16)
    peer = SentenceTransformer(modules=[transformer, modules.Pooling(transformer.get_embedding_dimension())])
    assert ours == pytest.approx(benchmark.peer_metrics(peer, rows), abs=1e-4)
    assert set(ours) == set(benchmark.METRICS[task])
    if task == "squad":
        texts = {row["positive"] for row in rows} | set(rows[0]["negatives"])
        assert (len(rows), len(texts)) == (7, 12), "every paragraph is looked at"


def test_training_rows_are_drawn_by_the_seed_and_dev_rows_are_not(
    benchmark: ModuleType, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("--task", "squad", "--model", "m", "--data", str(data), "--train-rows", "5", "--dev-rows", "7")
    arguments = parsed(benchmark, monkeypatch, *words)
    first, second = (
        [benchmark.rows_of(path) for path in benchmark.write_rows(arguments, seed, tmp_path)]
        for seed in (0, 1)
    )
    assert first[0] != second[0]
    assert first[1] == second[1]
    assert {row["positive"][-1] for row in first[0]} == {"t"}
