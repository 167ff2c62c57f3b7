"""The questions' quality benchmark: which rows both sides read, and the peer's own decoding and scores."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def benchmark(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as when the script is run: its folder comes first
    return importlib.import_module("squad_quality")


def test_parts_of_dev_share_no_article(
    benchmark: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    articles = [
        {
            "paragraphs": [
                {
                    "context": f"article {article}\u2028goes on",
                    "qas": [{"id": f"{article}-{n}", "question": "?", "answers": []} for n in range(3)],
                }
            ]
        }
        for article in range(8)
    ]
    (tmp_path / "squad").mkdir()
    packed = gzip.compress(json.dumps({"data": articles}).encode())
    (tmp_path / "squad" / "dev-v2.0.rebuilt.json.gz").write_bytes(packed)
    words = ["x", "--task", "squad2", "--model", "m", "--data", str(tmp_path), "--train-rows", "5"]
    monkeypatch.setattr(sys, "argv", words)
    arguments = benchmark.parse()
    read = []
    for seed in (0, 1):
        files = benchmark.write_rows(arguments, seed, tmp_path)
        read.append([{row["id"] for row in benchmark.rows_of(file)} for file in files])
    (train, dev), (other_train, other_dev) = read
    assert len(train) == 5
    assert train != other_train, "training rows are drawn by the seed"
    assert dev == other_dev
    assert len(dev) == 12
    assert {name[0] for name in train | other_train} <= set("0246")
    assert {name[0] for name in dev} == set("1357")


class Windows(dict):  # type: ignore[type-arg]
    """What a tokenizer gives, as far as it is read."""

    def sequence_ids(self, number: int) -> list[int | None]:
        return [None, 0, None, 1, 1, None]


def test_the_peers_scores(benchmark: ModuleType) -> None:
    rows = [
        {"context": "big Oslo", "answers": [{"text": "Oslo"}]},
        {"context": "big Rome", "answers": []},
    ]
    offsets = [(0, 0), (0, 1), (0, 0), (0, 3), (4, 8), (0, 0)]
    features = Windows(overflow_to_sample_mapping=[0, 1], offset_mapping=[offsets, offsets])
    sure, unsure = np.array([0.0, 9, 0, 1, 5, 0]), np.array([4.0, 9, 0, 1, 5, 0])
    scores = [(sure, sure), (unsure, unsure)]  # the question's own piece is best and is no answer
    assert benchmark.peer_metrics("squad1", rows, features, scores)["exact_match"] == 0.5
    found = benchmark.peer_metrics("squad2", rows, features, scores)
    assert (found["exact_match"], found["f1"]) == (1.0, 1.0), "the threshold parts odds of -10 and -2"
