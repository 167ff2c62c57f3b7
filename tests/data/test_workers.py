"""Work over processes: order, bounded reading ahead, errors, deaths."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator

import psutil
import pytest

from bertsmith.data.workers import ordered_map
from bertsmith.errors import InputError


def make_offset(offset: int) -> int:
    return offset


def slow_for_even(offset: int, task: int) -> int:
    time.sleep(0.02 if task % 2 == 0 else 0)
    return offset + task


def fail_at_five(offset: int, task: int) -> int:
    if task == 5:
        raise InputError("five is wrong")
    return task


def die_at_five(offset: int, task: int) -> int:
    if task == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_results_come_in_order_and_tasks_are_read_when_needed(workers) -> None:
    read = []

    def tasks() -> Iterator[int]:
        for task in range(40):
            read.append(task)
            yield task

    results = []
    for result in ordered_map(slow_for_even, tasks(), make_offset, (100,), workers):
        results.append(result)
        assert len(read) - len(results) <= 2 * workers
    assert results == list(range(100, 140))


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_in_the_work_arrives(workers) -> None:
    with pytest.raises(InputError, match="five is wrong"):
        list(ordered_map(fail_at_five, range(50), make_offset, (0,), workers))


def test_a_killed_worker_is_an_error_and_no_hang() -> None:
    before = psutil.Process().children()  # of what other tests have started
    with pytest.raises(ChildProcessError, match="a worker process died"):
        list(ordered_map(die_at_five, range(50), make_offset, (0,), 2))
    left = [child for child in psutil.Process().children() if child not in before]
    assert all("resource_tracker" in " ".join(child.cmdline()) for child in left)


def test_workers_end_when_their_parent_is_killed(tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import time
            from bertsmith.data.workers import ordered_map

            def make():
                return None

            def work(state, task):
                time.sleep(0.05)
                return task

            if __name__ == "__main__":
                for result in ordered_map(work, range(10_000), make, (), 2):
                    print(result, flush=True)
            """
        )
    )
    parent = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"0\n"
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 2
    parent.kill()
    parent.wait()
    parent.stdout.close()
    _, alive = psutil.wait_procs(children, timeout=10)
    assert not [child for child in alive if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
