"""Holding an exported model to ours: outputs on rows of every length, and the task's metric."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith import features
from bertsmith.bundle import Bundle
from bertsmith.data.batch import tokens_of
from bertsmith.errors import RunError
from bertsmith.interop.exported import Run, computed_by, rectangles
from bertsmith.interop.sentence_transformers import StoredPooling
from bertsmith.layout import Tokens
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.task_heads import BertForTagging
from bertsmith.randomness import generator
from bertsmith.recipes.labelled import LabelledSplit
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.kind import Outputs, Score

TOLERANCE = 1e-4
"""How far outputs of a float32 export may be from ours; of outputs beyond 1, this share of the largest."""
_SAMPLE_LENGTHS = (3, 4, 7, 20, 64)


@dataclass(frozen=True)
class Measure:
    """What exported models are held to.

    Attributes:
        bundle: the model directory.
        model: its model, on the host.
        pooling: of an embedding model, how vectors are made.
        labelled: rows to measure by, or ``None``.
        inference: how they are computed.
    """

    bundle: Bundle
    model: nn.Module
    pooling: StoredPooling | None
    labelled: LabelledSplit | None
    inference: Inference

    def of(self, run: Run) -> dict[str, Any]:
        """Return what an exported model is worth.

        Returns:
            ``largest_difference`` of its outputs from ours, and where there are labelled rows its ``metrics``
            and ``loss``: what it loses of the main metric.
        """
        pairs = self._sample_pairs(run)
        if self.labelled is None:
            return {"largest_difference": _largest_difference(pairs)}
        outputs, score = self._scored(computed_by(run, self.model))
        pairs += zip(_arrays(self._ours[0]), _arrays(outputs), strict=True)
        return {
            "largest_difference": _largest_difference(pairs),
            "metrics": score.metrics,
            "loss": self.ours[self.main_metric] - score.metrics[self.main_metric],
        }

    @property
    def ours(self) -> dict[str, float]:
        """Metrics of our model."""
        return self._ours[1].metrics

    @property
    def main_metric(self) -> str:
        """Name of the metric that a loss is counted in."""
        assert self.labelled is not None, "there are rows to measure by"
        return self.labelled.task.main_metric

    def require_equal(self, name: str, run: Run) -> None:
        """Refuse a float32 export whose outputs are not ours.

        Raises:
            RunError: they differ by more than rounding.
        """
        pairs = self._sample_pairs(run)
        difference, largest = _largest_difference(pairs), max(float(np.abs(ours).max()) for ours, _ in pairs)
        if not difference <= TOLERANCE * max(1.0, largest):
            raise RunError(
                f"{name}: its outputs differ from the model's by {difference:.2g}, more than "
                f"{TOLERANCE:g}; nothing is written"
            )

    @cached_property
    def _ours(self) -> tuple[Outputs, Score]:
        return self._scored(self.model)

    def _scored(self, model: nn.Module) -> tuple[Outputs, Score]:
        labelled = self.labelled
        assert labelled is not None, "there are rows to measure by"
        kind = labelled.task.kind
        outputs = kind.outputs(model, labelled.split, self.inference)
        return outputs, kind.score(labelled.task, labelled.split, outputs, labelled.tuned)

    def _sample_pairs(self, run: Run) -> list[tuple[NDArray[np.float32], NDArray[np.float32]]]:
        """Return outputs of ours and of an exported model for random rows from short to long."""
        tokens = self._sample
        other = computed_by(run, self.model)
        pairs = [(_outputs(self.model, tokens), _outputs(other, tokens))]
        if self.pooling is not None:
            _, inputs = rectangles(tokens, self.bundle.config.num_segments)
            theirs = run(inputs).get("sentence_embedding")
            if theirs is not None:  # transformers knows the encoder alone, whose outputs were compared
                pairs.append((self._vectors(pairs[0][0], tokens), theirs))
        return pairs

    def _vectors(self, hidden: NDArray[np.float32], tokens: Tokens) -> NDArray[np.float32]:
        assert self.pooling is not None, "an embedding model"
        vectors = features.pool(torch.from_numpy(hidden), tokens.layout, self.pooling.pooling)
        scaled = nn.functional.normalize(vectors, dim=1) if self.pooling.normalize else vectors
        return scaled.numpy()

    @cached_property
    def _sample(self) -> Tokens:
        longest = (self.bundle.task or {}).get("seq_len") or self.bundle.config.max_positions
        lengths = [length for length in _SAMPLE_LENGTHS if length < longest] + [longest]
        tokenizer, draw = self.bundle.tokenizer, generator(0, "export sample")
        pieces = np.delete(np.arange(tokenizer.vocab_size), tokenizer.pad_id)  # RoBERTa counts none there
        rows = []
        for length in lengths:
            ids = draw.choice(pieces, size=length)
            ids[0], ids[-1] = tokenizer.cls_id, tokenizer.sep_id
            rows.append(ids)
        return tokens_of(rows, [-(-2 * length // 3) for length in lengths])


def _outputs(model: nn.Module, tokens: Tokens) -> NDArray[np.float32]:
    """Return what a model's head says of rows; of one for words, of every place."""
    with torch.no_grad():
        if not isinstance(model, (BertForPreTraining, BertForTagging)):
            found = model(tokens)
        else:
            found = model(tokens, torch.arange(tokens.layout.places))
    scores = found[0] if isinstance(found, tuple) else found  # (our) next sentence prediction is left out
    assert isinstance(scores, Tensor)
    return scores.numpy()


def _arrays(outputs: Outputs) -> list[NDArray[np.float32]]:
    return [outputs] if isinstance(outputs, np.ndarray) else outputs


def _largest_difference(pairs: Iterable[tuple[NDArray[np.float32], NDArray[np.float32]]]) -> float:
    return float(np.max([np.abs(ours - theirs).max() for ours, theirs in pairs if ours.size]))
