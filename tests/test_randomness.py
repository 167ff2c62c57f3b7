from __future__ import annotations

import itertools

import numpy as np

from bertsmith.randomness import generator, seed_of


def test_the_same_item_gets_the_same_numbers_and_others_do_not():
    first = {
        key: tuple(generator(*key).integers(1 << 62, size=3))
        for key in itertools.product((0, 1, -1, 1 << 40), ("masking", "order"), (0, 1), (0, 1, 12345))
    }
    assert len(set(first.values())) == len(first)
    assert all(tuple(generator(*key).integers(1 << 62, size=3)) == numbers for key, numbers in first.items())


def test_long_draws_of_neighbours_do_not_overlap():
    draws = [
        set(generator(7, "masking", 0, index).integers(1 << 62, size=1000).tolist()) for index in range(20)
    ]
    assert len(set.union(*draws)) == 20_000


def test_numbers_are_known():
    # Data sets on disk hang on these numbers: a change here is a change of every prepared corpus.
    assert generator(1, "a", 2, 3).integers(10, size=5).tolist() == [4, 6, 6, 0, 6]
    assert seed_of(1, "x") == 3234452389817652761


def test_uniform_over_items():
    values = np.array([generator(0, "masking", 0, index).random() for index in range(4000)])
    assert abs(values.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 4000)
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 4 / np.sqrt(4000)
