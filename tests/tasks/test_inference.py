"""Running rows: each result at its row's place, whatever the batches."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bertsmith.errors import InputError
from bertsmith.model.bert import BertForClassification
from bertsmith.model.config import BertConfig
from bertsmith.tasks.encode import EncodedRow
from bertsmith.tasks.inference import Inference, head_outputs, inference_settings

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
