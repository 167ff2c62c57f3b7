"""Running rows: each result at its row's place, whatever the batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.errors import InputError
from bertsmith.model.bert import BertForClassification
from bertsmith.model.config import BertConfig
from bertsmith.tasks.encode import EncodedRow, batch_of
from bertsmith.tasks.inference import Inference, evaluation_mode, head_outputs, in_batches, inference_settings

SHAPE = BertConfig(
    vocab_size=30, hidden_size=16, num_layers=2, num_heads=2, intermediate_size=32, max_positions=40
)


def test_outputs_do_not_depend_on_batches_and_the_mode_is_kept() -> None:
    torch.manual_seed(0)
    model = BertForClassification(SHAPE, 3)
    draw = np.random.default_rng(0)
    lengths = draw.integers(2, 40, size=30)
    rows = [EncodedRow(draw.integers(30, size=n), int(draw.integers(1, n + 1)), False) for n in lengths]
    settings = [Inference(torch.device("cpu"), torch.float32, size) for size in (1, 100, 10_000)]
    alone, some, together = (head_outputs(model, 3, rows, setting) for setting in settings)
    assert alone.shape == (30, 3)
    np.testing.assert_allclose(some, alone, atol=1e-5)
    np.testing.assert_allclose(together, alone, atol=1e-5)
    assert model.training, "dropout was off, and is on again"
    assert head_outputs(model.eval(), 3, [], settings[0]).shape == (0, 3)
    assert not model.training


def test_an_unknown_precision_is_refused() -> None:
    with pytest.raises(InputError, match="precision 'half' is unknown"):
        inference_settings("half", 4096)


def test_a_model_is_put_back_into_its_mode_after_an_error() -> None:
    model = torch.nn.Dropout()
    with pytest.raises(ZeroDivisionError), evaluation_mode(model):
        assert not model.training
        _ = 1 / 0
    assert model.training


def test_each_input_is_computed_once_without_gradients_in_the_precision_wanted() -> None:
    draw = np.random.default_rng(0)
    rows = [EncodedRow(draw.integers(30, size=n), n, False) for n in (3, 9, 2, 5)]
    weight = torch.ones(2, 2, requires_grad=True)
    inference = Inference(torch.device("cpu"), torch.bfloat16, 8)
    seen = []
    for batch, found in in_batches(
        [3, 9, 2, 5], lambda numbers: batch_of(rows, numbers), lambda batch: weight @ weight, inference
    ):
        seen.append(batch.rows.tolist())
        assert (found.dtype, found.requires_grad) == (torch.bfloat16, False)
        assert torch.is_grad_enabled(), "what the caller does with it is its own"
    assert seen == [[2, 0], [3], [1]]
