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
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from peer_training import train_epochs
from quality_runs import (
    add_training_arguments,
    best_epoch,
    choose_model,
    dev_of_epochs,
    finetune_ours,
    means_of_both,
    parsed,
    read_runs,
    run_sides,
    task_parser,
    versions,
)

FILES = {"codah": "codah/fold_0", "chnsenticorp": "chnsenticorp"}
TASKS = {"codah": "swag", "chnsenticorp": "classify"}
Rows = list[tuple[list[tuple[str, str | None]], int]]
"""The inputs of each row (text, second text), and the label."""


def main() -> None:
    arguments = parse()
    out = Path(arguments.out)
    names = ("limit_rows", "epochs", "batch_size", "rate", "seq_len")
    if arguments.model is None and not arguments.print:
        arguments.model = chinese_start(Path(arguments.data), out / "chinese-start")
    run_sides(arguments, names, measure)
    print(json.dumps(collect(out, arguments.task), indent=None if arguments.json else 1))


def parse() -> argparse.Namespace:
    parser = task_parser(__doc__, list(FILES), "codah and chnsenticorp", "results/own_quality")
    add_training_arguments(parser, epochs=3, batch_size=16, rate=5e-5, seq_len=128)
    parser.add_argument("--limit-rows", type=int, default=0, help="training rows; 0: all")
    arguments = parsed(parser)
    if arguments.task == "codah" or arguments.model is not None:
        choose_model(arguments)
    else:
        arguments.model_name = "from scratch: bert-mini, Chinese vocabulary"
    return arguments


def measure(side: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune one side; return what its file holds."""
    with tempfile.TemporaryDirectory() as directory:
        write_rows(arguments, seed, Path(directory))
        accuracies = (ours if side == "ours" else peer)(
            Path(directory), str(arguments.model), seed, arguments
        )
    return {**best_epoch([{"accuracy": value} for value in accuracies], "accuracy"), "epochs": accuracies}


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
    whole = arguments.task == "codah"
    with tempfile.TemporaryDirectory() as directory:
        summary = finetune_ours(
            vars(arguments),
            directory,
            seed,
            task=TASKS[arguments.task],
            model=model,
            data=str(rows if whole else rows / "train.tsv"),
            dev=None if whole else str(rows / "dev.tsv"),
            text=None if whole else "text_a",
        )
    return [dev["accuracy"] for dev in dev_of_epochs(summary)]


def peer(rows: Path, model_directory: str, seed: int, arguments: argparse.Namespace) -> list[float]:
    """Fine-tune by a plain loop over transformers' model; return the dev accuracy of every epoch."""
    import torch
    from transformers import AutoTokenizer, BertForMultipleChoice, BertForSequenceClassification

    torch.manual_seed(seed)
    train, dev = (read(arguments.task, rows / f"{name}.tsv") for name in ("train", "dev"))
    tokenizer = AutoTokenizer.from_pretrained(model_directory)
    kind = BertForMultipleChoice if arguments.task == "codah" else BertForSequenceClassification
    model = kind.from_pretrained(model_directory)

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

    def loss_of(numbers: list[int]) -> Any:
        chosen = [train[number] for number in numbers]
        labels = torch.tensor([label for _, label in chosen])
        return torch.nn.functional.cross_entropy(forward(chosen), labels)

    accuracies = []
    for _ in train_epochs(model, len(train), loss_of, vars(arguments)):
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
    return {
        "task": task,
        **means_of_both(read_runs(out, [task]), "accuracy", ["accuracy"]),
        "unit": "dev accuracy; mean, sample standard deviation and values over seeds",
        "versions": versions(),
    }


if __name__ == "__main__":
    main()
