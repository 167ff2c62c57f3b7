"""Choosing rows: by the seed alone, without loss."""

from __future__ import annotations

import pytest

from bertsmith.errors import InputError
from bertsmith.tasks.rows import Columns, Row
from bertsmith.tasks.source import RowSet, hold_out, limit


def row_set(number: int) -> RowSet:
    return RowSet([Row((str(n), None), "a", n + 2) for n in range(number)], "rows.csv", Columns("text"))


def lines(rows: RowSet) -> list[int]:
    return [row.line for row in rows.rows]


@pytest.mark.parametrize("number, kept", [(2, 1), (9, 1), (26, 3), (100, 10)])
def test_a_tenth_is_held_out_and_no_row_is_lost(number: int, kept: int) -> None:
    train, dev = hold_out(row_set(number), seed=5)
    assert len(dev.rows) == kept
    assert sorted(lines(train) + lines(dev)) == lines(row_set(number))
    assert lines(train) == sorted(lines(train))
    assert hold_out(row_set(number), seed=5) == (train, dev)


def test_other_seeds_hold_out_other_rows() -> None:
    assert len({tuple(lines(hold_out(row_set(100), seed)[1])) for seed in range(5)}) == 5


def test_a_limit_takes_that_many_rows_in_their_order() -> None:
    some = limit(row_set(50), 10, seed=1)
    assert len(some.rows) == 10
    assert lines(some) == sorted(lines(some))
    assert limit(row_set(50), 10, seed=1) == some
    assert limit(row_set(50), 10, seed=2) != some
    assert limit(row_set(5), 10, seed=1) == limit(row_set(5), 0, seed=1) == row_set(5)


def test_what_cannot_be_chosen_is_refused() -> None:
    with pytest.raises(InputError, match=r"rows\.csv: 1 rows; at least 2"):
        hold_out(row_set(1), seed=0)
    with pytest.raises(InputError, match="limit-rows is -1"):
        limit(row_set(5), -1, seed=0)
