"""Where the rows of a batch lie on the token axis: padding as a value.

A batch is one flat token axis. Unpadded, the rows lie end to end; padded, each row takes the same number of
places and the rest of its places hold padding. Only attention and the heads that pick positions look at the
layout; everything else works on the last axis of ``(tokens, hidden)``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Layout:
    """Rows on the flat token axis, as host integers (reading them never waits for a device).

    Attributes:
        lengths: tokens of each row, without padding.
        row_tokens: places each row takes when padded; ``None`` when the rows lie end to end.
    """

    lengths: tuple[int, ...]
    row_tokens: int | None = None

    def __post_init__(self) -> None:
        assert all(length > 0 for length in self.lengths), "a row has at least one token"
        assert self.row_tokens is None or self.row_tokens >= max(self.lengths), "rows longer than row_tokens"

    @property
    def batch(self) -> int:
        """Number of rows."""
        return len(self.lengths)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Place of each row's first token."""
        if self.row_tokens is not None:
            return tuple(range(0, self.batch * self.row_tokens, self.row_tokens))
        return tuple(accumulate(self.lengths[:-1], initial=0))

    @cached_property
    def places(self) -> int:
        """Length of the token axis, padding included."""
        return sum(self.lengths) if self.row_tokens is None else self.batch * self.row_tokens

    @cached_property
    def num_tokens(self) -> int:
        """Tokens without padding."""
        return sum(self.lengths)


@dataclass(frozen=True)
class Tokens:
    """The inputs of the encoder.

    Attributes:
        input_ids: int64 ``(tokens,)``.
        segment_ids: int64 ``(tokens,)``, 0 for the first text, 1 for the second.
        position_ids: int64 ``(tokens,)``, counted from 0 in each row.
        layout: where the rows lie.
    """

    input_ids: torch.Tensor
    segment_ids: torch.Tensor
    position_ids: torch.Tensor
    layout: Layout

    def to(self, device: torch.device | str) -> Tokens:
        """Return the same inputs on another device."""
        return replace(
            self,
            input_ids=moved(self.input_ids, device),
            segment_ids=moved(self.segment_ids, device),
            position_ids=moved(self.position_ids, device),
        )


def moved(tensor: torch.Tensor, device: torch.device | str) -> torch.Tensor:
    """Return a tensor on another device; on the way to a GPU nobody waits.

    From ordinary memory a copy first waits for all work that the GPU has been given; from pinned memory it is
    queued behind that work.
    """
    if tensor.device.type == "cpu" and str(device).startswith("cuda"):
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def unpadded(lengths: Sequence[int]) -> Layout:
    """Return the layout of rows that lie end to end."""
    return Layout(tuple(lengths))


def padded(lengths: Sequence[int], row_tokens: int | None = None) -> Layout:
    """Return the layout of rows padded to ``row_tokens`` (default: the longest row)."""
    return Layout(tuple(lengths), max(lengths) if row_tokens is None else row_tokens)
