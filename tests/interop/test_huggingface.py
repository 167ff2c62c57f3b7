"""Hugging Face's settings, and the same model under every spelling of its weights' names."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertsmith.errors import InputError
from bertsmith.interop.huggingface import (
    config_from_huggingface,
    config_to_huggingface,
    state_from_huggingface,
    state_to_huggingface,
    task_from_huggingface,
    their_name,
)
from bertsmith.interop.model_files import read_state
from bertsmith.model.bert import Bert, BertForPreTraining
from bertsmith.model.config import BertConfig
from tests.model.rows import VOCAB_SIZE, random_ids, rows_of

CONFIG = BertConfig(VOCAB_SIZE, 24, 2, 3, 48, 40, hidden_dropout=0.2, layer_norm_eps=1e-6)


@pytest.fixture(scope="module")
def stored() -> dict[str, Tensor]:
    """Weights of a small model under Hugging Face's names; norms and biases are not trivial."""
    torch.manual_seed(0)
    model = BertForPreTraining(CONFIG)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.3, std=0.2)
    return state_to_huggingface(model.state_dict())


def renamed(stored: dict[str, Tensor], *pairs: tuple[str, str]) -> dict[str, Tensor]:
    result = {}
    for name, value in stored.items():
        for old, new in pairs:
            name = name.replace(old, new)
        result[name] = value
    return result


VARIANTS = {
    "gamma and beta": lambda s: renamed(
        s, ("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")
    ),
    "no bert prefix": lambda s: renamed({n: v for n, v in s.items() if n.startswith("bert.")}, ("bert.", "")),
    "position_ids": lambda s: s | {"bert.embeddings.position_ids": torch.arange(40)[None]},
    "module prefix": lambda s: {f"module.{n}": v for n, v in s.items()},
    "module, no bert, gamma": lambda s: {
        f"module.{n.removeprefix('bert.')}".replace("LayerNorm.weight", "LayerNorm.gamma"): v
        for n, v in s.items()
        if n.startswith("bert.")
    },
    "tied decoder stored": lambda s: (
        s
        | {
            "cls.predictions.decoder.weight": s["bert.embeddings.word_embeddings.weight"].clone(),
            "cls.predictions.decoder.bias": s["cls.predictions.bias"].clone(),
        }
    ),
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("format", ["safetensors", "bin"])
def test_c048_every_spelling_of_names_gives_the_same_hidden_states(stored, variant, format, tmp_path):
    tokens = rows_of(random_ids((5, 9, 12)))
    if format == "safetensors":
        save_file(
            {name: value.contiguous() for name, value in variant(stored).items()},
            tmp_path / "model.safetensors",
        )
    else:
        torch.save(variant(stored), tmp_path / "pytorch_model.bin")
    states = []
    for state in (state_from_huggingface(stored), state_from_huggingface(read_state(tmp_path))):
        model = Bert(CONFIG).eval()
        encoder = {n.removeprefix("bert."): v for n, v in state.items() if n.startswith("bert.")}
        model.load_state_dict(encoder)  # strict: nothing missing, nothing left over
        states.append(model(tokens))
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=1e-6)


def test_c048_only_a_layer_norms_gamma_and_beta_are_renamed(stored):
    odd = {"head.alpha_beta": torch.ones(1), "head.gamma": torch.ones(1), "LayerNormal.beta": torch.ones(1)}
    assert odd.keys() <= state_from_huggingface(stored | odd).keys()


def test_names_go_there_and_back(stored):
    ours = state_from_huggingface(stored)
    assert ours.keys() == BertForPreTraining(CONFIG).state_dict().keys()
    back = state_to_huggingface(ours)
    assert back.keys() == stored.keys()
    assert all(torch.equal(back[name], stored[name]) for name in stored)
    assert their_name("bert.layers.3.attention.qkv.bias") == "bert.encoder.layer.3.attention.self.query.bias"


def test_half_precision_files_become_float32(stored):
    halves = {name: value.half() for name, value in stored.items()}
    assert {value.dtype for value in state_from_huggingface(halves).values()} == {torch.float32}


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
