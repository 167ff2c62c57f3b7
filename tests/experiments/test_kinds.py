"""Every kind of task has a report that fits it: runs of a second, their errors counted a second way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sklearn.metrics import precision_recall_fscore_support

from bertsmith.experiments.judged import item_scores, judge, worst
from bertsmith.experiments.report import report
from bertsmith.recipes.config import ReportConfig
from bertsmith.recipes.finetune import finetune
from tests.recipes import tiny
from tests.recipes.test_own_tasks import chosen, labelled, write_json

Lines = list[dict[str, Any]]


def tagged(number: int) -> Lines:
    """Texts of which the signs are entities."""
    rows = []
    for text, label in tiny.make_rows(number):
        words, spans, start = text.split(), [], 0
        for word in words:
            if word in tiny.SIGNS[label]:
                spans.append([start, start + len(word), label.upper()])
            start += len(word) + 1
        rows.append({"text": text, "spans": spans})
    return rows


def asked(number: int) -> Lines:
    """Questions for the sign in a text; every fifth has no answer."""
    rows = []
    for index, (text, label) in enumerate(tiny.make_rows(number)):
        sign = next(word for word in text.split() if word in tiny.SIGNS[label])
        answers = [{"text": sign, "answer_start": text.index(sign)}] if index % 5 else []
        passage = text if answers else text.replace(sign, "wordp")
        rows.append({"id": str(index), "question": "so", "context": passage, "answers": answers})
    return rows


ROWS = {"multilabel": labelled, "choose": chosen, "tag": tagged, "answer": asked}


@pytest.fixture(scope="module", params=list(ROWS))
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    data = write_json(folder / "rows.jsonl", ROWS[request.param](150))
    model = tiny.save_model(folder / "start")
    settings = {"max_query_len": 8, "window_step": 8} if request.param == "answer" else {}
    finetune(tiny.config(model, data, folder / "run", task=request.param, epochs=2, **settings))
    return folder / "run"


def test_its_report_and_its_card_are_whole(run: Path, tmp_path: Path) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    lines = [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]
    assert all(line["texts"] and isinstance(line["texts"][0], str) for line in lines)
    judged, lost = judge(metrics["kind"], lines)
    assert (len(judged), lost) == (15, 0)
    out = tmp_path / "report.html"
    report(ReportConfig(runs=[str(run)], out=str(out)))
    page = out.read_text()
    wrong = worst(judged, 99)
    if wrong:
        assert f"The worst {len(wrong)} of {len(wrong)} errors" in page
    assert f"dev {metrics['main_metric']}" in page
    card = (run / "model" / "README.md").read_text()
    assert 'bertsmith.load("MODEL").' in card
    assert metrics["data_sha256"]["train"] in card


def test_what_is_right_is_what_the_metrics_say(run: Path) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    lines = [json.loads(line) for line in (run / "predictions-dev.jsonl").read_text().splitlines()]
    judged, _ = judge(metrics["kind"], lines)
    right = sum(row.right is True for row in judged) / len(judged)
    expected = {"choose": "accuracy", "answer": "exact_match", "multilabel": "subset_accuracy"}
    name = expected.get(metrics["task"])
    if name in metrics["dev"]:
        assert right == pytest.approx(metrics["dev"][name])
    if metrics["task"] == "tag":
        assert right == sum(
            {(one["label"], one["start"], one["end"]) for one in line["gold"]}
            == {(one["label"], one["start"], one["end"]) for one in line["entities"]}
            for line in lines
        ) / len(lines)


def test_scores_of_several_labels_are_those_of_scikit_learn() -> None:
    labels = ["a", "b", "c"]
    pairs = [(["a"], ["a", "b"]), ([], ["c"]), (["b", "a"], ["a"]), (["c"], ["c"]), ([], [])]
    lines = [
        {"gold": gold, "labels": given, "probabilities": dict.fromkeys(labels, 0.5)} for gold, given in pairs
    ]
    judged, lost = judge("multi-label", lines)
    assert lost == 0
    tables = [[[int(name in row[side]) for name in labels] for row in pairs] for side in (0, 1)]
    expected = zip(*precision_recall_fscore_support(*tables, zero_division=0), strict=True)
    for one, (precision, recall, f1, rows) in zip(item_scores(judged), expected, strict=True):
        assert (one.precision, one.recall, one.f1, one.rows) == pytest.approx((precision, recall, f1, rows))
    assert [row.right for row in judged] == [False, False, False, True, True]
    assert judged[0].note == "not there: b"
    assert judged[2].note == "missed: b"


def test_entities_are_right_only_with_label_and_place() -> None:
    entity = {"label": "PER", "start": 0, "end": 3, "text": "Ada"}
    elsewhere = entity | {"start": 9, "end": 12}
    lines = [
        {"gold": [entity], "words": ["Ada"], "tags": ["B-PER"], "entities": [entity | {"probability": 0.9}]},
        {"gold": [entity], "words": ["Ada"], "tags": ["B-LOC"], "entities": [entity | {"label": "LOC"}]},
        {"gold": [entity], "words": [], "tags": [], "entities": [elsewhere]},
    ]
    judged, _ = judge("tagging", lines)
    assert [(row.right, row.badness) for row in judged] == [(True, 0.0), (False, 2.0), (False, 2.0)]
    assert judged[1].note == "missed: PER Ada; not there: LOC Ada"
    scores = {one.name: (one.rows, one.predicted, one.recall) for one in item_scores(judged)}
    assert scores == {"LOC": (0, 1, None), "PER": (3, 2, 1 / 3)}


def test_answers_are_right_by_the_rules_of_the_task() -> None:
    answer = {"id": "1", "probability": 0.8, "null_odds": 0.0, "candidates": []}
    lines = [
        {"gold": ["the Ada"], "text": "Ada.", **answer},
        {"gold": [], "text": "", **answer},
        {"gold": [], "text": "Ada", **answer},
        {"gold": ["Ada Lovelace"], "text": "Ada", **answer},
    ]
    judged, _ = judge("spans", lines)
    assert [row.right for row in judged] == [True, True, False, False]
    assert [row.gold for row in judged][1:3] == ["no answer", "no answer"]
    assert judged[3].note == "80.0% sure; F1 0.67"
    assert [row.predicted for row in worst(judged, 9)] == ["Ada", "Ada"]
    assert worst(judged, 9)[0].gold == "no answer", "shares no word"


def test_a_choice_is_shown_by_its_number() -> None:
    line = {"gold": 2, "choice": 0, "text": "x", "probability": 0.5, "probabilities": [0.5, 0.2, 0.3]}
    judged, _ = judge("choice", [line])
    assert (judged[0].gold, judged[0].predicted, judged[0].note) == (
        "2",
        "0",
        "50.0% sure; 30.0% for the right one",
    )
