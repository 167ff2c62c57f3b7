"""Embeddings through every verb: training, evaluation, comparison, the predictor, other programs."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bertsmith import predictor
from bertsmith.bundle import load_bundle, save_bundle
from bertsmith.errors import InputError
from bertsmith.experiments.judged import judge, worst
from bertsmith.experiments.report import report
from bertsmith.model.bert import BertForPreTraining
from bertsmith.recipes.compare import compare_runs
from bertsmith.recipes.config import DoctorConfig, EvaluateConfig, PredictConfig, ReportConfig
from bertsmith.recipes.doctor import doctor
from bertsmith.recipes.embed import embed
from bertsmith.recipes.embed_config import EmbedConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.predict import predict
from bertsmith.training.config import OptimizerConfig
from tests.recipes import tiny

TOPICS = tiny.WORDS[6:]


def pairs(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows whose positive holds the partners of the two topics of the anchor, which have to be learnt."""
    draw, rows = random.Random(seed), []
    for _ in range(number):
        first, second = draw.sample(range(8), 2)
        anchor, positive = (
            (TOPICS[first], "good", TOPICS[second]),
            (TOPICS[second + 8], "bad", TOPICS[first + 8]),
        )
        rows.append({"anchor": " ".join(anchor), "positive": " ".join(positive)})
    return rows


def scored(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Rows whose score is how many topics both texts share, of two."""
    draw, rows = random.Random(seed), []
    for _ in range(number):
        first, second = draw.sample(TOPICS, 2), draw.sample(TOPICS, 2)
        kept = draw.randint(0, 2)
        second = first[:kept] + [topic for topic in second if topic not in first][: 2 - kept]
        rows.append(
            {
                "text1": " ".join(first),
                "text2": " ".join(["so", *second]),
                "score": 5 * len({*first} & {*second}),
            }
        )
    return rows


def write_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("start") / "model")


@pytest.fixture(scope="module")
def retrieval(start: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run on pairs, and what it returned."""
    path = tmp_path_factory.mktemp("retrieval")
    train, dev = write_json(path / "train.jsonl", pairs(300)), write_json(path / "dev.jsonl", pairs(60, 1))
    return path, finetune(
        tiny.config(start, train, path / "run", task="embed", dev=str(dev), epochs=4, seeds=2)
    )


def test_what_belongs_together_is_found_and_every_verb_agrees(
    start: Path, retrieval: tuple[Path, dict[str, Any]]
) -> None:
    path, summary = retrieval
    assert summary["main_metric"] == "ndcg_at_10"
    assert summary["dev"]["recall_at_10"] > 0.9
    assert summary["dev_interval"]["low"] < summary["dev"]["ndcg_at_10"] < summary["dev_interval"]["high"]
    assert all(run["status"] == "learned" for run in summary["seeds"])
    before = _evaluated(start, path, "dev.jsonl")
    assert before["metrics"]["ndcg_at_10"] < summary["dev"]["ndcg_at_10"] - 0.2
    again = evaluate(EvaluateConfig(model=str(path / "run" / "model"), data=str(path / "dev.jsonl")))
    assert again["metrics"] == summary["dev"]
    assert again["loss"] == pytest.approx(summary["seeds"][summary["best_seed"]]["dev_loss"])
    lines = [json.loads(line) for line in (path / "run" / "predictions-dev.jsonl").read_text().splitlines()]
    assert np.mean([line["rank"] == 1 for line in lines]) == pytest.approx(
        summary["dev"]["recall_at_1"], abs=0.05
    )
    found = compare_runs(str(path / "run"), str(path / "run"))
    assert (found["metric"], found["difference"]) == ("ndcg_at_10", 0.0)


def _evaluated(model: Path, path: Path, name: str) -> dict[str, Any]:
    """Evaluate a model that was never trained to embed, through a task.json that says how."""
    bundle = load_bundle(model)
    copy = path / "untrained"
    if not copy.exists():
        copy.mkdir()
        for file in model.iterdir():
            (copy / file.name).write_bytes(file.read_bytes())
    task = {"task": "embed", "head": "embedding", "labels": None, "seq_len": 32}
    task["settings"] = {"pooling": "mean", "normalize": True}
    (copy / "task.json").write_text(json.dumps(task))
    assert bundle.config.hidden_size == 32
    return evaluate(EvaluateConfig(model=str(copy), data=str(path / name)))


def test_the_model_is_an_embedding_model_for_the_predictor(retrieval: tuple[Path, dict[str, Any]]) -> None:
    path, _ = retrieval
    task = load_bundle(path / "run" / "model").task or {}
    assert (task["task"], task["head"], task["labels"], task["seq_len"]) == ("embed", "embedding", None, 32)
    assert (task["settings"]["pooling"], task["settings"]["normalize"]) == ("mean", True)
    model = predictor.load(path / "run" / "model")
    rows = pairs(60, 1)
    texts = [[row[side] for row in rows] for side in ("anchor", "positive")]
    cosines = np.asarray(model.similarity(*texts))
    stored = [json.loads(line) for line in (path / "run" / "predictions-dev.jsonl").read_text().splitlines()]
    assert cosines.diagonal() == pytest.approx([line["cosine"] for line in stored], abs=1e-5)
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(str(path / "run" / "model"))
    assert np.asarray(model.embed(texts[0])) == pytest.approx(theirs.encode(texts[0]), abs=1e-5)
    # Rows of pairs are not embedded as pairs; which side is wanted has to be said.
    config = EmbedConfig(str(path / "run" / "model"), str(path / "dev.jsonl"), str(path / "vectors.npy"))
    with pytest.raises(InputError, match="name it with --text"):
        embed(config)
    embed(dataclasses.replace(config, text="positive"))
    assert np.load(path / "vectors.npy") == pytest.approx(np.asarray(model.embed(texts[1])), abs=1e-5)
    card = (path / "run" / "model" / "README.md").read_text()
    assert "pipeline_tag: sentence-similarity" in card
    assert "bertsmith embed --model MODEL" in card
    assert "texts to choose from" in card
    assert 'bertsmith.load("MODEL").embed(["a text"])' in card
    with pytest.raises(InputError, match="bertsmith embed"):
        predict(PredictConfig(str(path / "run" / "model"), str(path / "dev.jsonl"), "-"))


def test_scores_are_learnt_as_cosines(start: Path, tmp_path: Path) -> None:
    train, dev = (
        write_json(tmp_path / "a.jsonl", scored(300)),
        write_json(tmp_path / "b.jsonl", scored(80, 1)),
    )
    summary = finetune(tiny.config(start, train, tmp_path / "run", task="embed", dev=str(dev), epochs=5))
    assert summary["main_metric"] == "spearman"
    assert summary["dev"]["spearman"] > 0.8
    assert summary["tuned"] == {"score_range": [0.0, 10.0]}
    again = evaluate(EvaluateConfig(model=str(tmp_path / "run" / "model"), data=str(dev)))
    assert again["metrics"] == pytest.approx(summary["dev"])
    assert again["loss"] == pytest.approx(summary["seeds"][0]["dev_loss"])


def test_pairs_are_chosen_by_scores_where_dev_has_them(start: Path, tmp_path: Path) -> None:
    train, dev = write_json(tmp_path / "a.jsonl", pairs(64)), write_json(tmp_path / "b.jsonl", scored(40))
    config = tiny.config(
        start, train, tmp_path / "run", task="embed", dev=str(dev), epochs=1, pooling="cls", temperature=0.1,
        reinit_layers=1, layer_rate_decay=0.9, optimizer=OptimizerConfig(learning_rate=1e-3),
    )  # fmt: skip
    summary = finetune(config)
    assert set(summary["dev"]) == {"spearman", "pearson"}
    assert summary["settings"]["temperature"] == 0.1
    task = load_bundle(tmp_path / "run" / "model").task or {}
    assert task["settings"] == {"pooling": "cls", "normalize": True, "temperature": 0.1}


def test_training_goes_on_from_an_embedding_model_as_it_pools(start: Path, tmp_path: Path) -> None:
    rows = write_json(tmp_path / "a.jsonl", pairs(40))
    more: dict[str, Any] = {"task": "embed", "epochs": 1}
    finetune(tiny.config(start, rows, tmp_path / "one", pooling="max", normalize=False, **more))
    finetune(tiny.config(tmp_path / "one" / "model", rows, tmp_path / "two", **more))
    task = load_bundle(tmp_path / "two" / "model").task or {}
    assert task["settings"] == {"pooling": "max", "normalize": False, "temperature": None}
    resolved = yaml.safe_load((tmp_path / "two" / "config.yaml").read_text())
    assert (resolved["pooling"], resolved["normalize"]) == ("max", False)


def test_the_report_shows_what_was_not_found(retrieval: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    path, _ = retrieval
    lines = [json.loads(line) for line in (path / "run" / "predictions-dev.jsonl").read_text().splitlines()]
    judged, lost = judge("embedding", lines)
    assert (len(judged), lost) == (60, 0)
    assert [row.right for row in judged] == [line["rank"] == 1 for line in lines]
    report(ReportConfig(runs=[str(path / "run")], out=str(tmp_path / "report.html")))
    page = (tmp_path / "report.html").read_text()
    assert "dev ndcg_at_10" in page
    wrong = worst(judged, 99)
    assert wrong == sorted(wrong, key=lambda row: -row.badness)
    assert not wrong or f"of {len(wrong)} errors" in page
    scored_line = {"line": 1, "gold": 4.0, "cosine": 0.25, "meant": 0.75, "texts": ["a", "b"]}
    (row,), _ = judge("embedding", [scored_line])
    assert (row.gold, row.predicted, row.right, row.badness) == ("4", "0.25", None, 0.5)


def test_doctor_reads_rows_to_embed(start: Path, tmp_path: Path) -> None:
    long = {"anchor": "so " * 70, "positive": "bad " * 20}
    rows = [*pairs(150), *[long] * 9, *[{"anchor": "so", "positive": ""}] * 9]
    config = DoctorConfig(
        data=str(write_json(tmp_path / "a.jsonl", rows)), task="embed", vocab=str(start), seq_len=64
    )
    found = doctor(config)
    found_by_name = {finding["name"]: finding["count"] for finding in found["findings"]}
    assert found_by_name["long_rows"] == 9
    assert found_by_name["missing_values"] == 9
    assert found["lengths"]["longest"] == 72
    assert not found_by_name.keys() & {"rare_labels", "lopsided_labels", "label_typos"}
    contradicting = [{"text1": "a", "text2": "b", "score": 1}, {"text1": "a", "text2": "b", "score": 2}]
    config = DoctorConfig(data=str(write_json(tmp_path / "b.jsonl", contradicting)), task="embed")
    assert "contradicting_rows" in {finding["name"] for finding in doctor(config)["findings"]}


def test_what_teaches_nothing_or_means_nothing_is_refused_before_the_first_step(
    start: Path, tmp_path: Path
) -> None:
    rows = write_json(tmp_path / "a.jsonl", pairs(40))
    for grid in ({"batch_size": 1}, {"batch_size": 64, "grid": ["batch-size=8,1"]}):
        with pytest.raises(InputError, match=r"--batch-size 1: the rows of .*a\.jsonl have no negatives"):
            finetune(tiny.config(start, rows, tmp_path / "run", **({"task": "embed"} | grid)))
    architecture = dataclasses.replace(tiny.SHAPE, context="left")
    save_bundle(
        tmp_path / "left", BertForPreTraining(architecture), load_bundle(start).tokenizer, None, "card"
    )
    with pytest.raises(InputError, match="in a left-to-right model"):
        finetune(tiny.config(tmp_path / "left", rows, tmp_path / "run", task="embed", pooling="cls"))
    assert not (tmp_path / "run").exists()
    negatives = [row | {"negative": "bad"} for row in pairs(8)]
    rows = write_json(tmp_path / "b.jsonl", negatives)
    finetune(tiny.config(start, rows, tmp_path / "run", task="embed", batch_size=1, epochs=1))


def test_settings_of_other_tasks_are_refused(start: Path, tmp_path: Path) -> None:
    rows = write_json(tmp_path / "a.jsonl", pairs(40))
    with pytest.raises(InputError, match="--class-weights balanced would be ignored"):
        finetune(tiny.config(start, rows, tmp_path / "run", task="embed", class_weights="balanced"))
    with pytest.raises(InputError, match="--pooling cls would be ignored: it is for embed, not for classify"):
        finetune(tiny.config(start, rows, tmp_path / "run", pooling="cls"))
    with pytest.raises(InputError, match="truncation windows does not fit embed"):
        finetune(tiny.config(start, rows, tmp_path / "run", task="embed", truncation="windows"))
