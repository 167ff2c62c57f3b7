"""Facts 16 to 20 and 22: optimiser, schedule, clipping and loss, through the training loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from bertsmith.data.batch import PretrainingBatch, tokens_of
from bertsmith.layout import Tokens
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.objectives import PretrainingObjective
from bertsmith.presets import bert_exact, bert_tiny
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import LoopSettings, Step, train
from bertsmith.training.optimizer import build_optimizer, parameter_groups
from bertsmith.training.schedule import Budget, rate_of
from tests.conformance import numpy_bert
from tests.conformance.models import CONFIG, SHAPE, batch_of, original_names, small_model
from tests.conformance.numpy_training import Adam, clipped, is_decayed, learning_rate

CPU = torch.device("cpu")
EXACT = bert_exact("DATA", "RUN")
TOKEN = tokens_of([[1]], [1])


@dataclass(frozen=True)
class Slopes:
    """A batch whose loss has these gradients, times the number of its targets."""

    gradients: dict[str, Tensor]
    targets: int = 1
    tokens: Tokens = TOKEN


class Slope:
    """A loss that is linear in the weights."""

    def counts(self, batch: Slopes) -> dict[str, int]:
        return {"loss": batch.targets}

    def sums(self, model: nn.Module, batch: Slopes) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        weights = dict(model.named_parameters())
        loss = sum((weights[name] * slope).sum() for name, slope in batch.gradients.items())
        return {"loss": loss * batch.targets}, {}


class Weights(nn.Module):
    """One matrix, one bias, one LayerNorm."""

    NAMES = ("kernel", "bias", "LayerNorm/gamma")

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.matrix = nn.Parameter(torch.randn(20, 30))
        self.bias = nn.Parameter(torch.randn(30))
        self.norm = nn.Parameter(1 + torch.randn(30))


def slopes(steps: int) -> list[dict[str, Tensor]]:
    """Gradients of very different sizes; those of some steps are longer than 1 and will be clipped."""
    random = np.random.default_rng(4)
    sizes = 10.0 ** random.uniform(-6, 0, steps)
    return [
        {
            name: torch.from_numpy(size * random.normal(size=weight.shape)).float()
            for name, weight in Weights().named_parameters()
        }
        for size in sizes
    ]


def trained(batches: list[list[Slopes]], config: OptimizerConfig) -> Iterator[tuple[Step, Weights]]:
    model = Weights()
    settings = LoopSettings(0, CPU, torch.float32, config.max_grad_norm, rate_of(config))
    optimizer = build_optimizer(model, config)
    for step in train(model, optimizer, Slope(), batches.__getitem__, settings, Budget(len(batches))):
        yield step, model


def reference(gradients: list[dict[str, Tensor]], peak: float, warmup_steps: int) -> Iterator[dict]:
    names = dict(zip(dict(Weights().named_parameters()), Weights.NAMES, strict=True))
    weights = Weights().named_parameters()
    adam = Adam({names[name]: weight.detach().double().numpy() for name, weight in weights})
    for step, slope in enumerate(gradients):
        found = {names[name]: gradient.double().numpy() for name, gradient in slope.items()}
        adam.step(found, learning_rate(step, peak, len(gradients), warmup_steps))
        yield adam.weights


def test_fact_16_adam_without_bias_correction(fact):
    """With clipping, decay and schedule: the whole of an update, 300 times."""
    line = fact(16, "weights after each of 300 steps of bert-exact's optimiser, float32", "float64 NumPy")
    gradients = slopes(300)
    config = replace(EXACT.optimizer, learning_rate=0.01, warmup_fraction=30 / 300)
    ours = trained([[Slopes(slope)] for slope in gradients], config)
    differences = [
        np.abs(weight.detach().numpy() - their_weight).max()
        for (_, model), theirs in zip(ours, reference(gradients, 0.01, 30), strict=True)
        for weight, their_weight in zip(model.parameters(), theirs.values(), strict=True)
    ]
    assert len(differences) == 900
    line.difference(max(differences), 2e-5)


def test_fact_16_early_steps_are_larger(fact):
    line = fact(16, "steps 1, 12, 1000: 3.16, 6.57, 1.26 times Adam's with correction", "Adam's formula")
    model = nn.Linear(1, 1, bias=False)
    config = OptimizerConfig(name="bert-adam", learning_rate=1e-3, weight_decay=0.0, eps=1e-12)
    optimizer = build_optimizer(model, config)
    ratios = []
    for _ in range(1000):
        before = model.weight.item()
        model.weight.grad = torch.full((1, 1), 0.5)
        optimizer.step()
        ratios.append((before - model.weight.item()) / 1e-3)  # with correction each step is the rate
    expected = [(1 - 0.9**step) / math.sqrt(1 - 0.999**step) for step in (1, 12, 1000)]
    assert expected == pytest.approx([3.162, 6.57, 1.258], abs=0.01)
    line.difference(np.abs(np.array([ratios[0], ratios[11], ratios[999]]) - expected).max(), 1e-3)


def test_fact_17_what_is_decayed(fact):
    line = fact(
        17,
        "weight decay of every variable: not of LayerNorm and biases, of embeddings",
        "the original's names",
    )
    model = small_model()
    decay = {
        parameter: group["weight_decay"]
        for group in parameter_groups(model.parameters(), EXACT.optimizer)
        for parameter in group["params"]
    }
    state = {
        name: torch.full_like(parameter, decay[parameter]) for name, parameter in model.named_parameters()
    }
    for name, values in original_names(state).items():
        assert (values == (0.01 if is_decayed(name) else 0.0)).all(), name
    line.exact()


def test_fact_18_learning_rate(fact):
    line = fact(18, "rate of bert-exact, every hundredth of 1,000,000 steps and the bends", "float64 NumPy")
    rate, peak = rate_of(EXACT.optimizer), EXACT.optimizer.learning_rate
    budget = Budget(steps=EXACT.steps)
    steps = [*range(0, 1_000_000, 100), 1, 9_999, 10_001, 999_999]
    pairs = [
        (peak * rate(budget.progress(step)), learning_rate(step, 1e-4, 1_000_000, 10_000)) for step in steps
    ]
    assert pairs[0] == (0.0, 0.0)
    assert pairs[100][0] == pytest.approx(0.99e-4)
    line.difference(max(abs(ours - theirs) for ours, theirs in pairs), 1e-18)


def test_fact_18_the_default_line_begins_at_the_peak(fact):
    line = fact(18, "rate after the warm-up by default", "the line from step 0")
    defaults, exact = OptimizerConfig(), replace(EXACT.optimizer, warmup_fraction=0.1)
    for progress in (0.1, 0.4, 0.9):
        assert rate_of(exact)(progress) == pytest.approx((1 - 0.1) * rate_of(defaults)(progress))
    line.deliberate(
        "schedule linear falls from the peak without the original's drop; bert-linear, which bert-exact has, "
        "drops"
    )


def test_fact_19_clipping(fact):
    line = fact(19, "weights after two steps of gradients 3,000 and 0.3 long", "float64 NumPy")
    gradients = slopes(2)
    for slope, length in zip(gradients, (3000.0, 0.3), strict=True):
        size = math.sqrt(sum(float(gradient.square().sum()) for gradient in slope.values()))
        for gradient in slope.values():
            gradient.mul_(length / size)
    config = replace(EXACT.optimizer, learning_rate=0.1, warmup_fraction=0.0)
    ours = list(trained([[Slopes(slope)] for slope in gradients], config))
    assert [step.grad_norm for step, _ in ours] == pytest.approx([3000.0, 0.3], rel=1e-5)
    *_, theirs = reference(gradients, 0.1, warmup_steps=0)
    pairs = zip(ours[-1][1].parameters(), theirs.values(), strict=True)
    line.difference(max(np.abs(one.detach().numpy() - other).max() for one, other in pairs), 1e-6)


def test_fact_19_parts_of_a_batch_are_clipped_together(fact):
    """One part's gradient is 10 long, the other's 0.5; the same direction keeps the sums simple."""
    line = fact(19, "gradient of a batch in two parts", "each part clipped by itself")
    direction = {name: torch.zeros_like(weight) for name, weight in Weights().named_parameters()}
    direction["bias"][0] = 1.0
    parts = [Slopes({name: 10.0 * values for name, values in direction.items()})]
    parts.append(Slopes({name: -0.5 * values for name, values in direction.items()}))
    ((step, _),) = trained([parts], OptimizerConfig(warmup_fraction=0.0))
    assert step.grad_norm == pytest.approx((10 - 0.5) / 2)
    theirs = sum(clipped([np.array([size])])[0][0] for size in (10.0, -0.5)) / 2
    assert theirs == 0.25, "where ours is clipped to 1"
    line.deliberate(
        "clipped once, after the sum over micro-batches and ranks, so that the result does not depend on how "
        "a batch is cut; the original clips on each replica before the sum"
    )


def pretraining_batch() -> tuple[PretrainingBatch, numpy_bert.Batch]:
    tokens, picks, batch = batch_of()
    labels = torch.from_numpy(batch.words), torch.from_numpy(batch.next_labels)
    return PretrainingBatch(tokens, picks, *labels, np.arange(len(batch.next_labels))), batch


def one_step(micro_batches: list[PretrainingBatch]) -> dict[str, float]:
    model = small_model(replace(CONFIG, hidden_dropout=0.0, attention_dropout=0.0)).float()
    optimizer = build_optimizer(model, EXACT.optimizer)
    (step,) = train(
        model, optimizer, PretrainingObjective(), lambda _: micro_batches, LoopSettings(0, CPU), Budget(1)
    )
    return step.losses


def test_fact_20_loss(fact):
    """The original adds 1e-5 to the number of words: its loss is smaller by a share of 1e-5 / number."""
    line = fact(20, "both losses of a step, float32 (relative)", "float64 NumPy, Σ / (n + 1e-5) + mean")
    ours, theirs = pretraining_batch()
    found = one_step([ours])
    words, pairs = numpy_bert.losses(original_names(small_model().state_dict()), SHAPE, theirs)
    line.difference(max(abs(found["mlm_loss"] / words - 1), abs(found["nsp_loss"] / pairs - 1)), 2e-6)


def test_fact_20_the_count_is_global(fact):
    line = fact(20, "loss of a batch in parts with different numbers of masked words", "each part's own mean")
    ours, _ = pretraining_batch()
    whole, lengths = one_step([ours]), ours.tokens.layout.lengths
    parts = [part_of(ours, 0, 4), part_of(ours, 4, len(lengths))]
    found = one_step(parts)
    assert found == pytest.approx(whole, rel=1e-5)
    of_parts = [one_step([part])["mlm_loss"] for part in parts]
    assert abs(sum(of_parts) / 2 - whole["mlm_loss"]) > 1e-3
    line.deliberate(
        "divided once, by the count over all micro-batches and ranks; the original divides on each replica, "
        "by its own count plus 1e-5, and takes the mean"
    )


def part_of(batch: PretrainingBatch, first: int, end: int) -> PretrainingBatch:
    """Return some rows of a batch."""
    layout = batch.tokens.layout
    start, stop = layout.starts[first], layout.starts[end - 1] + layout.lengths[end - 1]
    rows = torch.split(batch.tokens.input_ids, list(layout.lengths))[first:end]
    chosen = (batch.picks >= start) & (batch.picks < stop)
    return PretrainingBatch(
        tokens_of([row.numpy() for row in rows], [len(row) // 2 for row in rows]),
        batch.picks[chosen] - start,
        batch.pick_labels[chosen],
        batch.nsp_labels[first:end],
        batch.example_ids[first:end],
    )


def test_fact_21_batch_and_steps(fact):
    line = fact(21, "batch, steps, warm-up, rate and lengths of bert-exact", "the paper, A.2")
    optimizer = EXACT.optimizer
    assert (EXACT.batch_size, EXACT.long_batch_size, EXACT.steps) == (256, 256, 1_000_000)
    assert (optimizer.learning_rate, optimizer.warmup_fraction * EXACT.steps) == (1e-4, 10_000)
    assert (optimizer.beta1, optimizer.beta2, optimizer.eps) == (0.9, 0.999, 1e-6)
    assert (optimizer.weight_decay, optimizer.max_grad_norm, EXACT.dropout) == (0.01, 1.0, None)
    assert (EXACT.architecture.hidden_dropout, EXACT.architecture.attention_dropout) == (0.1, 0.1)
    assert EXACT.batch_size * EXACT.architecture.max_positions == 131_072
    assert 131_072 * EXACT.steps / 3.3e9 == pytest.approx(40, rel=0.01), "epochs of 3.3 G words"
    line.exact()


def first_steps(
    shape: BertConfig, batches: Callable[[int], list[PretrainingBatch]], steps: int, rate: float
) -> list[dict[str, float]]:
    """Return the losses of the first steps of a model's training."""
    torch.manual_seed(0)
    model = BertForPreTraining(shape)
    settings = replace(EXACT.optimizer, learning_rate=rate)
    optimizer = build_optimizer(model, settings)
    loop = LoopSettings(0, CPU, rate=rate_of(settings))
    budget = Budget(steps=steps)
    return [step.losses for step in train(model, optimizer, PretrainingObjective(), batches, loop, budget)]


def test_fact_22_loss_at_the_start(fact):
    line = fact(22, "first loss of words: ln 30,522 = 10.33 (and of pairs: ln 2)", "the logarithm")
    shape = replace(bert_tiny("DATA", "RUN").architecture, vocab_size=30522, activation="gelu_tanh")
    random = np.random.default_rng(0)
    rows = [random.integers(1000, 30522, 128) for _ in range(8)]
    picks = torch.arange(0, 8 * 128, 7)
    labels = torch.from_numpy(np.concatenate(rows))[picks]
    batch = PretrainingBatch(tokens_of(rows, [64] * 8), picks, labels, torch.arange(8) % 2, np.arange(8))
    (losses,) = first_steps(shape, lambda _: [batch], 1, 1e-4)
    assert losses["nsp_loss"] == pytest.approx(math.log(2), abs=0.05)
    line.difference(abs(losses["mlm_loss"] - math.log(30522)), 0.1)


def test_fact_22_plateau_of_word_frequencies(fact):
    """Words drawn one by one: there is nothing to learn but how frequent each is."""
    line = fact(22, "loss on words without context after 120 steps", "entropy of the words' frequencies")
    random = np.random.default_rng(0)
    shares = 1 / np.arange(1, 21) / (1 / np.arange(1, 21)).sum()
    shape = replace(CONFIG, vocab_size=25, hidden_size=32, num_layers=1, intermediate_size=64)

    def batches(_: int) -> list[PretrainingBatch]:
        rows = random.choice(20, (48, 16), p=shares) + 5
        picks = torch.arange(0, rows.size, 2)
        labels = torch.from_numpy(rows.ravel())[picks]
        rows.ravel()[picks.numpy()] = 4
        return [
            PretrainingBatch(
                tokens_of(list(rows), [16] * 48), picks, labels, torch.full((48,), -100), np.arange(48)
            )
        ]

    losses = [step["mlm_loss"] for step in first_steps(shape, batches, 120, 4e-3)]
    entropy = -(shares * np.log(shares)).sum()
    assert losses[0] > entropy + 0.5
    line.difference(abs(np.mean(losses[-40:]) - entropy), 0.03)


def test_fact_22_a_finished_model(fact):
    line = fact(22, "a finished base model: held-out loss 1.4 to 1.6, pairs 97 to 98 % right", "the paper")
    assert EXACT.steps == 1_000_000
    line.not_shown("four days of 16 TPU chips; what minutes and hours reach is in figures.md")
