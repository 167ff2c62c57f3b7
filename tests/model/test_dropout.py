from __future__ import annotations

import pytest
import torch
from scipy import stats

from bertsmith.model.dropout import Dropout, add_dropout, dropout, keep_mask, kept_scale


@pytest.mark.parametrize("probability", [0.1, 0.3, 0.5, 0.9])
def test_share_of_dropped_values_is_the_probability(probability):
    torch.manual_seed(0)
    count = 1_000_003
    dropped = count - int(keep_mask((count,), probability).sum(dtype=torch.float64))
    assert stats.binomtest(dropped, count, probability).pvalue > 1e-4


def test_neighbours_are_dropped_independently():
    torch.manual_seed(0)
    kept = keep_mask((1_000_000,), 0.5).bool().numpy()
    for distance in (1, 2, 3, 4, 8, 256):
        both = int((kept[:-distance] == kept[distance:]).sum())
        assert stats.binomtest(both, len(kept) - distance, 0.5).pvalue > 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_values_are_zero_or_scaled_and_the_gradient_is_the_same_factor(dtype):
    torch.manual_seed(0)
    values = torch.ones(64, 33, dtype=dtype, requires_grad=True)
    dropped = dropout(values, 0.1)
    dropped.sum().backward()
    assert dropped.dtype == dtype
    scale = torch.tensor(1 / 0.9, dtype=dtype)
    found = dropped.unique()
    assert found[0] == 0
    torch.testing.assert_close(found[1:], scale[None], rtol=1e-4 if dtype == torch.float32 else 0.0, atol=0.0)
    assert torch.equal(values.grad, dropped.detach())


def test_scale_keeps_the_mean_of_the_exact_rate():
    torch.manual_seed(0)
    values = torch.ones(4_000_000)
    assert abs(dropout(values, 0.1).mean().item() - 1.0) < 5 * (0.1 / 0.9 / 4e6) ** 0.5
    assert abs(kept_scale(0.1) - 1 / 0.9) < 1e-5


def test_add_dropout_is_addition_of_dropout():
    torch.manual_seed(0)
    residual = torch.randn(50, 40)
    values = torch.randn(50, 40).bfloat16()
    torch.manual_seed(7)
    together = add_dropout(residual, values, 0.1)
    torch.manual_seed(7)
    apart = residual + dropout(values.float(), 0.1)
    assert together.dtype == torch.float32
    torch.testing.assert_close(together, apart, rtol=1e-6, atol=1e-6)


def test_module_drops_only_while_training_and_repeats_with_the_seed():
    module = Dropout(0.5)
    values = torch.ones(1000)
    torch.manual_seed(3)
    first = module(values)
    torch.manual_seed(3)
    assert torch.equal(module(values), first)
    assert not torch.equal(module(values), first)
    module.eval()
    assert torch.equal(module(values), values)
    assert torch.equal(module.add(values, values), 2 * values)
