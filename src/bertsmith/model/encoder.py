"""One layer of the encoder."""

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
        attended = self.attention(hidden, layout, read)
        if read is not None:
            hidden = hidden.index_select(0, read)  # (read, hidden)
        hidden = self.attention_norm(self.dropout.add(hidden, attended))
        transformed = self.output(self.activation(self.intermediate(hidden)))
        normalized: Tensor = self.output_norm(self.dropout.add(hidden, transformed))
        return normalized
