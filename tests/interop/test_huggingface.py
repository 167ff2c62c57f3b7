"""Hugging Face's settings, there and back."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.interop.huggingface import (
    config_from_huggingface,
    config_to_huggingface,
    task_from_huggingface,
)
from bertsmith.model.config import BertConfig
from tests.model.rows import VOCAB_SIZE

CONFIG = BertConfig(VOCAB_SIZE, 24, 2, 3, 48, 40, hidden_dropout=0.2, layer_norm_eps=1e-6)


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu"])
def test_config_goes_there_and_back(activation):
    config = BertConfig(VOCAB_SIZE, 24, 2, 3, 48, 40, 3, activation, 0.2, 0.05, 1e-6, 0.03)
    values = config_to_huggingface(config, "BertModel", None, 0, None)
    assert config_from_huggingface(json.loads(json.dumps(values)), Path("config.json")) == config


def test_the_originals_config_needs_no_model_type():
    values = {
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": 128,
        "initializer_range": 0.02,
        "intermediate_size": 512,
        "max_position_embeddings": 512,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "type_vocab_size": 2,
        "vocab_size": 30522,
    }
    assert config_from_huggingface(values, Path("bert_config.json")) == BertConfig(30522, 128, 2, 2, 512)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model_type": "xlnet"}, "model_type is 'xlnet'; supported are 'bert', 'roberta', 'roberta-pre"),
        ({"model_type": "distilbert"}, "supported are 'bert', "),
        ({"position_embedding_type": "relative_key"}, "relative positions"),
        ({"add_cross_attention": True}, "cross-attention is not supported"),
        ({"hidden_act": "silu"}, "hidden_act is 'silu'; supported: gelu"),
        ({"hidden_size": "24"}, "hidden_size is '24', expected a whole number"),
        ({"hidden_size": 24.0}, "hidden_size is 24.0, expected a whole number"),
        ({"num_attention_heads": 0}, "num_heads is 0; it has to be at least 1"),
        ({"vocab_size": -1}, "vocab_size is -1; it has to be 0"),
        ({"layer_norm_eps": "1e-12"}, "layer_norm_eps is '1e-12', expected a number"),
        ({"hidden_act": ["gelu"]}, r"hidden_act is \['gelu'\]; supported: gelu"),
        ({"num_attention_heads": 5}, "not a multiple"),
        ({"num_hidden_layers": None}, "num_layers is None"),
    ],
)
def test_a_config_of_another_model_is_refused(change, message):
    values = config_to_huggingface(CONFIG, "BertModel", None, 0, None) | change
    with pytest.raises(InputError, match=message):
        config_from_huggingface(values, Path("config.json"))


def test_a_config_without_a_size_is_refused():
    values = config_to_huggingface(CONFIG, "BertModel", None, 0, None)
    del values["hidden_size"]
    with pytest.raises(InputError, match="hidden_size missing"):
        config_from_huggingface(values, Path("config.json"))


def test_a_classifier_dropout_of_its_own_is_told(caplog):
    values = config_to_huggingface(CONFIG, "BertModel", None, 0, None)
    with caplog.at_level(logging.WARNING):
        config_from_huggingface(values | {"classifier_dropout": None}, Path("config.json"))
        assert not caplog.records
        config_from_huggingface(values | {"classifier_dropout": 0.5}, Path("config.json"))
    assert "classifier_dropout" in caplog.text


def test_heads_of_other_tools_become_tasks():
    path = Path("config.json")
    named = {"id2label": {"1": "good", "0": "bad"}}
    assert task_from_huggingface(named, 2, path) == {
        "task": "classify",
        "head": "classification",
        "labels": ["bad", "good"],
    }
    assert task_from_huggingface({"id2label": {"0": "LABEL_0"}}, 1, path)["head"] == "regression"
    assert task_from_huggingface({}, 3, path)["labels"] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert (
        task_from_huggingface({"problem_type": "multi_label_classification"}, 2, path)["head"]
        == "multi-label"
    )
    with pytest.raises(InputError, match="id2label names 2 labels but the head has 3"):
        task_from_huggingface(named, 3, path)


@pytest.mark.parametrize("names", [{"one": "good"}, ["bad", "good"]])
def test_label_names_of_another_form_are_refused(names):
    with pytest.raises(InputError, match="id2label is no object of numbers and names"):
        task_from_huggingface({"id2label": names}, 2, Path("config.json"))
