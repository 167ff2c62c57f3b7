"""BERT: the encoder, and the encoder with the heads it is trained with."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertsmith.layout import Tokens, moved
from bertsmith.model.config import BertConfig
from bertsmith.model.dropout import Dropout
from bertsmith.model.embeddings import Embeddings
from bertsmith.model.encoder import LAYERS, EncoderLayer, final_norm
from bertsmith.model.heads import LayerMix, LstmLayer, MlmHead, Pooler, RecurrentTop, UntiedMlmHead


def initialize(module: nn.Module, std: float) -> None:
    """Draw the weights as the original does: a normal cut at two sigma; biases 0; LayerNorm 1 and 0.

    The row of [PAD] is drawn like any other. What BERT has not, an LSTM, begins as PyTorch lets it.

    Args:
        module: a module whose linear, embedding and normalisation layers are drawn anew, in place.
        std: standard deviation of the normal before the cut (after it: 0.88 times that).

    Source: modeling.py, create_initializer (tf.truncated_normal_initializer).
    """
    for part in module.modules():
        if isinstance(part, (nn.Linear, nn.Embedding)):
            nn.init.trunc_normal_(part.weight, std=std, a=-2 * std, b=2 * std)
        if isinstance(part, nn.LayerNorm):
            nn.init.ones_(part.weight)
        if isinstance(part, (nn.Linear, nn.LayerNorm, MlmHead)) and part.bias is not None:
            nn.init.zeros_(part.bias)
        if isinstance(part, (nn.LSTM, LayerMix)):
            part.reset_parameters()


def reinitialize_top(model: nn.Module, num_layers: int) -> None:
    """Draw the top layers, and what reads them, anew: the pooler, and pre-LN's last LayerNorm.

    The top of a pretrained encoder is specialised in the masked language model; on small data it is often the
    worse start.

    Args:
        model: a ``Bert`` with heads, changed in place.
        num_layers: of the encoder, 1 to all.

    Source: arXiv 2006.05987, section 3.
    """
    bert = model.bert
    assert isinstance(bert, Bert)
    assert 1 <= num_layers <= len(bert.layers), "the caller checks the number of layers"
    for part in (*bert.layers[-num_layers:], bert.norm, getattr(model, "pooler", None)):
        if part is not None:
            initialize(part, bert.config.initializer_std)


def summary_places(tokens: Tokens, config: BertConfig) -> Tensor:
    """Return the place that heads for whole rows read; int64 ``(batch,)``.

    That is each row's first token, [CLS]; in a left-to-right model, whose [CLS] sees nothing, its last one.
    """
    layout = tokens.layout
    places = torch.tensor(layout.starts)
    if config.context == "left":
        places += torch.tensor(layout.lengths) - 1
    return moved(places, tokens.input_ids.device)


class Bert(nn.Module):
    """The encoder. Source: the paper, section 3; modeling.py, BertModel."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        layer = LstmLayer if config.mixing == "lstm" else LAYERS[config.norm]
        self.layers = nn.ModuleList(layer(config) for _ in range(config.num_layers))
        self.norm = final_norm(config)
        self.top = RecurrentTop(config) if config.recurrent_top else None
        initialize(self, config.initializer_std)

    def forward(self, tokens: Tokens, read: Tensor | None = None) -> Tensor:
        """Return the last layer's output.

        Args:
            tokens: the inputs.
            read: int64 ``(read,)``, the places that heads read; the last layer leaves out the others' share
                of everything that follows attention. ``None``: all.

        Returns:
            Float ``(places, hidden)``, or ``(read, hidden)``.
        """
        hidden: Tensor = self.embeddings(tokens)
        for layer in self.layers[:-1]:
            hidden = layer(hidden, tokens.layout)
        if self.top is None:
            last: Tensor = self.norm(self.layers[-1](hidden, tokens.layout, read))
            return last
        last = self.top(self.norm(self.layers[-1](hidden, tokens.layout)), tokens.layout)
        return last if read is None else last.index_select(0, read)

    def hidden_states(self, tokens: Tokens) -> list[Tensor]:
        """Return the output of the embeddings and of every layer, each float ``(places, hidden)``.

        The last one is after the final LayerNorm, where there is one, and below a BiLSTM, if there is one.
        """
        states: list[Tensor] = [self.embeddings(tokens)]
        for layer in self.layers:
            states.append(layer(states[-1], tokens.layout))
        states[-1] = self.norm(states[-1])
        return states

    def attention_weights(self, tokens: Tokens) -> list[Tensor]:
        """Return each row's attention, float32 ``(layers, heads, seq, seq)``; the rows are unpadded."""
        found = []
        for layer, hidden in zip(self.layers, self.hidden_states(tokens)[:-1], strict=True):
            assert isinstance(layer, EncoderLayer)
            found.append(layer.attention.weights(layer.attention_input(hidden), tokens.layout))
        return [torch.stack(layers) for layers in zip(*found, strict=True)]


def _read_places(bert: Bert, tokens: Tokens, picks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the encoder's output at the places for whole rows and at the picks."""
    places = summary_places(tokens, bert.config)
    first, picked = torch.split(bert(tokens, torch.cat([places, picks])), [len(places), len(picks)])
    return first, picked


def _read_halves(bert: Bert, tokens: Tokens, picks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the same of LSTMs: a pick is one half of a place, the other half of its vector is zero."""
    hidden = bert(tokens)
    left, right = hidden.chunk(2, dim=1)
    none = torch.zeros_like(left)
    halves = torch.stack([torch.cat([left, none], dim=1), torch.cat([none, right], dim=1)], dim=1)
    halves = halves.flatten(0, 1)  # (2 places, hidden)
    return hidden.index_select(0, summary_places(tokens, bert.config)), halves.index_select(0, picks)


class BertForPreTraining(nn.Module):
    """The encoder with the masked language model and next sentence prediction.

    A left-to-right encoder predicts next pieces with the same head; LSTMs the piece behind each place with
    the half that has seen the left, and the one before it with the other half.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = Bert(config)
        self.pooler = Pooler(config)
        self.mlm_head = MlmHead(config) if config.tied_decoder else UntiedMlmHead(config)
        self.nsp_head = nn.Linear(config.hidden_size, 2)
        self._read = _read_halves if config.mixing == "lstm" else _read_places
        for head in (self.pooler, self.mlm_head, self.nsp_head):
            initialize(head, config.initializer_std)

    def forward(self, tokens: Tokens, picks: Tensor) -> tuple[Tensor, Tensor]:
        """Return the scores of both tasks.

        Args:
            tokens: the inputs.
            picks: int64 ``(picks,)``, places on the token axis that predict a word; of LSTMs their halves
                (``masking.neighbours``).

        Returns:
            Scores of every word at the picks, float ``(picks, vocab)``, and of "is next" and "is random",
            float ``(batch, 2)``.
        """
        first, picked = self._read(self.bert, tokens, picks)  # (batch, hidden), (picks, hidden)
        mlm_scores = self.mlm_head(picked, self.bert.embeddings.word.weight)
        nsp_scores = self.nsp_head(self.pooler(first))
        return mlm_scores, nsp_scores


class BertForChoice(nn.Module):
    """The encoder with one score for each choice, which the choices of a row are measured by.

    Source: the paper, section 4.4.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = Bert(config)
        self.pooler = Pooler(config)
        self.dropout = Dropout(config.hidden_dropout)
        self.classifier = nn.Linear(config.hidden_size, 1)
        for head in (self.pooler, self.classifier):
            initialize(head, config.initializer_std)

    def forward(self, tokens: Tokens) -> Tensor:
        """Return float ``(batch, 1)``, a score for each choice."""
        first = self.bert(tokens, summary_places(tokens, self.config))  # (batch, hidden)
        scores: Tensor = self.classifier(self.dropout(self.pooler(first)))
        return scores


class BertForClassification(nn.Module):
    """The encoder with scores for each row: of classes, or one number in a regression.

    Source: run_classifier.py, create_model.
    """

    def __init__(self, config: BertConfig, num_outputs: int) -> None:
        super().__init__()
        self.config = config
        self.num_outputs = num_outputs
        self.bert = Bert(config)
        self.pooler = Pooler(config)
        self.dropout = Dropout(config.hidden_dropout)
        self.classifier = nn.Linear(config.hidden_size, num_outputs)
        for head in (self.pooler, self.classifier):
            initialize(head, config.initializer_std)

    def forward(self, tokens: Tokens) -> Tensor:
        """Return float ``(batch, num_outputs)``."""
        first = self.bert(tokens, summary_places(tokens, self.config))  # (batch, hidden)
        scores: Tensor = self.classifier(self.dropout(self.pooler(first)))
        return scores


class BertForEmbedding(nn.Module):
    """The encoder as vectors of texts are pooled from it; no weight is added."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = Bert(config)

    def forward(self, tokens: Tokens) -> Tensor:
        """Return the last layer's output, float ``(places, hidden)``."""
        hidden: Tensor = self.bert(tokens)
        return hidden


class BertForSpans(nn.Module):
    """The encoder with two scores for each token: as the first and as the last of an answer.

    Source: run_squad.py, create_model.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.config = config
        self.bert = Bert(config)
        self.span_scores = nn.Linear(config.hidden_size, 2)
        initialize(self.span_scores, config.initializer_std)

    def forward(self, tokens: Tokens) -> Tensor:
        """Return float ``(places, 2)``."""
        scores: Tensor = self.span_scores(self.bert(tokens))
        return scores
