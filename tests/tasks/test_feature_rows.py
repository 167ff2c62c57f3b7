"""Rows on a frozen encoder: against a slow reference, alone and in company, from disk and on the fly."""

from __future__ import annotations

import dataclasses
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from bertsmith import predictor
from bertsmith.bundle import Bundle, load_bundle, save_bundle
from bertsmith.errors import InputError
from bertsmith.layout import unpadded
from bertsmith.model.bert import Bert
from bertsmith.model.config import BertConfig
from bertsmith.model.heads import LayerMix
from bertsmith.model.task_heads import FeatureClassifier, PairReading
from bertsmith.objectives import ClassificationObjective
from bertsmith.tasks.encode import encode_rows
from bertsmith.tasks.feature_rows import FEATURE_CLASSIFICATION, FeatureRows, sentences_of
from bertsmith.tasks.frozen_encoder import with_frozen_encoder
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.task import TASKS
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

LABELS = ("no", "yes")
TOKENIZER = Tokenizer([*SPECIAL_TOKENS, "ada", "in", "rome", "new", "##er"], TokenizerConfig())
SHAPE = BertConfig(
    vocab_size=TOKENIZER.vocab_size,
    hidden_size=16,
    num_layers=4,
    num_heads=2,
    intermediate_size=32,
    max_positions=32,
    initializer_std=0.3,
)
INFERENCE = Inference(torch.device("cpu"), torch.float32)
PAIRS = ((1, 1), (3, 7), (9, 2), (4, 4))
"""Lengths of the sentences of each pair."""


def head(pairs: bool, mixing: str = "attention") -> FeatureClassifier:
    torch.manual_seed(0)
    shape = dataclasses.replace(SHAPE, mixing=mixing)
    model = FeatureClassifier(shape, 3, (0, 2, 4), True, 5, pairs).double().eval()
    with torch.no_grad():
        for part in (model.hidden, model.classifier):  # scores of the size of 1
            torch.nn.init.normal_(part.weight)
    return model


def one_way(lstm: torch.nn.LSTM, layer: int, rows: Tensor) -> Tensor:
    """A direction pair of an LSTM's layer over one sentence, a cell at a time."""
    sides = []
    for suffix, order in (("", range(len(rows))), ("_reverse", range(len(rows) - 1, -1, -1))):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        into, back, bias, other = (getattr(lstm, f"{name}_l{layer}{suffix}") for name in names)
        state, cell = torch.zeros(2, lstm.hidden_size, dtype=rows.dtype)
        found: dict[int, Tensor] = {}
        for place in order:
            gates = into @ rows[place] + bias + back @ state + other
            i, f, g, o = gates.chunk(4)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            state = o.sigmoid() * cell.tanh()
            found[place] = state
        sides.append(torch.stack([found[place] for place in range(len(rows))]))
    return torch.cat(sides, dim=1)


def looked_at(own: Tensor, other: Tensor) -> Tensor:
    """Attention as loops over words of dot products."""
    rows = []
    for word in own:
        shares = torch.tensor([float(word @ seen) for seen in other], dtype=own.dtype).exp()
        rows.append(sum(share * seen for share, seen in zip(shares / shares.sum(), other, strict=True)))
    return torch.stack(rows)


def reference(model: FeatureClassifier, sentences: list[Tensor]) -> Tensor:
    """The scores of one row, from the states of its one or two sentences."""
    assert isinstance(model.mix, LayerMix)
    read = []
    for states in sentences:
        shares = model.mix.weights.exp() / model.mix.weights.exp().sum()
        mixed = model.mix.scale * sum(share * states[:, layer] for layer, share in enumerate(shares))
        read.append(one_way(model.lstm, 1, one_way(model.lstm, 0, mixed)))
    if len(read) == 2:
        assert isinstance(model.reading, PairReading)
        first, second = read
        seen = [torch.cat([a, looked_at(a, b)], dim=1) for a, b in ((first, second), (second, first))]
        u, v = (one_way(model.reading.lstm, 0, part).max(dim=0).values for part in seen)
        vector = torch.cat([u, v, (u - v).abs(), u * v])
    else:
        vector = read[0].max(dim=0).values
    return model.classifier(torch.tanh(model.hidden(vector)))


@torch.no_grad()
@pytest.mark.parametrize("pairs", [True, False], ids=["pairs", "single"])
def test_the_head_is_the_slow_one_whatever_the_neighbours(pairs: bool) -> None:
    model = head(pairs)
    torch.nn.init.normal_(model.mix.weights)  # type: ignore[arg-type]
    torch.nn.init.constant_(model.mix.scale, 1.7)  # type: ignore[arg-type]
    rows = [
        [
            torch.randn(length, 3, 16, dtype=torch.float64) * 2
            for length in (lengths if pairs else lengths[:1])
        ]
        for lengths in PAIRS
    ]
    expected = torch.stack([reference(model, row) for row in rows])
    assert expected.std(dim=0).min() > 0.1
    for order in ([0, 1, 2, 3], [3, 1], [2], [2, 0, 1]):
        sentences = [rows[number][side] for side in range(len(rows[0])) for number in order]
        found = model(torch.cat(sentences), unpadded([len(sentence) for sentence in sentences]))
        torch.testing.assert_close(found, expected[order], rtol=0, atol=1e-12)


@torch.no_grad()
def test_both_sentences_of_a_pair_count_and_are_told_apart() -> None:
    model = head(pairs=True)
    first, second = (torch.randn(length, 3, 16, dtype=torch.float64) * 2 for length in (4, 6))

    def scores(a: Tensor, b: Tensor) -> Tensor:
        found: Tensor = model(torch.cat([a, b]), unpadded([len(a), len(b)]))
        return found

    assert (scores(first, second) - scores(second, first)).abs().max() > 1e-3
    assert (scores(first, second) - scores(first, second + 1)).abs().max() > 1e-3
    assert (scores(first, second) - scores(first + 1, second)).abs().max() > 1e-3


def test_each_text_of_a_row_stands_between_its_own_ends() -> None:
    texts = [("ada in rome", "newer"), ("ada", None), ("", "rome"), ("ada", ""), ("", None)]
    found = [sentences_of(row) for row in encode_rows(texts, TOKENIZER, 16)]
    cls_id, sep_id = TOKENIZER.cls_id, TOKENIZER.sep_id
    for texts_of_row, ids in zip(texts, found, strict=True):
        expected = [[cls_id, *TOKENIZER.encode(text), sep_id] for text in texts_of_row if text is not None]
        assert [part.tolist() for part in ids] == expected


class TwoSeparators:
    """As RoBERTa parts the texts of a pair."""

    cls_id, sep_id, between_ids = 0, 2, (2, 2)

    def encode_batch(self, texts: list[str]) -> list[list[int]]:
        return [[int(word) for word in text.split()] for text in texts]


def test_of_two_separators_between_texts_one_belongs_to_the_first() -> None:
    (row,) = encode_rows([("7 8", "9")], TwoSeparators(), 16)  # type: ignore[arg-type]
    assert row.ids.tolist() == [0, 7, 8, 2, 2, 9, 2]
    assert [part.tolist() for part in sentences_of(row)] == [[0, 7, 8, 2], [0, 9, 2]]


@pytest.fixture(scope="module", params=["attention", "lstm"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch.manual_seed(0)
    directory = tmp_path_factory.mktemp("encoder") / "model"
    save_bundle(directory, Bert(dataclasses.replace(SHAPE, mixing=request.param)), TOKENIZER, None, "card")
    return load_bundle(directory)


def rows(pairs: bool, most: int = 5) -> RowSet[Row]:
    words = ["ada", "newer", "in", "rome", "new"]
    made = []
    for place in range(18):
        first = " ".join(words[: place % most + 1])
        made.append(
            Row((first, " ".join(words[place % 3 :]) if pairs else None), LABELS[place % 2], place + 1)
        )
    return RowSet(made, "rows.txt")


def task_json(features: str, pairs: bool, **more: Any) -> dict[str, Any]:
    return {
        "task": "classify",
        "head": "feature-classification",
        "labels": list(LABELS),
        "seq_len": 16,
        "settings": {"features": features, "lstm_size": 6},
        "columns": {"text": "a", "second_text": "b" if pairs else None, "label": "c"},
        **more,
    }


def encoded(
    task: Any, pairs: bool, truncation: str = "tail", most: int = 5, seq_len: int = 16
) -> FeatureRows:
    encoding = Encoding(TOKENIZER, seq_len, truncation)
    split = task.kind.encode(task, rows(pairs, most), LABELS, encoding)
    assert isinstance(split, FeatureRows)
    return split


@pytest.mark.parametrize("features", ["weighted-all", "concat-last-4", "embeddings"])
@pytest.mark.parametrize("pairs", [True, False], ids=["pairs", "single"])
def test_outputs_are_the_same_from_the_cache_and_from_the_stored_model(
    bundle: Bundle, tmp_path: Path, features: str, pairs: bool
) -> None:
    task = with_frozen_encoder(TASKS["classify"], bundle, features, tmp_path / "features", INFERENCE)
    torch.manual_seed(2)
    described = dataclasses.replace(bundle, task=task_json(features, pairs))
    model = task.kind.load_model(described, len(LABELS))
    assert isinstance(model, FeatureClassifier)
    assert (model.lstm.hidden_size, model.lstm.num_layers) == (6, 2)
    with torch.no_grad():
        torch.nn.init.normal_(model.hidden.weight, std=0.5)
        torch.nn.init.normal_(model.classifier.weight)
    cached = encoded(task, pairs)
    expected = task.kind.outputs(model, cached, INFERENCE)
    assert np.std(expected, axis=0).min() > 0.05
    save_bundle(tmp_path / "model", model, TOKENIZER, task_json(features, pairs), "card")
    loaded = load_bundle(tmp_path / "model")
    plain = dataclasses.replace(task, kind=FEATURE_CLASSIFICATION)
    split = encoded(plain, pairs)
    for inference in (INFERENCE, dataclasses.replace(INFERENCE, batch_tokens=7)):
        found = FEATURE_CLASSIFICATION.outputs(
            FEATURE_CLASSIFICATION.load_model(loaded, None), split, inference
        )
        assert found == pytest.approx(expected, abs=5e-3)
    texts = [row.texts if pairs else row.texts[0] for row in rows(pairs).rows]
    answers = predictor.load(tmp_path / "model").classify(texts)
    assert [answer.label for answer in answers] == [LABELS[number] for number in expected.argmax(axis=1)]


def test_a_sentence_that_rows_share_is_computed_once(bundle: Bundle, tmp_path: Path) -> None:
    task = with_frozen_encoder(TASKS["classify"], bundle, "last", tmp_path, INFERENCE)
    split = encoded(task, pairs=True)
    texts = {text for row in split.rows.rows for text in row.texts}
    places = sum(len(TOKENIZER.encode(str(text))) + 2 for text in texts)
    (states,) = split.states
    assert states.shape == (places, SHAPE.hidden_size)
    assert split.sentences.numbers.shape == (18, 2)
    assert len(split.sentences.windows) == len(texts) < 36


def test_long_rows_have_windows_and_one_answer(bundle: Bundle, tmp_path: Path) -> None:
    task = with_frozen_encoder(TASKS["classify"], bundle, "last", tmp_path, INFERENCE)
    split = encoded(task, pairs=True, truncation="windows", seq_len=9)
    assert split.num_units > 18
    described = dataclasses.replace(bundle, task=task_json("last", pairs=True))
    model = task.kind.load_model(described, len(LABELS))
    outputs = task.kind.outputs(model, split, INFERENCE)
    assert len(task.kind.answers(split, outputs, LABELS, {})) == 18
    batch = split.batch([0, 1, 2])
    assert batch.weights is not None
    assert batch.tokens.layout.batch == 6


def test_the_head_learns_and_the_encoder_does_not(bundle: Bundle, tmp_path: Path) -> None:
    task = with_frozen_encoder(TASKS["classify"], bundle, "weighted-all", tmp_path, INFERENCE)
    split = encoded(task, pairs=True)
    described = dataclasses.replace(bundle, task=task_json("weighted-all", pairs=True))
    model = task.kind.load_model(described, len(LABELS))
    batch = split.batch([3, 0, 9])
    assert ClassificationObjective().counts(batch) == {"loss": 3, "accuracy": 3}
    losses, _ = ClassificationObjective().sums(model, batch)
    losses["loss"].backward()
    learning = {name.split(".")[0] for name, value in model.named_parameters() if value.grad is not None}
    assert learning == {"mix", "lstm", "reading", "hidden", "classifier"}
    assert not any(value.requires_grad for value in model.bert.parameters())


def test_a_disk_without_space_is_named_before_anything_is_computed(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = with_frozen_encoder(TASKS["classify"], bundle, "weighted-all", tmp_path, INFERENCE)
    split = encoded(task, pairs=True)
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1000, 1000, 0))
    with pytest.raises(InputError, match="GB are free; take fewer layers"):
        split.batch([0])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [0, -3, "many", True, 1 << 20, 2.5])
def test_an_edited_size_is_refused(bundle: Bundle, tmp_path: Path, size: Any) -> None:
    described = dataclasses.replace(bundle, task=task_json("last", pairs=False))
    model = FEATURE_CLASSIFICATION.load_model(described, len(LABELS))
    stored = task_json("last", pairs=False, settings={"features": "last", "lstm_size": size})
    save_bundle(tmp_path / "model", model, TOKENIZER, stored, "card")
    with pytest.raises(InputError, match=r"lstm_size is .*; expected a whole number"):
        load_bundle(tmp_path / "model")


def test_task_json_of_another_form_of_rows_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    described = dataclasses.replace(bundle, task=task_json("last", pairs=True))
    model = FEATURE_CLASSIFICATION.load_model(described, len(LABELS))
    save_bundle(tmp_path / "model", model, TOKENIZER, task_json("last", pairs=False), "card")
    with pytest.raises(InputError, match=r"hidden\.weight has shape \(512, 48\), expected \(512, 12\)"):
        predictor.load(tmp_path / "model")


def test_tasks_without_such_a_head_are_refused(bundle: Bundle, tmp_path: Path) -> None:
    for name in ("squad1", "swag", "embed"):
        with pytest.raises(InputError, match=f"--features last would be ignored.*not for {name}"):
            with_frozen_encoder(TASKS[name], bundle, "last", tmp_path, INFERENCE)
