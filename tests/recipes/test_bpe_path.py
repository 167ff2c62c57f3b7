"""The whole path with byte-level BPE: vocabulary, data, pretraining, filling, fine-tuning, prediction."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace

import pytest
from transformers import AutoModelForMaskedLM, AutoModelForSequenceClassification, AutoTokenizer

import bertsmith
from bertsmith.bundle import load_bundle
from bertsmith.data.shards import Instances
from bertsmith.errors import InputError
from bertsmith.presets import PRESETS
from bertsmith.recipes.config import FillConfig, PredictConfig, PrepareConfig, VocabConfig
from bertsmith.recipes.fill import fill
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.predict import predict
from bertsmith.recipes.prepare import prepare
from bertsmith.recipes.pretrain import pretrain
from bertsmith.recipes.vocab import vocab
from bertsmith.text.tokenizer import Tokenizer
from tests.recipes import pretraining, tiny
from tests.recipes.pretraining import SHAPE, settings

ROBERTA = replace(SHAPE, num_segments=1, family="roberta", layer_norm_eps=1e-5)


@pytest.fixture(scope="module")
def path(tmp_path_factory, shared_data):
    """A vocabulary, data and a model, made from a real corpus in English and Chinese."""
    folder = tmp_path_factory.mktemp("bpe")
    corpus = [shared_data / "corpus" / part / "heldout.txt.gz" for part in ("wiki-en", "zh")]
    small = folder / "corpus.txt"
    texts = [gzip.decompress(file.read_bytes()).decode()[:60_000] for file in corpus]
    small.write_text("\n\n".join(texts), encoding="utf-8")
    vocab(VocabConfig([str(small)], str(folder / "vocab" / "vocab.json"), algorithm="bpe", size=1200))
    prepare(
        PrepareConfig(
            [str(small)],
            str(folder / "vocab"),
            str(folder / "data"),
            pairing="full-sentences",
            seq_len=64,
            heldout=0.1,
            workers=1,
        )
    )
    config = settings(folder / "data", folder / "run", architecture=ROBERTA, steps=8)
    return folder, pretrain(config)


def test_the_data_holds_the_text(path):
    folder, _ = path
    tokenizer = Tokenizer.load(folder / "data")
    instances = Instances.open(folder / "data", "train")
    text = tokenizer.decode(instances.example(3).ids)
    corpus = " ".join((folder / "corpus.txt").read_text(encoding="utf-8").split())
    sentences = [part for part in text.replace("<s>", "</s>").split("</s>") if len(part) > 30]
    assert sentences
    assert all(" ".join(part.split()) in corpus for part in sentences)


def test_no_second_task_is_trained(path):
    _, result = path
    assert "heldout_mlm_loss" in result
    assert not [name for name in result if "nsp" in name]


def test_filling_takes_both_marks_and_agrees_with_transformers(path):
    _, result = path
    answers = [
        fill(FillConfig(f"The city is {mark} the river.", result["model"], top=3))
        for mark in ("<mask>", "[MASK]")
    ]
    assert answers[0] == answers[1]
    best = answers[0]["masks"][0]
    assert answers[0]["text"].startswith(f"The city is{best[0]['token']}") or not best[0]["token"].startswith(
        " "
    )
    theirs = AutoTokenizer.from_pretrained(result["model"])
    model = AutoModelForMaskedLM.from_pretrained(result["model"]).eval()
    inputs = theirs("The city is <mask> the river.", return_tensors="pt")
    place = inputs["input_ids"][0].tolist().index(theirs.mask_token_id)
    shares = model(**inputs).logits[0, place].softmax(-1)
    top = shares.topk(3)
    assert [theirs.decode([id]) for id in top.indices.tolist()] == [found["token"] for found in best]
    assert top.values.tolist() == pytest.approx([found["probability"] for found in best], abs=1e-5)


def test_fine_tuning_and_prediction_of_pairs(path, tmp_path):
    _, result = path
    rows = [(text, "the same", label) for text, label in tiny.make_rows(40)]
    data = tiny.write_csv(tmp_path / "train.csv", rows, ("text", "second_text", "label"))
    found = finetune(
        tiny.config(result["model"], data, tmp_path / "run", epochs=2, second_text="second_text")
    )
    model = found["model_directory"]
    assert load_bundle(model).config.family == "roberta"
    predict(PredictConfig(model, str(data), str(tmp_path / "out.jsonl")))
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(lines) == 40
    peer = AutoModelForSequenceClassification.from_pretrained(model).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    shares = peer(**tokenizer(rows[0][0], rows[0][1], return_tensors="pt")).logits[0].softmax(-1).tolist()
    ours = bertsmith.load(model).classify([rows[0][:2]])[0]
    assert list(ours.probabilities.values()) == pytest.approx(shares, abs=1e-5)


def test_a_roberta_with_a_wordpiece_vocabulary_is_warned_of(tmp_path, caplog):
    data = pretraining.prepared(tmp_path, "full-sentences")
    result = pretrain(settings(data, tmp_path / "run", architecture=ROBERTA, steps=1))
    assert "RoBERTa's is byte-level BPE" in caplog.text
    assert load_bundle(result["model"]).tokenizer.algorithm == "wordpiece"


def test_a_roberta_refuses_pairs(pretraining_data, tmp_path):
    config = settings(pretraining_data, tmp_path / "run", architecture=ROBERTA)
    with pytest.raises(InputError, match="prepare it with --pairing full-sentences, or take a bert preset"):
        pretrain(config)
    assert not (tmp_path / "run").exists()
    preset = PRESETS["roberta-tiny"](str(pretraining_data), str(tmp_path / "run"))
    with pytest.raises(InputError, match="a RoBERTa has no second task"):
        pretrain(replace(preset, steps=1))
