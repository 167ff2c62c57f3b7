"""A plan of runs: killed and resumed, extended, restarted; never a run twice, never another result."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith.bundle import load_bundle, load_pretraining_model, save_bundle
from bertsmith.errors import InputError
from bertsmith.recipes import finetune as recipe
from bertsmith.recipes import finetune_run
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.finetune_grid import cells_of
from bertsmith.recipes.finetune_runs import Slot
from bertsmith.recipes.finetune_table import table
from bertsmith.runlog import write_config
from bertsmith.tasks.kind import Score
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import NonFiniteLoss
from tests.recipes import tiny

GRID = ["batch-size=16,32", "optimizer.learning-rate=3e-3,1e-3", "epochs=2,3"]


def plan(model: Path, data: Path, out: Path, **settings: Any) -> FinetuneConfig:
    values: dict[str, Any] = {"dev": str(data.parent / "dev.csv"), "epochs": 2, "resume": True}
    values |= {"optimizer": OptimizerConfig(learning_rate=1e-3)}
    return tiny.config(model, data, out, **(values | settings))


def swept(model: Path, data: Path, out: Path, **settings: Any) -> FinetuneConfig:
    """The same with the defaults that the grid leaves free."""
    config = plan(model, data, out, grid=GRID, **settings)
    default = FinetuneConfig(config.task, config.model, config.data, config.out)
    return replace(config, batch_size=default.batch_size, epochs=default.epochs, optimizer=default.optimizer)


def timeless(value: Any) -> Any:
    """What has to be the same whenever and however often it was computed."""
    if isinstance(value, dict):
        kept = {k: timeless(v) for k, v in value.items() if k not in ("train_seconds", "model_directory")}
        return {k: v for k, v in kept.items() if k not in ("seconds", "last_step", "step")}
    return [timeless(one) for one in value] if isinstance(value, list) else value


def outcome(out: Path) -> tuple[Any, list[str], dict[str, torch.Tensor]]:
    metrics = timeless(json.loads((out / "metrics.json").read_text()))
    return (
        metrics,
        (out / "predictions-dev.jsonl").read_text().splitlines(),
        load_bundle(out / "model").state,
    )


def assert_same(first: Path, second: Path) -> None:
    one, other = outcome(first), outcome(second)
    assert one[0] == other[0]
    assert one[1] == other[1]
    assert one[2].keys() == other[2].keys()
    assert all(torch.equal(one[2][name], value) for name, value in other[2].items())


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """The runs that are trained, as they are."""
    made: list[tuple[Any, ...]] = []
    train_run = recipe.train_run

    def noting(setup: Any, cell: Any, seed: int, log: Any, place: Any) -> Any:
        made.append((*cell.values.values(), seed))
        return train_run(setup, cell, seed, log, place)

    monkeypatch.setattr(recipe, "train_run", noting)
    return made


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, model: Path, data: Path) -> Path:
    out = tmp_path_factory.mktemp("whole") / "run"
    finetune(swept(model, data, out))
    return out


def test_the_table_is_of_all_runs(model: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    grid = ["dropout=0,0.1,0.3"]
    settings = {"seeds": 3, "epochs": 4, "optimizer": OptimizerConfig(learning_rate=3e-3)}
    metrics = finetune(plan(model, data, out, grid=grid, **settings))
    assert json.loads((out / "metrics.json").read_text()).items() <= metrics.items()
    assert len(metrics["grid"]) == 3
    values = []
    for point in metrics["grid"]:
        found = [seed["dev"]["accuracy"] for seed in point["seeds"]]
        assert len(found) == 3
        values += found
        assert point["mean"]["accuracy"] == pytest.approx(sum(found) / 3)
        assert point["median"]["accuracy"] == pytest.approx(statistics.median(found))
        assert point["std"]["accuracy"] == pytest.approx(statistics.stdev(found))
        assert point["max"]["accuracy"] == max(found)
    assert len(set(values)) > 1, "otherwise this shows little"
    assert metrics["dev"]["accuracy"] == max(values)
    kept = next(point for point in metrics["grid"] if point["settings"] == metrics["grid_settings"])
    assert kept["seeds"] == metrics["seeds"]
    assert (kept["mean"], kept["std"]) == (metrics["mean"], metrics["std"])
    assert metrics["settings"]["dropout"] == metrics["grid_settings"]["dropout"]
    low, high = metrics["dev_interval"]["low"], metrics["dev_interval"]["high"]
    assert low <= metrics["dev"]["accuracy"] <= high
    lines = table(metrics).splitlines()
    assert len([line for line in lines if line.endswith("best")]) == 1
    assert len(lines) == 2 + 3 + len(metrics["failed_runs"])
    weights = list((out / "runs").glob("*/weights.safetensors"))
    assert len(weights) == 1, "only the best one's weights are kept"


def test_longer_runs_are_runs_of_their_own(whole: Path) -> None:
    """Their schedule falls more slowly from the first step on: nothing of a shorter one can be taken over."""
    events = [json.loads(line) for line in (whole / "metrics.jsonl").read_text().splitlines()]
    assert [event["step"] for event in events if "loss" in event] == list(
        range(1, 1 + 2 * (2 + 3) * (10 + 5))
    )
    first = [e for e in events if e["seed"] == 0 and e["batch_size"] == 16 and "loss" in e]
    short, longer = ([e for e in first if e["epochs"] == epochs] for epochs in (2, 3))
    assert short[10]["learning_rate"] < longer[10]["learning_rate"]
    assert short[0]["loss"] == longer[0]["loss"], "the same start and first batch"
    assert short[9]["loss"] != longer[9]["loss"]


def start(config: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "bertsmith", "finetune", "--config", str(config)],
        env=os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def test_killed_in_the_middle_a_grid_goes_on_and_repeats_no_finished_run(
    whole: Path, model: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    write_config(tmp_path, swept(model, data, out))
    finished: list[set[str]] = []
    for runs in (2, 5):
        process = start(tmp_path / "config.yaml")
        while process.poll() is None and len(list(out.glob("runs/[!.]*/run.json"))) < runs:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL
        records = {str(path): path.stat().st_mtime_ns for path in out.glob("runs/[!.]*/run.json")}
        finished.append({f"{path} {time}" for path, time in records.items()})
        assert not (out / "metrics.json").exists()
    process = start(tmp_path / "config.yaml")
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors.decode()
    records = {str(path): path.stat().st_mtime_ns for path in out.glob("runs/[!.]*/run.json")}
    now = {f"{path} {time}" for path, time in records.items()}
    assert finished[0] < finished[1] < now
    assert len(now) == 8
    assert_same(whole, out)
    steps = [json.loads(line)["step"] for line in (out / "metrics.jsonl").read_text().splitlines()]
    assert steps == sorted(steps)
    assert len(set(steps)) == 2 * (2 + 3) * (10 + 5)
    assert b"best" in output


def test_finished_runs_are_not_repeated_and_changed_settings_touch_only_theirs(
    model: Path, data: Path, tmp_path: Path, executed: list[tuple[Any, ...]]
) -> None:
    out = tmp_path / "run"
    finetune(plan(model, data, out, grid=["dropout=0,0.1"]))
    assert executed == [(0.0, 0), (0.1, 0)]
    before = outcome(out)
    finetune(plan(model, data, out, grid=["dropout=0,0.1"]))
    assert len(executed) == 2
    again = outcome(out)
    assert again[:2] == before[:2]
    assert all(torch.equal(again[2][name], value) for name, value in before[2].items())
    finetune(
        plan(model, data, out, grid=["dropout=0.2,0,0.1"], seeds=2)
    )  # the new ones come first and between
    assert executed[2:] == [(0.2, 0), (0.2, 1), (0.0, 1), (0.1, 1)]
    finetune(plan(model, data, tmp_path / "fresh", grid=["dropout=0.2,0,0.1"], seeds=2))
    assert_same(out, tmp_path / "fresh")
    del executed[:]
    for change in (
        {"seq_len": 16},
        {"layer_rate_decay": 0.9},
        {"limit_rows": 100},
        {"precision": "bfloat16"},
    ):
        finetune(plan(model, data, out, dropout=0.1, **change))
        assert executed == [(0,)], change
        del executed[:]


def test_the_rows_and_the_start_belong_to_a_run(
    model: Path, data: Path, tmp_path: Path, executed: list[tuple[Any, ...]]
) -> None:
    out, rows = tmp_path / "run", tmp_path / "rows"
    rows.mkdir()
    lines = tiny.make_rows(60)
    moved = tiny.write_csv(rows / "a.csv", lines)
    dev = {"dev": str(data.parent / "dev.csv")}
    finetune(plan(model, moved, out, **dev))
    renamed = tiny.write_csv(rows / "b.csv", lines)
    finetune(plan(model, renamed, out, **dev))
    assert len(executed) == 1, "the same rows under another name"
    label = "pos" if lines[-1][1] == "neg" else "neg"
    mended = tiny.write_csv(rows / "b.csv", [*lines[:-1], (lines[-1][0], label)])
    finetune(plan(model, mended, out, **dev))
    assert len(executed) == 2, "a label was changed"
    other = tmp_path / "model"
    shutil.copytree(model, other)
    finetune(plan(other, mended, out, **dev))
    assert len(executed) == 2, "the same model elsewhere"
    torch.manual_seed(1)
    bundle = load_bundle(model)
    start = load_pretraining_model(bundle)
    with torch.no_grad():
        start.bert.layers[0].output.bias[0] += 1e-3
    save_bundle(other, start, bundle.tokenizer, None, "card")
    finetune(plan(other, mended, out, **dev))
    assert len(executed) == 3, "one of its weights was changed"


def test_a_best_run_whose_weights_are_gone_is_made_again(
    model: Path, data: Path, tmp_path: Path, executed: list[tuple[Any, ...]]
) -> None:
    out = tmp_path / "run"
    finetune(plan(model, data, out, seeds=3))
    before = outcome(out)
    (weights,) = (out / "runs").glob("*/weights.safetensors")
    weights.unlink()
    (out / "runs" / "seed9-broken").mkdir()
    (out / "runs" / "seed9-broken" / "run.json").write_text('{"identity"')
    finetune(plan(model, data, out, seeds=3))
    assert len(executed) == 4
    again = outcome(out)
    assert again[:2] == before[:2]
    assert all(torch.equal(again[2][name], value) for name, value in before[2].items())


def test_without_resume_nothing_of_an_earlier_call_is_touched(
    model: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    finetune(plan(model, data, out, resume=False))
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    with pytest.raises(InputError, match="holds runs of an earlier call; add --resume"):
        finetune(plan(model, data, out, resume=False))
    (tmp_path / "pretraining" / "checkpoints").mkdir(parents=True)
    for name in ("pretraining", "run/model"):
        with pytest.raises(InputError, match="would be lost; choose another --out"):
            finetune(plan(model, data, tmp_path / name))
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_stopped_by_hand_it_says_how_to_go_on(
    model: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    train_run = recipe.train_run

    def stopping(setup: Any, cell: Any, seed: int, *rest: Any) -> Any:
        if seed == 1:
            raise KeyboardInterrupt
        return train_run(setup, cell, seed, *rest)

    monkeypatch.setattr(recipe, "train_run", stopping)
    with pytest.raises(KeyboardInterrupt):
        finetune(plan(model, data, tmp_path / "run", seeds=2))
    assert "the same command with --resume goes on" in capsys.readouterr().err
    assert len(list((tmp_path / "run" / "runs").glob("*/run.json"))) == 1


def failing(monkeypatch: pytest.MonkeyPatch, seeds: set[int]) -> None:
    """Let the loss of some seeds become NaN at their second step, as a wild rate would."""
    train = finetune_run.train

    def breaking(*arguments: Any) -> Any:
        steps = train(*arguments)
        yield next(steps)
        if arguments[4].seed in seeds:
            raise NonFiniteLoss(1, {"loss": float("nan")})
        yield from steps

    monkeypatch.setattr(finetune_run, "train", breaking)


def test_failed_runs_are_named_and_replaced_by_other_seeds(
    model: Path, data: Path, tmp_path: Path, executed: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, {1, 4, 2, 5})
    out = tmp_path / "run"
    settings = {"seeds": 3, "epochs": 8, "optimizer": OptimizerConfig(learning_rate=3e-3)}
    summary = finetune(plan(model, data, out, restart_failed=1, **settings))
    assert executed == [(0,), (1,), (4,), (2,), (5,)]
    failed = [(run["seed"], run["why"], run["replaced_by"]) for run in summary["failed_runs"]]
    assert failed == [
        (1, "diverged", None),
        (4, "diverged", None),
        (2, "diverged", None),
        (5, "diverged", None),
    ]
    assert [run["seed"] for run in summary["seeds"]] == [0, 1, 2]
    assert summary["mean"] == summary["dev"], "a run without a result is in no mean"
    text = table(summary)
    assert "failed: seed 1: diverged\n" in text
    del executed[:]
    summary = finetune(plan(model, data, out, restart_failed=2, **settings))
    assert executed == [(7,), (8,)]
    assert [run["seed"] for run in summary["seeds"]] == [0, 7, 8]
    assert [run["replaced_by"] for run in summary["failed_runs"]] == [7, 7, 8, 8]
    assert "failed: seed 4: diverged; replaced by seed 7" in table(summary)


def test_a_run_no_better_than_the_majority_is_named(model: Path, data: Path, tmp_path: Path) -> None:
    """Rows without any sign of their label."""
    rows = [(" ".join(tiny.WORDS[6 + i % 5 : 11 + i % 7]), ("pos", "neg")[i % 2]) for i in range(80)]
    train = tiny.write_csv(tmp_path / "train.csv", rows)
    dev = tiny.write_csv(
        tmp_path / "dev.csv", [*((text, "neg") for text, _ in rows[:20]), *((t, "pos") for t, _ in rows[:10])]
    )
    summary = finetune(plan(model, train, tmp_path / "run", dev=str(dev), seeds=2))
    assert len(summary["failed_runs"]) == 2
    for run in summary["seeds"]:
        assert run["dev"]["accuracy"] <= 20 / 30 + 1e-9
        assert run["status"] in ("constant predictions", "no better than one answer for all rows")


def test_where_no_attempt_learns_the_best_one_stands() -> None:
    def run(seed: int, value: float, status: str) -> finetune_run.SeedRun:
        found = finetune_run.SeedRun(seed, "f1", epochs=[Score({"f1": value}, 0.0, False)], best_epoch=1)
        found.status = status
        return found

    failed = finetune_run.MAJORITY
    cell = cells_of(FinetuneConfig("rte", "m", "d", "o"))[0]
    assert Slot(cell, (run(0, 0.5, failed), run(1, 0.4, failed))).run.seed == 0
    assert Slot(cell, (run(0, 0.5, failed), run(1, 0.4, finetune_run.LEARNED))).run.seed == 1


def judged(values: list[float], baseline: float | None, constant: bool = False) -> str:
    run = finetune_run.SeedRun(0, "f1", epochs=[Score({"f1": v}, 0.0, constant) for v in values])
    run.best_epoch = values.index(max(values)) + 1 if values else 0
    return finetune_run._judged(run, baseline)


def test_the_verdict_on_a_run() -> None:
    assert judged([], 0.5) == "diverged"
    assert judged([0.5, 0.4], 0.5) == "no better than one answer for all rows"
    assert judged([0.5, 0.51], 0.5) == "learned"
    assert judged([0.1], None) == "learned"
    assert judged([0.9], 0.5, constant=True) == "constant predictions"


def test_early_stopping_ends_a_run_after_epochs_without_a_better_one(
    model: Path, data: Path, tmp_path: Path
) -> None:
    settings = {"epochs": 12, "optimizer": OptimizerConfig(learning_rate=3e-3)}
    full = finetune(plan(model, data, tmp_path / "full", **settings))["seeds"][0]
    short = finetune(plan(model, data, tmp_path / "short", early_stopping=2, **settings))["seeds"][0]
    accuracies = [epoch["dev"]["accuracy"] for epoch in full["epochs"]]
    best, stop = 0, len(accuracies)
    for epoch, accuracy in enumerate(accuracies):
        if accuracy > accuracies[best]:
            best = epoch
        if epoch - best == 2:
            stop = epoch + 1
            break
    assert stop < 12, "otherwise this shows nothing"
    assert short["stopped_early"]
    assert not full["stopped_early"]
    # The schedule is the long run's: until then both are one.
    assert short["epochs"] == full["epochs"][:stop]
    assert short["best_epoch"] == best + 1


def test_drawn_anew_and_slower_layers_change_a_run_and_only_it(
    model: Path, data: Path, tmp_path: Path
) -> None:
    still = OptimizerConfig(learning_rate=1e-12)
    finetune(plan(model, data, tmp_path / "run", reinit_layers=1, epochs=1, optimizer=still))
    start_weights, weights = load_bundle(model).state, load_bundle(tmp_path / "run" / "model").state
    for name in ("bert.layers.0.output.weight", "bert.embeddings.word.weight"):
        torch.testing.assert_close(weights[name], start_weights[name], atol=1e-9, rtol=0)
    for name in ("bert.layers.1.output.weight", "pooler.dense.weight"):
        assert (weights[name] - start_weights[name]).abs().max() > 0.01
    with pytest.raises(InputError, match="reinit-layers is 3; the model has 2 layers"):
        finetune(plan(model, data, tmp_path / "more", reinit_layers=3))
    results = [
        finetune(plan(model, data, tmp_path / f"decay{decay}", layer_rate_decay=decay))["seeds"][0][
            "dev_loss"
        ]
        for decay in (1.0, 0.5)
    ]
    assert results[0] != results[1]
