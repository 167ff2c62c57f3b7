"""Dropout."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def dropout(values: Tensor, probability: float) -> Tensor:
    """Return the values with each dropped with ``probability`` and the others scaled to keep the mean.

    Random numbers come from torch's generator of the device, so ``torch.manual_seed`` repeats them.

    Args:
        values: floating point, any shape.
        probability: at least 0, below 1; 0 returns the values themselves.

    Returns:
        Same dtype and shape as ``values``.
    """
    if probability == 0.0:
        return values
    return functional.dropout(values, probability, training=True)


class Dropout(nn.Module):
    """Dropout while training, nothing otherwise."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability

    def forward(self, values: Tensor) -> Tensor:
        """Return values of the same dtype and shape."""
        return dropout(values, self.probability) if self.training else values

    def extra_repr(self) -> str:
        """Return what the module prints about itself."""
        return f"probability={self.probability}"
