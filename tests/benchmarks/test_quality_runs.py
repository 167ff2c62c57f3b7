"""What the quality benchmarks share: runs kept in files, and the peer's training loop."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RUN = {"task": "rte", "side": "ours", "seed": 1}


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # as when a script is run: its folder comes first
    return importlib.import_module("quality_runs")


@pytest.fixture
def peer(runs: ModuleType) -> ModuleType:
    return importlib.import_module("peer_training")


def test_a_run_is_measured_once_and_never_taken_for_one_of_other_settings(
    runs: ModuleType, tmp_path: Path
) -> None:
    out = tmp_path / "new"
    runs.run_once(out, RUN, {"rate": 1}, lambda: {"dev": {"f1": 0.5}})
    written = json.loads((out / "rte-ours-seed1.json").read_text())
    assert {key: value for key, value in written.items() if key != "seconds"} == {
        **RUN,
        "settings": {"rate": 1},
        "dev": {"f1": 0.5},
    }
    runs.run_once(out, RUN, {"rate": 1}, lambda: pytest.fail("it is there"))
    with pytest.raises(SystemExit, match="of other settings"):
        runs.run_once(out, RUN, {"rate": 2}, lambda: {"dev": {}})
    assert [path.name for path in out.iterdir()] == ["rte-ours-seed1.json"]


def test_of_equal_epochs_the_first_is_best(runs: ModuleType) -> None:
    epochs = [{"f1": 0.5}, {"f1": 0.7}, {"f1": 0.7}]
    assert runs.best_epoch(epochs, "f1") == {"dev": {"f1": 0.7}, "best_epoch": 2, "epochs": epochs}


def test_means_of_both_sides_and_their_ratio(runs: ModuleType, tmp_path: Path) -> None:
    for task, side, seed, f1 in [("a", "ours", 0, 0.6), ("a", "ours", 1, 0.8), ("b", "peer", 0, 1.0)]:
        run = {"task": task, "side": side, "seed": seed}
        runs.run_once(tmp_path, run, {"of": task}, lambda f1=f1: {"dev": {"f1": f1}})
    found = runs.means_of_both(runs.read_runs(tmp_path, ["a"]), "f1", ["f1"])
    assert found["ours"]["f1"]["values"] == [0.6, 0.8]
    assert found["ours"]["f1"]["std"] == pytest.approx(0.02**0.5)
    assert (found["peers"], found["ratios"]) == ({"transformers": {}}, {"transformers": None})
    runs.run_once(tmp_path, {**RUN, "task": "a", "side": "peer"}, {"of": "a"}, lambda: {"dev": {"f1": 0.35}})
    found = runs.means_of_both(runs.read_runs(tmp_path, ["a"]), "f1", ["f1"])
    assert found["ratios"]["transformers"] == pytest.approx(2)
    with pytest.raises(SystemExit, match="runs of ours with different settings"):
        for side in ("ours", "peer"):
            runs.run_once(tmp_path, {**RUN, "task": "b", "side": side}, {"of": side}, lambda: {"dev": {}})
        runs.read_runs(tmp_path, ["a", "b"], by="side")


def test_the_peer_sees_each_row_once_an_epoch_with_a_warm_up_and_decay(peer: ModuleType) -> None:
    pytest.importorskip("transformers")
    model = torch.nn.ModuleDict({"LayerNorm": torch.nn.LayerNorm(2), "dense": torch.nn.Linear(2, 1)})
    with torch.no_grad():
        for value in model.parameters():
            value.fill_(1.0)
    seen: list[list[int]] = []

    def loss_of(numbers: list[int]) -> Any:
        assert model.training
        seen.append(numbers)
        return sum(value.sum() for value in model.parameters()) * 0  # no gradient: decay alone moves weights

    settings = {"epochs": 2, "batch_size": 3, "rate": 0.1}
    for epoch in peer.train_epochs(model, 10, loss_of, settings):
        assert not model.training
        assert sorted(number for batch in seen[4 * epoch :] for number in batch) == list(range(10))
    assert [len(batch) for batch in seen] == [3, 3, 3, 1] * 2
    # 8 steps: the first is warm-up from 0, the rest decay to 0.
    rates = [0.1 * (8 - step) / 7 for step in range(1, 8)]
    expected = torch.tensor([1 - 0.01 * rate for rate in rates]).prod()
    torch.testing.assert_close(model["dense"].weight, torch.full((1, 2), float(expected)))
    for kept in (model["dense"].bias, *model["LayerNorm"].parameters()):
        assert (kept == 1).all()
