"""The queue: every row its own result, turns, limits, clients that leave, rows that fail."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bertsmith.errors import InputError
from bertsmith.serving.batcher import Batch, Batcher, Job
from bertsmith.serving.refusal import Refusal


class Work:
    """Doubles numbers; can be held up, and remembers what was computed together."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Event()

    def __call__(self, rows: list[int]) -> Sequence[int]:
        self.begun.set()
        assert self.go.wait(20)
        if any(row < 0 for row in rows):
            place = next(place for place, row in enumerate(rows) if row < 0)
            raise InputError(f"text number {place} is below 0; take another")
        if any(row == 666 for row in rows):
            raise RuntimeError("a user's words")
        self.batches.append(rows)
        return [2 * row for row in rows]

    def hold(self, batcher: Batcher) -> Job:
        """Have the thread wait inside a batch, so that what comes next has to wait."""
        self.go.clear()
        self.begun.clear()
        job = Job("hold", self, [1], [1])
        batcher.submit(job)
        assert self.begun.wait(20)
        self.batches.clear()
        return job


@pytest.fixture
def work() -> Work:
    return Work()


@pytest.fixture
def watched() -> list[Batch]:
    return []


@pytest.fixture
def batcher(watched: list[Batch]) -> Iterator[Batcher]:
    made = Batcher(batch_pieces=10, wait_seconds=0, queue_pieces=100, watch=watched.append)
    made.start()
    yield made
    made.stop()


def result(job: Job) -> list[Any]:
    return job.future.result(timeout=20)


def test_rows_of_all_jobs_share_batches_in_turn(batcher: Batcher, work: Work, watched: list[Batch]) -> None:
    held = work.hold(batcher)
    large = Job("a", work, list(range(10, 20)), [2] * 10)
    small = Job("a", work, [20, 21], [3, 2])
    other = Job("b", work, [30], [2])
    for job in (large, small, other):
        batcher.submit(job)
    assert batcher.waiting_pieces == 27
    work.go.set()
    assert result(large) == [2 * row for row in range(10, 20)]
    assert result(small) == [40, 42]
    assert result(other) == [60]
    assert result(held) == [2]
    assert batcher.waiting_pieces == 0
    # Lengths of 2 and 3 are neighbours; the small job is done after the first batch of its kind.
    assert work.batches[1:] == [[10, 20, 11, 21], [30], [12, 13, 14, 15, 16], [17, 18, 19]]
    assert [(batch.key, batch.rows, batch.pieces) for batch in watched][1:3] == [("a", 4, 9), ("b", 1, 2)]
    assert all(batch.pieces <= 10 and batch.seconds >= 0 for batch in watched)


def test_lengths_apart_are_batches_apart_and_a_row_beyond_the_budget_is_one_alone(
    batcher: Batcher, work: Work
) -> None:
    work.hold(batcher)
    job = Job("a", work, [1, 2, 3, 4, 5], [2, 50, 2, 9, 50])
    batcher.submit(job)
    work.go.set()
    assert result(job) == [2, 4, 6, 8, 10]
    assert sorted(work.batches[1:]) == [[1, 3], [2], [4], [5]]


def test_an_idle_batcher_waits_for_more_but_not_for_long(work: Work) -> None:
    batcher = Batcher(batch_pieces=10, wait_seconds=0.3, queue_pieces=100)
    batcher.start()
    try:
        started = time.monotonic()
        jobs = [Job("a", work, [number], [2]) for number in range(3)]
        for job in jobs:
            batcher.submit(job)
        assert [result(job) for job in jobs] == [[0], [2], [4]]
        assert 0.25 < time.monotonic() - started < 5
        assert work.batches == [[0, 1, 2]]
        full = Job("a", work, [5] * 5, [2] * 5)
        started = time.monotonic()
        batcher.submit(full)
        result(full)
        assert time.monotonic() - started < 0.25  # nothing more would fit
    finally:
        batcher.stop()


def test_a_full_queue_refuses_and_says_when_to_come_again(batcher: Batcher, work: Work) -> None:
    work.hold(batcher)
    batcher.submit(Job("a", work, [1], [99]))
    assert not batcher.is_full
    last = Job("a", work, [2] * 50, [9] * 50)  # larger than the queue, and let in: else it never would be
    batcher.submit(last)
    assert batcher.is_full
    with pytest.raises(Refusal, match=r"549 pieces are waiting; ask again in \d+ s") as refused:
        batcher.submit(Job("a", work, [3], [1]))
    assert (refused.value.status, refused.value.code) == (429, "busy")
    assert refused.value.retry_seconds >= 1
    assert last.future.cancel()  # its client left, so there is room again
    batcher.submit(Job("a", work, [4], [1]))
    assert batcher.waiting_pieces == 100
    work.go.set()


def test_what_nobody_waits_for_is_not_computed(batcher: Batcher, work: Work) -> None:
    work.hold(batcher)
    left, stays = Job("a", work, [1, 2, 3], [2] * 3), Job("a", work, [4, 5], [2] * 2)
    batcher.submit(left)
    batcher.submit(stays)
    left.future.cancel()
    work.go.set()
    assert result(stays) == [8, 10]
    assert work.batches[1:] == [[4, 5]]
    assert batcher.waiting_pieces == 0


def test_a_row_that_cannot_be_computed_fails_its_own_request_alone(batcher: Batcher, work: Work) -> None:
    work.hold(batcher)
    jobs = [Job("a", work, [1, 2], [2, 2]), Job("a", work, [3, -3], [2, 2]), Job("a", work, [666], [2])]
    for job in jobs:
        batcher.submit(job)
    work.go.set()
    assert result(jobs[0]) == [2, 4]
    with pytest.raises(Refusal, match="text number 1 is below 0") as wrong:
        result(jobs[1])
    assert (wrong.value.status, wrong.value.code) == (422, "invalid_request")
    with pytest.raises(Refusal, match="a fault of the server") as fault:
        result(jobs[2])
    assert fault.value.status == 500
    assert batcher.is_alive


def test_stopping_ends_the_batch_and_refuses_the_rest(work: Work) -> None:
    batcher = Batcher(10, 0, 100)
    batcher.start()
    held = work.hold(batcher)
    waiting = Job("a", work, [1], [1])
    batcher.submit(waiting)
    stopper = threading.Thread(target=batcher.stop)
    stopper.start()
    time.sleep(0.05)
    work.go.set()
    stopper.join(20)
    assert result(held) == [2]
    with pytest.raises(Refusal) as refused:
        result(waiting)
    assert refused.value.status == 503
    assert not batcher.is_alive


def test_many_threads_many_rows_nothing_is_mixed_up(batcher: Batcher, work: Work) -> None:
    found: dict[int, list[int]] = {}

    def ask(number: int) -> None:
        for turn in range(20):
            rows = [1000 * number + turn * 10 + row for row in range(turn % 4 + 1)]
            job = Job(number % 2, work, rows, [row % 13 + 1 for row in rows])
            while True:
                try:
                    batcher.submit(job)
                    break
                except Refusal:
                    time.sleep(0.01)
            assert result(job) == [2 * row for row in rows]
        found[number] = rows

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == 12
    assert batcher.waiting_pieces == 0
    assert max(len(batch) for batch in work.batches) > 1
