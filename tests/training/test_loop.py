from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from bertsmith.data.batch import IGNORED, tokens_of
from bertsmith.layout import Tokens
from bertsmith.model.bert import BertForClassification
from bertsmith.model.config import BertConfig
from bertsmith.objectives import ClassificationObjective
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import LoopSettings, NonFiniteLoss, evaluate, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget, rate_of

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Rows:
    tokens: Tokens
    labels: Tensor
    weights: Tensor | None = None

    @property
    def inputs(self) -> tuple[Tokens]:
        return (self.tokens,)


def rows_of(ids: list[list[int]], labels: list[int]) -> Rows:
    return Rows(tokens_of(ids, [len(row) for row in ids]), torch.tensor(labels))


def examples(count: int = 8) -> Rows:
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(3, 12, (count,), generator=generator).tolist()
    ids = [torch.randint(1, 40, (length,), generator=generator).tolist() for length in lengths]
    return rows_of(ids, [index % 3 for index in range(count)])


def cut(rows: Rows, size: int) -> list[Rows]:
    ids = torch.split(rows.tokens.input_ids, list(rows.tokens.layout.lengths))
    lists = [row.tolist() for row in ids]
    labels = rows.labels.tolist()
    return [rows_of(lists[at : at + size], labels[at : at + size]) for at in range(0, len(lists), size)]


def classifier(dropout: float = 0.0) -> BertForClassification:
    torch.manual_seed(2)
    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        intermediate_size=32,
        max_positions=16,
        hidden_dropout=dropout,
        attention_dropout=dropout,
    )
    return BertForClassification(config, 3)


def run(model: nn.Module, batches, *, objective=None, steps=1, start_step=0, optimizer=None, **settings):
    optimizer = optimizer or build_optimizer(model, OptimizerConfig(name="bert-adam", learning_rate=1e-3))
    rate = rate_of(OptimizerConfig(warmup_fraction=settings.pop("warmup_fraction", 0.0)))
    return train(
        model,
        optimizer,
        objective or ClassificationObjective(),
        batches,
        LoopSettings(**({"seed": 0, "device": CPU, "rate": rate} | settings)),
        Budget(steps=steps),
        start_step,
    )


class Fixed:
    """The losses that a batch's labels name, through a weight that is 1."""

    def counts(self, batch: Rows) -> dict[str, int]:
        return {"mlm_loss": len(batch.labels), "nsp_loss": 0}

    def sums(self, model: nn.Module, batch: Rows) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        assert isinstance(model, nn.Linear)
        total = batch.labels.float().sum() * model.weight.sum()
        return {"mlm_loss": total, "nsp_loss": total * math.nan}, {}


def unit() -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.ones_(model.weight)
    return model


def test_c021_the_loss_is_divided_by_the_global_count():
    micro_batches = [rows_of([[1]], [2]), rows_of([[1]] * 9, [1] * 9)]
    (step,) = run(unit(), lambda step: micro_batches, objective=Fixed())
    assert step.losses == {"mlm_loss": pytest.approx(1.1)}
    assert step.loss == pytest.approx(1.1)
    assert step.grad_norm == pytest.approx(1.1)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_c021_cutting_a_batch_changes_neither_loss_nor_weights(size):
    results = []
    for cut_size in (8, size):
        model = classifier()
        micro_batches = cut(examples(), cut_size)
        (step,) = run(model, lambda step, batches=micro_batches: batches)
        results.append((step.loss, step.grad_norm, step.tokens, step.monitors, model))
    (loss, norm, tokens, monitors, whole), (cut_loss, cut_norm, cut_tokens, cut_monitors, cut_model) = results
    assert cut_loss == pytest.approx(loss, rel=1e-6)
    assert cut_norm == pytest.approx(norm, rel=1e-5)
    assert (cut_tokens, cut_monitors) == (tokens, monitors)
    moved = 0.0
    start = classifier().state_dict()
    for (name, one), other in zip(whole.state_dict().items(), cut_model.state_dict().values(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-6, atol=2e-7, msg=name)
        moved = max(moved, float((one - start[name]).abs().max()))
    assert moved > 1e-4  # the step was made


def test_an_uneven_cut_counts_its_last_part_rightly():
    losses = []
    for cut_size in (7, 3):
        (step,) = run(classifier(), lambda step, size=cut_size: cut(examples(7), size))
        losses.append(step.loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_gradients_are_clipped_after_accumulation():
    micro_batches = [rows_of([[1]], [30]), rows_of([[1]], [-26])]
    model = unit()
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    plain.param_groups[0]["initial_lr"] = 1.0
    (step,) = run(model, lambda step: micro_batches, objective=Fixed(), optimizer=plain, max_grad_norm=0.5)
    assert step.grad_norm == pytest.approx(2.0)  # (30 - 26) / 2
    assert float(model.weight.detach()) == pytest.approx(1.0 - 0.5)


def test_max_grad_norm_zero_never_clips():
    model = unit()
    plain = torch.optim.SGD(model.parameters(), lr=1.0)
    plain.param_groups[0]["initial_lr"] = 1.0
    next(
        run(model, lambda step: [rows_of([[1]], [5])], objective=Fixed(), optimizer=plain, max_grad_norm=0.0)
    )
    assert float(model.weight.detach()) == pytest.approx(-4.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_before_the_weights_change(bad):
    model = classifier()
    steps = run(model, lambda step: [examples()], steps=3)
    next(steps)
    with torch.no_grad():
        model.classifier.bias[0] = bad
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(NonFiniteLoss, match=r"step 2: loss is") as caught:
        next(steps)
    assert caught.value.step == 1
    for name, value in model.state_dict().items():
        assert torch.equal(value.nan_to_num(), before[name].nan_to_num()), name


def test_a_gradient_that_is_not_finite_stops_too():
    class Root:
        def counts(self, batch: Rows) -> dict[str, int]:
            return {"loss": 1}

        def sums(self, model: nn.Module, batch: Rows) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
            assert isinstance(model, nn.Linear)
            return {"loss": (model.weight - 1.0).sum().clamp(min=0.0).sqrt()}, {}

    model = unit()
    with pytest.raises(NonFiniteLoss, match="grad_norm is"):
        next(run(model, lambda step: [rows_of([[1]], [1])], objective=Root()))
    assert float(model.weight.detach()) == 1.0


def test_dropout_depends_on_seed_step_and_micro_batch_alone():
    def losses(**settings) -> list[float]:
        torch.manual_seed(settings.pop("foreign_seed", 0))
        model = classifier(dropout=0.5)
        frozen = build_optimizer(model, OptimizerConfig(learning_rate=1e-30, weight_decay=0.0))
        batches = cut(examples(), 4)
        found = []
        for step in run(model, lambda step: batches, steps=4, optimizer=frozen, **settings):
            torch.rand(step.step)  # what the caller draws does not matter
            found.append(step.loss)
        return found

    whole = losses()
    assert len(set(whole)) == 4
    assert losses(foreign_seed=9) == whole
    assert losses(start_step=2) == whole[2:]
    assert losses(seed=1)[0] != whole[0]


def test_the_rate_follows_the_schedule():
    model = classifier()
    steps = list(run(model, lambda step: [examples()], steps=4, warmup_fraction=0.5))
    assert [step.learning_rate for step in steps] == pytest.approx([0.0, 5e-4, 1e-3, 5e-4])
    assert [step.step for step in steps] == [1, 2, 3, 4]


def test_batches_made_ahead_are_the_same_and_none_is_made_in_vain():
    losses = []
    for ahead in (False, True):
        asked: list[int] = []

        def batches(step, asked=asked):
            asked.append(step)
            return cut(examples(), 2 + step % 3)

        steps = list(run(classifier(dropout=0.3), batches, steps=5, ahead=ahead))
        assert asked == [0, 1, 2, 3, 4]
        losses.append([step.loss for step in steps])
    assert losses[0] == losses[1]


def test_evaluation_counts_every_row_once_and_restores_the_mode():
    model = classifier(dropout=0.5).train()
    settings = LoopSettings(seed=0, device=CPU)
    objective = ClassificationObjective()
    whole = evaluate(model, objective, [examples(7)], settings)
    parts = evaluate(model, objective, cut(examples(7), 3), settings)
    assert parts["loss"] == pytest.approx(whole["loss"], rel=1e-6)
    assert parts["accuracy"] == whole["accuracy"]
    assert model.training
    model.eval()
    with torch.no_grad():
        scores = model(examples(7).tokens)
    expected = nn.functional.cross_entropy(scores, examples(7).labels, ignore_index=IGNORED)
    assert whole["loss"] == pytest.approx(float(expected), rel=1e-6)


def test_bfloat16_stays_near_float32():
    losses = {}
    for precision in (torch.float32, torch.bfloat16):
        model = classifier()
        steps = list(run(model, lambda step: [examples()], steps=3, precision=precision))
        losses[precision] = [step.loss for step in steps]
        assert all(parameter.dtype == torch.float32 for parameter in model.parameters())
    assert losses[torch.bfloat16] == pytest.approx(losses[torch.float32], rel=0.02)
    assert losses[torch.bfloat16] != losses[torch.float32]


@pytest.mark.gpu
def test_the_loop_runs_on_a_gpu_as_on_the_processor():
    if not torch.cuda.is_available():
        pytest.fail("no CUDA device")
    losses = []
    for device in (CPU, torch.device("cuda")):
        model = classifier().to(device)
        rows = examples()
        batch = Rows(rows.tokens.to(device), rows.labels.to(device))
        steps = run(model, lambda step, batch=batch: [batch], steps=5, device=device)
        losses.append([step.loss for step in steps])
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
