"""A model directory's task, its new heads, and directories that are no model."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from bertsmith.bundle import load_bundle, load_classification_model, load_shape, save_bundle
from bertsmith.errors import InputError
from bertsmith.model.bert import Bert, BertForClassification, BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = [*SPECIAL_TOKENS, "one", "two"]
CONFIG = BertConfig(len(WORDS), 24, 2, 3, 48, 40)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(WORDS, TokenizerConfig())


def saved(directory: Path, tokenizer: Tokenizer, model=None) -> Path:
    save_bundle(directory, model or BertForPreTraining(CONFIG), tokenizer, None, "")
    return directory


@pytest.mark.parametrize(
    "change, message",
    [
        ({"labels": ["a", "b"]}, r"labels is \['a', 'b'\]; expected 3 names"),
        ({"labels": ["a", "b", "b"]}, "expected 3 names"),
        ({"labels": None}, "labels is None"),
        ({"seq_len": 1000}, f"seq_len is 1000; expected 3 to {CONFIG.max_positions}"),
        ({"seq_len": "16"}, "seq_len is '16'"),
        ({"columns": {"text": "a"}}, "expected text, second_text and label"),
    ],
)
def test_a_task_that_does_not_fit_the_weights_is_refused(tmp_path, tokenizer, change, message):
    task = {"task": "classify", "head": "classification", "labels": ["a", "b", "c"], "seq_len": 16}
    save_bundle(tmp_path / "model", BertForClassification(CONFIG, 3), tokenizer, task, "card")
    assert load_bundle(tmp_path / "model").task == task
    (tmp_path / "model" / "task.json").write_text(json.dumps(task | change))
    with pytest.raises(InputError, match=message):
        load_bundle(tmp_path / "model")


def test_a_new_classifier_is_expected_but_a_new_pooler_is_noted(tmp_path, tokenizer, caplog):
    whole = load_bundle(saved(tmp_path / "whole", tokenizer, BertForPreTraining(CONFIG)))
    encoder = load_bundle(saved(tmp_path / "encoder", tokenizer, Bert(CONFIG)))
    with caplog.at_level(logging.WARNING):
        load_classification_model(whole, 2)
        load_classification_model(load_shape(tmp_path / "whole"), 2)
        assert not caplog.records
        load_classification_model(encoder, 2)
    assert [record.getMessage().rpartition(": ")[2] for record in caplog.records] == ["pooler"]


def test_a_shape_with_too_small_embeddings_is_refused(tmp_path, tokenizer):
    directory = saved(tmp_path / "model", tokenizer)
    Tokenizer([*WORDS, "extra"], TokenizerConfig()).save(directory)
    with pytest.raises(InputError, match="but the embeddings only"):
        load_shape(directory)


def test_a_run_directory_names_its_model(tmp_path, tokenizer):
    saved(tmp_path / "run" / "model", tokenizer)
    with pytest.raises(InputError, match=r"run: a run, not a model; its model is .*run/model"):
        load_bundle(tmp_path / "run")
