"""Linear layers of the encoder in 8 bits, for inference on a processor.

A weight matrix has one scale an output; the inputs have one a token, found when they come, so that a token's
result depends on no other's. Three things keep the loss small:

- LayerNorm's output has a few channels far larger than the others, which would take a token's 8 bits for
  themselves. Each channel is divided, and its weights multiplied, by a factor between the two ranges
  (SmoothQuant, arXiv 2211.10438, equation 4). How large channels get is seen on random pieces: that is a
  property of the weights, so no text is needed.
- What follows GELU or ReLU has a known lowest value, so all 256 steps lie above it.
- Residuals, LayerNorm, attention and heads stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bertsmith.layout import Tokens, unpadded
from bertsmith.model.bert import Bert
from bertsmith.model.encoder import EncoderLayer
from bertsmith.randomness import generator

_SMOOTHING = 0.75
"""Share of a channel's range that is moved into the weights, as an exponent."""
_SEEN_ROWS, _SEEN_SEQ = 16, 64
"""Rows of random pieces that are looked at, and pieces of each."""
_LOWEST: Mapping[str, float] = {"gelu": -0.1701, "gelu_tanh": -0.1701, "relu": 0.0}
"""A little below the lowest value of each activation function."""


class Int8Linear(nn.Module):
    """A linear layer whose products are of 8-bit integers, summed in 32 bits."""

    weight: Tensor  # int8 (inputs, outputs)
    scales: Tensor  # float32 (outputs,), what one step of a weight is worth
    bias: Tensor  # float32 (outputs,)
    factors: Tensor | None  # float32 (inputs,), of the inputs; None: as they are

    def __init__(self, linear: nn.Linear, largest: Tensor | None) -> None:
        """Make one.

        Args:
            linear: what it stands for.
            largest: how large each input gets, float ``(inputs,)``; ``None``: inputs are not smoothed.
        """
        super().__init__()
        weight = linear.weight.detach().float()  # (outputs, inputs)
        factors = None if largest is None else _factors(weight, largest)
        weight = weight if factors is None else weight / factors
        scales = (weight.abs().amax(dim=1) / 127.0).clamp_min(1e-12)
        rounded = (weight / scales[:, None]).round().to(torch.int8)
        self.register_buffer("weight", rounded.t())  # (inputs, outputs), laid out as the product wants it
        self.register_buffer("scales", scales)
        self.register_buffer("bias", linear.bias.detach().float())
        self.register_buffer("factors", factors)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return ``(places, outputs)`` from float ``(places, inputs)``, in its dtype."""
        scaled = inputs.float() if self.factors is None else inputs * self.factors
        steps = scaled.abs().amax(dim=1, keepdim=True).clamp_min(1e-12) / 127.0  # (places, 1)
        sums = torch._int_mm((scaled / steps).round_().to(torch.int8), self.weight)
        return torch.addcmul(self.bias, sums.float().mul_(steps), self.scales).to(inputs.dtype)


class Int8AboveLinear(Int8Linear):
    """The same for inputs that have a known lowest value."""

    shift: Tensor  # int32 (outputs,), what counting from -128 leaves out

    def __init__(self, linear: nn.Linear, lowest: float) -> None:
        """Make one; ``lowest``: no input is below it."""
        super().__init__(linear, None)
        self.lowest = lowest
        columns = self.weight.sum(dim=0, dtype=torch.int32)
        self.register_buffer("shift", 128 * columns)
        self.bias = self.bias + lowest * columns * self.scales

    def forward(self, inputs: Tensor) -> Tensor:
        """Return ``(places, outputs)`` from float ``(places, inputs)``, in its dtype."""
        steps = (inputs.float().amax(dim=1, keepdim=True) - self.lowest).clamp_min(1e-12) / 255.0
        counted = torch.addcmul(-self.lowest / steps - 128.0, inputs, 1.0 / steps)
        sums = torch._int_mm(counted.round_().to(torch.int8), self.weight).add_(self.shift)
        return torch.addcmul(self.bias, sums.float().mul_(steps), self.scales).to(inputs.dtype)


def _factors(weight: Tensor, largest: Tensor) -> Tensor:
    """Return what each input is multiplied by, float32 ``(inputs,)``."""
    ranges = largest.float().clamp_min(1e-3) ** _SMOOTHING
    return weight.abs().amax(dim=0).clamp_min(1e-3) ** (1.0 - _SMOOTHING) / ranges


@torch.no_grad()
def quantize(encoder: Bert, cls_id: int, sep_id: int) -> None:
    """Put 8-bit layers in the place of the encoder's linear ones.

    Args:
        encoder: float32, in evaluation mode, on a processor; changed in place.
        cls_id: of the piece that rows begin with.
        sep_id: of the piece that rows end with.
    """
    largest = _largest_inputs(encoder, _random_rows(encoder, cls_id, sep_id))
    lowest = _LOWEST[encoder.config.activation]
    for layer in encoder.layers:
        assert isinstance(layer, EncoderLayer)
        attention = layer.attention
        replaced = {
            (attention, "qkv"): Int8Linear(attention.qkv, largest[attention.qkv]),
            (attention, "output"): Int8Linear(attention.output, None),
            (layer, "intermediate"): Int8Linear(layer.intermediate, largest[layer.intermediate]),
            (layer, "output"): Int8AboveLinear(layer.output, lowest),
        }
        for (owner, name), module in replaced.items():
            setattr(owner, name, module)


def _random_rows(encoder: Bert, cls_id: int, sep_id: int) -> Tokens:
    """Return rows of random pieces, always the same for a shape."""
    seq = min(_SEEN_SEQ, encoder.config.max_positions)
    ids = generator(0, "int8").integers(encoder.config.vocab_size, size=(_SEEN_ROWS, seq))
    ids[:, 0], ids[:, -1] = cls_id, sep_id
    input_ids = torch.from_numpy(ids.ravel())
    positions = torch.arange(seq).repeat(_SEEN_ROWS)
    return Tokens(input_ids, torch.zeros_like(input_ids), positions, unpadded([seq] * _SEEN_ROWS))


def _largest_inputs(encoder: Bert, tokens: Tokens) -> dict[nn.Module, Tensor]:
    """Return how large each input of each linear layer gets, float32 ``(inputs,)``."""
    found: dict[nn.Module, Tensor] = {}

    def note(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found[module] = inputs[0].float().abs().amax(dim=0)

    hooks = [
        module.register_forward_pre_hook(note)
        for module in encoder.layers.modules()
        if isinstance(module, nn.Linear)
    ]
    encoder(tokens)
    for hook in hooks:
        hook.remove()
    return found
