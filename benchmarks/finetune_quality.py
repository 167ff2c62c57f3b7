"""Dev scores of our fine-tuning beside a plain transformers loop with the same settings, over seeds.

    python benchmarks/finetune_quality.py --data DIRECTORY_OF_GLUE --out RESULTS
    python benchmarks/finetune_quality.py --out RESULTS --print

Both sides: AdamW (betas 0.9 and 0.999, eps 1e-6, decoupled decay 0.01 except on biases and LayerNorm),
gradient norm 1, linear warm-up over a tenth of the steps and linear decay to 0, dropout as the model says,
batch 32, rate 5e-5, 3 epochs, at most 128 pieces, best epoch on dev (of MNLI: on the matched set).

Where all training rows would take a core more than a quarter of an hour, both sides read the same subset,
drawn by the seed: SST-2 5,000 rows, QQP 4,000, MNLI 3,000, QNLI 3,000; --limit-rows overrides it (0: all).
Without QNLI's training file its rows are made from SQuAD's (``qnli_from_squad.py`` says how).

Each run (task, side, seed) leaves one JSON file in --out and is not run again, so a stopped benchmark goes on
where it was, and several processes can share the work (--only, --tasks, --first-seed).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import qnli_from_squad
from finetune_quality_peer import peer
from glue_files import TASKS, path_of, write_limited
from local_data import data_directory, glue_directory
from quality_runs import (
    SIDES,
    add_run_arguments,
    add_training_arguments,
    best_epoch,
    choose_model,
    dev_of_epochs,
    finetune_ours,
    read_runs,
    run_once,
    seeds_of,
    sides_of,
    spread,
    versions,
)

PEER = "transformers"


def main() -> None:
    arguments = parse()
    out = Path(arguments.out)
    for seed in seeds_of(arguments):
        for task in arguments.tasks:
            for side in sides_of(arguments):
                run = {"task": task, "side": side, "seed": seed}
                run_once(
                    out, run, settings_of(task, arguments), partial(measure, task, side, seed, arguments)
                )
    result = collect(out, arguments.tasks)
    print(json.dumps(result) if arguments.json else table(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=glue_directory(), help="directory that holds SST-2, MRPC, ...")
    parser.add_argument("--model", default=None, help="model directory; default: the installed MiniLM")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    add_run_arguments(parser, "results/finetune_quality", seeds=3)
    add_training_arguments(parser, epochs=3, batch_size=32, rate=5e-5, seq_len=128)
    parser.add_argument("--limit-rows", type=int, help="training rows; 0: all; default: as stated above")
    parser.add_argument(
        "--dev-rows", type=int, default=0, help="rows of each dev file, drawn by seed 0; 0: all"
    )
    parser.add_argument("--squad", help="SQuAD 1.1's training file, for QNLI without its own")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument(
        "--keep-models", help="directory for our models, TASK-seedN: bertsmith glue reads them"
    )
    arguments = parser.parse_args()
    if not arguments.print and arguments.data is None:
        parser.error("name the directory of GLUE with --data")
    choose_model(arguments)
    return arguments


def settings_of(task: str, arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("epochs", "batch_size", "rate", "seq_len", "precision", "dev_rows")
    limit = TASKS[task].train_rows if arguments.limit_rows is None else arguments.limit_rows
    settings = {"model": arguments.model_name, "limit_rows": limit}
    if path_of(arguments.data, task, "train") is None:
        settings["train"] = "made from SQuAD"
    return {**settings, **{name: getattr(arguments, name) for name in names}}


def measure(task: str, side: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune one side; return what its file holds."""
    train = path_of(arguments.data, task, "train") or made_of_squad(arguments, Path(arguments.out))
    with tempfile.TemporaryDirectory() as directory:
        glue = Path(directory)
        limit = settings_of(task, arguments)["limit_rows"]
        write_limited(task, train, arguments.data, limit, seed, arguments.dev_rows, glue)
        epochs = (ours if side == "ours" else peer)(task, seed, glue, arguments)
    return {"files": files_of(task, train, arguments), **best_epoch(epochs, TASKS[task].main_metric)}


def made_of_squad(arguments: argparse.Namespace, out: Path) -> Path:
    """Return the file of QNLI's training rows, made once."""
    path = out / "qnli-train.tsv"
    if not path.exists():
        data = data_directory()
        squad = arguments.squad or (data and data / "squad" / "train-v1.1.rebuilt.json.gz")
        if squad is None or not Path(squad).is_file():
            sys.exit("QNLI has no training file; name SQuAD's with --squad to make one")
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        print(qnli_from_squad.write(qnli_from_squad.read(Path(squad)), temporary, seed=0), file=sys.stderr)
        temporary.replace(path)
    return path


def files_of(task: str, train: Path, arguments: argparse.Namespace) -> dict[str, str]:
    """Return the names of the files that were read; a part of a split has it in its name."""
    paths = {split: path_of(arguments.data, task, split) for split in TASKS[task].dev}
    return {split: path.name for split, path in {"train": train, **paths}.items() if path is not None}


def ours(task: str, seed: int, glue: Path, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Fine-tune through the recipe; return the dev metrics of every epoch."""
    with tempfile.TemporaryDirectory() as directory:
        data = str(glue / TASKS[task].directory)
        summary = finetune_ours(vars(arguments), directory, seed, task=task, model=arguments.model, data=data)
        if arguments.keep_models:
            kept = Path(arguments.keep_models) / f"{task}-seed{seed}"
            shutil.rmtree(kept, ignore_errors=True)  # of a run that was stopped before its result was written
            shutil.copytree(Path(directory) / "model", kept)
    return dev_of_epochs(summary)


def collect(out: Path, tasks: list[str]) -> dict[str, Any]:
    """Return what is there: means, deviations, differences in standard errors."""
    runs = read_runs(out, tasks)
    settings = {run["task"]: run["settings"] for run in runs}
    sides: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
    for side in SIDES:
        for task in tasks:
            devs = [run["dev"] for run in runs if run["task"] == task and run["side"] == side]
            if devs:
                sides[side][task] = {name: spread([dev[name] for dev in devs]) for name in devs[0]}
    both = [task for task in tasks if task in sides["ours"] and task in sides["peer"]]
    mains = {task: [sides[side][task][TASKS[task].main_metric] for side in SIDES] for task in both}
    return {
        "ours": sides["ours"],
        "peers": {PEER: sides["peer"]},
        "ratios": {PEER: {task: a["mean"] / b["mean"] for task, (a, b) in mains.items() if b["mean"]}},
        "difference_in_standard_errors": {task: standard_errors(a, b) for task, (a, b) in mains.items()},
        "unit": "dev metric; mean, sample standard deviation and values over seeds",
        "main_metric": {task: TASKS[task].main_metric for task in tasks},
        "settings": settings,
        "files": {run["task"]: run["files"] for run in runs if "files" in run},
        "seconds": {
            side: {
                task: [run["seconds"] for run in runs if (run["task"], run["side"]) == (task, side)]
                for task in tasks
            }
            for side in SIDES
        },
        "versions": versions(),
    }


def standard_errors(a: dict[str, Any], b: dict[str, Any]) -> float | None:
    """Return how many standard errors the means differ by; ``None`` when there is no deviation."""
    error = math.sqrt(sum(side["std"] ** 2 / len(side["values"]) for side in (a, b)))
    return (a["mean"] - b["mean"]) / error if error else None


def table(result: dict[str, Any]) -> str:
    lines = [f"{'task':<6}{'metric':<20}{'ours':>18}{PEER:>18}{'difference':>22}  seeds"]
    for task, metric in result["main_metric"].items():
        for name in [metric, *(n for n in result["ours"].get(task, {}) if n != metric)]:
            cells, counts = [], []
            for side in (result["ours"], result["peers"][PEER]):
                found = side.get(task, {}).get(name)
                cells.append(f"{found['mean']:.4f} ± {found['std']:.4f}" if found else "-")
                counts.append(str(len(found["values"])) if found else "0")
            errors = result["difference_in_standard_errors"].get(task) if name == metric else None
            difference = f"{errors:+.2f} standard errors" if errors is not None else ""
            lines.append(
                f"{task:<6}{name:<20}{cells[0]:>18}{cells[1]:>18}{difference:>22}  {'/'.join(counts)}"
            )
    for task, settings in result["settings"].items():
        files = ", ".join(result["files"].get(task, {}).values())
        lines.append(f"settings of {task}: {settings}{f' of {files}' if '.part.' in files else ''}")
    lines.append(f"versions: {result['versions']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
