"""Heads for words on an encoder that is trained with them; for words and rows on a frozen one's states."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from bertsmith.layout import Layout, Tokens
from bertsmith.model.bert import Bert, initialize
from bertsmith.model.config import BertConfig
from bertsmith.model.dropout import Dropout
from bertsmith.model.heads import LayerMix, read_rows

LSTM_SIZE = 768
"""Width of a tagger's BiLSTM, both directions together; the paper's "768-dimensional"."""
MLP_SIZE = 512
"""Width of the hidden layer that scores rows. Source: arXiv 1804.07461 (GLUE), the section on baselines."""


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


class OnFrozenEncoder(nn.Module):
    """What heads on a frozen encoder's states share: one vector made of the layers', and a two-layer BiLSTM.

    The encoder is not run in ``forward``: its states do not change, so they are computed once and handed in.
    """

    def __init__(
        self, config: BertConfig, num_outputs: int, layers: tuple[int, ...], weighted: bool, lstm_size: int
    ) -> None:
        """Make one.

        Args:
            config: of the encoder; its ``hidden_dropout`` is the head's too.
            num_outputs: scores of a word or a row.
            layers: whose outputs are read; 0 is the embeddings' output.
            weighted: sum them with learned weights instead of concatenating them.
            lstm_size: cells of each LSTM in each direction.
        """
        super().__init__()
        self.config = config
        self.num_outputs = num_outputs
        self.layers = layers
        self.bert = Bert(config).requires_grad_(False)
        self.mix = LayerMix(len(layers)) if weighted else nn.Flatten(start_dim=1)
        width = config.hidden_size if weighted else config.hidden_size * len(layers)
        self.dropout = Dropout(config.hidden_dropout)
        self.lstm = nn.LSTM(width, lstm_size, num_layers=2, bidirectional=True, dropout=config.hidden_dropout)


class FeatureTagger(OnFrozenEncoder):
    """A frozen encoder whose states a BiLSTM over the words of a sentence reads.

    Source: the paper, section 5.3: "a randomly initialized two-layer 768-dimensional BiLSTM before the
        classification layer"; the weighted sum: arXiv 1802.05365 (ELMo), equation 1.
    """

    def __init__(self, config: BertConfig, num_outputs: int, layers: tuple[int, ...], weighted: bool) -> None:
        super().__init__(config, num_outputs, layers, weighted, LSTM_SIZE // 2)
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
        read = read_rows(self.lstm, features, layout)  # (words, LSTM_SIZE)
        scores: Tensor = self.classifier(self.dropout(read))
        return scores


class FeatureClassifier(OnFrozenEncoder):
    """A frozen encoder whose states a BiLSTM over each sentence reads; an MLP scores the row.

    The sentences of a pair are read alone, and meet here.

    Source: arXiv 1804.07461 (GLUE), the section on baselines, "BiLSTM, ELMo, Attn", and its code: two layers,
        max-pooling, a hidden layer of 512 with tanh; pairs see ``PairReading``.
    """

    def __init__(
        self,
        config: BertConfig,
        num_outputs: int,
        layers: tuple[int, ...],
        weighted: bool,
        lstm_size: int,
        pairs: bool,
    ) -> None:
        """Make one; ``pairs``: a row has two sentences."""
        super().__init__(config, num_outputs, layers, weighted, lstm_size)
        self.reading = PairReading(config, lstm_size) if pairs else SentenceReading()
        self.hidden = nn.Linear((8 if pairs else 2) * lstm_size, MLP_SIZE)
        self.classifier = nn.Linear(MLP_SIZE, num_outputs)
        for part in (self.hidden, self.classifier):
            initialize(part, config.initializer_std)

    def forward(self, states: Tensor, layout: Layout) -> Tensor:
        """Return the scores of rows.

        Args:
            states: float ``(places, layers, hidden)``.
            layout: the sentences, unpadded; of pairs all first ones, then all second ones.

        Returns:
            Float ``(batch, num_outputs)``.
        """
        features = self.dropout(self.mix(states))  # (places, width)
        read = self.dropout(read_rows(self.lstm, features, layout))  # (places, 2 lstm_size)
        vectors = self.reading(read, layout)  # (batch, 2 or 8 lstm_size)
        hidden = torch.tanh(self.hidden(self.dropout(vectors)))
        scores: Tensor = self.classifier(self.dropout(hidden))
        return scores


class SentenceReading(nn.Module):
    """The maximum over a sentence's places."""

    def forward(self, read: Tensor, layout: Layout) -> Tensor:
        """Return float ``(sentences, width)`` from ``(places, width)``."""
        return torch.stack([sentence.amax(dim=0) for sentence in torch.split(read, list(layout.lengths))])


class PairReading(nn.Module):
    """Each place of a sentence looks at all of the other; a second BiLSTM reads both, and two vectors meet.

    Weights of attention are softmax of dot products (no scale), in both directions from the same products.

    Source: arXiv 1804.07461 (GLUE), the section on baselines: "attention ... between all pairs of words,
        followed by a second BiLSTM with max pooling", [u; v; |u - v|; u * v]; after arXiv 1611.01603 (BiDAF).
    """

    def __init__(self, config: BertConfig, lstm_size: int) -> None:
        super().__init__()
        self.dropout = Dropout(config.hidden_dropout)
        self.lstm = nn.LSTM(4 * lstm_size, lstm_size, bidirectional=True)
        self.pool = SentenceReading()

    def forward(self, read: Tensor, layout: Layout) -> Tensor:
        """Return float ``(pairs, 4 width)`` from ``(places, width)``; all first sentences stand first."""
        seen = torch.cat([read, attended(read, layout)], dim=1)  # (places, 2 width)
        again = self.dropout(read_rows(self.lstm, self.dropout(seen), layout))  # (places, width)
        first, second = self.pool(again, layout).chunk(2)  # (pairs, width) each
        return torch.cat([first, second, (first - second).abs(), first * second], dim=1)


def attended(read: Tensor, layout: Layout) -> Tensor:
    """Return for each place the mean of the other sentence's places, weighted by softmax of dot products.

    Args:
        read: float ``(places, width)``.
        layout: unpadded; the second half of the sentences belong to the first, in their order.

    Returns:
        Float ``(places, width)``.
    """
    pairs = layout.batch // 2
    sentences = torch.split(read, list(layout.lengths))
    first = pad_sequence(list(sentences[:pairs]), batch_first=True)  # (pairs, seq, width)
    second = pad_sequence(list(sentences[pairs:]), batch_first=True)
    lengths = torch.tensor(layout.lengths, device=read.device)
    in_first = torch.arange(first.shape[1], device=read.device) < lengths[:pairs, None]  # (pairs, seq)
    in_second = torch.arange(second.shape[1], device=read.device) < lengths[pairs:, None]
    look = functional.scaled_dot_product_attention
    to_second = look(first, second, second, attn_mask=in_second[:, None], scale=1.0)  # (pairs, seq, width)
    to_first = look(second, first, first, attn_mask=in_first[:, None], scale=1.0)
    return torch.cat([to_second[in_first], to_first[in_second]])  # (places, width)
