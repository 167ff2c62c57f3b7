"""Fact 34: what a model says to a row depends on neither neighbours nor padding, and every row counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, matthews_corrcoef

from bertsmith import features
from bertsmith.bundle import load_bundle, load_encoder, save_bundle
from bertsmith.data.batch import tokens_of
from bertsmith.layout import unpadded
from bertsmith.model.bert import BertForChoice, BertForClassification, BertForPreTraining, BertForSpans
from bertsmith.model.task_heads import BertForTagging, FeatureClassifier, FeatureTagger
from bertsmith.predictor import load
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.loop import autocast
from tests.recipes.tiny import SHAPE, VOCABULARY, make_rows, write_csv

CPU = torch.device("cpu")
LENGTHS = (2, 3, 5, 5, 17, 48)
LAYERS = (2, 3)


def by_rows(values, lengths):
    return list(torch.split(values, list(lengths)))


def real_places(layout):
    """Return the place of every token that is no padding."""
    spans = zip(layout.starts, layout.lengths, strict=True)
    return torch.tensor([place for start, length in spans for place in range(start, start + length)])


def pretraining_scores(model, tokens):
    layout = tokens.layout
    words, pairs = model(tokens, real_places(layout))
    return [
        torch.cat(row)
        for row in zip([w.flatten() for w in by_rows(words, layout.lengths)], pairs, strict=True)
    ]


def tag_scores(model, tokens):
    return by_rows(model(tokens, real_places(tokens.layout)), tokens.layout.lengths)


def feature_tag_scores(model, tokens):
    states = model.bert.hidden_states(tokens)
    read = torch.stack([states[layer][real_places(tokens.layout)].float() for layer in LAYERS], dim=1)
    return by_rows(model(read, unpadded(tokens.layout.lengths)), tokens.layout.lengths)


def feature_row_scores(model, tokens):
    """Rows cut into pairs of sentences, all first ones before the second ones."""
    states = model.bert.hidden_states(tokens)
    read = torch.stack([states[layer][real_places(tokens.layout)].float() for layer in LAYERS], dim=1)
    rows = by_rows(read, tokens.layout.lengths)
    sentences = [row[: max(1, len(row) // 3)] for row in rows] + [
        row[max(1, len(row) // 3) :] for row in rows
    ]
    return list(model(torch.cat(sentences), unpadded([len(sentence) for sentence in sentences])))


def pooled(model, tokens):
    hidden = model(tokens)
    return list(
        torch.stack([features.pool(hidden, tokens.layout, name) for name in features.POOLINGS], dim=1)
    )


def span_scores(model, tokens):
    return features.rows_of(model(tokens), tokens.layout)


def row_scores(model, tokens):
    return list(model(tokens))


HEADS = {
    "words and pairs of pretraining": (BertForPreTraining, pretraining_scores),
    "classes": (lambda config: BertForClassification(config, 3), row_scores),
    "a number": (lambda config: BertForClassification(config, 1), row_scores),
    "a choice": (BertForChoice, row_scores),
    "spans": (BertForSpans, span_scores),
    "tags": (lambda config: BertForTagging(config, 9), tag_scores),
    "tags of frozen features": (
        lambda config: FeatureTagger(config, 9, LAYERS, weighted=True),
        feature_tag_scores,
    ),
    "classes of pairs by frozen features": (
        lambda config: FeatureClassifier(config, 3, LAYERS, weighted=True, lstm_size=64, pairs=True),
        feature_row_scores,
    ),
    "vectors": (None, pooled),
}


@pytest.fixture(scope="module")
def encoder(minilm_path):
    """Three layers of a real encoder, for time: what they compute has the size that matters."""
    whole = load_encoder(load_bundle(minilm_path))
    whole.layers = whole.layers[:3]
    whole.config = replace(whole.config, num_layers=3)
    return whole


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    return [draw.integers(1000, 30_000, size=length) for length in LENGTHS]


@pytest.fixture(scope="module", params=HEADS)
def head(request, encoder):
    make, read = HEADS[request.param]
    if make is None:
        return encoder, read
    torch.manual_seed(0)
    model = make(encoder.config)
    model.bert = encoder
    for name, weight in model.named_parameters():
        if not name.startswith(("bert.", "lstm.", "reading.")) and weight.dim() == 2:
            torch.nn.init.normal_(weight, std=encoder.config.hidden_size**-0.5)  # scores of the size of 1
    return model.eval(), read


def computed(head, rows, precision, order, padded_to=None, pad_id=0):
    """Return the outputs of rows in their own order, computed in one batch in the order given."""
    model, read = head
    chosen = [rows[number] for number in order]
    tokens = tokens_of(chosen, [max(1, len(row) * 2 // 3) for row in chosen], padded_to, pad_id)
    with torch.no_grad(), autocast(CPU, precision):
        found = dict(zip(order, read(model, tokens), strict=True))
    return {number: found[number].float().numpy() for number in order}


@pytest.fixture(scope="module")
def alone(head, rows):
    """Precision -> the outputs of each row by itself."""
    return {
        precision: {number: computed(head, rows, precision, [number])[number] for number in range(len(rows))}
        for precision in (torch.float32, torch.bfloat16)
    }


def largest(found, expected):
    """Return the largest difference, as a share of a row's largest output where this is above 1."""
    return max(
        float(np.abs(values - expected[number]).max() / max(1.0, np.abs(expected[number]).max()))
        for number, values in found.items()
    )


def in_company(head, rows, alone, precision):
    """Return the largest difference of rows in batches of several make-ups to each by itself."""
    shuffled = np.random.default_rng(1).permutation(len(rows)).tolist()
    batches = [list(range(len(rows))), shuffled, [0, 1, 2], [3, 2]]
    return max(largest(computed(head, rows, precision, order), alone[precision]) for order in batches)


def in_padding(head, rows, alone, precision):
    """Return the same for padded rows; what stands at padding is as good as anything."""
    tries = [([2], 64, 2000), (list(range(len(rows))), 96, 0), ([4, 0], 17, 0)]
    return max(largest(computed(head, rows, precision, *one), alone[precision]) for one in tries)


def test_fact_34_neighbours_do_not_matter_in_float32(fact, head, rows, alone):
    line = fact(34, "every head, a row among others in float32, three layers of MiniLM", "each row by itself")
    line.difference(in_company(head, rows, alone, torch.float32), 1e-5)


def test_fact_34_padding_does_not_matter_in_float32(fact, head, rows, alone):
    line = fact(34, "every head, padded rows in float32, three layers of MiniLM", "each row by itself")
    line.difference(in_padding(head, rows, alone, torch.float32), 1e-5)


def test_fact_34_neighbours_do_not_matter_in_bfloat16(fact, head, rows, alone):
    line = fact(
        34, "every head, a row among others in bfloat16, three layers of MiniLM", "each row by itself"
    )
    line.difference(in_company(head, rows, alone, torch.bfloat16), 2e-2)


def test_fact_34_padding_does_not_matter_in_bfloat16(fact, head, rows, alone):
    line = fact(34, "every head, padded rows in bfloat16, three layers of MiniLM", "each row by itself")
    line.difference(in_padding(head, rows, alone, torch.bfloat16), 2e-2)


def test_fact_34_neighbours_do_not_matter_in_int8(fact, minilm_path):
    line = fact(34, "vectors of texts among others in int8, MiniLM", "each text by itself")
    model = load(minilm_path, quantize="int8")
    texts = [
        "",
        "Oslo",
        "it rained all day",
        "a film that " + "goes on and on " * 12,
        "中文 and English",
        "x " * 40,
    ]
    together = model.embed(texts).vectors
    by_itself = np.concatenate([model.embed([text]).vectors for text in texts])
    line.difference(float(np.abs(together - by_itself).max() / np.abs(by_itself).max()), 2e-2)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model"
    torch.manual_seed(0)
    task = {"task": "classify", "head": "classification", "labels": ["neg", "pos"], "seq_len": 32}
    columns = {"text": "text", "second_text": None, "label": "label"}
    tokenizer = Tokenizer(VOCABULARY, TokenizerConfig())
    save_bundle(path, BertForClassification(SHAPE, 2), tokenizer, {**task, "columns": columns}, "card")
    return path


@pytest.mark.parametrize("number", [1, 10, 37])
def test_fact_34_every_row_counts(fact, classifier, number, tmp_path):
    line = fact(
        34,
        "metrics and loss of a whole set, whatever the size of batches",
        "each row by itself, scikit-learn",
    )
    rows = make_rows(number)
    data = write_csv(tmp_path / "dev.csv", rows)
    one_by_one = load(classifier)
    answers = [one_by_one.classify([text])[0] for text, _ in rows]
    gold, predicted = [label for _, label in rows], [answer.label for answer in answers]
    accuracy = float(np.mean([a == b for a, b in zip(gold, predicted, strict=True)]))
    loss = float(
        np.mean(
            [-np.log(answer.probabilities[label]) for answer, (_, label) in zip(answers, rows, strict=True)]
        )
    )
    differences = []
    for batch_tokens in (1, 20, 64, 4096):
        found = evaluate(EvaluateConfig(str(classifier), str(data), batch_tokens=batch_tokens))
        assert found["examples"] == number
        assert found["metrics"]["accuracy"] == accuracy
        differences.append(abs(found["loss"] - loss))
        differences.append(abs(found["metrics"]["macro_f1"] - f1_score(gold, predicted, average="macro")))
        if len(set(gold)) > 1 and len(set(predicted)) > 1:
            differences.append(abs(found["metrics"]["matthews"] - matthews_corrcoef(gold, predicted)))
    line.difference(max(differences), 1e-6)
