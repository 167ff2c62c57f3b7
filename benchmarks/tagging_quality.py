"""Entity scores of our tagging on dev and test, beside a plain transformers loop with the same settings.

    python benchmarks/tagging_quality.py --task conll --out RESULTS
    python benchmarks/tagging_quality.py --task conll --sides features --features concat-last-4 --out RESULTS
    python benchmarks/tagging_quality.py --task cluener --model CHINESE_MODEL --out RESULTS
    python benchmarks/tagging_quality.py --task conll --out RESULTS --print

conll: CoNLL-2003, whole, scored on dev (which picks the epoch) and on test. cluener: CLUENER2020, whole; its
test rows have no labels, so dev alone. MiniLM is uncased, the paper's models are cased.

Sides: "document", ours with the context of the document; "sentence", ours with each sentence alone; "peer",
transformers' BertForTokenClassification on sentences, first pieces labelled, as its example does; "features",
ours with a frozen encoder and a BiLSTM. All: AdamW (betas 0.9 and 0.999, eps 1e-6, decoupled decay 0.01
except on biases and LayerNorm), gradient norm 1, linear warm-up over a tenth of the steps and linear decay to
0. "sentence" and "peer" share batch, rate and epochs; the batches of "document" are windows of about as many
words. Both are scored by seqeval in its default mode, which is the CoNLL script's; ours is compared with it.
Each run (task, side, seed) leaves one JSON file in --out and is not repeated.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from peer_training import train_epochs
from quality_runs import (
    best_epoch,
    choose_model,
    dev_of_epochs,
    finetune_ours,
    parsed,
    read_runs,
    run_once,
    seeds_of,
    spread,
    task_parser,
    versions,
)

SIDES = ("document", "sentence", "peer", "features")
WINDOW = {"document": 512, "features": 512}
BATCH = {"document": 4, "sentence": 32, "peer": 32, "features": 32}
Sentences = list[tuple[list[str], list[str]]]


def main() -> None:
    arguments = parse()
    out = Path(arguments.out)
    for seed in seeds_of(arguments):
        for side in arguments.sides:
            settings = settings_of(side, arguments)
            name = f"features-{arguments.features}" if side == "features" else side
            run = {"task": arguments.task, "side": name, "seed": seed}
            measure = partial(peer if side == "peer" else ours, side, seed, settings, arguments)
            run_once(out, run, settings, measure)
    print(json.dumps(collect(out, arguments.task), indent=None if arguments.json else 1))


def parse() -> argparse.Namespace:
    parser = task_parser(__doc__, ["conll", "cluener"], "conll2003 and cluener", "results/tagging_quality")
    parser.add_argument(
        "--random-weights", action="store_true", help="only the model's shape (not for features)"
    )
    parser.add_argument("--sides", nargs="+", choices=SIDES, help="default: all but features")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--rate", type=float, default=None, help="default: 1e-4; of features 1e-3")
    parser.add_argument("--features", default="concat-last-4", help="layers that the side features reads")
    parser.add_argument("--limit-rows", type=int, default=0, help="training sentences; 0: all")
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    arguments = parsed(parser)
    # CLUENER's texts belong to no documents.
    arguments.sides = arguments.sides or ["document"] * (arguments.task == "conll") + ["sentence", "peer"]
    choose_model(arguments)
    return arguments


def settings_of(side: str, arguments: argparse.Namespace) -> dict[str, Any]:
    return {
        "model": arguments.model_name,
        "random_weights": arguments.random_weights,
        "epochs": arguments.epochs,
        "rate": float(arguments.rate or (1e-3 if side == "features" else 1e-4)),
        "batch_size": BATCH[side],
        "seq_len": WINDOW.get(side, 128),
        "limit_rows": arguments.limit_rows,
        "precision": arguments.precision,
    }


def files_of(arguments: argparse.Namespace) -> dict[str, Path]:
    """Return the file of each split that has labels."""
    data = Path(arguments.data)
    if arguments.task == "cluener":
        return {name: data / "cluener" / f"{name}.json.gz" for name in ("train", "dev")}
    names = {"train": "eng.train.gz", "dev": "eng.testa.gz", "test": "eng.testb.gz"}
    return {split: data / "conll2003" / name for split, name in names.items()}


def ours(side: str, seed: int, settings: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune through the recipe, evaluate the kept model; seqeval scores its predictions too."""
    from bertsmith.recipes.config import EvaluateConfig
    from bertsmith.recipes.evaluate import evaluate

    files = files_of(arguments)
    with tempfile.TemporaryDirectory() as directory:
        summary = finetune_ours(
            settings,
            directory,
            seed,
            task="conll" if arguments.task == "conll" else "tag",
            model=arguments.model,
            data=str(files["train"]),
            dev=str(files["dev"]),
            limit_rows=settings["limit_rows"],
            random_weights=settings["random_weights"],
            context="sentence" if side == "sentence" else None,
            features=arguments.features if side == "features" else None,
        )
        if side != "features" and arguments.task == "conll":
            compare_with_seqeval(
                Path(directory) / "predictions-dev.jsonl", files["dev"], summary["dev"]["f1"]
            )
        model = str(Path(directory) / "model")
        test = evaluate(EvaluateConfig(model, str(files["test"])))["metrics"] if "test" in files else None
    return {
        "dev": summary["dev"],
        "test": test,
        "best_epoch": summary["seeds"][0]["best_epoch"],
        "epochs": dev_of_epochs(summary),
    }


def compare_with_seqeval(predictions: Path, gold: Path, f1: float) -> None:
    """Stop if seqeval finds another F1 in the written predictions than we did."""
    lines = predictions.read_text(encoding="utf-8").splitlines()
    tags = [json.loads(line)["tags"] for line in lines]
    found = seqeval_metrics([tags for _, tags in sentences_of(gold)], tags)["f1"]
    assert abs(found - f1) < 1e-9, f"seqeval says {found}, we say {f1}"


def sentences_of(path: Path) -> Sentences:
    """Return words and tags in IOB2 of every sentence, by our reader, so that both sides read the same."""
    from bertsmith.tasks.entities import tags_of
    from bertsmith.tasks.source import DataSource
    from bertsmith.tasks.tagged_rows import in_words
    from bertsmith.tasks.tagged_source import read_file

    rows = read_file(DataSource(str(path)), str(path)).rows
    return [(row.spelled, tags_of(in_words(row), len(row.words), "iob2")) for row in rows if row.words]


def seqeval_metrics(gold: list[list[str]], predicted: list[list[str]]) -> dict[str, float]:
    from seqeval.metrics import f1_score, precision_score, recall_score

    names = {"f1": f1_score, "precision": precision_score, "recall": recall_score}
    found = {name: float(score(gold, predicted, zero_division=0)) for name, score in names.items()}
    return found | {"macro_f1": float(f1_score(gold, predicted, average="macro", zero_division=0))}


def peer(side: str, seed: int, settings: dict[str, Any], arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune by a plain loop over transformers' model; keep the epoch that is best on dev."""
    import torch
    from transformers import AutoConfig, AutoTokenizer, BertForTokenClassification

    torch.manual_seed(seed)
    splits = {name: sentences_of(path) for name, path in files_of(arguments).items()}
    if settings["limit_rows"]:
        chosen = torch.randperm(len(splits["train"]))[: settings["limit_rows"]].tolist()
        splits["train"] = [splits["train"][index] for index in chosen]
    labels = sorted({tag for _, tags in splits["train"] for tag in tags})
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    config = AutoConfig.from_pretrained(arguments.model, num_labels=len(labels))
    if settings["random_weights"]:
        model = BertForTokenClassification(config)
    else:
        model = BertForTokenClassification.from_pretrained(arguments.model, config=config)
    half = settings["precision"] == "bfloat16"

    def loss_of(numbers: list[int]) -> Any:
        rows = [splits["train"][number] for number in numbers]
        encoded, targets = inputs_of(rows, tokenizer, labels, settings["seq_len"])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            return model(**encoded, labels=targets).loss

    results: list[dict[str, Any]] = []
    for _ in train_epochs(model, len(splits["train"]), loss_of, settings):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            results.append(
                {
                    name: seqeval_metrics(
                        [tags for _, tags in splits[name]],
                        predicted(splits[name], model, tokenizer, labels, settings["seq_len"]),
                    )
                    for name in files_of(arguments)
                    if name != "train"
                }
            )
    best = best_epoch([result["dev"] for result in results], "f1")
    return {**best, "test": results[best["best_epoch"] - 1].get("test")}


def inputs_of(rows: Sentences, tokenizer: Any, labels: list[str], seq_len: int) -> tuple[Any, Any]:
    """Return the inputs and the labels, which only first pieces have."""
    import torch

    numbers = {label: number for number, label in enumerate(labels)}
    encoded = tokenizer(
        [words for words, _ in rows],
        is_split_into_words=True,
        padding=True,
        truncation=True,
        max_length=seq_len,
        return_tensors="pt",
    )
    targets = torch.full(encoded["input_ids"].shape, -100)
    for row, (_, tags) in enumerate(rows):
        words = encoded.word_ids(row)
        for place, word in enumerate(words):
            if word is not None and word != words[place - 1]:
                targets[row, place] = numbers.get(tags[word], -100)
    return encoded, targets


def predicted(
    rows: Sentences, model: Any, tokenizer: Any, labels: list[str], seq_len: int
) -> list[list[str]]:
    """Return a tag for every word: of its first piece; beyond the limit O."""
    found: list[list[str]] = []
    for start in range(0, len(rows), 64):
        part = rows[start : start + 64]
        encoded, _ = inputs_of(part, tokenizer, labels, seq_len)
        best = model(**encoded).logits.argmax(dim=-1).tolist()
        for row, (words, _) in enumerate(part):
            tags = ["O"] * len(words)
            for place, word in reversed(list(enumerate(encoded.word_ids(row)))):
                if word is not None:
                    tags[word] = labels[best[row][place]]
            found.append(tags)
    return found


def collect(out: Path, task: str) -> dict[str, Any]:
    """Return what is there: metrics of each side on dev and test, over seeds."""
    runs = read_runs(out, [task], by="side")
    sides: dict[str, dict[str, Any]] = {}
    for side in dict.fromkeys(run["side"] for run in runs):
        own = [run for run in runs if run["side"] == side]
        sides[side] = {"settings": own[0]["settings"], "seconds": [run["seconds"] for run in own]}
        for split in ("dev", "test"):
            if own[0][split] is not None:
                names = ("f1", "precision", "recall", "macro_f1")
                sides[side][split] = {name: spread([run[split][name] for run in own]) for name in names}
    plain = sides.pop("peer", None)
    ratios = {
        side: figures["dev"]["f1"]["mean"] / plain["dev"]["f1"]["mean"]
        for side, figures in sides.items()
        if plain
    }
    return {
        "task": task,
        "ours": sides,
        "peers": {"transformers": plain},
        "ratios": {"transformers": ratios},
        "unit": "entity metrics, conlleval mode; mean, sample standard deviation and values over seeds",
        "versions": versions("seqeval"),
    }


if __name__ == "__main__":
    main()
