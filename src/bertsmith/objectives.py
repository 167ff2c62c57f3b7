"""What is minimised: sums over targets; the loop divides once, by the global count."""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from bertsmith.data.batch import IGNORED, PretrainingBatch
from bertsmith.layout import Layout, Tokens

# Scores that are handled at once: they should stay in the processor's cache.
_BLOCK_SCORES = {"cpu": 1 << 18, "cuda": 1 << 27}


class _LargeCrossEntropy(torch.autograd.Function):
    """Summed cross-entropy over many classes, in one pass of blocks.

    The gradient is made in the forward pass, while a block of probabilities is in the cache, in the scores'
    own precision; all sums are float32. Over a vocabulary of 30,522 in bfloat16 it takes a sixth of the time
    of ``cross_entropy`` on float32 scores with its backward and an ``argmax``.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        rows = max(1, _BLOCK_SCORES.get(scores.device.type, 1 << 27) // scores.shape[1])
        best = scores.amax(dim=-1).float()  # (picks,)
        chosen = scores.gather(1, labels[:, None]).squeeze(1).float()  # (picks,)
        best_probability = torch.empty_like(best)
        gradient = torch.empty_like(scores) if ctx.needs_input_grad[0] else None
        for start in range(0, scores.shape[0], rows):
            block = torch.softmax(scores[start : start + rows], dim=-1, dtype=torch.float32)
            best_probability[start : start + rows] = block.amax(dim=-1)
            if gradient is not None:
                gradient[start : start + rows] = block
        if gradient is not None:
            gradient[torch.arange(len(labels), device=labels.device), labels] -= 1.0
            ctx.save_for_backward(gradient)
        correct = _first_best(scores, labels, chosen >= best)
        ctx.mark_non_differentiable(correct)
        # The best class's probability is 1 / sum(exp(score - best)), so its logarithm is the normaliser.
        return (best - best_probability.log() - chosen).sum(), correct

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, outer: Tensor, _: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        # In place: a second pass through the same graph is refused by autograd's version check.
        return gradient.mul_(outer), None


def _first_best(scores: Tensor, labels: Tensor, is_best: Tensor) -> Tensor:
    """Return how many labels are the first of their row's best; ``is_best``: they are among them."""
    if scores.device.type != "cpu":  # choosing rows would wait for the device
        return (scores.argmax(dim=-1) == labels).sum()
    return (scores[is_best].argmax(dim=-1) == labels[is_best]).sum()


def masked_word_sums(scores: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy of the masked language model and how many words were right.

    Args:
        scores: float ``(picks, vocab)``, of any precision; sums are made in float32.
        labels: int64 ``(picks,)``.

    Returns:
        Float32 scalar with gradient; int64 scalar. A pick counts as right when its label is the first of the
        best words, so a tie (frequent in bfloat16) is no hit for everyone.

    Source: run_pretraining.py, get_masked_lm_output (there divided by the replica's own count).
    """
    loss, correct = _LargeCrossEntropy.apply(scores, labels)  # type: ignore[no-untyped-call]
    return loss, correct


def class_sums(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the summed cross-entropy over a few classes and how many rows were right.

    Args:
        scores: float ``(batch, classes)``.
        labels: int64 ``(batch,)``; IGNORED rows count in neither.
        weights: float32 ``(batch,)``, how much each row counts; their mean over the training rows should be
            1, as the loop divides by the number of rows. (PyTorch's weighted mean divides by the weights of
            the batch, which gives a label another weight in every batch.)

    Source: run_pretraining.py, get_next_sentence_output; run_classifier.py, create_model.
    """
    losses = functional.cross_entropy(scores.float(), labels, ignore_index=IGNORED, reduction="none")
    loss = (losses if weights is None else losses * weights).sum()
    return loss, (scores.argmax(dim=-1) == labels).sum()


def label_sums(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the summed binary cross-entropy of each label by itself and how many were right at 0.5.

    Args:
        scores: float ``(batch, labels)``.
        labels: int64 ``(batch, labels)``, 0 or 1.
        weights: float32 ``(batch, labels)``, as in ``class_sums``.
    """
    loss = functional.binary_cross_entropy_with_logits(
        scores.float(), labels.float(), weight=weights, reduction="sum"
    )
    return loss, ((scores > 0) == (labels > 0)).sum()


def squared_error_sum(scores: Tensor, labels: Tensor, weights: Tensor | None = None) -> Tensor:
    """Return the summed squared error.

    Args:
        scores: float ``(batch, 1)``.
        labels: float32 ``(batch,)``.
        weights: float32 ``(batch,)``, as in ``class_sums``.
    """
    errors = functional.mse_loss(scores.squeeze(1).float(), labels, reduction="none")
    return (errors if weights is None else errors * weights).sum()


class PretrainingObjective:
    """Masked words and next sentences; the second is left out where the data has no pairs."""

    def counts(self, batch: PretrainingBatch) -> dict[str, int]:
        """Return the number of masked words and of pairs."""
        picks = batch.picks.shape[0]
        pairs = batch.count_pairs()
        return {"mlm_loss": picks, "nsp_loss": pairs, "mlm_accuracy": picks, "nsp_accuracy": pairs}

    def sums(self, model: nn.Module, batch: PretrainingBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return both losses and both numbers of right answers, summed."""
        mlm_scores, nsp_scores = model(batch.tokens, batch.picks)
        mlm_loss, mlm_correct = masked_word_sums(mlm_scores, batch.pick_labels)
        nsp_loss, nsp_correct = class_sums(nsp_scores, batch.nsp_labels)
        return (
            {"mlm_loss": mlm_loss, "nsp_loss": nsp_loss},
            {"mlm_accuracy": mlm_correct, "nsp_accuracy": nsp_correct},
        )


class LabelledBatch(Protocol):
    """Rows with a label each."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What the model takes for the scores of these rows."""
        ...

    @property
    def labels(self) -> Tensor:
        """Classes, int64 ``(batch,)``; numbers, float32 ``(batch,)``; 0 or 1, int64 ``(batch, labels)``."""
        ...

    @property
    def weights(self) -> Tensor | None:
        """How much each label counts, float32 of the labels' shape; ``None``: all the same."""
        ...


class ClassificationObjective:
    """Cross-entropy over the classes of a row."""

    def counts(self, batch: LabelledBatch) -> dict[str, int]:
        """Return the number of rows."""
        rows = batch.labels.shape[0]
        return {"loss": rows, "accuracy": rows}

    def sums(self, model: nn.Module, batch: LabelledBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the summed loss and the number of right rows."""
        loss, correct = class_sums(model(*batch.inputs), batch.labels, batch.weights)
        return {"loss": loss}, {"accuracy": correct}


class MultiLabelObjective:
    """Binary cross-entropy of each label by itself, over all pairs of a row and a label."""

    def counts(self, batch: LabelledBatch) -> dict[str, int]:
        """Return the number of pairs of a row and a label."""
        pairs = batch.labels.numel()
        return {"loss": pairs, "accuracy": pairs}

    def sums(self, model: nn.Module, batch: LabelledBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the summed loss and the number of pairs that are right at 0.5."""
        loss, correct = label_sums(model(*batch.inputs), batch.labels, batch.weights)
        return {"loss": loss}, {"accuracy": correct}


class ChoiceBatch(Protocol):
    """Rows of choices."""

    @property
    def tokens(self) -> Tokens:
        """An input for each choice."""
        ...

    @property
    def places(self) -> Tensor:
        """Which input each choice is, int64 ``(rows, choices)``; -1 where a row has fewer."""
        ...

    @property
    def labels(self) -> Tensor:
        """The right choice of each row, int64 ``(rows,)``."""
        ...


class ChoiceObjective:
    """Cross-entropy over the choices of a row."""

    def counts(self, batch: ChoiceBatch) -> dict[str, int]:
        """Return the number of rows."""
        rows = batch.labels.shape[0]
        return {"loss": rows, "accuracy": rows}

    def sums(self, model: nn.Module, batch: ChoiceBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the summed loss and the number of right rows."""
        scores = model(batch.tokens).squeeze(1).float()  # (inputs,)
        table = scores[batch.places.clamp(min=0)]  # (rows, choices)
        loss, correct = class_sums(table.masked_fill(batch.places < 0, -torch.inf), batch.labels)
        return {"loss": loss}, {"accuracy": correct}


class RegressionObjective:
    """Squared error of a row's number."""

    def counts(self, batch: LabelledBatch) -> dict[str, int]:
        """Return the number of rows."""
        return {"loss": batch.labels.shape[0]}

    def sums(self, model: nn.Module, batch: LabelledBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the summed squared error."""
        return {"loss": squared_error_sum(model(*batch.inputs), batch.labels, batch.weights)}, {}


class SpanBatch(Protocol):
    """Inputs with an answer each."""

    @property
    def tokens(self) -> Tokens:
        """The inputs."""
        ...

    @property
    def labels(self) -> Tensor:
        """First and last place of the answer in its input, int64 ``(batch, 2)``; IGNORED: not known."""
        ...

    @property
    def num_targets(self) -> int:
        """Inputs whose answer is known, counted before the batch was moved."""
        ...


class SpanObjective:
    """Cross-entropy of an answer's first and last place, each over all places of its input; their mean.

    Source: run_squad.py, compute_loss.
    """

    def counts(self, batch: SpanBatch) -> dict[str, int]:
        """Return the number of inputs whose answer is known."""
        return {"loss": batch.num_targets, "accuracy": batch.num_targets}

    def sums(self, model: nn.Module, batch: SpanBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the summed loss and the number of inputs with both places right."""
        scores = by_row(model(batch.tokens).float(), batch.tokens.layout)  # (batch, longest, 2)
        scores = scores.transpose(1, 2).flatten(0, 1)  # (2 batch, longest)
        labels = batch.labels.flatten()  # (2 batch,)
        loss = functional.cross_entropy(scores, labels, ignore_index=IGNORED, reduction="sum") / 2
        right = (scores.argmax(dim=-1) == labels).view(-1, 2).all(dim=1)  # (batch,)
        return {"loss": loss}, {"accuracy": right.sum()}


def by_row(scores: Tensor, layout: Layout) -> Tensor:
    """Return float ``(batch, longest, n)`` from ``(places, n)``; minus infinity behind the shorter rows."""
    rows = [scores[start : start + n] for start, n in zip(layout.starts, layout.lengths, strict=True)]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=-math.inf)


class TaggedBatch(Protocol):
    """Words with a tag each."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What the model takes for the scores of these words."""
        ...

    @property
    def labels(self) -> Tensor:
        """Tags, int64 ``(words,)``."""
        ...


class TaggingObjective:
    """Cross-entropy over the tags of a word."""

    def counts(self, batch: TaggedBatch) -> dict[str, int]:
        """Return the number of words."""
        words = batch.labels.shape[0]
        return {"loss": words, "accuracy": words}

    def sums(self, model: nn.Module, batch: TaggedBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the summed loss and the number of right words."""
        loss, correct = class_sums(model(*batch.inputs), batch.labels)
        return {"loss": loss}, {"accuracy": correct}


def unigram_entropy(train_counts: NDArray[np.int64], labels: NDArray[np.int64]) -> float:
    """Return the cross-entropy, in nats, of words guessed by their frequency alone (add-one smoothing).

    A masked language model that has learned nothing but frequencies has this loss; it is the plateau that a
    run has to leave.

    Args:
        train_counts: ``(vocab,)``, how often each piece occurs in training.
        labels: ``(picks,)``, the words to guess.
    """
    probabilities = (train_counts + 1) / (train_counts.sum() + len(train_counts))
    return float(-np.log(probabilities[labels]).mean())
