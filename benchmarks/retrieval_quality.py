"""Retrieval and similarity before and after fine-tuning of vectors, beside sentence-transformers.

    python benchmarks/retrieval_quality.py --task squad --out RESULTS
    python benchmarks/retrieval_quality.py --task stsb --rate 2e-5 --out RESULTS
    python benchmarks/retrieval_quality.py --task squad --out RESULTS --print

squad: a question looks for its paragraph. Trained on questions of SQuAD 1.1's training file with their
paragraphs; dev are questions of its dev file, among all of that file's paragraphs. stsb: GLUE's STS-B, the
cosine of both sentences and the score.

Training rows are drawn by the seed, dev questions by seed 0; both sides read the same files. The peer trains
with its own MultipleNegativesRankingLoss (scale 20) or CosineSimilarityLoss and is scored by its own
evaluators. Both: vectors are means over the pieces, AdamW (betas 0.9 and 0.999, eps 1e-6, decoupled decay
0.01 except on biases and LayerNorm), gradient norm 1, linear warm-up over a tenth of the steps and linear
decay to 0, float32, best epoch on dev. Each run (task, side, seed) leaves one JSON file in --out and is not
repeated. The installed MiniLM has seen SQuAD's questions in its own training, so name a model that has not
with --model to see how much is learnt.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peer_training import train_epochs
from quality_runs import (
    SIDES,
    add_training_arguments,
    best_epoch,
    choose_model,
    dev_of_epochs,
    drawn,
    finetune_ours,
    parsed,
    read_runs,
    run_sides,
    spread,
    task_parser,
    versions,
    write_lines,
)

METRICS = {
    "squad": ("ndcg_at_10", "recall_at_1", "recall_at_10", "mrr_at_10"),
    "stsb": ("spearman", "pearson"),
}
HIGHEST_SCORE = 5.0
Rows = list[dict[str, Any]]


def main() -> None:
    arguments = parse()
    names = ("train_rows", "dev_rows", "epochs", "batch_size", "rate", "seq_len")
    run_sides(arguments, names, measure)
    print(json.dumps(collect(arguments), indent=None if arguments.json else 1))


def parse() -> argparse.Namespace:
    parser = task_parser(__doc__, list(METRICS), "squad and glue", "results/retrieval_quality")
    add_training_arguments(parser, epochs=1, batch_size=64, rate=5e-5, seq_len=256)
    parser.add_argument("--train-rows", type=int, default=4000, help="0: all")
    parser.add_argument("--dev-rows", type=int, default=2000, help="questions of dev; 0: all (STS-B: always)")
    arguments = parsed(parser)
    choose_model(arguments)
    return arguments


def measure(side: str, seed: int, arguments: argparse.Namespace) -> dict[str, Any]:
    """Score and fine-tune one side; return what its file holds."""
    with tempfile.TemporaryDirectory() as directory:
        train, dev = write_rows(arguments, seed, Path(directory))
        before, *epochs = (ours if side == "ours" else peer)(train, dev, seed, arguments)
    return {"before": before, **best_epoch(epochs, METRICS[arguments.task][0])}


def write_rows(arguments: argparse.Namespace, seed: int, directory: Path) -> tuple[Path, Path]:
    """Write the training and the dev rows that both sides read."""
    is_squad = arguments.task == "squad"
    train, dev = (squad_rows if is_squad else stsb_rows)(Path(arguments.data))
    chosen = drawn(dev, arguments.dev_rows if is_squad else 0, 0)
    if is_squad:  # every paragraph is looked at
        others = {row["positive"] for row in dev} - {row["positive"] for row in chosen}
        chosen[0] = {**chosen[0], "negatives": sorted(others)}
    return (
        write_lines(directory / "train.jsonl", drawn(train, arguments.train_rows, seed)),
        write_lines(directory / "dev.jsonl", chosen),
    )


def squad_rows(data: Path) -> tuple[Rows, Rows]:
    """Return the questions of both files with their paragraphs, each question with a paragraph once."""
    found = []
    for name in ("train", "dev"):
        packed = (data / "squad" / f"{name}-v1.1.rebuilt.json.gz").read_bytes()
        pairs = {
            (question["question"].strip(), paragraph["context"]): None
            for article in json.loads(gzip.decompress(packed))["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        }
        found.append([{"anchor": anchor, "positive": positive} for anchor, positive in pairs])
    return found[0], found[1]


def stsb_rows(data: Path) -> tuple[Rows, Rows]:
    """Return the rows of GLUE's train and dev files."""
    found = []
    for name in ("train", "dev"):
        lines = (
            gzip.decompress((data / "glue" / "STS-B" / f"{name}.tsv.gz").read_bytes()).decode().split("\n")
        )
        header = lines[0].split("\t")
        rows = [dict(zip(header, line.split("\t"), strict=True)) for line in lines[1:] if line]
        keys = ("sentence1", "sentence2")
        found.append([{**{key: row[key] for key in keys}, "score": float(row["score"])} for row in rows])
    return found[0], found[1]


def ours(train: Path, dev: Path, seed: int, arguments: argparse.Namespace) -> Iterator[dict[str, float]]:
    """Yield the dev metrics of the model as it is, and of every epoch of a fine-tuning by the recipe."""
    yield ours_untrained(dev, arguments)
    with tempfile.TemporaryDirectory() as directory:
        files = {"model": arguments.model, "data": str(train), "dev": str(dev)}
        summary = finetune_ours(vars(arguments), directory, seed, task="embed", pooling="mean", **files)
    yield from dev_of_epochs(summary)


def ours_untrained(dev: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """Return the dev metrics of the model as it is, whatever head it has."""
    from bertsmith.bundle import load_bundle
    from bertsmith.tasks.inference import inference_settings
    from bertsmith.tasks.kind import Encoding
    from bertsmith.tasks.source import DataSource
    from bertsmith.tasks.task import find_task

    task, bundle = find_task("embed"), load_bundle(arguments.model)
    rows = task.read(DataSource(str(dev)), "train")
    assert rows is not None
    encoding = Encoding(bundle.tokenizer, arguments.seq_len, "tail", {"pooling": "mean"})
    split = task.kind.encode(task, rows, None, encoding)
    model = task.kind.load_model(bundle, None)
    outputs = task.kind.outputs(model, split, inference_settings("float32", 4096))
    return task.kind.score(task.measured_by(task, rows), split, outputs, {}).metrics


def peer(train: Path, dev: Path, seed: int, arguments: argparse.Namespace) -> Iterator[dict[str, float]]:
    """Yield the same of sentence-transformers: its model, losses and evaluators in a plain loop."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer import losses, modules

    torch.manual_seed(seed)
    transformer = modules.Transformer(arguments.model, max_seq_length=arguments.seq_len)
    model = SentenceTransformer(modules=[transformer, modules.Pooling(transformer.get_embedding_dimension())])
    rows, dev_rows = rows_of(train), rows_of(dev)
    if arguments.task == "squad":
        keys, loss = ("anchor", "positive"), losses.MultipleNegativesRankingLoss(model, scale=20.0)
    else:
        keys, loss = ("sentence1", "sentence2"), losses.CosineSimilarityLoss(model)

    def loss_of(chosen: list[int]) -> Any:
        features = [model.preprocess([rows[index][key] for index in chosen]) for key in keys]
        scores = [rows[index].get("score", 0.0) / HIGHEST_SCORE for index in chosen]
        return loss(features, torch.tensor(scores))

    yield peer_metrics(model, dev_rows)
    for _ in train_epochs(model, len(rows), loss_of, vars(arguments)):
        yield peer_metrics(model, dev_rows)


def peer_metrics(model: Any, rows: Rows) -> dict[str, float]:
    """Return the metrics of the peer's own evaluators under our names."""
    from sentence_transformers.sentence_transformer import evaluation

    if "score" in rows[0]:
        sides = [[row[key] for row in rows] for key in ("sentence1", "sentence2")]
        scores = [row["score"] / HIGHEST_SCORE for row in rows]
        found = evaluation.EmbeddingSimilarityEvaluator(*sides, scores, main_similarity="cosine")(model)
        return {name: found[f"{name}_cosine"] for name in METRICS["stsb"]}
    relevant: dict[str, set[str]] = {}
    documents = {row["positive"] for row in rows} | set(rows[0].get("negatives", ()))
    for row in rows:
        relevant.setdefault(row["anchor"], set()).add(row["positive"])
    evaluator = evaluation.InformationRetrievalEvaluator(
        {query: query for query in relevant},
        {document: document for document in sorted(documents)},
        relevant,
        write_csv=False,
    )
    found = evaluator(model)
    return {name: found[f"cosine_{name.replace('_at_', '@')}"] for name in METRICS["squad"]}


def rows_of(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n")]


def collect(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return what is there: metrics of both sides before and after, means over seeds, ratios."""
    runs = read_runs(Path(arguments.out), [arguments.task])
    sides = {}
    for side in SIDES:
        own = [run for run in runs if run["side"] == side]
        sides[side] = {
            name: {"before": own[0]["before"][name], **spread([run["dev"][name] for run in own])}
            for name in METRICS[arguments.task]
            if own
        }
    main_metric = METRICS[arguments.task][0]
    means = [sides[side][main_metric]["mean"] for side in SIDES if sides[side]]
    seconds = {side: [run["seconds"] for run in runs if run["side"] == side] for side in SIDES}
    return {
        "task": arguments.task,
        "ours": sides["ours"],
        "peers": {"sentence-transformers": sides["peer"]},
        "ratios": {"sentence-transformers": means[0] / means[1] if len(means) == 2 else None},
        "settings": runs[0]["settings"] if runs else None,
        "seconds": {side: statistics.mean(values) for side, values in seconds.items() if values},
        "unit": "dev metric before and after; mean, sample standard deviation and values over seeds",
        "versions": versions("sentence-transformers"),
    }


if __name__ == "__main__":
    main()
