"""RoBERTa-shaped model directories, against transformers."""

from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.bundle import (
    load_bundle,
    load_classification_model,
    load_encoder,
    load_pretraining_model,
    save_bundle,
)
from bertsmith.errors import InputError
from bertsmith.interop.roberta import bert_names, to_roberta, without_unused_positions
from bertsmith.model.bert import Bert, BertForClassification, BertForPreTraining, BertForSpans
from bertsmith.model.config import BertConfig
from bertsmith.tasks.spans import SPANS
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertsmith.text.vocabulary import train_bpe
from tests.model.rows import rows_of

transformers = pytest.importorskip("transformers")
PIECES = 300


@pytest.fixture(scope="module")
def tokenizer():
    text = ["the quick brown fox", "jumps over the lazy dog", "the end of the tale"] * 20
    return Tokenizer(*train_bpe(text, PIECES))


@pytest.fixture(scope="module")
def config(tokenizer):
    return BertConfig(
        tokenizer.vocab_size, 24, 2, 3, 48, 40, num_segments=1, layer_norm_eps=1e-5, family="roberta"
    )


def with_visible_weights(model):
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.3 if parameter.ndim == 1 else 0.0, std=0.2)
    return model.eval()


@pytest.fixture(scope="module")
def texts(tokenizer):
    ids = [
        [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
        for text in ("the fox", "a dog ate it all")
    ]
    tokens = rows_of([torch.tensor(row) for row in ids])
    padded = torch.full((2, max(map(len, ids))), tokenizer.pad_id)
    mask = torch.zeros_like(padded)
    for place, row in enumerate(ids):
        padded[place, : len(row)] = torch.tensor(row)
        mask[place, : len(row)] = 1
    return tokens, {"input_ids": padded, "attention_mask": mask}, mask.bool()


def close(left, right):
    torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-5)


def load_whole(transformers_class, directory):
    model, info = transformers_class.from_pretrained(directory, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    return model.eval()


def test_transformers_gives_the_same_word_scores(config, tokenizer, texts, tmp_path):
    model = with_visible_weights(BertForPreTraining(config))
    save_bundle(tmp_path / "model", model, tokenizer, {"head": "pretraining", "labels": None}, "")
    tokens, inputs, real = texts
    scores, _ = model(tokens, torch.arange(tokens.layout.places))
    peer = load_whole(transformers.AutoModelForMaskedLM, tmp_path / "model")
    assert type(peer).__name__ == "RobertaForMaskedLM"
    close(peer(**inputs).logits[real], scores)
    again = load_pretraining_model(load_bundle(tmp_path / "model"))
    assert torch.equal(again(tokens, torch.arange(tokens.layout.places))[0], scores)
    peer_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert peer_tokenizer("the fox", "a dog")["input_ids"] == [
        tokenizer.cls_id,
        *tokenizer.encode("the fox"),
        *tokenizer.between_ids,
        *tokenizer.encode("a dog"),
        tokenizer.sep_id,
    ]
    assert peer_tokenizer.model_max_length == config.max_positions
    values = json.loads((tmp_path / "model" / "config.json").read_text())
    assert (values["model_type"], values["type_vocab_size"], values["max_position_embeddings"]) == (
        "roberta",
        1,
        42,
    )


def test_transformers_gives_the_same_vectors(config, tokenizer, texts, tmp_path):
    model = with_visible_weights(Bert(config))
    save_bundle(tmp_path / "model", model, tokenizer, None, "")
    tokens, inputs, real = texts
    peer = transformers.RobertaModel.from_pretrained(tmp_path / "model", add_pooling_layer=False).eval()
    close(peer(**inputs).last_hidden_state[real], model(tokens))


def test_transformers_gives_the_same_classes(config, tokenizer, texts, tmp_path):
    model = with_visible_weights(BertForClassification(config, 3))
    task = {"task": "x", "head": "classification", "labels": ["a", "b", "c"]}
    save_bundle(tmp_path / "model", model, tokenizer, task, "")
    tokens, inputs, _ = texts
    peer = load_whole(transformers.AutoModelForSequenceClassification, tmp_path / "model")
    close(peer(**inputs).logits, model(tokens))
    again = load_classification_model(load_bundle(tmp_path / "model"), None)
    assert torch.equal(again(tokens), model(tokens))


def test_transformers_gives_the_same_spans(config, tokenizer, texts, tmp_path):
    model = with_visible_weights(BertForSpans(config))
    save_bundle(tmp_path / "model", model, tokenizer, None, "")
    tokens, inputs, real = texts
    peer = load_whole(transformers.AutoModelForQuestionAnswering, tmp_path / "model")
    found = peer(**inputs)
    close(torch.stack([found.start_logits, found.end_logits], dim=-1)[real], model(tokens))
    bundle = load_bundle(tmp_path / "model")
    assert bundle.task["head"] == "spans"
    assert torch.equal(SPANS.load_model(bundle, None)(tokens), model(tokens))


def test_a_directory_of_transformers_loads(config, tokenizer, texts, tmp_path, caplog):
    values = transformers.RobertaConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=48,
        max_position_embeddings=42,
        type_vocab_size=1,
        layer_norm_eps=1e-5,
        id2label={0: "no", 1: "yes"},
    )
    tokens, inputs, real = texts
    for name in ("RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification"):
        peer = with_visible_weights(getattr(transformers, name)(values))
        peer.save_pretrained(tmp_path / name)
        tokenizer.save(tmp_path / name)
        with caplog.at_level(logging.WARNING):
            bundle = load_bundle(tmp_path / name)
            assert bundle.config == config
            encoder = getattr(peer, "roberta", peer)
            close(encoder(**inputs).last_hidden_state[real], load_encoder(bundle)(tokens))
            if name == "RobertaForMaskedLM":
                scores, _ = load_pretraining_model(bundle)(tokens, torch.arange(tokens.layout.places))
                close(peer(**inputs).logits[real], scores)
            if name == "RobertaForSequenceClassification":
                assert bundle.task["labels"] == ["no", "yes"]
                close(peer(**inputs).logits, load_classification_model(bundle, None)(tokens))
        assert not caplog.records


def test_the_padding_id_moves_the_positions(config, texts, tmp_path):
    """With a WordPiece vocabulary, whose [PAD] is 0, positions begin at 1."""
    words = Tokenizer([*SPECIAL_TOKENS, *(f"w{i}" for i in range(PIECES - 5))], TokenizerConfig())
    model = with_visible_weights(BertForPreTraining(replace(config, vocab_size=PIECES)))
    save_bundle(tmp_path / "model", model, words, None, "")
    ids = torch.tensor([2, 7, 9, 120, 3])
    scores, _ = model(rows_of([ids]), torch.arange(5))
    peer = load_whole(transformers.AutoModelForMaskedLM, tmp_path / "model")
    assert peer.config.max_position_embeddings == 41
    close(peer(input_ids=ids[None]).logits[0], scores)
    assert load_bundle(tmp_path / "model").config.max_positions == 40


def test_names_go_there_and_back():
    stored = {
        name: torch.arange(6.0).reshape(3, 2)
        for name in (
            "bert.embeddings.position_embeddings.weight",
            "bert.encoder.layer.0.attention.self.query.weight",
            "cls.predictions.bias",
            "cls.predictions.transform.LayerNorm.weight",
            "bert.pooler.dense.weight",
            "classifier.weight",
            "else.weight",
        )
    }
    theirs = to_roberta(stored, "roberta", 1, "BertForSequenceClassification")
    assert theirs.keys() == {
        "roberta.embeddings.position_embeddings.weight",
        "roberta.encoder.layer.0.attention.self.query.weight",
        "lm_head.bias",
        "lm_head.layer_norm.weight",
        "classifier.dense.weight",
        "classifier.out_proj.weight",
        "else.weight",
    }
    names = bert_names({name: name for name in theirs}, "roberta")
    back = without_unused_positions({names[name]: value for name, value in theirs.items()}, 1)
    assert back.keys() == stored.keys()
    assert all(torch.equal(back[name], stored[name]) for name in stored)


def test_a_missing_weight_has_robertas_name(config, tokenizer, tmp_path):
    save_bundle(tmp_path / "model", BertForPreTraining(config), tokenizer, None, "")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    del stored["roberta.encoder.layer.1.attention.self.key.weight"]
    save_file(stored, tmp_path / "model" / "model.safetensors")
    with pytest.raises(InputError, match=r"first roberta\.encoder\.layer\.1\.attention\.self\.key\.weight"):
        load_bundle(tmp_path / "model")


def test_another_activation_than_its_head_has_is_refused(config):
    with pytest.raises(InputError, match="RoBERTa's masked language model always has gelu"):
        replace(config, activation="relu")
