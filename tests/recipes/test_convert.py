"""The verb ``convert`` on models of transformers: every head there and back, and what the report says."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.bundle import load_bundle, load_encoder, load_pretraining_model, save_bundle
from bertsmith.cli import run
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForClassification, BertForPreTraining
from bertsmith.model.task_heads import FeatureClassifier, FeatureTagger
from bertsmith.recipes.convert import REPORT_FILE, convert
from bertsmith.recipes.convert_config import ConvertConfig
from bertsmith.tasks.task import KINDS
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.model.rows import VOCAB_SIZE, places_of, random_ids, rows_of
from tests.recipes.tiny import SHAPE

transformers = pytest.importorskip("transformers")
LENGTHS = (5, 17, 9)
SIZES = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 48,
}
KINDS_OF_MODEL = {
    "Bert": {"max_position_embeddings": 40},
    "Roberta": {"max_position_embeddings": 41, "pad_token_id": 0, "type_vocab_size": 1},
    "RobertaPreLayerNorm": {"max_position_embeddings": 41, "pad_token_id": 0},
}
CLASSES = {
    "Model": {},
    "ForPreTraining": {},
    "ForNextSentencePrediction": {},
    "ForMaskedLM": {},
    "ForSequenceClassification": {"id2label": {0: "no", 1: "yes", 2: "so"}},
    "ForTokenClassification": {"id2label": {0: "O", 1: "B-X", 2: "I-X"}},
    "ForQuestionAnswering": {},
    "ForMultipleChoice": {},
}
ALL = [
    (kind, name)
    for kind in KINDS_OF_MODEL
    for name in CLASSES
    if kind == "Bert" or name not in ("ForPreTraining", "ForNextSentencePrediction")
]
MORE = [
    ("Bert", "ForPreTraining", {"tie_word_embeddings": False}),
    ("Bert", "ForSequenceClassification", {"problem_type": "multi_label_classification"}),
    ("Bert", "ForSequenceClassification", {"problem_type": "regression", "num_labels": 1, "id2label": None}),
]


@pytest.fixture(scope="module")
def tokenizer():
    words = [f"w{place}" for place in range(VOCAB_SIZE - len(SPECIAL_TOKENS))]
    return Tokenizer([*SPECIAL_TOKENS, *words], TokenizerConfig())


def saved(tmp_path: Path, tokenizer, kind: str = "Bert", name: str = "ForPreTraining", **settings):
    """Save a model of transformers with weights that show; return it and its directory."""
    torch.manual_seed(0)
    values = SIZES | KINDS_OF_MODEL[kind] | CLASSES[name] | settings
    peer = getattr(transformers, kind + name)(getattr(transformers, f"{kind}Config")(**values))
    for parameter in peer.parameters():
        torch.nn.init.normal_(parameter, mean=0.3 if parameter.ndim == 1 else 0.0, std=0.1)
    peer.save_pretrained(tmp_path / "theirs")
    tokenizer.save(tmp_path / "theirs")
    return peer.eval(), tmp_path / "theirs"


def inputs_of(kind: str, bundle):
    ids = random_ids(LENGTHS)
    rectangle, tokens = rows_of(ids, max(LENGTHS)), rows_of(ids)
    mask = torch.zeros(rectangle.layout.places, dtype=torch.long).scatter(0, places_of(rectangle.layout), 1)
    peer = {"input_ids": rectangle.input_ids.view(3, -1), "attention_mask": mask.view(3, -1)}
    if bundle.config.num_segments > 1:
        peer["token_type_ids"] = rectangle.segment_ids.view(3, -1)
    return tokens, peer, mask.view(3, -1).bool()


def theirs_and_ours(peer, name: str, bundle, inputs):
    """Return pairs of what both compute."""
    tokens, given, real = inputs
    everywhere = torch.arange(tokens.layout.places)
    if name == "ForMultipleChoice":
        given = {key: value[:, None] for key, value in given.items()}
    found = peer(**given)
    if name in ("Model", "ForNextSentencePrediction"):
        states = getattr(peer, "bert", peer)(**given).last_hidden_state
        return [(states[real], load_encoder(bundle)(tokens))]
    if name in ("ForPreTraining", "ForMaskedLM"):
        words, following = load_pretraining_model(bundle)(tokens, everywhere)
        pairs = [(found[0][real], words)]
        return [*pairs, (found[1], following)] if name == "ForPreTraining" else pairs
    model = KINDS[bundle.task["head"]].load_model(bundle, None)
    if name == "ForTokenClassification":
        return [(found.logits[real], model(tokens, everywhere))]
    if name == "ForQuestionAnswering":
        return [(torch.stack([found.start_logits, found.end_logits], dim=-1)[real], model(tokens))]
    return [(found.logits, model(tokens))]


def equal_but_unread(left: dict, right: dict, kind: str) -> None:
    """Compare weights; of RoBERTa's positions, no token reads those up to the padding's number."""
    assert left.keys() == right.keys()
    for name, value in left.items():
        unread = 1 if kind != "Bert" and name.endswith("position_embeddings.weight") else 0
        assert torch.equal(value[unread:], right[name][unread:]), name


@pytest.mark.parametrize("kind, name, settings", [*((*pair, {}) for pair in ALL), *MORE])
def test_every_head_goes_there_and_back(tokenizer, tmp_path, kind, name, settings):
    """HF to ours to HF, and on to ours: equal tensors; equal scores at each place."""
    peer, theirs = saved(tmp_path, tokenizer, kind, name, **settings)
    report = convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))
    assert report["architecture"] == kind + name
    assert not report["weights"]["missing"]
    assert not report["weights"]["renamed"] or name == "Model"  # alone it is stored without a prefix

    again, info = type(peer).from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    bundle = load_bundle(tmp_path / "ours")
    inputs = inputs_of(kind, bundle)
    with torch.no_grad():
        for (before, ours), (after, _) in zip(
            theirs_and_ours(peer, name, bundle, inputs),
            theirs_and_ours(again.eval(), name, bundle, inputs),
            strict=True,
        ):
            torch.testing.assert_close(after, before, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(ours, before, rtol=1e-6, atol=1e-6)

    again.save_pretrained(tmp_path / "back")
    tokenizer.save(tmp_path / "back")
    back = load_file(tmp_path / "back" / "model.safetensors")
    if "tie_word_embeddings" in settings:  # transformers stores the bias that it does not read, too
        assert list(report["weights"]["unused"]) == ["cls.predictions.bias"]
        back["cls.predictions.bias"] = load_file(theirs / "model.safetensors")["cls.predictions.bias"]
    equal_but_unread(load_file(theirs / "model.safetensors"), back, kind)
    convert(ConvertConfig(str(tmp_path / "back"), str(tmp_path / "ours again")))
    last = load_bundle(tmp_path / "ours again")
    assert (last.config, last.task) == (bundle.config, bundle.task)
    assert last.state.keys() == bundle.state.keys()
    assert all(torch.equal(value, bundle.state[name]) for name, value in last.state.items())


def own_models():
    """Models that other tools know in part only, with what their task.json says."""
    shape = replace(SHAPE, vocab_size=VOCAB_SIZE)
    words = {"task": "tag", "head": "feature-tagging", "labels": ["O", "B-X", "I-X"]}
    classes = {"task": "classify", "head": "classification", "labels": ["no", "yes"]}
    by_pairs = classes | {"head": "feature-classification", "settings": {"lstm_size": 8}}
    several = {
        "task": "multilabel",
        "head": "multi-label",
        "labels": ["a", "b"],
        "tuned": {"thresholds": [0.3, 0.4]},
    }
    pretraining = {"task": "pretrain", "head": "pretraining", "labels": None}
    left = replace(shape, context="left")
    return {
        "frozen features": (FeatureTagger(shape, 3, (1, 2), True), words),
        "frozen features of pairs": (FeatureClassifier(shape, 2, (1, 2), True, 8, pairs=True), by_pairs),
        "left to right": (BertForPreTraining(left), pretraining),
        "left to right, classes": (BertForClassification(left, 2), classes),
        "recurrent top": (BertForClassification(replace(left, recurrent_top=True), 2), classes),
        "several labels": (BertForClassification(shape, 2), several),
        "LSTM": (BertForPreTraining(replace(shape, mixing="lstm")), pretraining),
    }


@pytest.mark.parametrize("name", own_models())
def test_models_of_our_own_come_through_whole(tokenizer, tmp_path, name):
    model, task = own_models()[name]
    save_bundle(tmp_path / "first", model, tokenizer, task, "a card")
    report = convert(ConvertConfig(str(tmp_path / "first"), str(tmp_path / "second")))
    assert not report["weights"]["renamed"]
    assert not report["weights"]["unused"]
    first, second = load_bundle(tmp_path / "first"), load_bundle(tmp_path / "second")
    assert (first.config, first.task) == (second.config, second.task)
    assert first.state.keys() == second.state.keys()
    assert all(torch.equal(value, second.state[name]) for name, value in first.state.items())


def edited(directory: Path, edit) -> dict:
    stored = load_file(directory / "model.safetensors")
    stored = edit(stored)
    save_file({name: value.contiguous() for name, value in stored.items()}, directory / "model.safetensors")
    return stored


def old_names(stored):
    pairs = (("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta"))
    result = {"module.bert.embeddings.position_ids": torch.arange(40)[None]}
    for name, value in stored.items():
        for new, old in pairs:
            name = name.replace(new, old)
        result[f"module.{name}"] = value
    return result | {"module.head.alpha_beta": torch.ones(2)}


def test_c048_old_names_are_reported_and_nothing_else_is_renamed(tokenizer, tmp_path, capsys):
    _, theirs = saved(tmp_path, tokenizer)
    before = load_file(theirs / "model.safetensors")
    edited(theirs, old_names)
    assert run(["convert", "--input", str(theirs), "--out", str(tmp_path / "ours")]) == 0
    printed = capsys.readouterr().out
    report = json.loads((tmp_path / "ours" / REPORT_FILE).read_text())
    renamed = report["weights"]["renamed"]
    assert renamed["module.bert.embeddings.LayerNorm.gamma"] == "bert.embeddings.LayerNorm.weight"
    assert set(renamed.values()) == before.keys()
    assert report["weights"]["unused"] == {
        "module.bert.embeddings.position_ids": "a buffer, no weight",
        "module.head.alpha_beta": "unknown name",
    }
    assert "1: unknown name: module.head.alpha_beta" in printed
    after = load_file(tmp_path / "ours" / "model.safetensors")
    assert after.keys() == before.keys()
    assert all(torch.equal(after[name], before[name]) for name in before)


@pytest.mark.parametrize("shift", [0.0, 1.0], ids=["equal", "other"])
def test_a_decoder_stored_beside_what_it_is_tied_to(tokenizer, tmp_path, shift):
    """As in every pytorch_model.bin; of two biases that differ, the decoder's own is added to the scores."""
    peer, theirs = saved(tmp_path, tokenizer, name="ForMaskedLM")
    stored = peer.state_dict()
    words, bias = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
    stored |= {
        "cls.predictions.decoder.weight": stored[words],
        "cls.predictions.decoder.bias": stored[bias] + shift,
    }
    (theirs / "model.safetensors").unlink()
    torch.save(stored, theirs / "pytorch_model.bin")
    weights = convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))["weights"]
    found = load_bundle(tmp_path / "ours")
    assert found.config.tied_decoder
    assert torch.equal(found.state["mlm_head.bias"], stored[bias] + shift)
    assert weights["missing"] == []
    unused = {"cls.predictions.decoder.weight": f"equal to {words}, which stands for it"}
    if shift:
        assert weights["renamed"] == {"cls.predictions.decoder.bias": bias}
        unused[bias] = "what is added to the scores is the decoder's own bias"
    else:
        unused["cls.predictions.decoder.bias"] = f"equal to {bias}, which stands for it"
    assert weights["unused"] == unused


@pytest.mark.parametrize("wrapper", ["model.", "0.auto_model.", "student.model."])
def test_any_wrapper_around_the_one_bert_is_dropped(tokenizer, tmp_path, wrapper):
    _, theirs = saved(tmp_path, tokenizer)
    before = edited(theirs, lambda stored: {wrapper + name: value for name, value in stored.items()})
    report = convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))
    assert report["weights"]["renamed"] == {name: name.removeprefix(wrapper) for name in before}


def test_two_names_of_one_weight_are_refused(tokenizer, tmp_path):
    _, theirs = saved(tmp_path, tokenizer)
    extra = {"bert.embeddings.LayerNorm.gamma": torch.ones(24)}
    edited(theirs, lambda stored: stored | extra)
    with pytest.raises(InputError, match=r"are both bert\.embeddings\.LayerNorm\.weight"):
        convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))


def test_c048_a_missing_encoder_weight_is_an_error_unless_allowed(tokenizer, tmp_path, capsys):
    _, theirs = saved(tmp_path, tokenizer)
    key = "bert.encoder.layer.1.attention.self.key.weight"
    edited(theirs, lambda stored: {name: value for name, value in stored.items() if name != key})
    words = ["convert", "--input", str(theirs), "--out", str(tmp_path / "ours")]
    assert run(words) == 2
    assert f"first {key}" in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["theirs"]
    assert run([*words, "--allow-missing", "--json"]) == 0
    weights = json.loads(capsys.readouterr().out)["weights"]
    assert weights["missing"] == [key.replace("key", part) for part in ("key", "query", "value")]
    assert list(weights["unused"]) == [key.replace("key", part) for part in ("query", "value")]


@pytest.mark.parametrize("name", ["classifier.bias", "bert.pooler.dense.weight"])
def test_a_head_that_is_there_in_part_is_refused(tokenizer, tmp_path, name):
    _, theirs = saved(tmp_path, tokenizer, name="ForSequenceClassification")
    edited(theirs, lambda stored: {key: value for key, value in stored.items() if key != name})
    if name == "classifier.bias":
        with pytest.raises(InputError, match=r"classifier\.bias is missing, the head is not whole"):
            convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))
        return
    with pytest.raises(InputError, match=r"pooler\.dense\.weight is missing, the head is not whole"):
        convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))


def test_an_encoder_without_a_pooler_says_so(tokenizer, tmp_path):
    _, theirs = saved(tmp_path, tokenizer, name="Model")
    edited(theirs, lambda stored: {key: value for key, value in stored.items() if "pooler" not in key})
    report = convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))
    assert report["architecture"] == "BertModel"
    assert "pooler.dense.weight" not in load_bundle(tmp_path / "ours").state


def test_weights_in_several_files_and_a_padded_vocabulary(tokenizer, tmp_path):
    """Rows beyond vocab_size are cut; the note says so."""
    peer, theirs = saved(tmp_path, tokenizer)
    stored = load_file(theirs / "model.safetensors")
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        stored[name] = torch.cat([stored[name], torch.zeros(7, *stored[name].shape[1:])])
    (theirs / "model.safetensors").unlink()
    names = sorted(stored)
    parts = {f"model-{part + 1:05d}-of-00003.safetensors": names[part::3] for part in range(3)}
    for file, part in parts.items():
        save_file({name: stored[name] for name in part}, theirs / file)
    index = {"metadata": {}, "weight_map": {name: file for file, part in parts.items() for name in part}}
    (theirs / "model.safetensors.index.json").write_text(json.dumps(index))
    report = convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))
    assert f"the word embeddings had {VOCAB_SIZE + 7} rows, cut to the {VOCAB_SIZE}" in report["notes"][0]
    bundle = load_bundle(tmp_path / "ours")
    with torch.no_grad():
        inputs = inputs_of("Bert", bundle)
        for before, ours in theirs_and_ours(peer, "ForPreTraining", bundle, inputs):
            torch.testing.assert_close(ours, before, rtol=1e-6, atol=1e-6)


def test_half_precision_is_named_and_kept_in_value(tokenizer, tmp_path):
    _, theirs = saved(tmp_path, tokenizer)
    before = edited(theirs, lambda stored: {name: value.half() for name, value in stored.items()})
    report = convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))
    assert "stored as float16, written as float32 with the same values" in report["notes"]
    after = load_file(tmp_path / "ours" / "model.safetensors")
    assert all(torch.equal(after[name], before[name].float()) for name in before)


def test_what_is_no_sound_number_is_refused_or_noted(tokenizer, tmp_path):
    _, theirs = saved(tmp_path, tokenizer)
    name = "bert.encoder.layer.0.output.dense.weight"
    edited(theirs, lambda stored: stored | {name: stored[name].masked_fill(stored[name] > 0.2, torch.nan)})
    report = convert(ConvertConfig(str(theirs), str(tmp_path / "ours")))
    assert report["notes"] == [f"1 weights hold NaN or infinity, such as {name}: the model is broken"]
    edited(theirs, lambda stored: stored | {name: torch.ones_like(stored[name], dtype=torch.int8)})
    with pytest.raises(InputError, match=rf"{name} is of type int8; get the model before it was quantised"):
        load_bundle(theirs)


def test_labels_can_be_named(tokenizer, tmp_path, capsys):
    _, theirs = saved(tmp_path, tokenizer, name="ForSequenceClassification", id2label=None, num_labels=3)
    words = ["convert", "--input", str(theirs), "--out", str(tmp_path / "ours")]
    assert run(words) == 0
    assert "do not name the labels; give them with --labels" in capsys.readouterr().out
    assert run([*words, "--labels", "a", "b", "c"]) == 0
    assert load_bundle(tmp_path / "ours").task["labels"] == ["a", "b", "c"]
    assert transformers.AutoConfig.from_pretrained(tmp_path / "ours").id2label == {0: "a", 1: "b", 2: "c"}
    assert run([*words, "--labels", "a", "b"]) == 2
    assert "expected 3 different names" in capsys.readouterr().err
    _, encoder = saved(tmp_path / "more", tokenizer, name="Model")
    assert run(["convert", "--input", str(encoder), "--out", str(tmp_path / "x"), "--labels", "a"]) == 2
    assert "--labels would be ignored" in capsys.readouterr().err


def test_settings_and_vocabulary_may_lie_elsewhere(tokenizer, tmp_path):
    _, theirs = saved(tmp_path, tokenizer)
    bare = tmp_path / "bare"
    bare.mkdir()
    shutil.copy(theirs / "model.safetensors", bare)
    with pytest.raises(InputError, match=r"no config\.json; name it with --architecture"):
        convert(ConvertConfig(str(bare), str(tmp_path / "ours")))
    found = ConvertConfig(
        str(bare / "model.safetensors"),
        str(tmp_path / "ours"),
        architecture=str(theirs / "config.json"),
        vocab=str(theirs),
        activation="gelu_tanh",
    )
    with pytest.raises(InputError, match="or name another vocabulary with --vocab"):
        convert(replace(found, vocab=None))
    convert(found)
    expected = replace(load_bundle(theirs).config, activation="gelu_tanh")
    assert load_bundle(tmp_path / "ours").config == expected
    with pytest.raises(InputError, match="activation 'swish' is unknown"):
        convert(replace(found, activation="swish"))


def test_the_sources_model_card_is_kept(tokenizer, tmp_path):
    _, theirs = saved(tmp_path, tokenizer)
    (theirs / "README.md").write_text("---\nlicense: mit\n---\n# Their model\n")
    for source, out in ((theirs, "ours"), (tmp_path / "ours", "twice")):
        convert(ConvertConfig(str(source), str(tmp_path / out)))
        card = (tmp_path / out / "README.md").read_text()
        assert card.startswith("---\nlicense: mit\n---\n# Their model\n")
        assert card.count("Converted with Bertsmith") == 1


def test_nothing_else_is_overwritten(tokenizer, tmp_path, capsys):
    _, theirs = saved(tmp_path, tokenizer)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "diary.txt").write_text("mine")
    for out, message in (
        (tmp_path / "notes", "is no model directory"),
        (tmp_path / "notes" / "diary.txt", "is no model directory"),
        (theirs, "is where the model is read from"),
    ):
        assert run(["convert", "--input", str(theirs), "--out", str(out)]) == 2
        assert message in capsys.readouterr().err
    assert (tmp_path / "notes" / "diary.txt").read_text() == "mine"


@pytest.mark.parametrize(
    "name, message",
    [
        ("gone", "no such file or directory, nor a checkpoint"),
        ("empty", "no weights; expected model.safetens"),
    ],
)
def test_what_is_not_there_is_said(tmp_path, capsys, name, message):
    (tmp_path / "empty").mkdir()
    assert run(["convert", "--input", str(tmp_path / name), "--out", str(tmp_path / "ours")]) == 2
    assert message in capsys.readouterr().err
    assert run(["convert", "--input", "x", "--out", "y", "--from", "keras"]) == 2
    assert "--from is 'keras'; take one of auto, hf, tf1" in capsys.readouterr().err
