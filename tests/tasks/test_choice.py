"""Choices: a softmax over the row's own, however many; heads that transformers loads."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from bertsmith.bundle import load_bundle, save_bundle
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForChoice
from bertsmith.model.config import BertConfig
from bertsmith.objectives import ChoiceObjective
from bertsmith.tasks.choice import CHOICE, encode_choices
from bertsmith.tasks.choice_rows import ChoiceRow
from bertsmith.tasks.inference import inference_settings
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.task import TASKS
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from tests.recipes.tiny import SHAPE, VOCABULARY

TOKENIZER = Tokenizer(VOCABULARY, TokenizerConfig())
ROWS = [
    ChoiceRow("so worda", ("good", "bad wordb wordc", "fine fine"), 2, 1),
    ChoiceRow("good", ("poor", "so"), 0, 2),
    ChoiceRow("wordd worde wordf wordg", ("fine", "bad", "poor", "good", "so"), 4, 3),
]


def split(seq_len: int = 32, truncation: str = "tail", rows: list[ChoiceRow] = ROWS):
    return encode_choices(RowSet(rows, "a.jsonl"), Encoding(TOKENIZER, seq_len, truncation))


def model(shape: BertConfig = SHAPE) -> BertForChoice:
    torch.manual_seed(0)
    return BertForChoice(shape).eval()


def alone(net: BertForChoice, row: ChoiceRow) -> torch.Tensor:
    """The scores of a row's choices, each computed by itself."""
    scores = []
    for number in range(len(row.choices)):
        one = ChoiceRow(row.context, row.choices[number : number + 1] * 2, 0, 1)
        with torch.no_grad():
            scores.append(net(split(rows=[one]).batch([0]).tokens)[0, 0])
    return torch.stack(scores)


def test_the_loss_is_cross_entropy_over_each_rows_own_choices() -> None:
    net, batch = model(), split().batch([2, 0, 1])
    assert batch.places.shape == (3, 5)
    losses, monitors = ChoiceObjective().sums(net, batch)
    scores = [alone(net, ROWS[row]) for row in (2, 0, 1)]
    expected = sum(
        float(functional.cross_entropy(found, torch.tensor(ROWS[row].label)))
        for found, row in zip(scores, (2, 0, 1), strict=True)
    )
    assert losses["loss"].item() == pytest.approx(expected, abs=1e-5)
    right = sum(int(found.argmax()) == ROWS[row].label for found, row in zip(scores, (2, 0, 1), strict=True))
    assert int(monitors["accuracy"]) == right
    assert ChoiceObjective().counts(batch) == {"loss": 3, "accuracy": 3}


def test_choices_a_row_does_not_have_get_no_gradient() -> None:
    net, batch = model(), split().batch([0, 1, 2])
    loss = ChoiceObjective().sums(net, batch)[0]["loss"]
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(torch.isfinite(part.grad).all() for part in net.parameters() if part.grad is not None)
    parts = [ChoiceObjective().sums(net, split().batch([row]))[0]["loss"] for row in range(3)]
    assert sum(part.item() for part in parts) == pytest.approx(loss.item(), abs=1e-5)


def test_answers_and_scores_are_those_of_single_rows() -> None:
    net, whole = model(), split()
    outputs = CHOICE.outputs(net, whole, inference_settings("float32", 20))
    answers = CHOICE.answers(whole, outputs, None, {})
    for answer, row in zip(answers, ROWS, strict=True):
        shares = torch.softmax(alone(net, row), dim=0).tolist()
        assert answer["probabilities"] == pytest.approx(shares, abs=1e-5)
        assert answer["choice"] == int(np.argmax(shares))
        assert answer["text"] == row.choices[answer["choice"]]
        assert answer["probability"] == max(answer["probabilities"])
    found = CHOICE.score(TASKS["choose"], whole, outputs, {})
    right = [answer["choice"] == row.label for answer, row in zip(answers, ROWS, strict=True)]
    assert found.metrics == {"accuracy": pytest.approx(np.mean(right))}
    losses = [-np.log(answer["probabilities"][row.label]) for answer, row in zip(answers, ROWS, strict=True)]
    assert found.loss == pytest.approx(np.mean(losses), abs=1e-5)


def test_a_run_has_to_beat_the_most_frequent_place_and_is_compared_row_by_row() -> None:
    labels = [2, 0, 4, 0, 0]
    whole = split(rows=[dataclasses.replace(ROWS[2], label=label) for label in labels])
    assert CHOICE.baseline(TASKS["choose"], whole) == 0.6
    answers = [{"choice": choice} for choice in (2, 1, 4, 0, 1)]
    sample = CHOICE.sample("accuracy", whole.gold_objects, answers, None)
    assert sample is not None
    assert sample.metric(sample.gold, sample.predicted) == 0.6
    assert sample.gold.dtype.kind == "i"


def test_what_is_cut_is_said_of_the_row_and_error_names_its_line() -> None:
    long = ChoiceRow("good", ("bad", "so " * 40, "fine"), 0, 7)
    cut = split(16, rows=[ROWS[1], long])
    assert cut.truncated == [False, True]
    with pytest.raises(InputError, match=r"a\.jsonl, line 7: has 44 pieces, more than seq-len 16"):
        split(16, "error", rows=[ROWS[1], long])


@pytest.mark.parametrize("family", ["bert", "roberta", "pre-LN"])
def test_transformers_computes_the_same_scores(tmp_path: Path, family: str) -> None:
    transformers = pytest.importorskip("transformers")
    changes = {"bert": {}, "roberta": {"family": "roberta", "num_segments": 1}, "pre-LN": {"norm": "pre"}}
    net = model(BertConfig(**(vars(SHAPE) | changes[family])))
    task = {"task": "choose", "head": "choice", "labels": None, "seq_len": 32}
    save_bundle(tmp_path / "model", net, TOKENIZER, task, "card")
    theirs, notes = transformers.AutoModelForMultipleChoice.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not any(notes.get(name) for name in ("missing_keys", "mismatched_keys"))
    assert type(theirs).__name__.endswith("ForMultipleChoice")
    row = ROWS[2]
    encoded = split(rows=[row])
    length = max(len(part.ids) for part in encoded.encoded)
    pad = theirs.config.pad_token_id
    ids = torch.full((1, len(row.choices), length), pad)
    mask, segments = torch.zeros_like(ids), torch.zeros_like(ids)
    for number, part in enumerate(encoded.encoded):
        ids[0, number, : len(part.ids)] = torch.from_numpy(part.ids)
        mask[0, number, : len(part.ids)] = 1
        segments[0, number, part.second_start : len(part.ids)] = 1
    more = {} if family == "roberta" else {"token_type_ids": segments}
    if family != "bert":
        places = torch.arange(length).expand_as(ids[0]) + pad + 1
        more["position_ids"] = torch.where(mask[0] > 0, places, pad)[None]
    with torch.no_grad():
        logits = theirs.eval()(input_ids=ids, attention_mask=mask, **more).logits[0]
    expected = CHOICE.outputs(net, encoded, inference_settings("float32", 4096))[:, 0]
    assert logits.numpy() == pytest.approx(expected, abs=1e-5)
    again = CHOICE.load_model(load_bundle(tmp_path / "model"), None)
    assert (
        CHOICE.outputs(again, encoded, inference_settings("float32", 4096))[:, 0].tolist()
        == expected.tolist()
    )


def test_a_directory_of_transformers_is_a_choice(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    net = model()
    save_bundle(tmp_path / "ours", net, TOKENIZER, {"task": "choose", "head": "choice", "labels": None}, "")
    theirs = transformers.BertForMultipleChoice.from_pretrained(tmp_path / "ours")
    theirs.save_pretrained(tmp_path / "theirs")
    TOKENIZER.save(tmp_path / "theirs")
    bundle = load_bundle(tmp_path / "theirs")
    assert bundle.task == {"task": "choose", "head": "choice", "labels": None}
    again = CHOICE.load_model(bundle, None)
    inference = inference_settings("float32", 4096)
    first, second = (CHOICE.outputs(each, split(), inference) for each in (net, again))
    assert np.array(first) == pytest.approx(np.array(second), abs=1e-6)
