"""Model directories: ours in transformers, theirs here, and every way one can be broken."""

from __future__ import annotations

import dataclasses
import json
import logging
import os
from dataclasses import replace
from pathlib import Path

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
from bertsmith.model.bert import Bert, BertForClassification, BertForPreTraining, summary_places
from bertsmith.model.config import BertConfig
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.model.rows import places_of, random_ids, rows_of

WORDS = [
    *SPECIAL_TOKENS,
    *(f"{letter}{digit}" for letter in "abcdefghi" for digit in range(10)),
    "##x",
    "the",
]
CONFIG = BertConfig(len(WORDS), 24, 2, 3, 48, 40)
LENGTHS = (5, 9, 12)


@pytest.fixture
def tokenizer() -> Tokenizer:
    return Tokenizer(WORDS, TokenizerConfig())


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


def with_visible_weights(model):
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.3 if parameter.ndim == 1 else 0.0, std=0.2)
    return model.eval()


def rectangle_inputs():
    """Rows as transformers takes them, and where their tokens lie."""
    tokens = rows_of(random_ids(LENGTHS), max(LENGTHS))
    mask = torch.zeros(tokens.layout.places, dtype=torch.long).scatter(0, places_of(tokens.layout), 1)
    shape = (len(LENGTHS), -1)
    inputs = {
        "input_ids": tokens.input_ids.view(shape),
        "attention_mask": mask.view(shape),
        "token_type_ids": tokens.segment_ids.view(shape),
    }
    return inputs, places_of(tokens.layout)


def close(left, right):
    torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-5)


def load_whole(transformers_class, directory):
    """Load with transformers and make sure that it neither misses nor ignores a weight."""
    model, info = transformers_class.from_pretrained(directory, output_loading_info=True)
    return model.eval(), info


def test_transformers_loads_a_pretraining_model_with_equal_outputs(tmp_path, tokenizer, transformers):
    model = with_visible_weights(BertForPreTraining(CONFIG))
    save_bundle(tmp_path / "model", model, tokenizer, {"head": "pretraining", "labels": None}, "# card\n")
    tokens = rows_of(random_ids(LENGTHS))
    inputs, places = rectangle_inputs()
    mlm_scores, nsp_scores = model(tokens, torch.arange(tokens.layout.places))
    peer, info = load_whole(transformers.AutoModelForPreTraining, tmp_path / "model")
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    theirs = peer(**inputs)
    close(theirs.prediction_logits.flatten(0, 1)[places], mlm_scores)
    close(theirs.seq_relationship_logits, nsp_scores)
    peer, info = load_whole(transformers.AutoModelForMaskedLM, tmp_path / "model")
    assert not info["missing_keys"]
    close(peer(**inputs).logits.flatten(0, 1)[places], mlm_scores)
    peer, info = load_whole(transformers.AutoModel, tmp_path / "model")
    assert not info["missing_keys"]
    theirs = peer(**inputs)
    close(theirs.last_hidden_state.flatten(0, 1)[places], model.bert(tokens))
    close(theirs.pooler_output, model.pooler(model.bert(tokens, summary_places(tokens, model.config))))
    peer_tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    assert peer_tokenizer("A1 the a2x")["input_ids"] == [
        tokenizer.cls_id,
        *tokenizer.encode("A1 the a2x"),
        tokenizer.sep_id,
    ]
    assert peer_tokenizer.model_max_length == CONFIG.max_positions


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_transformers_loads_a_left_to_right_model_as_a_decoder(tmp_path, tokenizer, transformers, norm):
    config = dataclasses.replace(CONFIG, context="left", norm=norm)
    model = with_visible_weights(BertForPreTraining(config))
    save_bundle(tmp_path / "model", model, tokenizer, None, "# card\n")
    tokens = rows_of(random_ids(LENGTHS))
    inputs, places = rectangle_inputs()
    peer, info = load_whole(transformers.AutoModelForCausalLM, tmp_path / "model")
    assert not info["missing_keys"]
    scores, _ = model(tokens, torch.arange(tokens.layout.places))
    close(peer(**inputs).logits.flatten(0, 1)[places], scores)
    peer.save_pretrained(tmp_path / "theirs")
    tokenizer.save(tmp_path / "theirs")
    bundle = load_bundle(tmp_path / "theirs")
    assert bundle.config == config
    close(load_pretraining_model(bundle)(tokens, torch.arange(tokens.layout.places))[0], scores)


def test_heads_of_a_left_to_right_model_read_the_last_place(tmp_path, tokenizer, transformers):
    """Its [CLS] sees itself alone, so other programs, which read it, are offered the encoder only."""
    model = with_visible_weights(BertForClassification(dataclasses.replace(CONFIG, context="left"), 3))
    tokens = rows_of(random_ids(LENGTHS))
    lasts = torch.tensor(LENGTHS).cumsum(0) - 1
    expected = model.classifier(model.pooler(model.bert(tokens)[lasts]))
    close(model(tokens), expected)
    task = {"task": "own", "head": "classification", "labels": ["a", "b", "c"]}
    save_bundle(tmp_path / "model", model, tokenizer, task, "# card\n")
    assert json.loads((tmp_path / "model" / "config.json").read_text())["architectures"] == ["BertModel"]
    close(load_classification_model(load_bundle(tmp_path / "model"), None)(tokens), expected)


def test_a_bilstm_on_the_encoder_is_what_heads_read(tmp_path, tokenizer, transformers, caplog):
    """Each row by itself, in any layout; it is stored with the model, and new heads bring a new one."""
    config = dataclasses.replace(CONFIG, context="left", recurrent_top=True)
    model = with_visible_weights(BertForClassification(config, 3))
    tokens = rows_of(random_ids(LENGTHS))
    plain = dataclasses.replace(config, recurrent_top=False)
    encoder = Bert(plain)
    encoder.load_state_dict({k: v for k, v in model.bert.state_dict().items() if not k.startswith("top.")})
    rows = torch.split(encoder.eval()(tokens), list(LENGTHS))
    expected = torch.stack([model.bert.top.lstm(row[:, None])[0][-1, 0] for row in rows])
    close(model(tokens), model.classifier(model.pooler(expected)))
    task = {"task": "own", "head": "classification", "labels": ["a", "b", "c"]}
    save_bundle(tmp_path / "model", model, tokenizer, task, "# card\n")
    close(load_classification_model(load_bundle(tmp_path / "model"), None)(tokens), model(tokens))
    save_bundle(tmp_path / "plain", encoder, tokenizer, None, "# card\n")
    bundle = dataclasses.replace(load_bundle(tmp_path / "plain"), config=config)
    caplog.clear()
    assert load_classification_model(bundle, 3)(tokens).shape == (len(LENGTHS), 3)
    assert [record.args[-1] for record in caplog.records] == ["pooler"]  # what the encoder never had


@pytest.mark.parametrize(
    "task, problem_type",
    [
        (
            {"task": "sst2", "head": "classification", "labels": ["negative", "positive", "?"]},
            "single_label_classification",
        ),
        ({"task": "stsb", "head": "regression", "labels": None}, "regression"),
    ],
    ids=["classes", "regression"],
)
def test_transformers_loads_a_classification_model(tmp_path, tokenizer, transformers, task, problem_type):
    model = with_visible_weights(BertForClassification(CONFIG, len(task["labels"] or [""])))
    save_bundle(tmp_path / "model", model, tokenizer, task, "# card\n")
    inputs, _ = rectangle_inputs()
    peer, info = load_whole(transformers.AutoModelForSequenceClassification, tmp_path / "model")
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    close(peer(**inputs).logits, model(rows_of(random_ids(LENGTHS))))
    assert peer.config.problem_type == problem_type
    if task["labels"]:
        assert list(peer.config.id2label.values()) == task["labels"]
        assert peer.config.label2id["positive"] == 1


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu"])
def test_a_directory_loads_again_as_it_was(tmp_path, tokenizer, activation):
    config = replace(CONFIG, activation=activation, hidden_dropout=0.2)
    model = with_visible_weights(BertForPreTraining(config))
    task = {"head": "pretraining", "labels": None, "seq_len": 40}
    save_bundle(tmp_path / "model", model, tokenizer, task, "# A card\n")
    bundle = load_bundle(tmp_path / "model")
    assert (bundle.config, bundle.task) == (config, task)
    assert bundle.tokenizer.identity() == tokenizer.identity()
    assert (tmp_path / "model" / "README.md").read_text() == "# A card\n"
    again = load_pretraining_model(bundle)
    assert not again.training
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    tokens = rows_of(random_ids(LENGTHS))
    assert torch.equal(load_encoder(bundle)(tokens), model.bert(tokens))


def test_a_directory_of_transformers_loads(tmp_path, tokenizer, transformers):
    """Whatever class wrote it, with no task.json: architecture, weights and label names are found."""
    values = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=48,
        max_position_embeddings=40,
        hidden_act="gelu_new",
        id2label={0: "no", 1: "yes", 2: "perhaps"},
    )
    inputs, places = rectangle_inputs()
    tokens = rows_of(random_ids(LENGTHS))
    for name in ("BertModel", "BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"):
        peer = with_visible_weights(getattr(transformers, name)(values))
        peer.save_pretrained(tmp_path / name)
        tokenizer.save(tmp_path / name)
        bundle = load_bundle(tmp_path / name)
        assert bundle.config == replace(CONFIG, activation="gelu_tanh")
        encoder = getattr(peer, "bert", peer)
        close(encoder(**inputs).last_hidden_state.flatten(0, 1)[places], load_encoder(bundle)(tokens))
        if name in ("BertForMaskedLM", "BertForPreTraining"):
            model = load_pretraining_model(bundle)
            scores, _ = model(tokens, torch.arange(tokens.layout.places))
            close(peer(**inputs)[0].flatten(0, 1)[places], scores)
        if name == "BertForSequenceClassification":
            assert bundle.task == {
                "task": "classify",
                "head": "classification",
                "labels": ["no", "yes", "perhaps"],
            }
            close(peer(**inputs).logits, load_classification_model(bundle, None)(tokens))


def test_minilm_gives_the_hidden_states_of_transformers(minilm_path, transformers, caplog):
    """Real weights, real text: every layer to 1e-5, padded and not."""
    with caplog.at_level(logging.WARNING):
        bundle = load_bundle(minilm_path)
    assert not caplog.records
    model = load_encoder(bundle)
    peer = transformers.AutoModel.from_pretrained(minilm_path).eval()
    texts = ["A row on its own.", "He didn't say: unaffable, naïve, 北京 and 3.14!", "word " * 100]
    marks = (bundle.tokenizer.cls_id, bundle.tokenizer.sep_id)
    ids = [torch.tensor([marks[0], *bundle.tokenizer.encode(text), marks[1]]) for text in texts]
    rectangle = rows_of(ids, max(len(row) for row in ids))
    places = places_of(rectangle.layout)
    mask = torch.zeros(rectangle.layout.places, dtype=torch.long).scatter(0, places, 1)
    with torch.no_grad():
        theirs = peer(
            rectangle.input_ids.view(3, -1),
            attention_mask=mask.view(3, -1),
            token_type_ids=rectangle.segment_ids.view(3, -1),
            output_hidden_states=True,
        ).hidden_states
        for tokens in (rows_of(ids), rectangle):
            for ours, their_state in zip(model.hidden_states(tokens), theirs, strict=True):
                compared = their_state.flatten(0, 1)[places]
                difference = (ours[places_of(tokens.layout)] - compared).abs()
                assert (difference <= 1e-5 * compared.abs().clamp(min=1.0)).all(), difference.max()


def saved(directory: Path, tokenizer: Tokenizer, model=None) -> Path:
    save_bundle(directory, model or BertForPreTraining(CONFIG), tokenizer, None, "")
    return directory


def edit_weights(directory: Path, edit) -> None:
    stored = load_file(directory / "model.safetensors")
    edit(stored)
    save_file(stored, directory / "model.safetensors")


def test_c048_a_missing_encoder_weight_is_refused_by_name_unless_allowed(tmp_path, tokenizer, caplog):
    directory = saved(tmp_path / "model", tokenizer)
    key = "bert.encoder.layer.1.output.dense.weight"
    edit_weights(directory, lambda stored: stored.pop(key))
    with pytest.raises(InputError, match=f"first {key}"):
        load_bundle(directory)
    with caplog.at_level(logging.WARNING):
        model = load_encoder(load_bundle(directory, allow_missing=True))
    assert key in caplog.text
    drawn = model.layers[1].output.weight
    assert 0 < drawn.abs().max() <= 0.04
    with pytest.raises(InputError, match=r"first bert.encoder.layer.0.attention.self.key.bias;"):
        edit_weights(directory, lambda stored: stored.pop("bert.encoder.layer.0.attention.self.key.bias"))
        load_bundle(directory)


def test_c048_a_missing_head_is_only_noted(tmp_path, tokenizer, caplog):
    directory = saved(tmp_path / "model", tokenizer, Bert(CONFIG))
    with caplog.at_level(logging.WARNING):
        bundle = load_bundle(directory)
        assert not caplog.records
        model = load_pretraining_model(bundle)
    assert "mlm_head, nsp_head, pooler" in caplog.text
    assert 0 < model.pooler.dense.weight.abs().max() <= 0.04
    assert torch.equal(model.mlm_head.norm.weight, torch.ones(24))
    assert torch.equal(model.bert.embeddings.word.weight, bundle.state["bert.embeddings.word.weight"])


def test_c048_a_head_of_another_kind_keeps_its_names(tmp_path, tokenizer):
    directory = saved(tmp_path / "model", tokenizer)
    edit_weights(directory, lambda stored: stored.update({"head.alpha_beta": torch.ones(2)}))
    assert torch.equal(load_bundle(directory).state["head.alpha_beta"], torch.ones(2))


def test_a_new_head_is_drawn_and_the_pooler_kept(tmp_path, tokenizer):
    trained = with_visible_weights(BertForClassification(CONFIG, 3))
    directory = saved(tmp_path / "model", tokenizer, trained)
    bundle = load_bundle(directory)
    drawn = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        model = load_classification_model(bundle, 3)
        assert torch.equal(model.pooler.dense.weight, trained.pooler.dense.weight)
        drawn.append(model.classifier.weight)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert torch.equal(load_classification_model(bundle, None).classifier.weight, trained.classifier.weight)


def test_a_model_without_a_classification_head_says_so(tmp_path, tokenizer):
    bundle = load_bundle(saved(tmp_path / "model", tokenizer))
    assert bundle.task is None
    with pytest.raises(InputError, match="no head for such a task"):
        load_classification_model(bundle, None)


@pytest.mark.parametrize("says_tied", [False, True])
def test_an_untied_decoder_scores_as_in_transformers(tmp_path, tokenizer, transformers, says_tied):
    """Whatever config.json says: what is stored counts there, too."""
    config = replace(CONFIG, tied_decoder=False)
    model = with_visible_weights(BertForPreTraining(config))
    directory = saved(tmp_path / "model", tokenizer, model)
    stored = json.loads((directory / "config.json").read_text())
    assert stored["tie_word_embeddings"] is False
    (directory / "config.json").write_text(json.dumps(stored | {"tie_word_embeddings": says_tied}))
    bundle = load_bundle(directory)
    assert bundle.config == config
    again = load_pretraining_model(bundle)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    peer, info = load_whole(transformers.AutoModelForPreTraining, directory)
    assert not info["missing_keys"] or says_tied
    inputs, places = rectangle_inputs()
    tokens = rows_of(random_ids(LENGTHS))
    scores, _ = again(tokens, torch.arange(tokens.layout.places))
    close(peer(**inputs).prediction_logits.flatten(0, 1)[places], scores)


def test_a_decoder_of_its_own_that_is_not_stored_is_refused(tmp_path, tokenizer):
    directory = saved(tmp_path / "model", tokenizer)
    config_file = directory / "config.json"
    config_file.write_text(json.dumps(json.loads(config_file.read_text()) | {"tie_word_embeddings": False}))
    with pytest.raises(InputError, match="tie_word_embeddings is false, but no decoder is stored"):
        load_bundle(directory)


def test_a_stored_decoder_that_is_the_embeddings_is_tied(tmp_path, tokenizer):
    directory = saved(tmp_path / "model", tokenizer)

    def store_both(stored):
        words = stored["bert.embeddings.word_embeddings.weight"]
        stored["cls.predictions.decoder.weight"] = words.clone()
        stored["cls.predictions.decoder.bias"] = stored["cls.predictions.bias"] + 1

    edit_weights(directory, store_both)
    bundle = load_bundle(directory)
    assert bundle.config.tied_decoder
    assert load_pretraining_model(bundle).mlm_head.bias.eq(1).all()  # the decoder's bias is what is added
    edit_weights(directory, lambda stored: stored.pop("bert.embeddings.word_embeddings.weight"))
    again = load_bundle(directory).state["bert.embeddings.word.weight"]
    assert torch.equal(again, bundle.state["bert.embeddings.word.weight"])


def test_a_vocabulary_larger_than_the_embeddings_is_refused(tmp_path, tokenizer):
    directory = saved(tmp_path / "model", tokenizer)
    Tokenizer([*WORDS, "extra"], TokenizerConfig()).save(directory)
    with pytest.raises(InputError, match=rf"{len(WORDS) + 1} entries but the embeddings only {len(WORDS)}"):
        load_bundle(directory)


def test_a_vocabulary_padded_to_a_multiple_loads(tmp_path, tokenizer, caplog):
    """Either config.json counts the filling rows, or only the file has them."""
    padded_config = replace(CONFIG, vocab_size=104)
    directory = saved(tmp_path / "counted", tokenizer, BertForPreTraining(padded_config))
    assert load_bundle(directory).config.vocab_size == 104
    config_file = directory / "config.json"
    config_file.write_text(json.dumps(json.loads(config_file.read_text()) | {"vocab_size": len(WORDS)}))
    with caplog.at_level(logging.WARNING):
        bundle = load_bundle(directory)
    assert "cut to vocab_size" in caplog.text
    assert load_pretraining_model(bundle).mlm_head.bias.shape == (len(WORDS),)


def test_weights_of_another_shape_are_refused(tmp_path, tokenizer):
    directory = saved(tmp_path / "model", tokenizer)
    config_file = directory / "config.json"
    config_file.write_text(json.dumps(json.loads(config_file.read_text()) | {"intermediate_size": 64}))
    with pytest.raises(InputError, match=r"intermediate.dense.* has shape .*48.* says .*64"):
        load_bundle(directory)


@pytest.mark.parametrize("missing", ["config.json", "vocab.txt", "model.safetensors"])
def test_a_missing_file_is_named(tmp_path, tokenizer, missing):
    directory = saved(tmp_path / "model", tokenizer)
    (directory / missing).unlink()
    (directory / "tokenizer.json").unlink()  # which holds the vocabulary, too
    with pytest.raises(InputError, match=missing.replace(".", r"\.")) as caught:
        load_bundle(directory)
    assert "\n" not in str(caught.value)


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(InputError, match="nowhere: no such directory"):
        load_bundle(tmp_path / "nowhere")


def test_c052_a_bin_that_runs_code_is_refused(tmp_path, tokenizer):
    directory = saved(tmp_path / "model", tokenizer)
    (directory / "model.safetensors").unlink()
    mark = tmp_path / "case_pwned"

    class Payload:
        def __reduce__(self):
            return os.system, (f"touch {mark}",)

    torch.save({"weight": Payload()}, directory / "pytorch_model.bin")
    with pytest.raises(InputError, match="refused"):
        load_bundle(directory, allow_missing=True)
    assert not mark.exists()


def test_a_save_that_fails_leaves_the_old_directory_whole(tmp_path, tokenizer, monkeypatch):
    directory = saved(tmp_path / "model", tokenizer)
    before = {path.name: path.read_bytes() for path in directory.iterdir()}
    monkeypatch.setattr(Tokenizer, "save", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        saved(directory, tokenizer, BertForClassification(CONFIG, 2))
    assert {path.name: path.read_bytes() for path in directory.iterdir()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
