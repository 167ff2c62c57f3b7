"""Work spread over processes: results in the order of the tasks, bounded memory, no hang when one dies."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from itertools import islice
from typing import Any, TypeVar

State = TypeVar("State")
Task = TypeVar("Task")
Result = TypeVar("Result")

_TASKS_PER_WORKER = 2
_states: list[Any] = []
"""What this worker process made when it started; empty in the parent."""


def ordered_map(
    work: Callable[[State, Task], Result],
    tasks: Iterable[Task],
    make_state: Callable[..., State],
    arguments: tuple[Any, ...],
    workers: int,
) -> Iterator[Result]:
    """Yield ``work(state, task)`` for each task, in the order of the tasks.

    A few tasks a worker are read ahead, not more, so memory does not grow with their number. With one worker
    the work is done in this process. Processes are spawned, so nothing of the parent's threads is copied.

    Args:
        work: a function of a module.
        tasks: what to work on; read in this process.
        make_state: makes what every task needs, once in each process; a function of a module.
        arguments: of ``make_state``.
        workers: processes.

    Raises:
        ChildProcessError: a worker died (killed, out of memory).
    """
    if workers == 1:
        state = make_state(*arguments)
        for task in tasks:
            yield work(state, task)
        return
    executor = ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_start,
        initargs=(make_state, arguments),
    )
    iterator = iter(tasks)
    waiting: deque[Future[Result]] = deque()
    try:
        for task in islice(iterator, workers * _TASKS_PER_WORKER):
            with _interrupts_held():  # submitting starts processes
                waiting.append(executor.submit(_run, work, task))
        while waiting:
            result = waiting.popleft().result()
            for task in islice(iterator, 1):
                with _interrupts_held():
                    waiting.append(executor.submit(_run, work, task))
            yield result
    except BrokenProcessPool as error:
        raise ChildProcessError(
            "a worker process died: it was killed, ran out of memory, or the calling script starts work "
            "outside `if __name__ == '__main__'`; try fewer workers"
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Let a Ctrl-C wait until the block ends; processes that start in it never see one."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _start(make_state: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Begin a worker process, which does not outlive its parent."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _states.append(make_state(*arguments))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    multiprocessing.connection.wait([parent.sentinel])
    os._exit(1)


def _run(work: Callable[[Any, Task], Result], task: Task) -> Result:
    return work(_states[0], task)
