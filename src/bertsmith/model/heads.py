"""What is put on the encoder: pooler, masked language model, a mixture of layers.

Heads score only what is read: the picked places of the masked language model, the first token of each row.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from bertsmith.errors import InputError
from bertsmith.layout import Layout
from bertsmith.model.config import BertConfig
from bertsmith.model.dropout import Dropout
from bertsmith.model.encoder import ACTIVATION_FUNCTIONS


class Pooler(nn.Module):
    """Dense layer with tanh on each row's first token, [CLS].

    Source: modeling.py, BertModel, "pooler".
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, first: Tensor) -> Tensor:
        """Return float ``(batch, hidden)`` from the encoder's output at first tokens, ``(batch, hidden)``."""
        return torch.tanh(self.dense(first))


class MlmHead(nn.Module):
    """Scores of every word for picked places; the decoder is the word embeddings with an own bias.

    Source: run_pretraining.py, get_masked_lm_output.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.activation = ACTIVATION_FUNCTIONS[config.activation]
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, picked: Tensor, word_embeddings: Tensor) -> Tensor:
        """Return the scores of picked places.

        Args:
            picked: encoder output of the picks, float ``(picks, hidden)``.
            word_embeddings: float ``(vocab, hidden)``.

        Returns:
            Float ``(picks, vocab)``.
        """
        transformed = self.norm(self.activation(self.dense(picked)))
        return functional.linear(transformed, word_embeddings, self.bias)  # (picks, vocab)


class UntiedMlmHead(MlmHead):
    """The same with a decoder of its own; the word embeddings are not read."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.decoder = nn.Linear(config.hidden_size, config.vocab_size, bias=False)

    def forward(self, picked: Tensor, word_embeddings: Tensor) -> Tensor:
        """Return the scores of picked places, see ``MlmHead``."""
        return super().forward(picked, self.decoder.weight)


def read_rows(lstm: nn.LSTM, hidden: Tensor, layout: Layout, backwards: bool = False) -> Tensor:
    """Return what an LSTM says at each place, having read each row by itself.

    On a processor it computes in its weights' precision: not every one has a kernel for LSTMs in bfloat16,
    and for sizes that change from step to step it is several times slower.

    Args:
        lstm: where rows are padded as wide, with its directions together, as what it reads.
        hidden: float ``(places, width)``.
        layout: where the rows lie.
        backwards: read each row from its end.

    Returns:
        Float ``(places, width of the LSTM)``; padding is left as it is.
    """
    rows = [hidden[start : start + n] for start, n in zip(layout.starts, layout.lengths, strict=True)]
    rows = [row.flip(0) for row in rows] if backwards else rows
    packed = pack_sequence(rows, enforce_sorted=False)
    if hidden.device.type == "cpu":
        with torch.autocast("cpu", enabled=False):
            states = lstm(packed.to(next(lstm.parameters()).dtype))[0]
    else:
        states = lstm(packed)[0]
    read = unpack_sequence(states)
    read = [row.flip(0) for row in read] if backwards else read
    if layout.row_tokens is None:
        return torch.cat(read)  # (places, width)
    result = hidden.clone()
    for start, row in zip(layout.starts, read, strict=True):
        result[start : start + len(row)] = row
    return result


class LstmLayer(nn.Module):
    """Two LSTMs, with a residual: one half of the width reads each row forwards, the other backwards.

    No place's half has seen more than one side of it, so that either can be trained to predict what follows.

    Source: arXiv 1802.05365 (ELMo), section 3.1; its layers have projections, ours as many cells as width.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        half = config.hidden_size // 2
        self.forwards = nn.LSTM(half, half)
        self.backwards = nn.LSTM(half, half)
        self.dropout = Dropout(config.hidden_dropout)

    def forward(self, hidden: Tensor, layout: Layout, read: Tensor | None = None) -> Tensor:
        """Return float ``(places, hidden)``, or ``(read, hidden)``, see ``EncoderLayer``."""
        left, right = hidden.chunk(2, dim=1)  # (places, hidden / 2) each
        seen = [read_rows(self.forwards, left, layout), read_rows(self.backwards, right, layout, True)]
        result = self.dropout.add(hidden, torch.cat(seen, dim=1))  # (places, hidden)
        return result if read is None else result.index_select(0, read)


class RecurrentTop(nn.Module):
    """A BiLSTM over the places of each row, as wide as the encoder with both directions together.

    Source: the paper, section 5.1: "+ BiLSTM adds a randomly initialized BiLSTM on top".
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        if config.hidden_size % 2:
            raise InputError(f"a BiLSTM needs an even hidden_size, not {config.hidden_size}")
        self.lstm = nn.LSTM(config.hidden_size, config.hidden_size // 2, bidirectional=True)

    def forward(self, hidden: Tensor, layout: Layout) -> Tensor:
        """Return float ``(places, hidden)`` from the same; padding is left as it is."""
        return read_rows(self.lstm, hidden, layout)


class LayerMix(nn.Module):
    """A sum of layers' outputs with learned weights: softmax of one number a layer, times one scale.

    Source: arXiv 1802.05365 (ELMo), equation 1.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.empty(num_layers))
        self.scale = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Begin with the mean."""
        nn.init.zeros_(self.weights)
        nn.init.ones_(self.scale)

    def forward(self, states: Tensor) -> Tensor:
        """Return float ``(places, hidden)`` from states ``(places, layers, hidden)``."""
        shares = torch.softmax(self.weights, dim=0)
        return self.scale * (shares[:, None] * states).sum(dim=1)  # (places, hidden)
