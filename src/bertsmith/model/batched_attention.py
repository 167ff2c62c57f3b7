"""Attention on a processor as batched matrix products over rectangles of rows of nearly equal length.

PyTorch's fused kernel for processors is slower than plain products in bfloat16 (at 128 tokens by 1.7 times
forward, more backward) and gives way to a much slower path when attention probabilities are dropped.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from bertsmith.layout import Layout
from bertsmith.model.dropout import keep_mask, kept_scale

# What one more rectangle costs, in attention scores of one head that could be computed in that time.
_RECTANGLE_COST = 200_000
_MASKED = -1e9


@dataclass(frozen=True)
class Rectangle:
    """Neighbouring rows that attend in one batch.

    Attributes:
        start: place of the first row's first token.
        places: places of the token axis that the rows take.
        rows: number of rows.
        seq: tokens of the longest row, or of every row when padded.
        gather: int64 ``(rows * seq,)``, the place (from ``start``) of each token of the rectangle; a row's
            first token where it has no more tokens; ``None`` when rows fill the rectangle in order.
        scatter: int64 ``(places,)``, where in the rectangle each place lies; ``None`` as ``gather``.
        bias: float ``(rows, 1, seq)``, 0 for tokens, a large negative number for padding; ``None`` without.
    """

    start: int
    places: int
    rows: int
    seq: int
    gather: Tensor | None = None
    scatter: Tensor | None = None
    bias: Tensor | None = None


@lru_cache(maxsize=64)
def rectangles(layout: Layout, num_heads: int) -> tuple[Rectangle, ...]:
    """Return the rectangles that cover a layout at the least cost.

    Padded rows are one rectangle. Otherwise rows of equal length are never parted, and neighbours of other
    lengths join them when the padding costs less than another rectangle.
    """
    if layout.row_tokens is not None:
        return (_rectangle(0, layout.lengths, layout.row_tokens, in_place=True),)
    runs = [(length, len(list(rows))) for length, rows in groupby(layout.lengths)]
    best: list[tuple[float, int]] = [
        (0.0, 0)
    ]  # cost of the first runs, and where their last rectangle begins
    for end in range(1, len(runs) + 1):
        longest = rows = 0
        choices = []
        for begin in range(end - 1, -1, -1):
            longest, rows = max(longest, runs[begin][0]), rows + runs[begin][1]
            choices.append((best[begin][0] + _RECTANGLE_COST + num_heads * rows * longest**2, begin))
        best.append(min(choices))
    bounds = [len(runs)]
    while bounds[-1] > 0:
        bounds.append(best[bounds[-1]][1])
    found: list[Rectangle] = []
    start = 0
    for begin, end in zip(bounds[:0:-1], bounds[-2::-1], strict=True):
        lengths = tuple(length for length, rows in runs[begin:end] for _ in range(rows))
        found.append(_rectangle(start, lengths, max(lengths), in_place=False))
        start += found[-1].places
    return tuple(found)


def _rectangle(start: int, lengths: tuple[int, ...], seq: int, in_place: bool) -> Rectangle:
    rows = len(lengths)
    if min(lengths) == seq:
        return Rectangle(start, rows * seq, rows, seq)
    lengths_of = torch.tensor(lengths)
    is_token = torch.arange(seq) < lengths_of[:, None]  # (rows, seq)
    bias = torch.zeros(rows, 1, seq).masked_fill_(~is_token[:, None], _MASKED)
    if in_place:
        return Rectangle(start, rows * seq, rows, seq, bias=bias)
    starts = (lengths_of.cumsum(0) - lengths_of)[:, None]
    gather = torch.where(is_token, starts + torch.arange(seq), starts).flatten()
    scatter = is_token.flatten().nonzero()[:, 0]
    return Rectangle(start, sum(lengths), rows, seq, gather, scatter, bias)


def batched_attention(
    qkv: Tensor, layout: Layout, num_heads: int, dropout_probability: float, causal: bool = False
) -> Tensor:
    """Return the attended values, see ``attention``."""
    attended: Tensor = _BatchedAttention.apply(  # type: ignore[no-untyped-call]
        qkv, rectangles(layout, num_heads), num_heads, dropout_probability, causal
    )
    return attended


class _BatchedAttention(torch.autograd.Function):
    """Attention in rectangles with its gradient.

    Of a rectangle it keeps queries, keys, values, probabilities and what dropout kept. The scales of scores
    and dropout are factors of the products.
    """

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        plan: tuple[Rectangle, ...],
        num_heads: int,
        dropout_probability: float,
        causal: bool,
    ) -> Tensor:
        hidden = qkv.shape[1] // 3
        attended = qkv.new_empty(qkv.shape[0], hidden)
        saved: list[Tensor] = []
        with torch.autocast("cpu", enabled=False):
            for rectangle in plan:
                parts = _to_heads(_gathered(qkv, rectangle), 3, rectangle, num_heads)
                probabilities = _probabilities(parts[0], parts[1], rectangle, num_heads, causal)
                values, keep, scale = probabilities, None, 1.0
                if dropout_probability > 0.0:
                    keep = keep_mask(tuple(values.shape), dropout_probability).to(values.dtype)
                    values, scale = values * keep, kept_scale(dropout_probability)
                result = _product(values, parts[2], scale)  # (rows * heads, seq, head_size)
                _scatter(attended, _from_heads(result[None], rectangle, num_heads), rectangle)
                saved += [parts, probabilities] if keep is None else [parts, probabilities, keep]
        ctx.save_for_backward(*saved)
        ctx.plan, ctx.num_heads, ctx.dropout_probability = plan, num_heads, dropout_probability
        return attended

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None, None]:
        plan, num_heads, probability = ctx.plan, ctx.num_heads, ctx.dropout_probability
        saved = iter(ctx.saved_tensors)
        qkv_gradient = gradient.new_empty(gradient.shape[0], 3 * gradient.shape[1])
        with torch.autocast("cpu", enabled=False):
            for rectangle in plan:
                parts, probabilities = next(saved), next(saved)
                keep = next(saved) if probability > 0.0 else None
                spread = _spread(gradient, rectangle)  # (rows * seq, hidden)
                result_gradient = _to_heads(spread, 1, rectangle, num_heads)[0]
                parts_gradient = _parts_gradient(parts, probabilities, keep, result_gradient, probability)
                flat = _from_heads(parts_gradient, rectangle, num_heads)
                _scatter(qkv_gradient, flat, rectangle)
        return qkv_gradient, None, None, None, None


def _parts_gradient(
    parts: Tensor, probabilities: Tensor, keep: Tensor | None, gradient: Tensor, dropout_probability: float
) -> Tensor:
    """Return the gradient of queries, keys and values, ``(3, rows * heads, seq, head_size)``."""
    query, key, value = parts.unbind(0)
    scale = 1.0 if keep is None else kept_scale(dropout_probability)
    kept = probabilities if keep is None else probabilities * keep
    result = torch.empty_like(parts)
    _product(kept.transpose(1, 2), gradient, scale, out=result[2])
    wanted = _product(gradient, value.transpose(1, 2), scale)  # (rows * heads, seq, seq)
    if keep is not None:
        wanted *= keep
    scores = torch._softmax_backward_data(wanted, probabilities, -1, probabilities.dtype)
    root = query.shape[-1] ** -0.5
    _product(scores, key, root, out=result[0])
    _product(scores.transpose(1, 2), query, root, out=result[1])
    return result


def _probabilities(query: Tensor, key: Tensor, rectangle: Rectangle, num_heads: int, causal: bool) -> Tensor:
    root = query.shape[-1] ** -0.5
    if causal:  # padding stands behind the tokens, so that they do not see it
        scores = torch.baddbmm(_later(rectangle.seq, query.dtype), query, key.transpose(1, 2), alpha=root)
    elif rectangle.bias is None:
        scores = _product(query, key.transpose(1, 2), root)
    else:
        bias = rectangle.bias.to(query.dtype).repeat_interleave(num_heads, 0)  # (rows * heads, 1, seq)
        scores = torch.baddbmm(bias, query, key.transpose(1, 2), alpha=root)
    return torch.softmax(scores, -1)  # (rows * heads, seq, seq)


@lru_cache(maxsize=64)
def _later(seq: int, dtype: torch.dtype) -> Tensor:
    """Return ``(1, seq, seq)``: 0 for keys up to the query's place, a large negative number behind it."""
    return torch.full((1, seq, seq), _MASKED, dtype=dtype).triu_(1)


def _product(left: Tensor, right: Tensor, scale: float, out: Tensor | None = None) -> Tensor:
    """Return ``scale`` times the batched product."""
    if out is None:
        out = left.new_empty(left.shape[0], left.shape[1], right.shape[2])
    return torch.baddbmm(out, left, right, beta=0, alpha=scale, out=out)


def _gathered(qkv: Tensor, rectangle: Rectangle) -> Tensor:
    piece = qkv.narrow(0, rectangle.start, rectangle.places)
    return piece if rectangle.gather is None else piece.index_select(0, rectangle.gather)


def _spread(gradient: Tensor, rectangle: Rectangle) -> Tensor:
    """Return the gradient of a rectangle's tokens, zero at padding."""
    piece = gradient.narrow(0, rectangle.start, rectangle.places)
    if rectangle.scatter is None:
        return piece
    spread = gradient.new_zeros(rectangle.rows * rectangle.seq, gradient.shape[1])
    return spread.index_copy_(0, rectangle.scatter, piece)


def _scatter(flat: Tensor, values: Tensor, rectangle: Rectangle) -> None:
    """Write a rectangle's values to their places, leaving its padding out."""
    piece = flat.narrow(0, rectangle.start, rectangle.places)
    if rectangle.scatter is None:
        piece.view(values.shape).copy_(values)
    else:
        torch.index_select(values.reshape(-1, flat.shape[1]), 0, rectangle.scatter, out=piece)


def _to_heads(flat: Tensor, parts: int, rectangle: Rectangle, num_heads: int) -> Tensor:
    """Return contiguous ``(parts, rows * heads, seq, head_size)`` from ``(rows * seq, parts * hidden)``."""
    split = flat.view(rectangle.rows, rectangle.seq, parts, num_heads, -1).permute(2, 0, 3, 1, 4)
    return split.contiguous().view(parts, rectangle.rows * num_heads, rectangle.seq, -1)


def _from_heads(values: Tensor, rectangle: Rectangle, num_heads: int) -> Tensor:
    """View ``(parts, rows * heads, seq, head_size)`` as ``(rows, seq, parts, heads, head_size)``."""
    parts = values.shape[0]
    split = values.view(parts, rectangle.rows, num_heads, rectangle.seq, -1)
    return split.permute(1, 3, 0, 2, 4)
