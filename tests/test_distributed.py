from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from bertsmith import distributed
from bertsmith.distributed import ALONE, Ranks, SharedClock
from bertsmith.errors import InputError, RunError
from tests.ranks import run_ranks, values_of


@pytest.mark.parametrize("world", [1, 2, 3, 9])
def test_shares_are_even_and_leave_nothing_out(world):
    shares = [Ranks(rank, world).share(np.arange(7)) for rank in range(world)]
    assert sorted(np.concatenate(shares)) == list(range(7))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_alone_everything_is_as_it_is():
    with distributed.joined():
        assert distributed.ranks() == ALONE
        assert not torch.distributed.is_initialized()
        table = torch.tensor([1.0])
        assert distributed.summed(table) is table
        assert distributed.totals({"a": 2}) == {"a": 2}
        assert distributed.from_main(lambda: "made") == "made"
        with distributed.main_first():
            pass
        model = torch.nn.Linear(1, 1)
        assert distributed.replicated(model) is model
        clock = SharedClock()
        first = clock()
        assert clock() >= first
        assert (clock.agree(), clock.agree(True)) == (False, True)


def primitives() -> dict[str, object]:
    with distributed.joined():
        here = distributed.ranks()
        clock = SharedClock()
        first = clock()
        time.sleep(0.01 * here.rank)
        stood_still = clock() == first
        return {
            "ranks": here,
            "sum": distributed.summed(torch.tensor([1.0, float(here.rank)])).tolist(),
            "totals": distributed.totals({"a": 10**12, "b": here.rank}),
            "made": distributed.from_main(lambda: {"by": here.rank}),
            "stop": clock.agree(here.rank == 2),
            "no stop": clock.agree(),
            "clock": clock(),
            "stood still": stood_still and clock() > first,
        }


def test_three_processes_agree():
    found = values_of(run_ranks(3, primitives))
    assert [one.pop("ranks") for one in found] == [Ranks(rank, 3) for rank in range(3)]
    clocks = {one.pop("clock") for one in found}
    assert len(clocks) == 1
    expected = {
        "sum": [3.0, 3.0],
        "totals": {"a": 3 * 10**12, "b": 3},
        "made": {"by": 0},
        "stop": True,
        "no stop": False,
        "stood still": True,
    }
    assert found == [expected] * 3


def failing(where: str) -> None:
    def make() -> None:
        raise InputError("no such thing") if where != "run" else RunError("broken")

    with distributed.joined():
        if where == "block":
            with distributed.main_first():
                make()
        distributed.from_main(make)


@pytest.mark.parametrize("where, code", [("block", 2), ("made", 2), ("run", 1)])
def test_what_fails_in_the_main_process_is_told_there_and_ends_the_others(where, code):
    main, other = run_ranks(2, failing, where)
    assert "InputError: no such thing" in main.error or "RunError: broken" in main.error
    assert (other.code, other.error) == (code, "ended without a word")


def leaving() -> None:
    with distributed.joined():
        if distributed.ranks().rank == 1:
            raise SystemExit(3)
        for _ in range(100):
            distributed.totals({"a": 1})


def test_a_process_whose_partner_is_gone_says_so_and_does_not_hang():
    main, other = run_ranks(2, leaving)
    assert other.code == 3
    assert "RunError: lost contact with another rank, so this one (rank 0) ends, too" in main.error


def gradients() -> dict[str, list[float]]:
    """Accumulate two micro-batches on each rank; the second rank's second one is empty."""
    with distributed.joined():
        here = distributed.ranks()
        torch.manual_seed(here.rank)  # replicas start as the main process's
        model = torch.nn.Linear(1, 1, bias=False)
        trained = distributed.replicated(model)
        values = [[1.0, 2.0], [4.0, 0.0]][here.rank]
        for index, value in enumerate(values):
            with distributed.exchange(trained, last=index == 1):
                (trained(torch.ones(1, 1)) * value).sum().backward()
        assert model.weight.grad is not None
        return {"weight": model.weight.detach()[0].tolist(), "gradient": model.weight.grad[0].tolist()}


def test_gradients_are_exchanged_once_and_are_the_mean():
    one, other = values_of(run_ranks(2, gradients))
    assert one == other
    assert one["gradient"] == [(1.0 + 2.0 + 4.0) / 2]


def test_a_restarted_process_does_not_read_what_a_dead_one_wrote():
    store = dist.HashStore()

    def attempt(name: str) -> dict[int, str]:
        """Return what each of two processes reads of the other; the main process is the slower one."""
        read = {}

        def process(rank: int) -> None:
            time.sleep(0.2 * (rank == 0))
            own = distributed._of_these_processes(store, Ranks(rank, 2))
            time.sleep(0.2 * (rank == 0))
            own.set(f"address-{rank}", f"{name}-{rank}")
            read[rank] = own.get(f"address-{1 - rank}").decode()

        threads = [threading.Thread(target=process, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return read

    for name in ("first", "second", "third"):
        assert attempt(name) == {0: f"{name}-1", 1: f"{name}-0"}
