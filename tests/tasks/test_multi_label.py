"""Several labels a row: losses, weights, thresholds; heads that transformers loads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith import metrics
from bertsmith.bundle import load_bundle, save_bundle
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForClassification
from bertsmith.objectives import MultiLabelObjective
from bertsmith.tasks.classification import CLASSIFICATION, LabelledRows
from bertsmith.tasks.inference import inference_settings
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.multi_label import MULTI_LABEL
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.task import TASKS
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from tests.recipes.tiny import SHAPE, VOCABULARY

TOKENIZER = Tokenizer(VOCABULARY, TokenizerConfig())
LABELS = ("10", "9", "a")
TASK = TASKS["multilabel"]


def rows(*labels: tuple[str, ...]) -> RowSet[Row]:
    texts = ["good so", "bad " * 30, "worda", "poor fine good", "so"]
    return RowSet([Row((texts[n % 5], None), label, n + 2) for n, label in enumerate(labels)], "a.jsonl")


def split(*labels: tuple[str, ...], truncation: str = "windows", **settings: str) -> LabelledRows:
    found = MULTI_LABEL.encode(TASK, rows(*labels), LABELS, Encoding(TOKENIZER, 12, truncation, settings))
    assert isinstance(found, LabelledRows)
    return found


GIVEN = [("9", "a"), ("10", "9", "a"), (), ("9",), ("a",)]


def model(outputs: int = 3) -> BertForClassification:
    torch.manual_seed(0)
    return BertForClassification(SHAPE, outputs).eval()


def test_labels_are_those_of_all_rows_in_order() -> None:
    assert MULTI_LABEL.labels(TASK, rows(("b", "a"), (), ("b", "c"))) == ("a", "b", "c")
    assert MULTI_LABEL.labels(TASK, rows(("10", "9"), ("9",))) == ("9", "10")
    assert MULTI_LABEL.labels(TASK, rows(("only",), ())) == ("only",)
    with pytest.raises(InputError, match="no row has a label"):
        MULTI_LABEL.labels(TASK, rows((), ()))


def test_c031_labels_are_numbered_as_stored_and_an_unseen_one_is_named() -> None:
    table = split(*GIVEN).gold
    assert table.tolist() == [[0, 1, 1], [1, 1, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]]
    with pytest.raises(
        InputError, match=r"a\.jsonl, line 3: label 'mixed' is unknown to the model \(it knows 10"
    ):
        split((), ("a", "mixed"))


def test_the_loss_is_that_of_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    task = {"task": "multilabel", "head": "multi-label", "labels": list(LABELS), "seq_len": 12}
    save_bundle(tmp_path / "model", model(), TOKENIZER, task, "card")
    stored = json.loads((tmp_path / "model" / "config.json").read_text())
    assert stored["problem_type"] == "multi_label_classification"
    assert stored["id2label"] == {"0": "10", "1": "9", "2": "a"}
    theirs = transformers.BertForSequenceClassification.from_pretrained(tmp_path / "model").eval()
    data = split(*GIVEN, truncation="tail")
    total = 0.0
    for number in range(len(GIVEN)):
        batch = data.batch([number])
        with torch.no_grad():
            found = theirs(
                input_ids=batch.tokens.input_ids[None],
                token_type_ids=batch.tokens.segment_ids[None],
                labels=batch.labels.float(),
            )
        total += float(found.loss) / len(GIVEN)
    batch = data.batch(range(len(GIVEN)))
    objective = MultiLabelObjective()
    loss = objective.sums(model(), batch)[0]["loss"] / objective.counts(batch)["loss"]
    assert loss.item() == pytest.approx(total, abs=1e-6)
    outputs = MULTI_LABEL.outputs(model(), data, inference_settings("float32", 4096))
    assert MULTI_LABEL.score(TASK, data, outputs, {}).loss == pytest.approx(total, abs=1e-6)
    again = load_bundle(tmp_path / "model")
    (tmp_path / "model" / "task.json").unlink()
    read = load_bundle(tmp_path / "model").task
    assert read == {"task": "multilabel", "head": "multi-label", "labels": list(LABELS)}
    assert again.task == task


def test_balanced_weights_give_both_sides_of_each_label_the_same_weight() -> None:
    data = split(*GIVEN, ("9", "a"), ("9",), truncation="tail", class_weights="balanced")
    weights = data.weights
    assert weights is not None
    for column, gold in zip(weights.T, data.gold.T, strict=True):
        assert column.mean() == pytest.approx(1.0)
        assert column[gold == 1].sum() == pytest.approx(column[gold == 0].sum())
    always = split(("a",), ("a", "9"), class_weights="balanced")
    assert always.gold_weights is not None
    assert always.gold_weights[:, 2].tolist() == [1.0, 1.0], "a label that every row has"


def test_balanced_weights_of_classes_are_scikit_learns() -> None:
    compute = pytest.importorskip("sklearn.utils.class_weight").compute_class_weight
    found = [Row(("so", None), label, n) for n, label in enumerate("aaaaabbbc")]
    encoding = Encoding(TOKENIZER, 12, "tail", {"class_weights": "balanced"})
    train = CLASSIFICATION.encode(TASKS["classify"], RowSet(found, "a.csv"), ("a", "b", "c"), encoding)
    assert isinstance(train, LabelledRows)
    expected = compute("balanced", classes=np.arange(3), y=train.gold)
    assert train.weights == pytest.approx(expected[train.gold])
    batch = train.batch(range(9))
    assert batch.weights is not None
    assert batch.weights.tolist() == pytest.approx(expected[train.gold[batch.rows]].tolist())


def test_windows_of_a_row_weigh_as_much_as_one_short_row() -> None:
    data = split(*GIVEN)
    assert data.inputs.owners.tolist().count(1) > 2
    assert data.weights is not None
    sums = [data.weights[data.inputs.owners == row].sum(axis=0) for row in range(5)]
    assert np.array(sums) == pytest.approx(np.full((5, 3), sums[0][0]))
    assert data.targets.tolist() == data.gold[data.inputs.owners].tolist()


def test_thresholds_are_tuned_stored_used_and_measured_beside_a_half() -> None:
    data = split(*GIVEN)
    outputs = MULTI_LABEL.outputs(model(), data, inference_settings("float32", 4096))
    tuned = MULTI_LABEL.tune(TASK, data, outputs)
    found = MULTI_LABEL.score(TASK, data, outputs, tuned).metrics
    plain = MULTI_LABEL.score(TASK, data, outputs, {}).metrics
    assert found["macro_f1"] > plain["macro_f1"] == plain["macro_f1_at_half"] == found["macro_f1_at_half"]
    for answer, gold in zip(MULTI_LABEL.answers(data, outputs, LABELS, tuned), data.gold, strict=True):
        shares = list(answer["probabilities"].values())
        assert list(answer["probabilities"]) == list(LABELS)
        given = [share >= threshold for share, threshold in zip(shares, tuned["thresholds"], strict=True)]
        assert answer["labels"] == [label for label, is_given in zip(LABELS, given, strict=True) if is_given]
        assert len(gold) == len(shares)
    rows_of = data.inputs.of_rows(np.asarray(outputs))
    assert shares == pytest.approx((1 / (1 + np.exp(-rows_of[-1].astype(float)))).tolist())


def test_a_run_has_to_beat_the_best_labels_for_all_rows() -> None:
    data = split(*GIVEN, ("9",))
    tried = [data.gold * 0 + np.array(labels) for labels in np.ndindex(2, 2, 2)]
    best = max(metrics.micro_f1(data.gold, given) for given in tried)
    assert MULTI_LABEL.baseline(TASK, data) == pytest.approx(best)


def test_runs_are_compared_row_by_row() -> None:
    gold, given = [list(labels) for labels in GIVEN], [["a"], ["9", "10"], [], ["a"], ["a", "9"]]
    sample = MULTI_LABEL.sample("micro_f1", gold, [{"labels": labels} for labels in given], LABELS)
    assert sample is not None
    assert sample.metric(sample.gold, sample.predicted) == pytest.approx(2 * 4 / (7 + 6))
    assert sample.gold.shape == (5, 3)


def test_a_wrong_number_of_thresholds_is_refused(tmp_path: Path) -> None:
    task = {"task": "multilabel", "head": "multi-label", "labels": list(LABELS)}
    save_bundle(tmp_path / "model", model(), TOKENIZER, task, "card")
    edited = task | {"tuned": {"thresholds": [0.5]}}
    (tmp_path / "model" / "task.json").write_text(json.dumps(edited))
    with pytest.raises(InputError, match="1 thresholds; expected 3, one for each label"):
        load_bundle(tmp_path / "model")
