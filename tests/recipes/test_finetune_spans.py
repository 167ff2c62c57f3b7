"""Questions on passages from file to model to answers, and as other programs read the model."""

from __future__ import annotations

import dataclasses
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith.bundle import save_bundle
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForPreTraining
from bertsmith.recipes.compare import compare_runs
from bertsmith.recipes.config import EvaluateConfig, FinetuneConfig, PredictConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.predict import predict
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.recipes import tiny

CITIES = ["oslo", "bergen", "rome", "paris"]
THINGS = ["red", "green", "big", "old", "cold", "warm", "wet", "dry"]
VOCABULARY = [*SPECIAL_TOKENS, *CITIES, *THINGS, *["is", "the", "capital", "where", "how", "what", ".", "?"]]
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    shape = dataclasses.replace(
        tiny.SHAPE, vocab_size=len(VOCABULARY), hidden_dropout=0.0, attention_dropout=0.0
    )
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("model") / "start"
    save_bundle(path, BertForPreTraining(shape), Tokenizer(VOCABULARY, TokenizerConfig()), None, "card")
    return path


def make_rows(number: int, seed: int, unanswerable: float = 0.0, words: int = 12) -> Rows:
    """Passages of things with one city; the question is where. Without a city there is no answer."""
    draw = random.Random(seed)
    rows = []
    for index in range(number):
        tokens = [draw.choice(THINGS) for _ in range(draw.randint(1, words))]
        city = None if draw.random() < unanswerable else draw.choice(CITIES).title()
        place = draw.randint(0, len(tokens))
        if city is not None:
            tokens.insert(place, city)
        passage = "  ".join(tokens) + "."
        answers = [] if city is None else [{"text": city, "answer_start": passage.index(city)}]
        rows.append({"id": f"q{index}", "question": "Where?", "context": passage, "answers": answers})
    return rows


def write(path: Path, rows: Rows) -> Path:
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return path


def config(model: Path, data: Path, out: Path, **settings: Any) -> FinetuneConfig:
    values = {"task": "answer", "max_query_len": 8, "window_step": 4} | settings
    return tiny.config(model, data, out, **values)


@pytest.fixture(scope="module")
def trained(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on questions of which a third has no answer, over several windows each."""
    home = tmp_path_factory.mktemp("spans")
    train = write(home / "train.jsonl", make_rows(160, 1, unanswerable=0.3))
    dev = write(home / "dev.jsonl", make_rows(60, 2, unanswerable=0.3))
    finetune(config(model, train, home / "run", dev=str(dev), seq_len=16, epochs=6))
    return home


def lines_of(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def metrics_of(home: Path) -> dict[str, Any]:
    return json.loads((home / "run" / "metrics.json").read_text())


def test_a_run_learns_and_says_so(trained: Path) -> None:
    summary = metrics_of(trained)
    assert summary["dev"]["f1"] > 0.9
    assert summary["dev"]["no_answer_f1"] > 0.8
    assert summary["dev"]["f1"] == pytest.approx(summary["dev"]["best_f1"]), "the threshold is tuned on dev"
    assert summary["truncated_rows"] == 0
    assert summary["settings"]["window_step"] == 4
    assert summary["counts"]["dev"]["mismatched_answers"] == 0
    task = json.loads((trained / "run" / "model" / "task.json").read_text())
    assert task["head"] == "spans"
    assert task["settings"]["max_query_len"] == 8
    assert isinstance(task["tuned"]["null_threshold"], float)


def test_predictions_are_exact_characters_and_give_the_reported_scores(trained: Path) -> None:
    rows = {row["id"]: row for row in make_rows(60, 2, unanswerable=0.3)}
    right = []
    lines = lines_of(trained / "run" / "predictions-dev.jsonl")
    assert [line["id"] for line in lines] == list(rows), "every question, in order"
    threshold = json.loads((trained / "run" / "model" / "task.json").read_text())["tuned"]["null_threshold"]
    for line in lines:
        passage = rows[line["id"]]["context"]
        assert passage[line["start"] : line["end"]] == line["text"]
        assert all(passage[c["start"] : c["end"]] == c["text"] for c in line["candidates"])
        assert (line["text"] == "") == (line["null_odds"] > threshold)
        assert sum(c["probability"] for c in line["candidates"]) == pytest.approx(1.0)
        right.append(line["text"] == (line["gold"] or [""])[0])
        assert line["exact_match"] == right[-1]
    dev = metrics_of(trained)["dev"]
    assert np.mean(right) == pytest.approx(dev["exact_match"])
    assert np.mean([line["f1"] for line in lines]) == pytest.approx(dev["f1"])


def test_runs_are_compared_question_by_question(trained: Path) -> None:
    result = compare_runs(str(trained / "run"), str(trained / "run"))
    assert result["rows"] == 60
    assert result["runs"][0]["value"] == pytest.approx(metrics_of(trained)["dev"]["f1"])
    low, high = (result["runs"][0]["interval"][end] for end in ("low", "high"))
    assert low <= result["runs"][0]["value"] <= high
    assert result["difference"] == 0.0


def test_evaluate_gives_the_scores_of_the_run(trained: Path) -> None:
    paths = str(trained / "run" / "model"), str(trained / "dev.jsonl")
    found = evaluate(EvaluateConfig(*paths))
    assert found["metrics"] == pytest.approx(metrics_of(trained)["dev"], abs=1e-4)
    assert found["examples"] == 60
    squad2 = evaluate(EvaluateConfig(*paths, task="squad2", batch_tokens=64))["metrics"]
    squad1 = evaluate(EvaluateConfig(*paths, task="squad1"))["metrics"]
    assert squad2 == pytest.approx(found["metrics"], abs=1e-4), "the same rules for such answers"
    answered = np.mean([bool(row["answers"]) for row in make_rows(60, 2, 0.3)])
    assert squad1["exact_match"] <= answered, "where nothing can be right, nothing is"
    assert squad1["exact_match"] > 0.8 * answered


def test_the_predictor_answers_alike_alone_and_in_company(trained: Path) -> None:
    predictor = bertsmith.load(trained / "run" / "model")
    rows = make_rows(20, 3, unanswerable=0.3)
    pairs = [(row["question"], row["context"]) for row in rows]
    together = predictor.answer(pairs)
    for pair, row, answer in zip(pairs, rows, together, strict=True):
        (alone,) = predictor.answer([pair])
        assert (alone.text, alone.start, alone.end) == (answer.text, answer.start, answer.end)
        assert alone.probability == pytest.approx(answer.probability, abs=1e-5)
        assert row["context"][answer.start : answer.end] == answer.text
    assert (
        np.mean(
            [
                a.text == (r["answers"] or [{"text": ""}])[0]["text"]
                for a, r in zip(together, rows, strict=False)
            ]
        )
        > 0.8
    )
    assert predictor.answer([]) == []
    empty, odd = predictor.answer([("Where?", ""), ("", "\ud800 \u0000 Oslo")])
    assert (empty.text, empty.start, empty.end) == ("", 0, 0)
    assert odd.candidates
    (long,) = predictor.answer([("where " * 20, "Oslo is cold.")])
    assert long.truncated
    with pytest.raises(InputError, match="text number 0 is a single text"):
        predictor.answer(["Where?"])
    with pytest.raises(InputError, match=r"cannot classify.*it can answer, embed"):
        predictor.classify(["x"])


def test_a_long_passage_is_read_to_its_end(trained: Path) -> None:
    passage = " ".join(["cold wet red"] * 200) + " Oslo. " + " ".join(["dry"] * 300)
    (answer,) = bertsmith.load(trained / "run" / "model").answer([("Where?", passage)])
    assert passage[answer.start : answer.end] == answer.candidates[0].text
    assert "Oslo" in [candidate.text for candidate in answer.candidates[:3]]
    assert not answer.truncated


def test_predict_keeps_every_row(trained: Path, tmp_path: Path) -> None:
    rows: Rows = [
        {"question": "Where?", "context": "Cold Oslo."},
        {"id": "b", "question": "Where?"},
        {"id": 7, "context": "Rome is dry.", "question": "Where?", "answers": [{"text": "Rome"}]},
    ]
    data = write(tmp_path / "in.jsonl", rows)
    counts = predict(PredictConfig(str(trained / "run" / "model"), str(data), str(tmp_path / "out.jsonl")))
    lines = lines_of(tmp_path / "out.jsonl")
    assert [(line["row"], line["id"]) for line in lines] == [(0, "1"), (1, "b"), (2, "7")]
    assert lines[1]["error"] == "question 2: no context"
    assert lines[2]["text"] == "Rome"
    assert counts["rows"] == 3
    assert counts["rows_without_text"] == 1
    with pytest.raises(InputError, match="--text x would be ignored"):
        predict(PredictConfig(str(trained / "run" / "model"), str(data), "-", text="x"))
    with pytest.raises(InputError, match="read from a file"):
        predict(PredictConfig(str(trained / "run" / "model"), "-", "-"))


def test_transformers_loads_the_model_with_equal_scores(trained: Path) -> None:
    transformers = pytest.importorskip("transformers")
    path = trained / "run" / "model"
    peer, report = transformers.BertForQuestionAnswering.from_pretrained(path, output_loading_info=True)
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert transformers.AutoModelForQuestionAnswering.from_pretrained(path).config.architectures == [
        "BertForQuestionAnswering"
    ]
    inputs = transformers.AutoTokenizer.from_pretrained(path)(
        "Where?", "Cold Oslo is wet.", return_tensors="pt", return_offsets_mapping=True
    )
    offsets = inputs.pop("offset_mapping")[0].tolist()
    with torch.no_grad():
        scores = peer.eval()(**inputs)
    (answer,) = bertsmith.load(path).answer([("Where?", "Cold Oslo is wet.")])
    first = int(inputs["token_type_ids"][0].argmax())
    starts, ends = scores.start_logits[0], scores.end_logits[0]
    best = max(
        (float(starts[i] + ends[j]), offsets[i][0], offsets[j][1])
        for i in range(first, len(offsets) - 1)
        for j in range(i, len(offsets) - 1)
    )
    found = answer.candidates[0] if answer.text else answer.candidates[1]
    assert (found.start, found.end) == best[1:]
    assert answer.null_odds == pytest.approx(float(starts[0] + ends[0]) - best[0], abs=1e-4)


def test_a_model_of_another_tool_answers(trained: Path, tmp_path: Path) -> None:
    """Without task.json: config.json and weights say what the model is."""
    shutil.copytree(trained / "run" / "model", tmp_path / "foreign")
    (tmp_path / "foreign" / "task.json").unlink()
    task = bertsmith.load(tmp_path / "foreign").bundle.task
    settings = {"max_query_len": 16}
    assert task == {"task": "answer", "head": "spans", "labels": None, "seq_len": 64, "settings": settings}
    pair = ("Where?", "Cold Oslo is wet.")
    foreign, own = (
        bertsmith.load(path).answer([pair])[0] for path in (tmp_path / "foreign", trained / "run/model")
    )
    assert foreign.text == (own.text or own.candidates[1].text), "a threshold is not known: it always answers"
    assert foreign.null_odds == pytest.approx(own.null_odds, abs=1e-5)


def test_c039_first_and_last_piece_are_learnt(model: Path, tmp_path: Path) -> None:
    passages = [("Oslo is the capital", 0), ("The capital is Oslo", 15), ("Oslo", 0)]
    rows: Rows = [
        {"question": "what?", "context": text, "answers": [{"text": "Oslo", "answer_start": start}]}
        for text, start in passages
    ]
    data = write(tmp_path / "three.jsonl", rows)
    out = tmp_path / "run"
    summary = finetune(config(model, data, out, task="squad1", dev=str(data), epochs=40))
    assert summary["dev"]["exact_match"] == 1.0
    answers = bertsmith.load(out / "model").answer([("what?", text) for text, _ in passages])
    assert [(answer.text, answer.start) for answer in answers] == [("Oslo", start) for _, start in passages]


def test_c037_mismatching_answers_are_counted_and_no_question_is_dropped(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = make_rows(20, 5)
    rows[3]["answers"] = [{"text": "Nowhere", "answer_start": 0}]
    rows[4]["answers"][0]["answer_start"] += 1
    data = write(tmp_path / "train.jsonl", rows)
    summary = finetune(config(model, data, tmp_path / "run", task="squad1", dev=str(data), epochs=1))
    assert "2 of 20 answers do not match the context: q3 (found nowhere), q4 (found at" in caplog.text
    assert summary["counts"]["train"]["mismatched_answers"] == 2
    assert summary["counts"]["train"]["answers_found_nowhere"] == 1
    assert len((tmp_path / "run" / "predictions-dev.jsonl").read_text().splitlines()) == 20
    for row in rows:
        row["answers"] = [{"text": "Nowhere", "answer_start": 0}]
    with pytest.raises(InputError, match="no answer stands in its passage"):
        finetune(config(model, write(tmp_path / "no.jsonl", rows), tmp_path / "no", task="squad1"))


def test_dev_passages_are_not_trained_on(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = make_rows(40, 6)
    for index, row in enumerate(rows):
        row |= {key: rows[index - index % 4][key] for key in ("context", "answers")}
    data = write(tmp_path / "train.jsonl", rows)
    summary = finetune(config(model, data, tmp_path / "run", epochs=1, seq_len=14))
    assert summary["dev_rows"] == 4, "all questions on one of ten passages"
    assert summary["train_rows"] == 36
    assert "36 questions become" in caplog.text


def test_settings_of_other_tasks_are_refused(model: Path, tmp_path: Path) -> None:
    csv = tiny.write_csv(tmp_path / "rows.csv", tiny.make_rows(20))
    with pytest.raises(InputError, match=r"--window-step 4 would be ignored: .* squad1.*not for classify"):
        finetune(tiny.config(model, csv, tmp_path / "run", window_step=4))
    data = write(tmp_path / "train.jsonl", make_rows(5, 1))
    with pytest.raises(InputError, match="--text x would be ignored"):
        finetune(config(model, data, tmp_path / "run", text="x"))
    with pytest.raises(InputError, match="max-query-len is 64, but seq-len 16"):
        finetune(config(model, data, tmp_path / "run", max_query_len=None, seq_len=16))
    assert not (tmp_path / "run").exists(), "nothing half written"


def test_edited_settings_of_a_model_are_refused(trained: Path, tmp_path: Path) -> None:
    path = tmp_path / "edited"
    shutil.copytree(trained / "run" / "model", path)
    task = json.loads((path / "task.json").read_text())
    for change, message in (
        ({"settings": {"n_best": "x"}}, "n_best is 'x'"),
        ({"settings": {"size": 3}}, "size is 3"),
        ({"tuned": {"null_threshold": "x"}}, "null_threshold is 'x'"),
    ):
        (path / "task.json").write_text(json.dumps(task | change))
        with pytest.raises(InputError, match=message):
            bertsmith.load(path).answer([("Where?", "Oslo")])
