"""Rankings, pieces and attention: what a predictor says of any model's texts."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.bundle import save_bundle
from bertsmith.errors import InputError
from bertsmith.model.bert import Bert, BertForClassification, BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.predictor import load
from bertsmith.tasks.inference import inference_settings
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = ["hello", "paris", "is", "a", "city", "##s", ".", "the", "[", "]", "mask"]
SHAPE = BertConfig(
    vocab_size=5 + len(WORDS),
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=32,
    max_positions=32,
    initializer_std=0.5,
)
PAIRS = {"text": "query", "second_text": "passage", "label": "label"}
TEXTS = ["paris is a city .", "hello", "", " ".join(["city"] * 60), "the citys"]


def saved(path: Path, outputs: int | None, **stored: Any) -> Path:
    torch.manual_seed(3)
    model = BertForPreTraining(SHAPE) if outputs is None else BertForClassification(SHAPE, outputs)
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *WORDS], TokenizerConfig())
    save_bundle(path, model, tokenizer, {"task": "any", "labels": None, "seq_len": 16, **stored}, "card")
    return path


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("models") / "pretrained", None, head="pretraining")


def test_a_cross_encoder_ranks_by_the_scores_of_its_pairs(tmp_path: Path) -> None:
    model = load(saved(tmp_path / "model", 1, head="regression", columns=PAIRS))
    found = model.rerank("is paris a city", TEXTS)
    alone = [model.regress([("is paris a city", text)])[0] for text in TEXTS]
    assert [item.score for item in found] == sorted((item.score for item in found), reverse=True)
    for item in found:
        assert item.score == pytest.approx(alone[item.index].value, abs=1e-5)
        assert item.truncated == alone[item.index].truncated == (item.index == 3)
    assert model.rerank("paris", []) == []


@pytest.mark.parametrize(
    "labels, label, expected",
    [
        (["entailment", "not_entailment"], None, "entailment"),
        (["0", "1"], None, "1"),
        (["contradiction", "entailment", "neutral"], None, "entailment"),
        (["no", "perhaps", "yes"], "yes", "yes"),
    ],
)
def test_a_classifier_of_pairs_ranks_by_the_label_that_means_relevant(
    tmp_path: Path, labels: list[str], label: str | None, expected: str
) -> None:
    model = load(saved(tmp_path / "model", len(labels), head="classification", labels=labels, columns=PAIRS))
    shares = [answer.probabilities[expected] for answer in model.classify([("hello", t) for t in TEXTS])]
    found = model.rerank("hello", TEXTS, label)
    assert [item.index for item in found] == sorted(range(5), key=lambda place: -shares[place])
    np.testing.assert_allclose([item.score for item in found], sorted(shares, reverse=True), atol=1e-6)


def test_a_label_that_cannot_be_chosen_is_asked_for(tmp_path: Path, pretrained: Path) -> None:
    stored = {"head": "classification", "labels": ["no", "perhaps", "yes"], "columns": PAIRS}
    model = load(saved(tmp_path / "model", 3, **stored))
    with pytest.raises(InputError, match="name the label that means relevant, one of no, perhaps, yes"):
        model.rerank("hello", TEXTS)
    with pytest.raises(InputError, match=r"label 'yess' is unknown; .*yes"):
        model.rerank("hello", TEXTS, "yess")
    with pytest.raises(InputError, match="label 'yes' would be ignored"):
        load(pretrained).rerank("hello", TEXTS, "yes")


def test_any_other_model_ranks_by_the_cosine_of_its_vectors(tmp_path: Path, pretrained: Path) -> None:
    columns = {"text": "text", "second_text": None, "label": "label"}
    single = saved(tmp_path / "model", 2, head="classification", labels=["a", "b"], columns=columns)
    for path in (pretrained, single):
        model = load(path)
        vectors = model.embed(TEXTS).vectors.astype(np.float64)
        query = model.embed(["the city"]).vectors[0].astype(np.float64)
        cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
        found = model.rerank("the city", TEXTS)
        assert [item.index for item in found] == np.argsort(-cosines).tolist()
        np.testing.assert_allclose([item.score for item in found], np.sort(cosines)[::-1], atol=1e-5)
        assert [item.truncated for item in found] == [item.index == 3 for item in found]


def test_equal_texts_keep_their_order(pretrained: Path) -> None:
    found = load(pretrained).rerank("hello", ["paris", "hello", "paris", "hello"])
    assert [item.index for item in found] == [1, 3, 0, 2]


@pytest.mark.parametrize(
    "query, texts, message",
    [
        (3, ["a"], "the query is a int; expected a text"),
        ("a", "hello", "expected a list of texts"),
        ("a", [("a", "b")], "text number 0 is a pair; expected a text to rank"),
        ("a", ["b", None], "text number 1 is a NoneType"),
    ],
)
def test_what_cannot_be_ranked_is_refused(pretrained: Path, query: Any, texts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(pretrained).rerank(query, texts)


def test_pieces_have_ids_tokens_and_places(pretrained: Path) -> None:
    model = load(pretrained)
    text, pair, masked, literal, long = [
        *model.tokenize(["Paris is  citys.", ("hello", "the city")]),
        model.tokenize(["the [MASK] is"], masks=True)[0],
        *model.tokenize(["[MASK]", "city " * 60]),
    ]
    assert text.tokens == ["[CLS]", "paris", "is", "city", "##s", ".", "[SEP]"]
    assert text.offsets == [(0, 0), (0, 5), (6, 8), (10, 14), (14, 15), (15, 16), (0, 0)]
    assert [model.bundle.tokenizer.vocab[id] for id in text.ids] == text.tokens
    assert pair.tokens == ["[CLS]", "hello", "[SEP]", "the", "city", "[SEP]"]
    assert pair.offsets == [(0, 0), (0, 5), (0, 0), (0, 3), (4, 8), (0, 0)]
    assert masked.tokens == ["[CLS]", "the", "[MASK]", "is", "[SEP]"]
    assert masked.offsets[1:-1] == [(0, 3), (4, 10), (11, 13)]
    assert literal.tokens == ["[CLS]", "[", "mask", "]", "[SEP]"]
    assert (len(long.ids), long.truncated, text.truncated) == (16, True, False)
    assert model.count_pieces(["Paris is  citys.", ("hello", "the city"), "", "city " * 60]) == [7, 6, 2, 62]
    assert model.tokenize([]) == model.count_pieces([]) == []


@pytest.mark.parametrize("truncation", ["tail", "head", "head+tail"])
def test_pieces_are_cut_as_the_models_inputs_are(tmp_path: Path, truncation: str) -> None:
    from bertsmith.tasks.encode import encode_rows

    model = load(saved(tmp_path / "model", 1, head="regression", truncation=truncation))
    texts = [" ".join(WORDS[place % 5] for place in range(start, start + 40)) for start in range(5)]
    inputs = [*texts, *zip(texts, texts[::-1], strict=True), ("hello", texts[0]), ""]
    pairs = [(item, None) if isinstance(item, str) else item for item in inputs]
    expected = encode_rows(pairs, model.bundle.tokenizer, 16, truncation)
    for found, row, item in zip(model.tokenize(inputs), expected, pairs, strict=True):
        assert (found.ids, found.truncated) == (row.ids.tolist(), row.truncated)
        second = row.second_start
        for place, (token, (start, end)) in enumerate(zip(found.tokens, found.offsets, strict=True)):
            text = item[0] if place < second else item[1]
            assert token in SPECIAL_TOKENS or text[start:end] == token


def test_attention_of_a_left_to_right_model_equals_transformers(tmp_path: Path, pretrained: Path) -> None:
    config = json.loads((pretrained / "config.json").read_text())
    shutil.copytree(pretrained, tmp_path / "left")
    (tmp_path / "left" / "config.json").write_text(json.dumps(config | {"is_decoder": True}))
    found = load(tmp_path / "left").attention(["the city"])[0].weights
    transformers = pytest.importorskip("transformers")
    peer = transformers.AutoModel.from_pretrained(tmp_path / "left", attn_implementation="eager").eval()
    ids = torch.tensor([load(tmp_path / "left").tokenize(["the city"])[0].ids])
    expected = torch.cat(peer(ids, output_attentions=True).attentions).detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert (np.triu(found, 1) == 0).all()


def test_attention_equals_transformers(pretrained: Path) -> None:
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoModel.from_pretrained(pretrained, attn_implementation="eager").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(pretrained)
    texts = ["the city", "paris is a [MASK] .", "", "hello paris is the citys ."]
    model = load(pretrained, batch_tokens=12)
    for found, text in zip(model.attention(texts, masks=True), texts, strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            expected = torch.cat(reference(**inputs, output_attentions=True).attentions)
        assert found.tokens == tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
        assert found.weights.dtype == np.float32
        np.testing.assert_allclose(found.weights, expected.numpy(), atol=1e-5)
    pair = model.attention([("the city", "hello")])[0]
    with torch.no_grad():
        inputs = tokenizer("the city", "hello", return_tensors="pt")
        expected = torch.cat(reference(**inputs, output_attentions=True).attentions)
    np.testing.assert_allclose(pair.weights, expected.numpy(), atol=1e-5)
    long = model.attention(["city " * 60])[0]
    assert (long.weights.shape, long.truncated) == ((2, 2, 16, 16), True)
    np.testing.assert_allclose(long.weights.sum(-1), 1, atol=1e-5)


def test_a_model_says_what_it_can_do(tmp_path: Path, pretrained: Path) -> None:
    always = ("embed", "similarity", "rerank", "attention", "tokenize")
    assert load(pretrained).can == ("fill", *always)
    classifier = saved(tmp_path / "model", 2, head="classification", labels=["a", "b"])
    assert load(classifier).can == ("classify", *always)
    for verb in load(classifier).can:
        assert callable(getattr(load(classifier), verb))


def test_the_number_of_threads_is_the_one_asked_for(pretrained: Path) -> None:
    before = torch.get_num_threads()
    try:
        load(pretrained, threads=1)
        assert torch.get_num_threads() == 1
        with pytest.raises(InputError, match="threads is 0; it has to be at least 1"):
            load(pretrained, threads=0)
    finally:
        torch.set_num_threads(before)


def test_weights_rounded_once_give_what_rounding_them_in_each_pass_gives(pretrained: Path) -> None:
    model = load(pretrained)
    model._inference = inference_settings("bfloat16", 4096)  # float32 weights under autocast
    expected = model.embed(TEXTS).vectors
    np.testing.assert_array_equal(load(pretrained, "bfloat16").embed(TEXTS).vectors, expected)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"quantize": "int4"}, "quantize is 'int4'; take int8"),
        ({"quantize": "int8", "precision": "auto"}, "precision auto would be ignored with quantize"),
    ],
)
def test_settings_of_8_bits_that_do_not_fit_are_refused(
    pretrained: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        load(pretrained, **settings)


def test_8_bits_without_instructions_for_them_are_warned_of(
    pretrained: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for has in (True, False):
        caplog.clear()
        monkeypatch.setattr("bertsmith.tasks.inference.multiplies_int8", lambda device, has=has: has)
        load(pretrained, quantize="int8")
        assert ("slower than float32" in caplog.text) is not has


def test_8_bits_are_for_transformers(tmp_path: Path) -> None:
    shape = dataclasses.replace(SHAPE, mixing="lstm")
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *WORDS], TokenizerConfig())
    save_bundle(tmp_path / "model", Bert(shape), tokenizer, None, "card")
    with pytest.raises(InputError, match="quantize int8 is for Transformers on a processor"):
        load(tmp_path / "model", quantize="int8")


@pytest.mark.parametrize(
    "settings, mean, least",
    [({"precision": "bfloat16"}, 0.9999, 0.9998), ({"quantize": "int8"}, 0.998, 0.99)],
)
def test_real_sentences_lose_little_in_few_bits(
    minilm_path: Path, shared_data: Path, settings: dict[str, Any], mean: float, least: float
) -> None:
    """The figures of docs/predictor.md, on a few rows."""
    with gzip.open(shared_data / "glue" / "STS-B" / "dev.tsv.gz", "rt", encoding="utf-8") as file:
        texts = [line.split("\t")[7] for line in itertools.islice(file, 1, 41)]
    exact = load(minilm_path).embed(texts, normalize=True).vectors
    cosines = np.sum(load(minilm_path, **settings).embed(texts, normalize=True).vectors * exact, axis=1)
    assert cosines.mean() > mean
    assert cosines.min() > least
