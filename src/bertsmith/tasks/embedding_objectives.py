"""What is minimised when vectors of texts are trained."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional

from bertsmith import features
from bertsmith.layout import Tokens
from bertsmith.objectives import class_sums, squared_error_sum


class PairBatch(Protocol):
    """Texts, each once, and which of them are looked at together."""

    @property
    def tokens(self) -> Tokens:
        """The inputs, one a text."""
        ...

    @property
    def firsts(self) -> Tensor:
        """The input that each row's first text is, int64 ``(rows,)``."""
        ...

    @property
    def seconds(self) -> Tensor:
        """The inputs of second texts, int64: of the rows ``(rows,)``, or of all candidates."""
        ...

    @property
    def targets(self) -> Tensor:
        """What each row aims at: a cosine, float32 ``(rows,)``, or a candidate's place, int64 ``(rows,)``."""
        ...


class ContrastiveBatch(PairBatch, Protocol):
    """Rows whose second text is one of the candidates of the batch."""

    @property
    def excluded(self) -> Tensor:
        """Which candidates are no negatives of a row, bool ``(rows, candidates)``."""
        ...


class ContrastiveObjective:
    """Cross-entropy of each row's own second text among all that the batch holds, by their cosines.

    Source: arXiv 1705.00652, section 4.4 (negatives of the batch); arXiv 1807.03748, equation 4 (InfoNCE).
    """

    def __init__(self, pooling: str, temperature: float) -> None:
        self.pooling = pooling
        self.temperature = temperature

    def counts(self, batch: ContrastiveBatch) -> dict[str, int]:
        """Return the number of rows."""
        rows = batch.firsts.shape[0]
        return {"loss": rows, "accuracy": rows}

    def sums(self, model: nn.Module, batch: ContrastiveBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the summed loss and the number of rows whose own text is the nearest."""
        vectors = _directions(model, batch.tokens, self.pooling)  # (texts, hidden)
        with torch.autocast(vectors.device.type, enabled=False):  # cosines of bfloat16 are 0.004 apart
            cosines = vectors[batch.firsts] @ vectors[batch.seconds].T  # (rows, candidates)
        scores = (cosines / self.temperature).masked_fill(batch.excluded, -torch.inf)
        loss, correct = class_sums(scores, batch.targets)
        return {"loss": loss}, {"accuracy": correct}


class CosineObjective:
    """Squared error of the cosine of a row's two texts.

    Source: arXiv 1908.10084 (Sentence-BERT), section 3, regression objective.
    """

    def __init__(self, pooling: str) -> None:
        self.pooling = pooling

    def counts(self, batch: PairBatch) -> dict[str, int]:
        """Return the number of rows."""
        return {"loss": batch.firsts.shape[0]}

    def sums(self, model: nn.Module, batch: PairBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the summed squared error."""
        vectors = _directions(model, batch.tokens, self.pooling)  # (texts, hidden)
        cosines = (vectors[batch.firsts] * vectors[batch.seconds]).sum(dim=1, keepdim=True)  # (rows, 1)
        return {"loss": squared_error_sum(cosines, batch.targets)}, {}


def _directions(model: nn.Module, tokens: Tokens, pooling: str) -> Tensor:
    """Return a vector of length 1 for each input, float32 ``(inputs, hidden)``."""
    return functional.normalize(features.pool(model(tokens), tokens.layout, pooling), dim=1)
