from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from bertsmith.layout import Layout, padded, unpadded
from bertsmith.model.attention import attention
from bertsmith.model.batched_attention import batched_attention, rectangles
from tests.model.rows import places_of

HEADS, HEAD_SIZE = 4, 12
HIDDEN = HEADS * HEAD_SIZE
LENGTHS = [(5, 5, 5, 5), (7, 7, 7, 9, 9, 30), (13, 3, 3, 40, 7), (1,), (41, 1, 41)]


def one_row_at_a_time(qkv: Tensor, layout: Layout, causal: bool = False) -> Tensor:
    """Attention written out for each row alone, in the order of the rows, padding left out."""
    attended = []
    for start, length in zip(layout.starts, layout.lengths, strict=True):
        query, key, value = qkv[start : start + length].view(length, 3, HEADS, HEAD_SIZE).unbind(1)
        scores = torch.einsum("qhd,khd->hqk", query, key) / HEAD_SIZE**0.5
        if causal:
            later = torch.arange(length) > torch.arange(length)[:, None]  # (query, key)
            scores = scores.masked_fill(later, -torch.inf)
        attended.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).reshape(length, -1))
    return torch.cat(attended)


def layouts_of(lengths: tuple[int, ...]) -> list[Layout]:
    return [unpadded(lengths), padded(lengths), padded(lengths, 45)]


@pytest.mark.parametrize("kernel", [attention, batched_attention])
@pytest.mark.parametrize("causal", [False, True], ids=["both", "left"])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_every_path_gives_the_output_and_gradient_of_rows_taken_alone(kernel, lengths, causal):
    torch.manual_seed(0)
    for layout in layouts_of(lengths):
        qkv = torch.randn(layout.places, 3 * HIDDEN, dtype=torch.float64, requires_grad=True)
        places = places_of(layout)
        weights = torch.randn(len(places), HIDDEN, dtype=torch.float64)
        expected = one_row_at_a_time(qkv, layout, causal)
        (expected_gradient,) = torch.autograd.grad((expected * weights).sum(), qkv)
        attended = kernel(qkv, layout, HEADS, 0.0, causal)
        (gradient,) = torch.autograd.grad((attended[places] * weights).sum(), qkv)
        torch.testing.assert_close(attended[places], expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(gradient, expected_gradient, rtol=0, atol=1e-12)
        assert attended.isfinite().all()


def test_bfloat16_is_near_float32_in_output_and_gradient():
    torch.manual_seed(0)
    layout = unpadded((13, 3, 3, 40, 7))
    exact = torch.randn(layout.places, 3 * HIDDEN, requires_grad=True)
    rounded = exact.detach().bfloat16().requires_grad_()
    weights = torch.randn(layout.places, HIDDEN)
    results = []
    for qkv in (exact, rounded):
        attended = attention(qkv, layout, HEADS, 0.0)
        assert attended.dtype == qkv.dtype
        (gradient,) = torch.autograd.grad((attended * weights).sum(), qkv)
        results.append((attended.detach().float(), gradient.float()))
    for near, target in zip(results[1], results[0], strict=True):
        assert functional.cosine_similarity(near.flatten(), target.flatten(), dim=0) > 0.9995


def test_rectangles_join_short_neighbours_and_part_long_ones():
    joined = rectangles(unpadded((5, 6, 7, 8)), 12)
    assert [(rectangle.rows, rectangle.seq) for rectangle in joined] == [(4, 8)]
    parted = rectangles(unpadded((10, 512, 512)), 12)
    assert [(rectangle.rows, rectangle.seq) for rectangle in parted] == [(1, 10), (2, 512)]
    assert [rectangle.start for rectangle in parted] == [0, 10]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "layout", [unpadded((64, 64)), unpadded((64, 50, 20)), padded((64, 50), 70)], ids=str
)
def test_dropout_drops_its_share_of_probabilities_and_keeps_the_mean(layout, dtype):
    """With equal scores and values of one, the attended value is the scaled share of what was kept."""
    torch.manual_seed(0)
    qkv = torch.zeros(layout.places, 3 * HIDDEN, dtype=dtype)
    qkv[:, 2 * HIDDEN :] = 1.0
    attended = attention(qkv, layout, HEADS, 0.25)[places_of(layout)]
    share = attended.view(-1, HEADS, HEAD_SIZE)[..., 0].float()  # (tokens, heads)
    assert abs(share.mean().item() - 1.0) < 0.03
    # each is a mean over a row's length of 0 or 4/3: standard deviation sqrt(1/3 / length)
    lengths = torch.repeat_interleave(torch.tensor(layout.lengths), torch.tensor(layout.lengths))
    expected = (1 / 3 / lengths).mean().sqrt()
    assert abs((share - 1.0).square().mean().sqrt() - expected) < 0.15 * expected


def test_dropout_repeats_with_the_seed_and_differs_without():
    layout = unpadded((9, 9, 12))
    torch.manual_seed(1)
    qkv = torch.randn(layout.places, 3 * HIDDEN)
    outputs = []
    for seed in (5, 5, 6):
        torch.manual_seed(seed)
        outputs.append(attention(qkv, layout, HEADS, 0.1))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])


def test_gradient_with_dropout_is_that_of_the_same_draw():
    """Checked against finite differences: the mask is drawn anew from the same seed for each evaluation."""
    layout = unpadded((3, 4, 4))
    torch.manual_seed(2)
    qkv = torch.randn(layout.places, 3 * HIDDEN, dtype=torch.float64, requires_grad=True)

    def attended(inputs: Tensor) -> Tensor:
        torch.manual_seed(3)
        return batched_attention(inputs, layout, HEADS, 0.3)

    assert torch.autograd.gradcheck(attended, (qkv,))


@pytest.mark.gpu
@pytest.mark.parametrize("dropout", [0.0, 0.1])
def test_gpu_kernels_agree_with_the_processor(dropout):
    torch.manual_seed(0)
    layout = unpadded((13, 3, 3, 40, 7))
    qkv = torch.randn(layout.places, 3 * 4 * 32)
    expected = attention(qkv, layout, 4, 0.0)
    on_gpu = attention(qkv.cuda().bfloat16(), layout, 4, dropout).float().cpu()
    assert functional.cosine_similarity(on_gpu.flatten(), expected.flatten(), dim=0) > (
        0.999 if not dropout else 0.9
    )
