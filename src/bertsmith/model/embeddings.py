"""The input of the encoder: word, segment and position embeddings."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bertsmith.layout import Tokens
from bertsmith.model.config import BertConfig
from bertsmith.model.dropout import Dropout


class Embeddings(nn.Module):
    """Sum of the three embeddings, LayerNorm, dropout.

    Source: modeling.py, embedding_lookup and embedding_postprocessor.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        assert config.vocab_size > 0, "the vocabulary's size has to be settled before a model is built"
        self.word = nn.Embedding(config.vocab_size, config.hidden_size)
        self.segment = nn.Embedding(config.num_segments, config.hidden_size)
        self.position = nn.Embedding(config.max_positions, config.hidden_size)
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = Dropout(config.hidden_dropout)

    def forward(self, tokens: Tokens) -> Tensor:
        """Return the embedded tokens, float ``(tokens, hidden)``."""
        segments = tokens.segment_ids
        if self.segment.num_embeddings == 1:  # both texts of a pair are the one segment, as in RoBERTa
            segments = torch.zeros_like(segments)
        summed = self.word(tokens.input_ids) + self.segment(segments)
        summed = summed + self.position(tokens.position_ids)
        embedded: Tensor = self.dropout(self.norm(summed))
        return embedded
