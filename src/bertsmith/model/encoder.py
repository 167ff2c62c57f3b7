"""One layer of the encoder, with LayerNorm after or before its sublayers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from bertsmith.layout import Layout
from bertsmith.model.attention import SelfAttention
from bertsmith.model.config import BertConfig
from bertsmith.model.dropout import Dropout

Activation = Callable[[Tensor], Tensor]

ACTIVATION_FUNCTIONS: dict[str, Activation] = {
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
}


class EncoderLayer(nn.Module):
    """Self-attention and feed-forward, each followed by dropout, the residual and LayerNorm (post-LN).

    Source: modeling.py, transformer_model.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout)

    def forward(self, hidden: Tensor, layout: Layout, read: Tensor | None = None) -> Tensor:
        """Return the layer's output.

        Args:
            hidden: the layer's input, float ``(places, hidden)``.
            layout: where the rows lie.
            read: int64 ``(read,)``, the places whose output is wanted; ``None``: all.

        Returns:
            Float ``(places, hidden)``, or ``(read, hidden)``.
        """
        attended = self.attention(self.attention_input(hidden), layout, read)
        return self.transform(hidden if read is None else hidden.index_select(0, read), attended)

    def attention_input(self, hidden: Tensor) -> Tensor:
        """Return what attention reads, float ``(places, hidden)``: the layer's input."""
        return hidden

    def transform(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """Return what follows attention: everything that works on each place alone.

        Args:
            hidden: the layer's input, float ``(read, hidden)``.
            attended: attention's output, float ``(read, hidden)``.
        """
        hidden = self.attention_norm(self.dropout.add(hidden, attended))
        transformed = self.output(self.activation(self.intermediate(hidden)))
        normalized: Tensor = self.output_norm(self.dropout.add(hidden, transformed))
        return normalized


class PreNormLayer(EncoderLayer):
    """The same sublayers, each with its LayerNorm before it; the residual is never normalised (pre-LN).

    Source: arXiv 2002.04745, section 3.2.
    """

    def attention_input(self, hidden: Tensor) -> Tensor:
        """Return what attention reads, float ``(places, hidden)``: the layer's input after its LayerNorm."""
        normalized: Tensor = self.attention_norm(hidden)
        return normalized

    def transform(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """Return what follows attention, see ``EncoderLayer``."""
        hidden = self.dropout.add(hidden, attended)
        transformed = self.output(self.activation(self.intermediate(self.output_norm(hidden))))
        return self.dropout.add(hidden, transformed)


LAYERS: dict[str, type[EncoderLayer]] = {"post": EncoderLayer, "pre": PreNormLayer}


def final_norm(config: BertConfig) -> nn.Module:
    """Return what follows the last layer: LayerNorm where the layers leave the residual as it is."""
    if config.norm == "pre":
        return nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
    return nn.Identity()
