from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from bertsmith.errors import InputError
from bertsmith.interop.huggingface import config_to_huggingface
from bertsmith.interop.weight_names import settle_decoder, state_from_huggingface, state_to_huggingface
from bertsmith.model.bert import (
    Bert,
    BertForClassification,
    BertForPreTraining,
    BertForSpans,
    reinitialize_top,
)
from bertsmith.model.config import NORMS, BertConfig
from bertsmith.objectives import SpanObjective
from bertsmith.tasks.questions import SpanBatch
from tests.model.rows import PAD_ID, VOCAB_SIZE, places_of, random_ids, rows_of

SHAPES = {
    "narrow": BertConfig(VOCAB_SIZE, 48, 3, 4, 80, 40),
    "one head, tanh": BertConfig(VOCAB_SIZE, 32, 2, 1, 128, 64, activation="gelu_tanh"),
    "relu, wide eps, four segments": BertConfig(
        VOCAB_SIZE, 24, 1, 6, 24, 40, num_segments=4, activation="relu", layer_norm_eps=1e-5
    ),
}
LENGTHS = (5, 9, 9, 3, 40, 12)
SMALL = SHAPES["narrow"]


def peer_of(config: BertConfig, architecture: str, num_outputs: int | None = None):
    """The same model in transformers, with random weights of visible size (LayerNorm and biases as well)."""
    transformers = pytest.importorskip("transformers")
    values = config_to_huggingface(config, architecture, None, PAD_ID, num_outputs)
    values["attn_implementation"] = "eager"
    peer = getattr(transformers, architecture)(transformers.BertConfig(**values))
    torch.manual_seed(0)
    for parameter in peer.parameters():
        nn.init.normal_(parameter, mean=0.5 if parameter.ndim == 1 else 0.0, std=0.2)
    return peer


def load_from(model: nn.Module, peer: nn.Module) -> None:
    """Take the peer's weights through the map of names."""
    state = state_from_huggingface(peer.state_dict())
    settle_decoder(state, model.config, Path("peer"))
    model.load_state_dict(state)


@pytest.mark.parametrize("row_tokens", [None, 40], ids=["unpadded", "padded"])
@pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES.keys())
def test_pretraining_model_equals_transformers(config, row_tokens):
    """Hidden states, logits and loss to 1e-5, gradients to 1e-4, in float32."""
    peer = peer_of(config, "BertForPreTraining").eval()
    model = BertForPreTraining(config).eval()
    load_from(model, peer)
    ids = random_ids(LENGTHS)
    tokens, rectangle = rows_of(ids, row_tokens), rows_of(ids, max(LENGTHS))
    places, their_places = places_of(tokens.layout), places_of(rectangle.layout)
    picked = torch.arange(0, len(places), 3)
    labels = torch.arange(len(picked)) % VOCAB_SIZE
    nsp_labels = torch.arange(len(ids)) % 2
    their_labels = torch.full((len(rectangle.input_ids),), -100).scatter(0, their_places[picked], labels)

    shape = (len(ids), -1)
    mask = torch.zeros(rectangle.layout.places, dtype=torch.long).scatter(0, their_places, 1)
    theirs = peer(
        rectangle.input_ids.view(shape),
        attention_mask=mask.view(shape),
        token_type_ids=rectangle.segment_ids.view(shape),
        labels=their_labels.view(shape),
        next_sentence_label=nsp_labels,
        output_hidden_states=True,
    )
    states = model.bert.hidden_states(tokens)
    assert len(states) == len(theirs.hidden_states) == config.num_layers + 1
    for state, their_state in zip(states, theirs.hidden_states, strict=True):
        close(state[places], their_state.flatten(0, 1)[their_places], 1e-5)
    assert torch.equal(model.bert(tokens), states[-1])
    mlm_scores, nsp_scores = model(tokens, places[picked])
    close(mlm_scores, theirs.prediction_logits.flatten(0, 1)[their_places[picked]], 1e-5)
    close(nsp_scores, theirs.seq_relationship_logits, 1e-5)
    loss = functional.cross_entropy(mlm_scores, labels) + functional.cross_entropy(nsp_scores, nsp_labels)
    close(loss, theirs.loss, 1e-5)

    loss.backward()
    theirs.loss.backward()
    gradients = state_to_huggingface({name: part.grad for name, part in model.named_parameters()})
    compared = dict(peer.named_parameters())
    assert gradients.keys() == compared.keys()
    for name, gradient in gradients.items():
        close(gradient, compared[name].grad, 1e-4)


def close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float) -> None:
    """Near in absolute terms where values are about one, relative to the largest where they are larger."""
    largest = max(1.0, theirs.abs().max().item())
    torch.testing.assert_close(ours, theirs, rtol=0, atol=tolerance * largest)


@pytest.mark.parametrize("num_outputs", [1, 3])
def test_classification_model_equals_transformers(num_outputs):
    peer = peer_of(SMALL, "BertForSequenceClassification", num_outputs).eval()
    model = BertForClassification(SMALL, num_outputs).eval()
    load_from(model, peer)
    ids = random_ids(LENGTHS)
    rectangle = rows_of(ids, max(LENGTHS))
    shape = (len(ids), -1)
    mask = torch.zeros(rectangle.layout.places, dtype=torch.long)
    mask = mask.scatter(0, places_of(rectangle.layout), 1).view(shape)
    theirs = peer(
        rectangle.input_ids.view(shape), attention_mask=mask, token_type_ids=rectangle.segment_ids.view(shape)
    )
    close(model(rows_of(ids)), theirs.logits, 1e-5)
    close(model(rectangle), theirs.logits, 1e-5)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("row_tokens", [None, 40], ids=["unpadded", "padded"])
def test_reading_a_few_places_gives_what_all_places_have_there(row_tokens, norm):
    """Outputs and gradients: what nobody reads is left out, not changed."""
    torch.manual_seed(0)
    model = Bert(replace(SMALL, norm=norm)).double().eval()
    tokens = rows_of(random_ids(LENGTHS), row_tokens)
    read = places_of(tokens.layout)[[0, 0, 7, 3, 60, -1]]
    results = []
    for output in (lambda: model(tokens)[read], lambda: model(tokens, read)):
        model.zero_grad()
        states = output()
        states.square().mul(torch.arange(24 * 12).view(6, 48)).sum().backward()
        results.append([states, *(parameter.grad for parameter in model.parameters())])
    for everywhere, only_there in zip(*results, strict=True):
        torch.testing.assert_close(everywhere, only_there, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("norm", NORMS)
def test_padded_and_unpadded_gradients_agree_in_float64(norm):
    torch.manual_seed(0)
    model = BertForPreTraining(replace(SMALL, norm=norm)).double().eval()
    gradients = []
    for row_tokens in (None, 40):
        tokens = rows_of(random_ids(LENGTHS), row_tokens)
        model.zero_grad()
        mlm_scores, nsp_scores = model(tokens, places_of(tokens.layout))
        (mlm_scores.square().sum() + nsp_scores.square().sum()).backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for unpadded_gradient, padded_gradient in zip(*gradients, strict=True):
        torch.testing.assert_close(unpadded_gradient, padded_gradient, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.06)])
def test_a_row_does_not_depend_on_its_batch(dtype, tolerance, norm):
    torch.manual_seed(0)
    model = Bert(replace(SMALL, norm=norm)).eval().to(dtype)
    ids = random_ids((7, 40, 7, 8, 3, 22))
    with torch.no_grad():
        alone = model(rows_of(ids[:1])).float()
        for others in ([1], [2], [3, 4], [5, 1, 2, 3, 4]):
            for row_tokens in (None, 40):
                tokens = rows_of([*(ids[index] for index in others), ids[0]], row_tokens)
                start = tokens.layout.starts[-1]
                together = model(tokens)[start : start + 7].float()
                torch.testing.assert_close(together, alone, rtol=0, atol=tolerance)


def test_initial_weights_are_a_normal_cut_at_two_sigma():
    torch.manual_seed(0)
    model = BertForPreTraining(replace(SMALL, vocab_size=5000, hidden_size=64))
    words = model.bert.embeddings.word.weight
    assert words.abs().max() <= 0.04
    assert abs(words.std().item() - 0.0176) < 0.0002  # 0.88 x 0.02
    assert words[PAD_ID].std() > 0.01  # not zeroed
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            assert 0.015 < parameter.std().item() < 0.02, name


def test_initial_weights_repeat_with_the_seed():
    models = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        models.append(Bert(SMALL).layers[0].attention.qkv.weight)
    assert torch.equal(models[0], models[1])
    assert not torch.equal(models[0], models[2])


def test_dropout_acts_while_training_and_repeats_with_the_seed():
    torch.manual_seed(0)
    model = BertForPreTraining(SMALL).train()
    tokens = rows_of(random_ids(LENGTHS))
    picks = torch.arange(4)
    scores = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        scores.append(model(tokens, picks)[0])
    assert torch.equal(scores[0], scores[1])
    assert not torch.equal(scores[0], scores[2])
    without = BertForPreTraining(replace(SMALL, hidden_dropout=0.0, attention_dropout=0.0)).train()
    without.load_state_dict(model.state_dict())
    assert torch.equal(without(tokens, picks)[0], without.eval()(tokens, picks)[0])


def test_bfloat16_autocast_is_near_float32():
    """Scores and gradients of a training step; master weights and their gradients stay float32."""
    torch.manual_seed(0)
    model = BertForPreTraining(replace(SMALL, hidden_dropout=0.0, attention_dropout=0.0))
    nn.init.normal_(model.mlm_head.dense.weight, std=0.3)
    tokens = rows_of(random_ids(LENGTHS))
    picks = torch.arange(0, tokens.layout.places, 4)
    results = []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            scores, _ = model(tokens, picks)
        functional.cross_entropy(scores.float(), picks % VOCAB_SIZE).backward()
        gradient = torch.cat([p.grad.flatten() for p in model.bert.parameters() if p.grad is not None])
        assert gradient.dtype == torch.float32
        results.append((scores.detach().float().flatten(), gradient))
    for near, exact in zip(results[1], results[0], strict=True):
        assert functional.cosine_similarity(near, exact, dim=0) > 0.999


@pytest.mark.parametrize(
    "name, layers, hidden, heads, millions", [("base", 12, 768, 12, 110.1), ("mini", 4, 256, 4, 11.2)]
)
def test_number_of_parameters_is_the_published_one(name, layers, hidden, heads, millions):
    with torch.device("meta"):
        model = BertForPreTraining(BertConfig(30522, hidden, layers, heads, 4 * hidden))
    count = sum(parameter.numel() for parameter in (*model.bert.parameters(), *model.pooler.parameters()))
    assert abs(count / 1e6 - millions) < 0.7


def test_with_one_segment_both_texts_of_a_pair_are_it():
    config = replace(SMALL, num_segments=1)
    torch.manual_seed(0)
    model = Bert(config).eval()
    tokens = rows_of(random_ids((5, 9)))
    assert tokens.segment_ids.max() == 1
    alone = replace(tokens, segment_ids=torch.zeros_like(tokens.segment_ids))
    assert torch.equal(model(tokens), model(alone))


@pytest.mark.parametrize("row_tokens", [None, 40], ids=["unpadded", "padded"])
def test_span_model_equals_transformers(row_tokens):
    """Scores of every token, loss and gradients; rows of one length, as the peer's loss reads padding."""
    peer = peer_of(SMALL, "BertForQuestionAnswering").eval()
    model = BertForSpans(SMALL).eval()
    load_from(model, peer)
    ids = random_ids((12, 12, 12))
    tokens, rectangle = rows_of(ids, row_tokens), rows_of(ids, 12)
    shape = (len(ids), -1)
    labels = torch.tensor([[0, 0], [3, 7], [11, 11]])
    theirs = peer(
        rectangle.input_ids.view(shape),
        token_type_ids=rectangle.segment_ids.view(shape),
        start_positions=labels[:, 0],
        end_positions=labels[:, 1],
    )
    scores = model(tokens)[places_of(tokens.layout)].view(3, 12, 2)
    close(scores[..., 0], theirs.start_logits, 1e-5)
    close(scores[..., 1], theirs.end_logits, 1e-5)
    batch = SpanBatch(tokens, labels, 3, np.arange(3))
    losses, _ = SpanObjective().sums(model, batch)
    loss = losses["loss"] / 3
    close(loss, theirs.loss, 1e-5)
    loss.backward()
    theirs.loss.backward()
    gradients = state_to_huggingface({name: part.grad for name, part in model.named_parameters()})
    for name, parameter in peer.named_parameters():
        close(gradients[name], parameter.grad, 1e-4)


@pytest.mark.parametrize("norm", NORMS)
def test_the_top_layers_are_drawn_anew_and_nothing_else_is(norm):
    config = replace(SMALL, hidden_size=96, intermediate_size=384, num_layers=4, norm=norm)
    model = BertForClassification(config, 2)
    for parameter in model.parameters():
        nn.init.constant_(parameter, 7.0)
    torch.manual_seed(1)
    reinitialize_top(model, 2)
    drawn = ("bert.layers.2.", "bert.layers.3.", "pooler.", "bert.norm.")
    for name, value in model.state_dict().items():
        if not name.startswith(drawn):
            assert (value == 7.0).all(), name
        elif value.ndim == 2:  # a normal of deviation 0.02 cut at two sigma has 0.0176
            assert value.abs().max() <= 0.04
            assert value.std() == pytest.approx(0.0176, rel=0.05), name
            assert value.mean() == pytest.approx(0.0, abs=0.001), name
        else:
            is_scale = "norm" in name and name.endswith("weight")
            assert (value == float(is_scale)).all(), name
    again = BertForClassification(config, 2)
    torch.manual_seed(1)
    reinitialize_top(again, 2)
    assert torch.equal(again.bert.layers[3].output.weight, model.bert.layers[3].output.weight)


@pytest.mark.parametrize("name", ["hidden_size", "num_layers", "max_positions", "vocab_size"])
def test_sizes_that_only_a_broken_file_has_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} is {10**30}; it can be at most"):
        BertConfig(**{name: 10**30})
