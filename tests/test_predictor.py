"""The predictor: order, neighbours, truncation, equality with sentence-transformers and transformers."""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import bertsmith
from bertsmith.bundle import save_bundle
from bertsmith.errors import InputError
from bertsmith.model.bert import Bert, BertForClassification, BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.predictor import Predictor, load
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = ["hello", "paris", "is", "a", "city", "##s", ".", "the", "sep", "[", "]", "mask"]
SHAPE = BertConfig(
    vocab_size=5 + len(WORDS),
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    intermediate_size=32,
    max_positions=32,
    initializer_std=0.5,
)
TEXTS = ["hello", "paris is a city .", " ".join(["city"] * 60), "", "citys", "the city"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer([*SPECIAL_TOKENS, *WORDS], TokenizerConfig())


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    torch.manual_seed(1)
    path = tmp_path_factory.mktemp("models") / "classifier"
    task = {"task": "classify", "head": "classification", "labels": ["no", "yes", "maybe"], "seq_len": 16}
    save_bundle(path, BertForClassification(SHAPE, 3), tokenizer, task, "card")
    return path


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    torch.manual_seed(2)
    path = tmp_path_factory.mktemp("models") / "regression"
    columns = {"text": "a", "second_text": "b", "label": "c"}
    task = {"task": "regress", "head": "regression", "labels": None, "seq_len": 16, "columns": columns}
    save_bundle(path, BertForClassification(SHAPE, 1), tokenizer, task, "card")
    return path


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Path:
    torch.manual_seed(3)
    path = tmp_path_factory.mktemp("models") / "pretrained"
    task = {"task": "pretrain", "head": "pretraining", "labels": None, "seq_len": 16}
    save_bundle(path, BertForPreTraining(SHAPE), tokenizer, task, "card")
    return path


def test_importing_the_package_does_not_import_torch() -> None:
    code = "import sys, bertsmith; bertsmith.__version__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        bertsmith.nothing  # noqa: B018


@pytest.mark.parametrize("batch_tokens", [1, 20, 4096])
def test_classify_keeps_order_and_ignores_neighbours(classifier: Path, batch_tokens: int) -> None:
    predictor = load(classifier, batch_tokens=batch_tokens)
    alone = [predictor.classify([text])[0] for text in TEXTS]
    for order in (range(6), reversed(range(6)), [4, 4, 0, 2, 1, 3, 5, 5]):
        order = list(order)
        together = predictor.classify([TEXTS[index] for index in order])
        for index, answer in zip(order, together, strict=True):
            assert answer.label == alone[index].label
            assert list(answer.probabilities) == ["no", "yes", "maybe"]
            assert answer.probabilities == pytest.approx(alone[index].probabilities, abs=1e-5)
            assert sum(answer.probabilities.values()) == pytest.approx(1, abs=1e-6)
            assert answer.probability == max(answer.probabilities.values())
            assert answer.truncated == (index == 2)
    assert predictor.classify([]) == []


def test_classify_equals_transformers(classifier: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForSequenceClassification.from_pretrained(classifier).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(classifier)
    texts = ["paris is a city .", "the city"]
    for text, answer in zip(texts, load(classifier).classify(texts), strict=True):
        with torch.no_grad():
            logits = model(**tokenizer(text, return_tensors="pt")).logits[0]
        for number, share in enumerate(torch.softmax(logits, dim=-1).tolist()):
            assert answer.probabilities[model.config.id2label[number]] == pytest.approx(share, abs=1e-5)


def test_regress_takes_the_pairs_it_was_trained_on(regression: Path) -> None:
    predictor = load(regression)
    pairs = [("hello", "paris is a city ."), ("a", "a"), (" ".join(["city"] * 20), "the")]
    answers = predictor.regress(pairs)
    assert [answer.truncated for answer in answers] == [False, False, True]
    assert predictor.regress(pairs[::-1])[2].value == pytest.approx(answers[0].value, abs=1e-5)
    with pytest.raises(InputError, match=r"trained on pairs, given as .* text number 0 is not"):
        predictor.regress(["hello"])


def test_a_verb_without_its_head_is_refused(classifier: Path, regression: Path, pretrained: Path) -> None:
    with pytest.raises(
        InputError, match="cannot fill, it has no masked language model head; it can classify"
    ):
        load(classifier).fill(["a [MASK]"])
    with pytest.raises(InputError, match="cannot classify, it has no classification head; it can regress"):
        load(regression).classify(["hello"])
    with pytest.raises(InputError, match="cannot regress, it has no regression head; it can fill, embed"):
        load(pretrained).regress(["hello"])


@pytest.mark.parametrize(
    "texts, message", [("hello", "list of texts"), ([7], "number 0"), ([("a",)], "number 0")]
)
def test_what_is_no_list_of_texts_is_refused(classifier: Path, texts: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        load(classifier).classify(texts)  # type: ignore[arg-type]


def test_fill_equals_transformers_and_ignores_neighbours(pretrained: Path) -> None:
    transformers = pytest.importorskip("transformers")
    texts = ["paris is [MASK] city", "[MASK]", "the [MASK] [MASK] ."]
    predictor = load(pretrained, batch_tokens=9)
    answers = predictor.fill(texts, top=len(WORDS) + 5)
    assert [len(answer.masks) for answer in answers] == [1, 1, 2]
    model = transformers.AutoModelForMaskedLM.from_pretrained(pretrained).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(pretrained)
    for text, answer in zip(texts, answers, strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        with torch.no_grad():
            shares = torch.softmax(model(**inputs).logits[0], dim=-1)
        places = (inputs["input_ids"][0] == tokenizer.mask_token_id).nonzero().squeeze(1)
        for place, candidates in zip(places, answer.masks, strict=True):
            values = [candidate.probability for candidate in candidates]
            assert values == sorted(values, reverse=True)
            for candidate in candidates:
                id = tokenizer.convert_tokens_to_ids(candidate.token)
                assert candidate.probability == pytest.approx(float(shares[place, id]), abs=1e-5)
    best = answers[0].masks[0][0].token
    assert answers[0].text in (f"paris is {best} city", f"paris is{best[2:]} city")


def test_fill_refuses_what_it_cannot_do(pretrained: Path) -> None:
    predictor = load(pretrained)
    with pytest.raises(InputError, match=r"text number 1 has no \[MASK\]: 'hello'"):
        predictor.fill(["a [MASK]", "hello"])
    with pytest.raises(InputError, match=r"text number 0 has a \[MASK\] beyond the model's 16 pieces"):
        predictor.fill(["city " * 20 + "[MASK]"])
    with pytest.raises(InputError, match="top is 0"):
        predictor.fill(["[MASK]"], top=0)
    assert predictor.fill(["[MASK] " + "city " * 20])[0].truncated


@pytest.mark.parametrize("pooling, layer", list(itertools.product(["mean", "max", "cls"], [-1, -2])))
def test_c059_embeddings_do_not_depend_on_the_batch(classifier: Path, pooling: str, layer: int) -> None:
    texts = ["hello", " ".join(["paris city"] * 7), "a", "the city is a city"] * 2
    alone = np.asarray(load(classifier).embed(["hello"], pooling, layer))
    for batch_tokens in (1, 10, 4096):
        answer = load(classifier, batch_tokens=batch_tokens).embed(texts, pooling, layer)
        assert answer.vectors.dtype == np.float32
        assert len(answer) == 8
        np.testing.assert_allclose(answer.vectors[[0, 4]], np.repeat(alone, 2, axis=0), atol=1e-5)
        np.testing.assert_array_equal(np.stack(list(answer)), answer.vectors)
        assert answer.truncated == [False] * 8


def test_c059_half_precision_stays_near(classifier: Path) -> None:
    texts = ["hello", "paris is a city .", "the city is a city"]
    exact = load(classifier).embed(texts, normalize=True).vectors
    half = load(classifier, precision="bfloat16").embed(texts, normalize=True).vectors
    assert np.sum(exact * half, axis=1).min() > 0.999


def test_c059_token_vectors_have_offsets_and_mean_counts_cls_and_sep(classifier: Path) -> None:
    predictor = load(classifier)
    answer, long = predictor.embed_tokens(["Paris is citys .", " ".join(["city"] * 60)])
    assert answer.tokens == ["paris", "is", "city", "##s", "."]
    assert answer.offsets == [(0, 5), (6, 8), (9, 13), (13, 14), (15, 16)]
    assert answer.vectors.shape == (5, 16)
    assert (len(long.tokens), len(long.offsets), len(long.vectors), long.truncated) == (14, 14, 14, True)
    mean = predictor.embed(["Paris is citys ."]).vectors[0]
    cls = predictor.embed(["Paris is citys ."], "cls").vectors[0]
    sep = mean * 7 - answer.vectors.sum(axis=0) - cls
    reference = predictor._encoder
    tokens = predictor.bundle.tokenizer
    ids = torch.tensor([tokens.cls_id, *tokens.encode("Paris is citys ."), tokens.sep_id])
    from bertsmith.data.batch import tokens_of

    with torch.no_grad():
        expected = reference(tokens_of([ids.tolist()], [7]))[-1].numpy()
    np.testing.assert_allclose(sep, expected, atol=1e-4)


def test_similarity_is_the_cosine(classifier: Path) -> None:
    predictor = load(classifier)
    vectors = predictor.embed(["hello", "the city"]).vectors.astype(np.float64)
    other = predictor.embed(["a"]).vectors.astype(np.float64)
    answer = predictor.similarity(["hello", "the city"], ["a"])
    expected = vectors @ other.T / (np.linalg.norm(vectors, axis=1)[:, None] * np.linalg.norm(other))
    np.testing.assert_allclose(np.asarray(answer), expected, atol=1e-5)
    np.testing.assert_allclose(np.diag(predictor.similarity(TEXTS).values), 1, atol=1e-5)
    assert predictor.similarity(TEXTS).first_truncated[2]


def test_a_plain_encoder_embeds(tmp_path: Path, tokenizer: Tokenizer) -> None:
    save_bundle(tmp_path / "encoder", Bert(SHAPE), tokenizer, None, "card")
    predictor = load(tmp_path / "encoder")
    assert predictor.embed(["hello"]).vectors.shape == (1, 16)
    assert predictor.embed([]).vectors.shape == (0, 16)
    assert predictor.seq_len == 32
    with pytest.raises(InputError, match="no such directory"):
        bertsmith.load(str(tmp_path / "nothing"))


def test_minilm_equals_sentence_transformers(minilm_path: Path) -> None:
    sentence_transformers = pytest.importorskip("sentence_transformers")
    texts = [
        "A plane is taking off.",
        "Großstädte liegen oft an Flüssen – naïve façade.",
        "你好，世界",
        "",
        "word " * 300,
        'He said: "It is what it is", and left.',
    ]
    reference = sentence_transformers.SentenceTransformer(str(minilm_path), device="cpu")
    expected = reference.encode(texts, normalize_embeddings=True)
    predictor = load(minilm_path)
    predictor.seq_len = reference.max_seq_length
    answer = predictor.embed(texts, normalize=True)
    np.testing.assert_allclose(answer.vectors, expected, atol=1e-5)
    assert isinstance(predictor, Predictor)


def test_token_vectors_refuse_pairs(classifier: Path) -> None:
    with pytest.raises(InputError, match="embed_tokens takes single texts"):
        load(classifier).embed_tokens([("hello", "paris")])  # type: ignore[list-item]


@pytest.mark.parametrize("architecture", ["BertForTokenClassification", "BertForMultipleChoice"])
def test_a_head_for_words_or_choices_classifies_no_texts(
    classifier: Path, tmp_path: Path, architecture: str
) -> None:
    """Their weights are called as those of a head for texts, and were taken for one."""
    shutil.copytree(classifier, tmp_path / "model")
    (tmp_path / "model" / "task.json").unlink()
    path = tmp_path / "model" / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"architectures": [architecture]}))
    loaded = load(tmp_path / "model")
    with pytest.raises(InputError, match="cannot classify, it has no classification head"):
        loaded.classify(["hello"])
    expected = load(classifier).embed(["hello"])
    np.testing.assert_allclose(loaded.embed(["hello"]), expected, atol=1e-6)


def test_a_model_whose_decoder_is_not_tied_embeds_and_fills(pretrained: Path, tmp_path: Path) -> None:
    shutil.copytree(pretrained, tmp_path / "model")
    stored = load_file(tmp_path / "model" / "model.safetensors")
    stored["cls.predictions.decoder.weight"] = stored["bert.embeddings.word_embeddings.weight"] + 1
    save_file(stored, tmp_path / "model" / "model.safetensors")
    loaded = load(tmp_path / "model")
    np.testing.assert_allclose(loaded.embed(TEXTS), load(pretrained).embed(TEXTS), atol=1e-6)
    # every word's vector moved by the same: its scores are higher by one number, its probabilities are not
    (ours,), (other,) = loaded.fill(["hello [MASK]"]), load(pretrained).fill(["hello [MASK]"])
    assert [c.token for c in ours.masks[0]] == [c.token for c in other.masks[0]]
