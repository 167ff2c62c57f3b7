"""Dropout that costs little on a processor.

PyTorch draws a number in floating point for each element, which on a processor takes longer than most matrix
products of a small model. Here a 64-bit number decides for four elements: each of its 16-bit lanes is
compared with a threshold, so the rate is exact to 1/65,536. The comparison leaves 0 or 1 in the lane, and a
multiplication turns that into the bit pattern of bfloat16's 0 or 1, without a conversion.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

_LANES = 1 << 16
_BITS_OF_ONE = 0x3F80  # bfloat16 1.0


def keep_mask(shape: tuple[int, ...], probability: float) -> Tensor:
    """Draw what is kept, from PyTorch's generator of the processor (``torch.manual_seed`` repeats it).

    Args:
        shape: of the mask.
        probability: share that is dropped, rounded to a multiple of 1/65,536.

    Returns:
        1 where kept, 0 where dropped; bfloat16.
    """
    count = math.prod(shape)
    # SFC64 makes its numbers twice as fast as PyTorch's Mersenne Twister, which gives only the seed.
    words = np.random.SFC64(int(torch.randint(1 << 62, ()))).random_raw((count + 3) // 4)
    lanes = torch.from_numpy(words.view(np.int16))[:count]
    lanes.ge_(round(probability * _LANES) - _LANES // 2).mul_(_BITS_OF_ONE)
    return lanes.view(torch.bfloat16).view(shape)


def kept_scale(probability: float) -> float:
    """Return the factor that keeps the mean: one over the share that ``keep_mask`` keeps."""
    return _LANES / (_LANES - round(probability * _LANES))


def dropout(values: Tensor, probability: float) -> Tensor:
    """Return the values with each dropped with ``probability`` and the others scaled to keep the mean.

    Args:
        values: floating point, any shape.
        probability: at least 0, below 1; 0 returns the values themselves.

    Returns:
        Same dtype and shape as ``values``.
    """
    if probability == 0.0:
        return values
    if not _draws_own_numbers(values):
        return functional.dropout(values, probability, training=True)
    mask = keep_mask(tuple(values.shape), probability).to(values.dtype)
    return values * mask * kept_scale(probability)


def _draws_own_numbers(values: Tensor) -> bool:
    """Return whether ``keep_mask`` is the faster way: on a processor, unless compiled code draws."""
    return values.device.type == "cpu" and not torch.compiler.is_compiling()


def add_dropout(residual: Tensor, values: Tensor, probability: float) -> Tensor:
    """Return ``residual + dropout(values)`` in the wider of both dtypes.

    On a processor the scale is part of the addition.
    """
    if probability == 0.0 or not _draws_own_numbers(values):
        return residual + dropout(values, probability)
    mask = keep_mask(tuple(values.shape), probability).to(values.dtype)
    return torch.add(residual, values * mask, alpha=kept_scale(probability))


class Dropout(nn.Module):
    """Dropout while training, nothing otherwise."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, values: Tensor) -> Tensor:
        """Return values of the same dtype and shape."""
        return dropout(values, self.probability) if self.training else values

    def add(self, residual: Tensor, values: Tensor) -> Tensor:
        """Return the residual plus the values after dropout."""
        return add_dropout(residual, values, self.probability if self.training else 0.0)

    def extra_repr(self) -> str:
        """Return what the module prints about itself."""
        return f"probability={self.probability}"
