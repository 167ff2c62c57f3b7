"""Pooling: padding and neighbours never count."""

from __future__ import annotations

import pytest
import torch

from bertsmith import features
from bertsmith.data.batch import tokens_of
from bertsmith.errors import InputError
from bertsmith.layout import padded, unpadded
from bertsmith.model.bert import Bert
from bertsmith.model.config import BertConfig

SHAPE = BertConfig(
    vocab_size=50, hidden_size=16, num_layers=2, num_heads=2, intermediate_size=32, max_positions=600
)


@pytest.fixture(scope="module")
def encoder() -> Bert:
    torch.manual_seed(0)
    return Bert(SHAPE).eval()


def vector(
    encoder: Bert, rows: list[list[int]], pooling: str, layer: int, padded_to: int | None
) -> torch.Tensor:
    tokens = tokens_of(rows, [len(row) for row in rows], padded_to)
    with torch.no_grad():
        return features.pool(features.layer_output(encoder, tokens, layer), tokens.layout, pooling)


@pytest.mark.parametrize("pooling", list(features.POOLINGS))
@pytest.mark.parametrize("layer", [-1, -2, 0])
def test_c059_a_vector_does_not_depend_on_neighbours_or_padding(
    encoder: Bert, pooling: str, layer: int
) -> None:
    hello, long = [2, 7, 3], [2, *range(5, 47), *range(5, 23), 3]
    alone = vector(encoder, [hello], pooling, layer, None)[0]
    for rows in ([hello, long], [long, hello], [hello] * 8, [long] * 4 + [hello] + [long] * 3):
        for padded_to in (None, 64, 512):
            there = vector(encoder, rows, pooling, layer, padded_to)[rows.index(hello)]
            torch.testing.assert_close(there, alone, rtol=0, atol=1e-5)
    torch.testing.assert_close(vector(encoder, [hello], pooling, layer, 16)[0], alone, rtol=0, atol=1e-5)


def test_c059_mean_is_over_real_tokens_and_max_may_be_negative() -> None:
    hidden = torch.tensor([[-1.0], [-3.0], [0.0], [-2.0], [0.0], [0.0]])
    layout = padded([2, 1], row_tokens=3)
    assert features.pool(hidden, layout, "mean").tolist() == [[-2.0], [-2.0]]
    assert features.pool(hidden, layout, "max").tolist() == [[-1.0], [-2.0]]
    assert features.pool(hidden, layout, "cls").tolist() == [[-1.0], [-2.0]]
    rows = features.rows_of(hidden[[0, 1, 3]], unpadded([2, 1]))
    assert [row.tolist() for row in rows] == [[[-1.0], [-3.0]], [[-2.0]]]


def test_layers_are_numbered_from_the_embeddings(encoder: Bert) -> None:
    tokens = tokens_of([[2, 7, 3]], [3])
    states = encoder.hidden_states(tokens)
    for layer in (0, 1, 2, -1, -2, -3):
        torch.testing.assert_close(features.layer_output(encoder, tokens, layer), states[layer])


def test_layers_side_by_side_are_those_of_the_papers_table_7(encoder: Bert) -> None:
    tokens = tokens_of([[2, 7, 3]], [3])
    states = encoder.hidden_states(tokens)
    assert features.layers_read("second-to-last", 12) == (11,)
    assert features.layers_read("concat-last-4", 12) == (9, 10, 11, 12)
    assert features.layers_read("embeddings", 12) == (0,)
    assert features.layers_read(-13, 12) == (0,)
    found = features.layers_output(encoder, tokens, (1, 2))
    torch.testing.assert_close(found, torch.cat([states[1], states[2]], dim=-1))


@pytest.mark.parametrize(
    "layer, message",
    [
        (3, r"layer is 3; this model has 0 .* to 2, or -1 \(the last\) to -3"),
        (-4, "layer is -4"),
        ("weighted-all", "take one of embeddings, second-to-last, last, concat-last-4"),
        ("concat-last-4", "more layers than the model's 2"),
        ("top", "take one of embeddings"),
    ],
)
def test_layers_that_do_not_exist_are_refused(layer: int | str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        features.layers_read(layer, 2)


@pytest.mark.parametrize(
    ("pooling", "context", "message"),
    [
        ("sum", "both", "pooling is 'sum'; take one of mean, max, cls"),
        ("cls", "left", "in a left-to-right model \\[CLS\\] sees nothing"),
    ],
)
def test_a_pooling_that_does_not_exist_or_means_nothing_is_refused(
    pooling: str, context: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        features.check_pooling(pooling, BertConfig(context=context))
