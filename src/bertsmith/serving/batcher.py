"""Rows of many requests computed together by one thread.

Rows wait in lanes: one for each kind of work (``Job.key``) and length, by powers of two, so that a batch
holds rows of similar length. The lanes take turns, and in a lane so do the jobs, a row at a time: one request
of a thousand rows holds up nobody, and every row's turn comes after a bounded number of batches.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from bertsmith.errors import InputError
from bertsmith.serving.refusal import Refusal

_LOG = logging.getLogger(__name__)


@dataclass(eq=False)
class Job:
    """The rows of a request.

    Attributes:
        key: rows of jobs with equal keys may be computed together.
        compute: from rows of such jobs to one result a row; an InputError counts rows from 0.
        rows: what is computed.
        pieces: length of each row.
        request: id of the request, for the log.
        future: the results, in the order of the rows. Cancelling it drops what is not computed yet.
    """

    key: Hashable
    compute: Callable[[list[Any]], Sequence[Any]]
    rows: Sequence[Any]
    pieces: Sequence[int]
    request: str = ""
    future: Future[list[Any]] = field(default_factory=Future)

    def __post_init__(self) -> None:
        assert len(self.rows) == len(self.pieces) > 0
        self._results: list[Any] = [None] * len(self.rows)
        self._missing = len(self.rows)

    def deliver(self, row: int, result: Any) -> None:
        """Take the result of a row."""
        self._results[row] = result
        self._missing -= 1
        if not self._missing:
            self._settle(lambda: self.future.set_result(self._results))

    def fail(self, error: Exception) -> None:
        """Give up."""
        self._settle(lambda: self.future.set_exception(error))

    def _settle(self, settle: Callable[[], None]) -> None:
        try:
            settle()
        except InvalidStateError:  # the client left, or another row failed
            return


@dataclass(frozen=True)
class Batch:
    """What was computed together.

    Attributes:
        key: of its jobs.
        rows: how many.
        pieces: of all rows.
        seconds: that it took.
    """

    key: Hashable
    rows: int
    pieces: int
    seconds: float


@dataclass(eq=False)
class _Lane:
    """Rows that may be computed together: for each job, the numbers of those that wait."""

    since: float
    jobs: deque[tuple[Job, deque[int]]] = field(default_factory=deque)
    pieces: int = 0


class Batcher:
    """The queue and the thread that empties it."""

    def __init__(
        self,
        batch_pieces: int,
        wait_seconds: float,
        queue_pieces: int,
        watch: Callable[[Batch], None] = lambda batch: None,
    ) -> None:
        """Make a batcher; ``start`` sets it to work.

        Args:
            batch_pieces: of a batch; a longer row is a batch by itself.
            wait_seconds: for more rows, while nothing else is to be done.
            queue_pieces: when so many wait, further jobs are refused.
            watch: told of each batch, by the thread.
        """
        self._batch_pieces = batch_pieces
        self._wait_seconds = wait_seconds
        self._queue_pieces = queue_pieces
        self._watch = watch
        self._lanes: dict[Hashable, _Lane] = {}  # the next one's turn is the first one's
        self._change = threading.Condition()
        self._waiting = 0
        self._stopping = False
        self._pieces_per_second = 0.0
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)

    def start(self) -> None:
        """Begin to compute."""
        self._thread.start()

    def stop(self) -> None:
        """End after the batch that is being computed; jobs that still wait fail."""
        with self._change:
            self._stopping = True
            self._change.notify()
        if self._thread.is_alive():
            self._thread.join()
        for lane in self._lanes.values():
            for job, _ in lane.jobs:
                job.fail(Refusal(503, "stopping", "the server stops; ask again", retry_seconds=1))

    @property
    def is_alive(self) -> bool:
        """Whether rows are computed."""
        return self._thread.is_alive()

    @property
    def waiting_pieces(self) -> int:
        """Pieces of the rows that wait."""
        return self._waiting

    @property
    def is_full(self) -> bool:
        """Whether further jobs are refused."""
        return self._waiting >= self._queue_pieces

    def submit(self, job: Job) -> None:
        """Have the rows of a job computed.

        Raises:
            Refusal: too much is waiting.
        """
        with self._change:
            if self.is_full:
                self._drop_done()
            if self.is_full:
                speed = self._pieces_per_second
                seconds = math.ceil(self._waiting / speed) if speed else 1
                message = f"{self._waiting} pieces are waiting; ask again in {seconds} s"
                raise Refusal(429, "busy", message, retry_seconds=max(1, seconds))
            now = time.monotonic()
            numbers: dict[int, deque[int]] = {}
            for number, pieces in enumerate(job.pieces):
                numbers.setdefault(pieces.bit_length(), deque()).append(number)
            for length, rows in numbers.items():
                lane = self._lanes.setdefault((job.key, length), _Lane(now))
                lane.jobs.append((job, rows))
                lane.pieces += sum(job.pieces[row] for row in rows)
            self._waiting += sum(job.pieces)
            self._change.notify()

    def _work(self) -> None:
        while (batch := self._next_batch()) is not None:
            if batch:
                self._compute(batch)

    def _next_batch(self) -> list[tuple[Job, int]] | None:
        """Wait for rows and return some; none if their clients left; ``None``: it is time to stop."""
        with self._change:
            while not self._stopping:
                now = time.monotonic()
                due = {key: lane.since + self._wait_seconds for key, lane in self._lanes.items()}
                ready = [
                    key
                    for key, lane in self._lanes.items()
                    if due[key] <= now or lane.pieces >= self._batch_pieces
                ]
                if ready:
                    return self._take(ready[0], self._lanes[ready[0]])
                self._change.wait(min(due.values()) - now if due else None)
        return None

    def _take(self, key: Hashable, lane: _Lane) -> list[tuple[Job, int]]:
        """Take rows of a lane, one of each job in turn, and put the lane behind the others."""
        batch: list[tuple[Job, int]] = []
        room = self._batch_pieces
        while lane.jobs:
            job, numbers = lane.jobs[0]
            if job.future.done():
                lane.jobs.popleft()
                self._forget(lane, sum(job.pieces[number] for number in numbers))
                continue
            pieces = job.pieces[numbers[0]]
            if batch and pieces > room:
                break
            room -= pieces
            batch.append((job, numbers.popleft()))
            self._forget(lane, pieces)
            lane.jobs.rotate(-1)
            if not numbers:
                lane.jobs.pop()
        del self._lanes[key]
        if lane.jobs:
            self._lanes[key] = lane
        return batch

    def _drop_done(self) -> None:
        """Forget rows of jobs that nobody waits for any more."""
        for key, lane in list(self._lanes.items()):
            for job, numbers in lane.jobs:
                if job.future.done():
                    self._forget(lane, sum(job.pieces[number] for number in numbers))
            lane.jobs = deque(entry for entry in lane.jobs if not entry[0].future.done())
            if not lane.jobs:
                del self._lanes[key]

    def _forget(self, lane: _Lane, pieces: int) -> None:
        lane.pieces -= pieces
        self._waiting -= pieces

    def _compute(self, batch: list[tuple[Job, int]]) -> None:
        """Compute rows and deliver their results; when they fail together, each by itself."""
        batch = [(job, row) for job, row in batch if not job.future.done()]
        if not batch:
            return
        first, number = batch[0]
        started = time.monotonic()
        try:
            results = first.compute([job.rows[row] for job, row in batch])
            assert len(results) == len(batch), "one result a row"
        except Exception as error:
            if len(batch) > 1:
                for entry in batch:
                    self._compute([entry])
            else:
                first.fail(_of_row(error, number, first.request))
            return
        pieces = sum(job.pieces[row] for job, row in batch)
        self._note(Batch(first.key, len(batch), pieces, time.monotonic() - started))
        for (job, row), result in zip(batch, results, strict=True):
            job.deliver(row, result)

    def _note(self, batch: Batch) -> None:
        speed = batch.pieces / max(batch.seconds, 1e-6)
        self._pieces_per_second += (speed - self._pieces_per_second) * (0.1 if self._pieces_per_second else 1)
        self._watch(batch)


def _of_row(error: Exception, row: int, request: str) -> Exception:
    """Return what went wrong with a row that was computed by itself."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, InputError):
        message = re.sub(r"\bnumber 0\b", f"number {row}", str(error), count=1)
        return Refusal(422, "invalid_request", message)
    # The error's own words may hold a user's text, which is not logged.
    _LOG.error(
        "failed", extra={"fields": {"id": request, "error": type(error).__name__, "at": places(error)}}
    )
    return Refusal(500, "failed", f"a fault of the server; its log has more under {request}")


def places(error: Exception) -> list[str]:
    """Return where an error comes from, as file:line, without its words."""
    return [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
