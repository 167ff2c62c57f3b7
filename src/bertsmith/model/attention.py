"""Self-attention: one function that hides the layouts and the kernels."""

from __future__ import annotations

from functools import lru_cache
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertsmith.layout import Layout, moved
from bertsmith.model.batched_attention import batched_attention
from bertsmith.model.config import BertConfig


def attention(
    qkv: Tensor, layout: Layout, num_heads: int, dropout_probability: float, causal: bool = False
) -> Tensor:
    """Let the tokens of each row attend to the tokens of that row.

    Args:
        qkv: queries, keys and values side by side, float ``(places, 3 * hidden)``.
        layout: where the rows lie.
        num_heads: attention heads.
        dropout_probability: of an attention probability; 0 when not training.
        causal: a token attends to itself and to those before it alone.

    Returns:
        The attended values, dtype of ``qkv``, ``(places, hidden)``. Those at padding are finite and mean
        nothing.
    """
    on_cpu = qkv.device.type == "cpu"
    if on_cpu and (qkv.dtype == torch.bfloat16 or dropout_probability > 0.0):
        return batched_attention(qkv, layout, num_heads, dropout_probability, causal)
    if layout.row_tokens is not None:
        return _padded_attention(qkv, layout, num_heads, dropout_probability, causal)
    if not on_cpu and qkv.dtype in (torch.bfloat16, torch.float16) and dropout_probability == 0.0:
        return _varlen_attention(qkv, layout, num_heads, causal)
    return _grouped_attention(qkv, layout, num_heads, dropout_probability, causal)


def _padded_attention(
    qkv: Tensor, layout: Layout, num_heads: int, dropout_probability: float, causal: bool = False
) -> Tensor:
    """Attend in one rectangle, keys at padding masked: the reference that the other kernels are held to."""
    assert layout.row_tokens is not None
    rectangle = qkv.view(layout.batch, layout.row_tokens, -1)  # (batch, seq, 3 * hidden)
    lengths = moved(torch.tensor(layout.lengths), qkv.device)
    is_token = torch.arange(layout.row_tokens, device=qkv.device) < lengths[:, None]  # (batch, seq)
    mask = None if min(layout.lengths) == layout.row_tokens else is_token[:, None, None, :]
    if causal:  # padding stands behind the tokens, so that they do not see it
        mask = torch.ones(layout.row_tokens, layout.row_tokens, dtype=torch.bool, device=qkv.device).tril()
    return _rectangle_attention(rectangle, mask, num_heads, dropout_probability).flatten(0, 1)


def _grouped_attention(
    qkv: Tensor, layout: Layout, num_heads: int, dropout_probability: float, causal: bool = False
) -> Tensor:
    """Attend in rectangles of neighbouring rows of equal length."""
    groups = [(len(list(rows)), length) for length, rows in groupby(layout.lengths)]
    # split, not slices: its backward is one concatenation
    pieces = torch.split(qkv, [rows * length for rows, length in groups])
    attended = [
        _rectangle_attention(
            piece.view(rows, length, -1), None, num_heads, dropout_probability, causal
        ).flatten(0, 1)
        for piece, (rows, length) in zip(pieces, groups, strict=True)
    ]
    return torch.cat(attended) if len(attended) > 1 else attended[0]


def _rectangle_attention(
    qkv: Tensor, mask: Tensor | None, num_heads: int, dropout_probability: float, causal: bool = False
) -> Tensor:
    rows, seq, _ = qkv.shape
    split = qkv.view(rows, seq, 3, num_heads, -1).permute(2, 0, 3, 1, 4)  # (3, rows, heads, seq, head_size)
    query, key, value = split.unbind(0)
    attended = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, dropout_p=dropout_probability, is_causal=causal
    )
    return attended.transpose(1, 2).reshape(rows, seq, -1)  # (rows, seq, hidden)


def _varlen_attention(qkv: Tensor, layout: Layout, num_heads: int, causal: bool = False) -> Tensor:
    """Attend with the flash kernel for rows of different lengths; it knows no dropout."""
    from torch.nn.attention.varlen import varlen_attn

    query, key, value = qkv.view(layout.places, 3, num_heads, -1).unbind(1)  # (places, heads, head_size)
    bounds = _row_bounds(layout, qkv.device)
    longest = max(layout.lengths)
    window = (-1, 0) if causal else (-1, -1)
    attended = varlen_attn(query, key, value, bounds, bounds, longest, longest, window_size=window)
    assert isinstance(attended, Tensor)
    return attended.flatten(1)  # (places, hidden)


@lru_cache(maxsize=64)
def _row_bounds(layout: Layout, device: torch.device) -> Tensor:
    """Return where each row starts, and the end of the last; int32 ``(batch + 1,)``.

    Kept for the layers and the backward pass of a batch, so that it is moved to the device once.
    """
    return moved(torch.tensor((*layout.starts, layout.places), dtype=torch.int32), device)


class SelfAttention(nn.Module):
    """Multi-head self-attention with one fused projection for queries, keys and values.

    Source: the paper's section 3; modeling.py, attention_layer.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.num_heads = config.num_heads
        self.causal = config.context == "left"
        self.dropout_probability = config.attention_dropout
        self.qkv = nn.Linear(config.hidden_size, 3 * config.hidden_size)
        self.output = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, hidden: Tensor, layout: Layout, read: Tensor | None = None) -> Tensor:
        """Return float ``(places, hidden)``, or ``(read, hidden)``: the output at the places in ``read``."""
        probability = self.dropout_probability if self.training else 0.0
        attended = attention(self.qkv(hidden), layout, self.num_heads, probability, self.causal)
        if read is not None:
            attended = attended.index_select(0, read)  # (read, hidden)
        projected: Tensor = self.output(attended)
        return projected

    def weights(self, hidden: Tensor, layout: Layout) -> list[Tensor]:
        """Return how much each token attends to each token of its row.

        Args:
            hidden: what attention reads, float ``(places, hidden)``.
            layout: the unpadded rows.

        Returns:
            Float32 ``(heads, seq, seq)`` of each row; each line of the last axis sums to 1.
        """
        rows = torch.split(self.qkv(hidden).float(), list(layout.lengths))
        return [_row_weights(row, self.num_heads, self.causal) for row in rows]


def _row_weights(qkv: Tensor, num_heads: int, causal: bool) -> Tensor:
    query, key, _ = qkv.view(len(qkv), 3, num_heads, -1).permute(1, 2, 0, 3)  # (heads, seq, head_size) each
    scores = query @ key.transpose(1, 2) * query.shape[-1] ** -0.5  # (heads, seq, seq)
    if causal:
        later = torch.ones(len(qkv), len(qkv), dtype=torch.bool, device=qkv.device).triu(1)
        scores = scores.masked_fill(later, -torch.inf)
    return torch.softmax(scores, dim=-1)
