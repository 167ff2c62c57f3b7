"""Models with LayerNorm before the sublayers, which transformers knows as roberta-prelayernorm."""

from __future__ import annotations

import json
import logging

import pytest
import torch

from bertsmith.bundle import (
    load_bundle,
    load_classification_model,
    load_encoder,
    load_pretraining_model,
    save_bundle,
)
from bertsmith.errors import InputError
from bertsmith.interop.weight_names import state_from_huggingface, state_to_huggingface, their_name
from bertsmith.model.bert import Bert, BertForClassification, BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.model.rows import VOCAB_SIZE, places_of, random_ids, rows_of

transformers = pytest.importorskip("transformers")
CONFIG = BertConfig(VOCAB_SIZE, 24, 3, 3, 48, 40, norm="pre")
LENGTHS = (5, 17, 9)


@pytest.fixture(scope="module")
def tokenizer():
    words = [f"w{index}" for index in range(VOCAB_SIZE - len(SPECIAL_TOKENS))]
    return Tokenizer([*SPECIAL_TOKENS, *words], TokenizerConfig())


def with_visible_weights(model):
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.3 if parameter.ndim == 1 else 0.0, std=0.2)
    return model.eval()


def inputs():
    """The same rows unpadded, as transformers takes them, and where its rectangle holds tokens."""
    ids = random_ids(LENGTHS)
    tokens, rectangle = rows_of(ids), rows_of(ids, max(LENGTHS))
    shape = (len(ids), -1)
    mask = torch.zeros(rectangle.layout.places, dtype=torch.long)
    mask = mask.scatter(0, places_of(rectangle.layout), 1).view(shape)
    peer = {
        "input_ids": rectangle.input_ids.view(shape),
        "token_type_ids": rectangle.segment_ids.view(shape),
        "attention_mask": mask,
    }
    return tokens, peer, mask.bool()


def close(left, right):
    torch.testing.assert_close(left, right, rtol=1e-5, atol=2e-5)


def test_transformers_gives_the_same_hidden_states_pooled_vector_and_scores(tokenizer, tmp_path):
    model = with_visible_weights(BertForPreTraining(CONFIG))
    save_bundle(tmp_path / "model", model, tokenizer, {"head": "pretraining", "labels": None}, "")
    tokens, theirs, real = inputs()
    encoder = transformers.AutoModel.from_pretrained(tmp_path / "model").eval()
    assert type(encoder).__name__ == "RobertaPreLayerNormModel"
    found = encoder(**theirs, output_hidden_states=True)
    states = model.bert.hidden_states(tokens)
    assert len(states) == len(found.hidden_states) == CONFIG.num_layers + 1
    for state, their_state in zip(states[:-1], found.hidden_states[:-1], strict=True):
        close(their_state[real], state)
    close(found.last_hidden_state[real], states[-1])
    assert torch.equal(model.bert(tokens), states[-1])
    firsts = torch.tensor(tokens.layout.starts)
    close(found.pooler_output, model.pooler(states[-1][firsts]))
    words, info = transformers.AutoModelForMaskedLM.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not info["missing_keys"]
    # What it passes over is what it has no place for.
    assert all("pooler" in name or "seq_relationship" in name for name in info["unexpected_keys"])
    scores, _ = model(tokens, torch.arange(tokens.layout.places))
    close(words.eval()(**theirs).logits[real], scores)


def test_a_model_directory_comes_back_whole(tokenizer, tmp_path, caplog):
    model = with_visible_weights(BertForPreTraining(CONFIG))
    save_bundle(tmp_path / "model", model, tokenizer, None, "")
    with caplog.at_level(logging.WARNING):
        bundle = load_bundle(tmp_path / "model")
        again = load_pretraining_model(bundle)
    assert not caplog.records
    assert bundle.config == CONFIG
    tokens, _, _ = inputs()
    picks = torch.arange(tokens.layout.places)
    for one, two in zip(again(tokens, picks), model(tokens, picks), strict=True):
        assert torch.equal(one, two)
    values = json.loads((tmp_path / "model" / "config.json").read_text())
    assert values["model_type"] == "roberta-prelayernorm"
    assert values["architectures"] == ["RobertaPreLayerNormForMaskedLM"]
    assert values["max_position_embeddings"] == 41
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert peer("w7 w8")["input_ids"] == [tokenizer.cls_id, *tokenizer.encode("w7 w8"), tokenizer.sep_id]


def test_transformers_gives_the_same_classes(tokenizer, tmp_path):
    model = with_visible_weights(BertForClassification(CONFIG, 3))
    task = {"task": "x", "head": "classification", "labels": ["a", "b", "c"]}
    save_bundle(tmp_path / "model", model, tokenizer, task, "")
    tokens, theirs, _ = inputs()
    peer, info = transformers.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "model", output_loading_info=True
    )
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    close(peer.eval()(**theirs).logits, model(tokens))
    again = load_classification_model(load_bundle(tmp_path / "model"), None)
    assert torch.equal(again(tokens), model(tokens))


def test_directories_of_transformers_load(tokenizer, tmp_path):
    values = transformers.RobertaPreLayerNormConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=3,
        intermediate_size=48,
        max_position_embeddings=41,
        pad_token_id=0,
        id2label={0: "no", 1: "yes"},
    )
    tokens, theirs, real = inputs()
    for kind in ("Model", "ForMaskedLM", "ForSequenceClassification"):
        name = f"RobertaPreLayerNorm{kind}"
        peer = with_visible_weights(getattr(transformers, name)(values))
        peer.save_pretrained(tmp_path / name)
        tokenizer.save(tmp_path / name)
        bundle = load_bundle(tmp_path / name)
        assert bundle.config == CONFIG
        encoder = getattr(peer, "roberta_prelayernorm", peer)
        close(encoder(**theirs).last_hidden_state[real], load_encoder(bundle)(tokens))
        if kind == "ForMaskedLM":
            scores, _ = load_pretraining_model(bundle)(tokens, torch.arange(tokens.layout.places))
            close(peer(**theirs).logits[real], scores)
        if kind == "ForSequenceClassification":
            assert bundle.task["labels"] == ["no", "yes"]
            close(peer(**theirs).logits, load_classification_model(bundle, None)(tokens))


def test_names_go_there_and_back():
    state = BertForPreTraining(CONFIG).state_dict()
    stored = state_to_huggingface(state, "roberta-prelayernorm", 0, "BertForPreTraining")
    peer = transformers.RobertaPreLayerNormForMaskedLM(
        transformers.RobertaPreLayerNormConfig(vocab_size=VOCAB_SIZE, hidden_size=24, num_hidden_layers=3)
    )
    extra = {"roberta_prelayernorm.pooler.dense", "cls.seq_relationship"}
    ours = {name for name in stored if name.rpartition(".")[0] not in extra}
    tied = {"lm_head.decoder.weight", "lm_head.decoder.bias"}
    assert ours == peer.state_dict().keys() - tied
    back = state_from_huggingface(stored, "roberta-prelayernorm", 0)
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], state[name]) for name in state)
    assert their_name("bert.norm.weight", "roberta-prelayernorm") == "roberta_prelayernorm.LayerNorm.weight"


def test_gradients_equal_those_of_transformers(tokenizer, tmp_path):
    model = with_visible_weights(Bert(CONFIG))
    save_bundle(tmp_path / "model", model, tokenizer, None, "")
    peer = transformers.AutoModel.from_pretrained(tmp_path / "model", add_pooling_layer=False).eval()
    tokens, theirs, real = inputs()
    weights = torch.randn(sum(LENGTHS), 24)
    (model(tokens) * weights).sum().backward()
    (peer(**theirs).last_hidden_state[real] * weights).sum().backward()
    ours = state_to_huggingface(
        {f"bert.{name}": part.grad for name, part in model.named_parameters()}, "roberta-prelayernorm", 0
    )
    for name, parameter in peer.named_parameters():
        gradient = ours[f"roberta_prelayernorm.{name}"]
        tolerance = 1e-5 * max(1.0, parameter.grad.abs().max().item())
        torch.testing.assert_close(gradient, parameter.grad, rtol=0, atol=tolerance)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"norm": "middle"}, "norm 'middle' is unknown"),
        ({"norm": "pre", "activation": "relu"}, "norm is 'pre', which goes with activation gelu"),
        ({"norm": "pre", "family": "roberta"}, "norm is 'pre', which goes with .* family bert"),
    ],
)
def test_what_other_programs_do_not_know_is_refused(settings, message):
    with pytest.raises(InputError, match=message):
        BertConfig(VOCAB_SIZE, **settings)
