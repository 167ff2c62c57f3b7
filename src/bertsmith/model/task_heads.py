"""Heads for words: on an encoder that is trained with them, and on the stored states of a frozen one."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from bertsmith.layout import Layout, Tokens
from bertsmith.model.bert import Bert, initialize
from bertsmith.model.config import BertConfig
from bertsmith.model.dropout import Dropout
from bertsmith.model.heads import LayerMix

LSTM_SIZE = 768
"""Width of the BiLSTM's output, both directions together; the paper's "768-dimensional"."""


class BertForTagging(nn.Module):
    """The encoder with scores of tags for each word, read at the word's first piece; no pooler, no CRF.

    Source: the paper, section 5.3.
    """

    def __init__(self, config: BertConfig, num_outputs: int) -> None:
        super().__init__()
        self.config = config
        self.num_outputs = num_outputs
        self.bert = Bert(config)
        self.dropout = Dropout(config.hidden_dropout)
        self.classifier = nn.Linear(config.hidden_size, num_outputs)
        initialize(self.classifier, config.initializer_std)

    def forward(self, tokens: Tokens, picks: Tensor) -> Tensor:
        """Return the scores of words.

        Args:
            tokens: the inputs.
            picks: int64 ``(words,)``, places on the token axis of first pieces.

        Returns:
            Float ``(words, num_outputs)``.
        """
        scores: Tensor = self.classifier(self.dropout(self.bert(tokens, picks)))
        return scores


class FeatureTagger(nn.Module):
    """A frozen encoder whose states a BiLSTM over the words of a sentence reads.

    The encoder is not run in ``forward``: its states do not change, so they are computed once and handed in.

    Source: the paper, section 5.3: "a randomly initialized two-layer 768-dimensional BiLSTM before the
        classification layer"; the weighted sum: arXiv 1802.05365 (ELMo), equation 1.
    """

    def __init__(self, config: BertConfig, num_outputs: int, layers: tuple[int, ...], weighted: bool) -> None:
        """Make one.

        Args:
            config: of the encoder; its ``hidden_dropout`` is the head's too.
            num_outputs: number of tags.
            layers: whose outputs are read; 0 is the embeddings' output.
            weighted: sum them with learned weights instead of concatenating them.
        """
        super().__init__()
        self.config = config
        self.num_outputs = num_outputs
        self.layers = layers
        self.bert = Bert(config).requires_grad_(False)
        self.mix: LayerMix | nn.Flatten = LayerMix(len(layers)) if weighted else nn.Flatten(start_dim=1)
        width = config.hidden_size * (1 if weighted else len(layers))
        self.dropout = Dropout(config.hidden_dropout)
        self.lstm = nn.LSTM(
            width, LSTM_SIZE // 2, num_layers=2, bidirectional=True, dropout=config.hidden_dropout
        )
        self.classifier = nn.Linear(LSTM_SIZE, num_outputs)
        initialize(self.classifier, config.initializer_std)

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """Return the scores of words.

        Args:
            states: of first pieces, float ``(words, layers, hidden)``.
            layout: the sentences, unpadded, on the axis of words.

        Returns:
            Float ``(words, num_outputs)``.
        """
        features = self.dropout(self.mix(states))  # (words, width)
        packed = pack_sequence(list(torch.split(features, list(layout.lengths))), enforce_sorted=False)
        read = torch.cat(unpack_sequence(self.lstm(packed)[0]))  # (words, LSTM_SIZE)
        scores: Tensor = self.classifier(self.dropout(read))
        return scores
