from __future__ import annotations

import pytest
import torch

from bertsmith.training.config import OptimizerConfig
from bertsmith.training.schedule import Budget, rate_of


def rates(total: int = 100, **settings) -> list[float]:
    rate = rate_of(OptimizerConfig(**settings))
    return [rate(step / total) for step in range(total + 1)]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"schedule": "power", "power": 2.0},
        {"schedule": "power"},
        {"schedule": "cosine"},
        {"schedule": "wsd"},
    ],
    ids=str,
)
def test_the_rate_rises_to_its_peak_and_falls_to_zero(settings):
    found = rates(**settings)
    assert found[0] == 0.0
    assert found[5] == pytest.approx(0.5)
    assert found[10] == pytest.approx(1.0)
    assert found[100] == 0.0
    assert found == sorted(found[:11]) + sorted(found[11:], reverse=True)
    assert 0.0 < found[99] < 0.2


def test_the_originals_line_begins_at_the_first_step():
    found = rates(schedule="bert-linear")
    assert found[:10] == rates()[:10]
    assert found[10:] == pytest.approx([0.9 * rate for rate in rates()[10:]])


def test_the_linear_schedule_is_what_it_was_bit_by_bit():
    for warmup in (0.0, 0.01, 0.1, 0.37):
        for step, found in enumerate(rates(999, warmup_fraction=warmup)):
            progress = step / 999
            line = max(0.0, (1.0 - progress) / (1.0 - warmup))
            assert found == (progress / warmup if progress < warmup else line)


PEERS = {
    "linear": ("get_linear_schedule_with_warmup", {}),
    "power": ("get_polynomial_decay_schedule_with_warmup", {"power": 0.5, "lr_end": 0.0}),
    "cosine": ("get_cosine_schedule_with_warmup", {}),
    "wsd": ("get_wsd_schedule", {"num_decay_steps": 200, "decay_type": "1-sqrt"}),
}


@pytest.mark.parametrize("schedule", PEERS)
def test_schedules_equal_those_of_transformers(schedule):
    transformers = pytest.importorskip("transformers")
    name, settings = PEERS[schedule]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    peer = getattr(transformers, name)(optimizer, num_warmup_steps=100, num_training_steps=1000, **settings)
    for found in rates(1000, schedule=schedule):
        assert peer.get_last_lr()[0] == pytest.approx(found, abs=1e-7)
        optimizer.step()
        peer.step()


def test_the_power_1_is_the_line():
    assert rates(schedule="power", power=1.0) == rates()


def test_wsd_stays_at_its_peak_until_the_decay():
    found = rates(schedule="wsd", decay_fraction=0.3)
    assert found[10:71] == [1.0] * 61
    assert found[71] < 1.0


def test_after_the_warm_up_the_original_is_ours_times_one_minus_the_warm_up():
    total, warm_up, peak = 1000, 100, 1e-4
    for step, found in enumerate(rates(total, warmup_fraction=warm_up / total)[:-1]):
        original = peak * (1 - step / total)
        if step < warm_up:
            original = peak * step / warm_up
        factor = 1.0 if step < warm_up else 1 - warm_up / total
        assert original == pytest.approx(peak * found * factor)


def test_without_warm_up_the_run_starts_at_the_peak():
    found = rates(warmup_fraction=0.0)
    assert (found[0], found[-1]) == (1.0, 0.0)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_budget_of_steps_does_not_look_at_the_clock():
    clock = Clock()
    budget = Budget(steps=8, clock=clock)
    clock.now += 1e6
    assert [budget.progress(step) for step in (0, 2, 8, 9)] == [0.0, 0.25, 1.0, 1.0]


def test_a_budget_of_seconds_follows_the_clock_and_keeps_time_back():
    clock = Clock()
    budget = Budget(seconds=100.0, clock=clock)
    clock.now += 45.0
    assert budget.progress(3) == pytest.approx(0.45)
    budget.reserve_seconds = 10.0
    assert budget.progress(3) == pytest.approx(0.5)
    clock.now += 45.0
    assert budget.progress(4) == 1.0


def test_a_resumed_budget_counts_the_seconds_used_before():
    clock = Clock()
    budget = Budget(seconds=100.0, elapsed_seconds=30.0, clock=clock)
    clock.now += 20.0
    assert budget.elapsed_seconds == pytest.approx(50.0)
    assert budget.progress(0) == pytest.approx(0.5)


def test_a_budget_smaller_than_what_is_kept_back_is_over():
    budget = Budget(seconds=5.0)
    budget.reserve_seconds = 6.0
    assert budget.progress(0) == 1.0
