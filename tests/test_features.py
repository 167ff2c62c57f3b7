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


@pytest.mark.parametrize("pooling, layer", [("sum", -1), ("mean", 3), ("mean", -4)])
def test_what_does_not_exist_is_refused(encoder: Bert, pooling: str, layer: int) -> None:
    with pytest.raises(InputError, match=r"take one of mean, max, cls|to 2, or -1 \(the last\) to -3"):
        features.check(encoder, pooling, layer)
