from __future__ import annotations

import pytest

from bertsmith.training.schedule import Budget, linear_rate


def test_rate_rises_to_its_peak_and_falls_to_zero():
    rates = [linear_rate(step / 100, 0.1) for step in range(101)]
    assert rates[0] == 0.0
    assert rates[5] == pytest.approx(0.5)
    assert rates[10] == pytest.approx(1.0)
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == 0.0
    assert rates == sorted(rates[:11]) + sorted(rates[11:], reverse=True)


def test_after_the_warm_up_the_original_is_ours_times_one_minus_the_warm_up():
    total, warm_up, peak = 1000, 100, 1e-4
    for step in range(total):
        original = peak * (1 - step / total)
        if step < warm_up:
            original = peak * step / warm_up
        ours = peak * linear_rate(step / total, warm_up / total)
        factor = 1.0 if step < warm_up else 1 - warm_up / total
        assert original == pytest.approx(ours * factor)


def test_without_warm_up_the_run_starts_at_the_peak():
    assert linear_rate(0.0, 0.0) == 1.0
    assert linear_rate(1.0, 0.0) == 0.0


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
