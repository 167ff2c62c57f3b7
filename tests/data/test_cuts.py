from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.cuts import BatchWarmup, Cuts


def plain_cuts(num_examples: int, sizes: list[int]) -> list[tuple[int, int, int]]:
    """Deal the places of one epoch after another to the steps."""
    cuts: list[tuple[int, int, int]] = []
    epoch, left = 0, list(range(num_examples))
    for size in sizes:
        taken, left = left[:size], left[size:]
        cuts.append((epoch, taken[0], taken[-1] + 1))
        if not left:
            epoch, left = epoch + 1, list(range(num_examples))
    return cuts


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 60), st.integers(2, 30), st.integers(1, 29), st.integers(0, 50))
def test_cuts_equal_dealing_out_the_places(num_examples, batch_size, start, steps) -> None:
    start = min(start, batch_size - 1)
    sizes = [int(start + (batch_size - start) * step / steps + 1e-9) for step in range(steps)]
    sizes += [batch_size] * 60
    cuts = Cuts(num_examples, batch_size, BatchWarmup(start, steps) if steps else None)
    assert [cuts.of(step) for step in range(len(sizes))] == plain_cuts(num_examples, sizes)


def test_without_warm_up_cuts_are_division() -> None:
    cuts = Cuts(10, 4)
    assert [cuts.of(step) for step in range(5)] == [(0, 0, 4), (0, 4, 8), (0, 8, 10), (1, 0, 4), (1, 4, 8)]
    assert cuts.of(3_000_000) == (1_000_000, 0, 4)


def test_the_batch_grows_evenly_to_its_full_size() -> None:
    cuts = Cuts(10_000, 64, BatchWarmup(8, 14))
    sizes = [last - first for _, first, last in map(cuts.of, range(16))]
    assert sizes == [8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 64]


@pytest.mark.parametrize("steps", [1, 3, 40])
def test_every_epoch_is_read_once(steps) -> None:
    cuts = Cuts(37, 8, BatchWarmup(1, steps))
    seen: dict[int, list[int]] = {}
    for step in range(100):
        epoch, first, last = cuts.of(step)
        seen.setdefault(epoch, []).extend(range(first, last))
    complete = [epoch for epoch in seen if epoch < max(seen)]
    assert len(complete) > 8
    assert all(seen[epoch] == list(range(37)) for epoch in complete)
