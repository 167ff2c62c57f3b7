"""Facts 1 to 5: the model, against float64 NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import kstest, truncnorm
from torch import nn
from torch.nn import functional

from bertsmith.layout import unpadded
from bertsmith.model.attention import attention
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.encoder import ACTIVATION_FUNCTIONS
from bertsmith.presets import PRESETS
from tests.conformance import numpy_bert
from tests.conformance.models import CONFIG, LENGTHS, SHAPE, batch_of, original_names, small_model
from tests.conformance.numpy_gradients import losses_and_gradients
from tests.model.rows import PAD_ID, random_ids, rows_of


def largest(ours: torch.Tensor, theirs: np.ndarray) -> float:
    assert tuple(ours.shape) == theirs.shape
    return float(np.abs(ours.detach().double().numpy() - theirs).max())


def test_fact_01_every_layers_output(fact):
    line = fact(1, "output of the embeddings and of every layer, float64", "float64 NumPy")
    model = small_model()
    tokens, _, batch = batch_of()
    weights = original_names(model.state_dict())
    theirs = numpy_bert.encode(weights, SHAPE, batch.ids, batch.segments, batch.mask)
    ours = model.bert.hidden_states(tokens)
    is_token = batch.mask.astype(bool)
    differences = [largest(one, other[is_token]) for one, other in zip(ours, theirs, strict=True)]
    line.difference(max(differences), 1e-12)


def test_fact_01_every_layers_output_in_float32(fact):
    line = fact(1, "the same in float32", "float64 NumPy")
    model = small_model()
    tokens, _, batch = batch_of()
    weights = original_names(model.float().state_dict())
    theirs = numpy_bert.encode(weights, SHAPE, batch.ids, batch.segments, batch.mask)
    is_token = batch.mask.astype(bool)
    pairs = zip(model.bert.hidden_states(tokens), theirs, strict=True)
    line.difference(max(largest(one, other[is_token]) for one, other in pairs), 1e-5)


def test_fact_01_layer_norm_eps(fact):
    line = fact(1, "LayerNorm of rows that hardly vary: eps is 1e-12, inside the root", "float64 NumPy")
    model = small_model().double()
    rows = torch.randn(4, CONFIG.hidden_size, dtype=torch.float64) * 1e-6
    differences = []
    for name, module in model.named_modules():
        if isinstance(module, nn.LayerNorm):
            assert module.eps == 1e-12, name
            scale, shift = module.weight.detach().numpy(), module.bias.detach().numpy()
            differences.append(
                largest(module(rows), numpy_bert.layer_norm(rows.numpy(), scale, shift, 1e-12))
            )
    assert len(differences) == 2 + 2 * CONFIG.num_layers
    line.difference(max(differences), 1e-12)


def test_fact_01_pooler(fact):
    line = fact(1, "pooler: dense and tanh on [CLS]", "float64 NumPy")
    model = small_model()
    tokens, _, batch = batch_of()
    weights = original_names(model.state_dict())
    theirs = numpy_bert.pool(
        weights, numpy_bert.encode(weights, SHAPE, batch.ids, batch.segments, batch.mask)[-1]
    )
    line.difference(largest(model.pooler(model.bert(tokens)[list(tokens.layout.starts)]), theirs), 1e-12)


SIZES = {  # name: layers, width, heads, feed-forward, millions of parameters as published
    "bert-tiny": (2, 128, 2, 512, 4.4),
    "bert-mini": (4, 256, 4, 1024, 11.2),
    "bert-small": (4, 512, 8, 2048, 28.8),
    "bert-medium": (8, 512, 8, 2048, 41.4),
    "bert-base": (12, 768, 12, 3072, 110),
    "bert-large": (24, 1024, 16, 4096, 340),
    "bert-exact": (12, 768, 12, 3072, 110),
}


def test_fact_01_sizes(fact):
    line = fact(1, "shapes of the presets, number of their parameters", "the paper; sum over the variables")
    for name, (layers, width, heads, inner, millions) in SIZES.items():
        shape = replace(PRESETS[name]("DATA", "RUN").architecture, vocab_size=30522)
        assert (shape.num_layers, shape.hidden_size, shape.num_heads) == (layers, width, heads)
        assert (shape.intermediate_size, shape.max_positions, shape.num_segments) == (inner, 512, 2)
        with torch.device("meta"):
            model = BertForPreTraining(shape)
        norm, square = 2 * width, width * width + width
        layer = 4 * square + (width * inner + inner) + (inner * width + width) + 2 * norm
        encoder = (30522 + 512 + 2) * width + norm + layers * layer + square  # with the pooler
        heads_too = encoder + square + norm + 30522 + 2 * width + 2
        assert sum(parameter.numel() for parameter in model.parameters()) == heads_too
        assert encoder / 1e6 == pytest.approx(millions, rel=0.015)
    line.exact()


def test_fact_01_dropout_stands_where_the_originals_does(fact):
    """Zeros and scaled values after the embeddings and both sublayers, nowhere else."""
    line = fact(
        1, "dropout after the embeddings and before both residuals, not in heads", "the layers' inputs"
    )
    share = 0.25
    model = small_model(replace(CONFIG, hidden_dropout=share, attention_dropout=0.0)).train()
    tokens, picks, _ = batch_of()
    seen: dict[str, torch.Tensor] = {}
    for name, module in model.named_modules():
        module.register_forward_hook(
            lambda _, inputs, output, name=name: seen.update({f"{name}<": inputs[0], f"{name}>": output})
        )
    model(tokens, picks)
    sublayers = [("bert.embeddings>", None, seen["bert.embeddings.norm>"])]
    for layer in (f"bert.layers.{number}" for number in range(CONFIG.num_layers - 1)):  # the last reads less
        sublayers += [
            (f"{layer}.attention_norm<", seen[f"{layer}<"], seen[f"{layer}.attention.output>"]),
            (f"{layer}.output_norm<", seen[f"{layer}.attention_norm>"], seen[f"{layer}.output>"]),
        ]
    differences = []
    for name, residual, values in sublayers:
        kept = (seen[name] - (0.0 if residual is None else residual)) / values
        is_dropped = kept.abs() < 1e-9
        differences.append((kept[~is_dropped] - 1 / (1 - share)).abs().max().item())
        assert abs(is_dropped.double().mean() - share) < 4 * (share * (1 - share) / kept.numel()) ** 0.5
    for head, inputs in ((model.pooler, "pooler<"), (model.mlm_head.dense, "mlm_head.dense<")):
        assert torch.equal(head(seen[inputs]), seen[inputs.replace("<", ">")])
    line.difference(max(differences), 1e-6)


def test_fact_01_dropout_on_attention_probabilities(fact):
    """With values that name their place, attention returns the probabilities themselves."""
    line = fact(1, "dropout on attention probabilities, after softmax", "float64 NumPy")
    share, seq, heads = 0.25, 16, 6
    torch.manual_seed(0)
    queries, keys = torch.randn(2, 3 * seq, heads * seq, dtype=torch.float64)
    values = torch.eye(seq, dtype=torch.float64).repeat(3, heads)
    found = attention(torch.cat([queries, keys, values], dim=1), unpadded([seq] * 3), heads, share)
    found = found.view(3, seq, heads, seq).transpose(1, 2)  # (rows, heads, queries, keys)
    query, key = (
        part.view(3, seq, heads, seq).transpose(1, 2).numpy().astype(np.float64) for part in (queries, keys)
    )
    expected = numpy_bert.softmax(query @ key.swapaxes(2, 3) / seq**0.5) / (1 - share)
    is_dropped = found.numpy() == 0
    assert abs(is_dropped.mean() - share) < 4 * (share * (1 - share) / found.numel()) ** 0.5
    line.difference(largest(found, np.where(is_dropped, 0.0, expected)), 1e-6)


def test_fact_02_both_gelus(fact):
    line = fact(2, "gelu and gelu_tanh at 200,001 places, float64", "float64 NumPy, SciPy's erf")
    x = np.linspace(-10, 10, 200_001)
    tanh, erf = (ACTIVATION_FUNCTIONS[name](torch.from_numpy(x)) for name in ("gelu_tanh", "gelu"))
    gap = np.abs(numpy_bert.gelu_tanh(x) - numpy_bert.gelu_erf(x)).max()
    assert gap == pytest.approx(4.7e-4, rel=0.01), "the settings are worth having"
    line.difference(max(largest(tanh, numpy_bert.gelu_tanh(x)), largest(erf, numpy_bert.gelu_erf(x))), 1e-14)


@pytest.mark.parametrize("activation, gelu", [("gelu", "erf"), ("gelu_tanh", "tanh")])
def test_fact_02_the_setting_reaches_every_activation(fact, activation, gelu):
    line = fact(2, "scores of words with either GELU in the layers and in the head", "float64 NumPy")
    model = small_model(replace(CONFIG, activation=activation))
    tokens, picks, batch = batch_of()
    weights = original_names(model.state_dict())
    theirs, _ = numpy_bert.scores(weights, replace(SHAPE, gelu=gelu), batch)
    line.difference(largest(model(tokens, picks)[0], theirs), 1e-11)


def test_fact_03_initial_weights(fact):
    line = fact(3, "distribution of 400,000 initial weights (Kolmogorov's distance)", "SciPy's truncnorm")
    torch.manual_seed(0)
    model = BertForPreTraining(replace(CONFIG, vocab_size=2000, hidden_size=96))
    drawn = []
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any(), name
        elif "norm" in name:
            assert (parameter == 1).all(), name
        else:
            drawn.append(parameter.detach().flatten())
            assert abs(parameter.std().item() - 0.0176) < 0.0176 * 4 / parameter.numel() ** 0.5, name
    assert model.bert.embeddings.word.weight[PAD_ID].std() > 0.01, "the row of [PAD] is drawn, too"
    weights = torch.cat(drawn).double().numpy()
    assert np.abs(weights).max() <= 0.04
    found = kstest(weights, truncnorm(-2, 2, scale=0.02).cdf)
    line.difference(
        found.statistic, 1.63 / len(weights) ** 0.5
    )  # which chance exceeds once in a hundred times


def test_fact_04_keys_at_padding_get_minus_10000(fact):
    """We leave padding out. In float64, e to the power of -10000 plus a score is 0 as well."""
    line = fact(4, "rows end to end, against padded ones with -10000 added at keys", "float64 NumPy")
    model = small_model()
    weights = original_names(model.state_dict())
    tokens, _, batch = batch_of()
    theirs = numpy_bert.encode(weights, SHAPE, batch.ids, batch.segments, batch.mask)[-1]
    filled = replace(batch, ids=np.where(batch.mask, batch.ids, 17))  # what stands at padding does not matter
    again = numpy_bert.encode(weights, SHAPE, filled.ids, filled.segments, filled.mask)[-1]
    is_token = batch.mask.astype(bool)
    assert np.array_equal(theirs[is_token], again[is_token])
    line.difference(largest(model.bert(tokens), theirs[is_token]), 1e-12)


def test_fact_04_padded_rows(fact):
    line = fact(4, "rows padded, keys at padding masked", "float64 NumPy")
    model = small_model()
    _, _, batch = batch_of()
    tokens = rows_of(random_ids(LENGTHS), max(LENGTHS))
    weights = original_names(model.state_dict())
    theirs = numpy_bert.encode(weights, SHAPE, batch.ids, batch.segments, batch.mask)[-1]
    is_token = batch.mask.astype(bool)
    line.difference(largest(model.bert(tokens)[is_token.ravel()], theirs[is_token]), 1e-12)


def test_fact_05_scores_of_both_heads(fact):
    line = fact(5, "scores of words at the masked places and of pairs, float64", "float64 NumPy")
    model = small_model()
    tokens, picks, batch = batch_of()
    words, pairs = numpy_bert.scores(original_names(model.state_dict()), SHAPE, batch)
    mlm_scores, nsp_scores = model(tokens, picks)
    line.difference(max(largest(mlm_scores, words), largest(nsp_scores, pairs)), 1e-11)


@pytest.mark.parametrize("activation, gelu", [("gelu", "erf"), ("gelu_tanh", "tanh")])
def test_fact_05_gradients(fact, activation, gelu):
    line = fact(5, "gradient of every weight, the tied one once (relative)", "float64 NumPy")
    model = small_model(replace(CONFIG, activation=activation))
    tokens, picks, batch = batch_of()
    mlm_scores, nsp_scores = model(tokens, picks)
    words, pairs = torch.from_numpy(batch.words), torch.from_numpy(batch.next_labels)
    loss = functional.cross_entropy(mlm_scores, words, reduction="sum") / (len(words) + 1e-5)
    (loss + functional.cross_entropy(nsp_scores, pairs)).backward()
    weights = original_names(model.state_dict())
    ours = original_names({name: weight.grad for name, weight in model.named_parameters()})
    _, theirs = losses_and_gradients(weights, replace(SHAPE, gelu=gelu), batch)
    assert ours.keys() == theirs.keys()
    assert all(ours[name].shape == theirs[name].shape for name in ours)
    differences = [
        np.abs(ours[name] - theirs[name]).max() / max(1.0, np.abs(theirs[name]).max()) for name in ours
    ]
    line.difference(max(differences), 1e-12)


@pytest.mark.parametrize("gelu", ["erf", "tanh"])
def test_fact_05_the_references_gradients(fact, gelu):
    """Each weight of the reference is moved a little along a random direction."""
    line = fact(5, "the reference's own gradients (relative)", "finite differences of its loss")
    shape = replace(SHAPE, gelu=gelu)
    _, _, batch = batch_of()
    weights = original_names(small_model().state_dict())
    losses, gradients = losses_and_gradients(weights, shape, batch)
    assert losses == pytest.approx(numpy_bert.losses(weights, shape, batch), rel=1e-13)
    random = np.random.default_rng(0)
    differences = []
    for name, weight in weights.items():
        direction = random.normal(size=weight.shape)
        direction /= np.linalg.norm(direction)
        above, below = (
            sum(numpy_bert.losses({**weights, name: weight + step * direction}, shape, batch))
            for step in (1e-5, -1e-5)
        )
        slope = (above - below) / 2e-5
        differences.append(abs((gradients[name] * direction).sum() - slope) / max(1e-2, abs(slope)))
    line.difference(max(differences), 1e-5)
