"""Dev scores of questions on passages, beside a plain transformers loop of the same windows and settings.

    python benchmarks/squad_quality.py --task squad1 --out RESULTS
    python benchmarks/squad_quality.py --task squad1 --out RESULTS --print

squad1: SQuAD 1.1, train and dev. squad2: the training file of SQuAD 2.0 is not among the test data, so the
articles of its dev file are parted: those of even number are trained on, those of odd number are dev; the
figures are not those of SQuAD 2.0. cmrc2018: trained on its trial file of 1,002 questions.

Training rows are drawn by the seed, dev rows by seed 0; both sides read the same files. Both: AdamW (betas
0.9 and 0.999, eps 1e-6, decoupled decay 0.01 except on biases and LayerNorm), gradient norm 1, linear warm-
up over a tenth of the steps and linear decay to 0, float32, windows by overlap, batches of windows, best
epoch on dev. The peer decodes as transformers' run_qa.py does (20 best starts and ends of each window, no
max-context rule); both are scored by the rules of the published scripts, squad2 at the best threshold on
dev. Each run (task, side, seed) leaves one JSON file in --out and is not repeated.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import tempfile
from pathlib import Path
from typing import Any

from peer_training import train_epochs
from quality_runs import (
    add_training_arguments,
    best_epoch,
    choose_model,
    dev_of_epochs,
    drawn,
    finetune_ours,
    means_of_both,
    parsed,
    read_runs,
    run_sides,
    task_parser,
    versions,
    write_lines,
)

MAIN_METRIC = {"squad1": "f1", "squad2": "f1", "cmrc2018": "average"}
MAX_ANSWER, N_BEST = 30, 20
Rows = list[dict[str, Any]]


def main() -> None:
    arguments = parse()
    out = Path(arguments.out)
    names = ("train_rows", "dev_rows", "epochs", "batch_size", "rate", "seq_len", "window_overlap")
    run_sides(arguments, names, measure)
    print(json.dumps(collect(out, arguments.task), indent=None if arguments.json else 1))


def parse() -> argparse.Namespace:
    parser = task_parser(__doc__, list(MAIN_METRIC), "squad and cmrc2018", "results/squad_quality")
    add_training_arguments(parser, epochs=2, batch_size=16, rate=1e-4, seq_len=384)
    parser.add_argument("--train-rows", type=int, default=2500, help="0: all")
    parser.add_argument("--dev-rows", type=int, default=1000, help="0: all")
    parser.add_argument("--window-overlap", type=int, default=128)
    arguments = parsed(parser)
    choose_model(arguments)
    return arguments


def measure(side: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Fine-tune one side; return what its file holds."""
    with tempfile.TemporaryDirectory() as directory:
        files = write_rows(arguments, seed, Path(directory))
        epochs = (ours if side == "ours" else peer)(*files, seed, arguments)
    return best_epoch(epochs, MAIN_METRIC[arguments.task])


def write_rows(arguments: argparse.Namespace, seed: int, directory: Path) -> tuple[Path, Path]:
    """Write the training and the dev rows that both sides read."""
    data = Path(arguments.data)
    if arguments.task == "squad1":
        train, dev = (articles(data / "squad" / f"{name}-v1.1.rebuilt.json.gz") for name in ("train", "dev"))
    elif arguments.task == "squad2":
        both = articles(data / "squad" / "dev-v2.0.rebuilt.json.gz")
        train, dev = both[::2], both[1::2]
    else:
        train, dev = (articles(data / "cmrc2018" / f"cmrc2018_{name}.json.gz") for name in ("trial", "dev"))
    train_rows, dev_rows = ([row for article in split for row in article] for split in (train, dev))
    return (
        write_lines(directory / "train.jsonl", drawn(train_rows, arguments.train_rows, seed)),
        write_lines(directory / "dev.jsonl", drawn(dev_rows, arguments.dev_rows, 0)),
    )


def articles(path: Path) -> list[Rows]:
    """Return the questions of each article of a SQuAD file."""
    content = json.loads(gzip.decompress(path.read_bytes()))
    keys = ("id", "question", "answers")
    return [
        [
            {"context": paragraph["context"], **{key: qa[key] for key in keys}}
            for paragraph in article["paragraphs"]
            for qa in paragraph["qas"]
        ]
        for article in content["data"]
    ]


def ours(train: Path, dev: Path, seed: int, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Fine-tune through the recipe; return the dev metrics of every epoch."""
    with tempfile.TemporaryDirectory() as directory:
        summary = finetune_ours(
            vars(arguments),
            directory,
            seed,
            task=arguments.task,
            model=arguments.model,
            data=str(train),
            dev=str(dev),
            window_overlap=arguments.window_overlap,
        )
    return dev_of_epochs(summary)


def peer(train: Path, dev: Path, seed: int, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Fine-tune by a plain loop over transformers' model; return the dev metrics of every epoch."""
    import torch
    from transformers import AutoTokenizer, BertForQuestionAnswering

    torch.manual_seed(seed)
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = BertForQuestionAnswering.from_pretrained(arguments.model)
    train_rows, dev_rows = (rows_of(path) for path in (train, dev))
    features, targets = windows(train_rows, tokenizer, arguments)
    dev_features, _ = windows(dev_rows, tokenizer, arguments)

    def inputs_of(of: Any, chosen: list[int]) -> Any:
        keys = ("input_ids", "token_type_ids", "attention_mask")
        return tokenizer.pad({key: [of[key][index] for index in chosen] for key in keys}, return_tensors="pt")

    def loss_of(chosen: list[int]) -> Any:
        starts, ends = torch.tensor([targets[index] for index in chosen]).unbind(1)
        return model(**inputs_of(features, chosen), start_positions=starts, end_positions=ends).loss

    results = []
    for _ in train_epochs(model, len(targets), loss_of, vars(arguments)):
        scores = []
        with torch.no_grad():
            for start in range(0, len(dev_features["input_ids"]), 32):
                chosen = list(range(start, min(start + 32, len(dev_features["input_ids"]))))
                found = model(**inputs_of(dev_features, chosen))
                scores += list(zip(found.start_logits.numpy(), found.end_logits.numpy(), strict=True))
        results.append(peer_metrics(arguments.task, dev_rows, dev_features, scores))
    return results


def rows_of(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")]


def windows(rows: Rows, tokenizer: Any, arguments: argparse.Namespace) -> tuple[Any, list[tuple[int, int]]]:
    """Return windows by the tokenizer and the first and last place of the answer in each."""
    features = tokenizer(
        [row["question"] for row in rows],
        [row["context"] for row in rows],
        truncation="only_second",
        max_length=arguments.seq_len,
        stride=arguments.window_overlap,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    targets = []
    for number, sample in enumerate(features["overflow_to_sample_mapping"]):
        answer = next(iter(rows[sample]["answers"]), None)
        places: list[int | None] = [None, None]
        if answer is not None and answer["answer_start"] >= 0:
            ends = (answer["answer_start"], answer["answer_start"] + len(answer["text"]) - 1)
            places = [features.char_to_token(number, end, sequence_index=1) for end in ends]
        targets.append((0, 0) if None in places else (places[0], places[1]))
    return features, targets


def peer_metrics(task: str, rows: Rows, features: Any, scores: list[Any]) -> dict[str, float]:
    """Decode as run_qa.py does and score by the published rules."""
    import numpy as np

    from bertsmith.tasks import squad_metrics

    best: list[tuple[float, str]] = [(-math.inf, "")] * len(rows)
    null = [math.inf] * len(rows)
    for number, (starts, ends) in enumerate(scores):
        sample = features["overflow_to_sample_mapping"][number]
        context, offsets = rows[sample]["context"], features["offset_mapping"][number]
        inside = [part == 1 for part in features.sequence_ids(number)]
        null[sample] = min(null[sample], float(starts[0] + ends[0]))
        for start in np.argsort(-starts)[:N_BEST]:
            for end in np.argsort(-ends)[:N_BEST]:
                if max(start, end) >= len(inside) or not (inside[start] and inside[end]):
                    continue
                score = float(starts[start] + ends[end])
                if 0 <= end - start < MAX_ANSWER and score > best[sample][0]:
                    best[sample] = (score, context[offsets[start][0] : offsets[end][1]])
    golds = [[answer["text"] for answer in row["answers"]] for row in rows]
    rule = {"squad1": squad_metrics.squad1, "squad2": squad_metrics.squad2}.get(task, squad_metrics.cmrc2018)
    values = squad_metrics.question_scores(rule, [text for _, text in best], golds)
    if task == "squad2":
        has = np.array([bool(texts) for texts in golds])
        odds = np.array([least - max(score, -1e30) for least, (score, _) in zip(null, best, strict=True)])
        ordered, means = squad_metrics.sweep(values[:, 1], odds, has, np.array([bool(t) for _, t in best]))
        tau = squad_metrics.reachable_best(means, ordered)
        values = squad_metrics.with_threshold(values, odds, has, tau)
    exact, f1 = values.mean(axis=0).tolist()
    return {"average": (exact + f1) / 2, "f1": f1, "exact_match": exact}


def collect(out: Path, task: str) -> dict[str, Any]:
    """Return what is there: dev metrics of both sides, means over seeds, ratios."""
    names = ["f1", "exact_match", *(["average"] if task == "cmrc2018" else [])]
    return {
        "task": task,
        **means_of_both(read_runs(out, [task]), MAIN_METRIC[task], names),
        "unit": "dev metric; mean, sample standard deviation and values over seeds",
        "versions": versions(),
    }


if __name__ == "__main__":
    main()
