from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch.nn import functional

from bertsmith.data.batch import IGNORED, PretrainingBatch, tokens_of
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.objectives import (
    ClassificationObjective,
    PretrainingObjective,
    RegressionObjective,
    SpanObjective,
    class_sums,
    masked_word_sums,
    squared_error_sum,
    unigram_entropy,
)


def scores_and_labels(picks: int, vocab: int, scale: float = 5.0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(picks)
    scores = scale * torch.randn(picks, vocab, generator=generator)
    labels = torch.randint(0, vocab, (picks,), generator=generator)
    labels[::3] = scores[::3].argmax(dim=-1)
    return scores, labels


# The last shape takes more than one block of rows.
@pytest.mark.parametrize("picks, vocab", [(1, 2), (7, 50), (45, 30522)])
def test_masked_word_sums_equal_cross_entropy_in_float64(picks, vocab):
    scores, labels = scores_and_labels(picks, vocab)
    ours = scores.clone().requires_grad_()
    loss, correct = masked_word_sums(ours, labels)
    (loss / 3).backward()
    reference = scores.double().requires_grad_()
    expected = functional.cross_entropy(reference, labels, reduction="sum")
    (expected / 3).backward()
    assert ours.grad is not None
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    torch.testing.assert_close(ours.grad.double(), reference.grad, rtol=1e-4, atol=1e-7)
    assert int(correct) == int((scores.argmax(dim=-1) == labels).sum())


def test_masked_word_sums_survive_extreme_scores():
    scores = torch.tensor([[300.0, -300.0, 0.0], [0.0, 0.0, -1e4]])
    labels = torch.tensor([1, 2])
    loss, correct = masked_word_sums(scores, labels)
    assert loss.item() == pytest.approx(600.0 + 1e4 + math.log(2))
    assert int(correct) == 0


def test_bfloat16_scores_keep_a_float32_loss():
    scores, labels = scores_and_labels(40, 3000)
    coarse = scores.bfloat16().requires_grad_()
    loss, correct = masked_word_sums(coarse, labels)
    loss.backward()
    exact = coarse.detach().double().requires_grad_()
    expected = functional.cross_entropy(exact, labels, reduction="sum")
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-6)
    assert int(correct) == int((coarse.argmax(dim=-1) == labels).sum())
    assert coarse.grad is not None
    assert exact.grad is not None
    assert coarse.grad.dtype == torch.bfloat16
    torch.testing.assert_close(coarse.grad.double(), exact.grad, rtol=0.01, atol=1e-4)


def test_a_tie_counts_for_the_first_word_alone():
    scores = torch.zeros(4, 50, dtype=torch.bfloat16)
    scores[2:, [3, 7]] = 1.0
    _, correct = masked_word_sums(scores, torch.tensor([0, 1, 3, 7]))
    assert int(correct) == int((scores.argmax(-1) == torch.tensor([0, 1, 3, 7])).sum()) == 2


def test_without_gradient_only_the_sums_are_made():
    scores, labels = scores_and_labels(9, 20)
    with torch.no_grad():
        loss, _ = masked_word_sums(scores.clone().requires_grad_(), labels)
    assert not loss.requires_grad
    assert loss.item() == pytest.approx(float(functional.cross_entropy(scores, labels, reduction="sum")))


def test_class_sums_leave_out_ignored_rows():
    scores = torch.tensor([[2.0, 0.0], [0.0, 1.0], [5.0, 0.0]])
    loss, correct = class_sums(scores, torch.tensor([0, 0, IGNORED]))
    assert loss.item() == pytest.approx(math.log1p(math.exp(-2.0)) + math.log1p(math.exp(1.0)))
    assert int(correct) == 1


def test_squared_error_sum():
    assert float(squared_error_sum(torch.tensor([[1.0], [3.0]]), torch.tensor([0.5, 5.0]))) == pytest.approx(
        4.25
    )


def pretraining_batch(nsp_labels: list[int]) -> tuple[BertForPreTraining, PretrainingBatch]:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=20,
        hidden_size=8,
        num_layers=1,
        num_heads=2,
        intermediate_size=16,
        max_positions=8,
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    batch = PretrainingBatch(
        tokens_of([[2, 7, 3, 9, 3], [2, 8, 3]], [3, 3]),
        torch.tensor([1, 6]),
        torch.tensor([7, 11]),
        torch.tensor(nsp_labels),
        np.arange(2),
    )
    return BertForPreTraining(config), batch


def test_pretraining_objective_sums_both_tasks():
    model, batch = pretraining_batch([0, 1])
    objective = PretrainingObjective()
    losses, monitors = objective.sums(model, batch)
    mlm_scores, nsp_scores = model(batch.tokens, batch.picks)
    assert objective.counts(batch) == {"mlm_loss": 2, "nsp_loss": 2, "mlm_accuracy": 2, "nsp_accuracy": 2}
    expected = functional.cross_entropy(mlm_scores, batch.pick_labels, reduction="sum")
    assert losses["mlm_loss"].item() == pytest.approx(expected.item(), rel=1e-6)
    expected = functional.cross_entropy(nsp_scores, batch.nsp_labels, reduction="sum")
    assert losses["nsp_loss"].item() == pytest.approx(expected.item(), rel=1e-6)
    assert int(monitors["nsp_accuracy"]) == int((nsp_scores.argmax(dim=-1) == batch.nsp_labels).sum())


def test_data_without_pairs_has_no_nsp_targets():
    _, batch = pretraining_batch([IGNORED, IGNORED])
    counts = PretrainingObjective().counts(batch)
    assert (counts["nsp_loss"], counts["nsp_accuracy"]) == (0, 0)


def test_counts_do_not_read_from_the_device():
    """The device "meta" has no numbers that could be read."""
    _, batch = pretraining_batch([0, IGNORED])
    objective = PretrainingObjective()
    assert objective.counts(batch.to("meta")) == objective.counts(batch)
    assert objective.counts(batch)["nsp_loss"] == 1


@pytest.mark.gpu
def test_a_forward_and_backward_pass_never_waits_for_the_gpu():
    model, batch = pretraining_batch([0, 1])
    model.cuda()
    for mode in ("default", "error"):  # first without, for what a library waits for when it is first used
        torch.cuda.set_sync_debug_mode(mode)
        try:
            on_gpu = batch.to("cuda")
            PretrainingObjective().counts(on_gpu)
            with torch.autocast("cuda", torch.bfloat16):
                losses, _ = PretrainingObjective().sums(model, on_gpu)
            (losses["mlm_loss"] + losses["nsp_loss"]).backward()
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_row_objectives_count_rows():
    class Batch:
        tokens = tokens_of([[2, 3], [2, 5, 3], [2, 3]], [2, 3, 2])
        labels = torch.tensor([0, 1, 1])

    assert ClassificationObjective().counts(Batch()) == {"loss": 3, "accuracy": 3}
    assert RegressionObjective().counts(Batch()) == {"loss": 3}


@pytest.mark.parametrize("padded_to", [None, 9])
def test_span_objective_scores_each_row_over_its_own_places(padded_to):
    torch.manual_seed(0)
    rows, labels = [[2, 7, 3, 9, 3], [2, 8, 3], [2, 5, 6, 3]], [[3, 4], [IGNORED, IGNORED], [0, 0]]

    class Batch:
        tokens = tokens_of(rows, [3, 3, 4], padded_to)
        labels = torch.tensor([[3, 4], [IGNORED, IGNORED], [0, 0]])
        num_targets = 2

    scores = torch.randn(len(Batch.tokens.input_ids), 2)
    scores[Batch.tokens.layout.starts[2]] = 9.0
    losses, monitors = SpanObjective().sums(lambda tokens: scores, Batch())
    expected = 0.0
    for start, row, (first, last) in zip(Batch.tokens.layout.starts, rows, labels, strict=True):
        part = scores[start : start + len(row)].double().log_softmax(0)
        expected -= 0.0 if first == IGNORED else (part[first, 0] + part[last, 1]).item() / 2
    assert losses["loss"].item() == pytest.approx(expected, rel=1e-5)
    assert int(monitors["accuracy"]) == 1, "both places of the third row; the second is not known"
    assert SpanObjective().counts(Batch()) == {"loss": 2, "accuracy": 2}


def test_unigram_entropy_is_the_cross_entropy_of_smoothed_frequencies():
    counts = np.array([0, 5, 2, 0])
    expected = -(math.log(6 / 11) * 2 + math.log(1 / 11)) / 3
    assert unigram_entropy(counts, np.array([1, 1, 3])) == pytest.approx(expected)
