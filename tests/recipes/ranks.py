"""Pretraining in several processes, with a record of what each read."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from bertsmith import distributed
from bertsmith.data.batch import PretrainingBatch
from bertsmith.recipes import pretrain as recipe
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_run import Parts
from tests.ranks import run_ranks, values_of

Seen = dict[int, dict[int, list[list[int]]]]


def seen_of(batch: PretrainingBatch) -> dict[int, list[list[int]]]:
    """Return for each example of a batch its masked row, the places that are predicted and their words."""
    seen = {}
    layout = batch.tokens.layout
    ids, picks, labels = (
        tensor.tolist() for tensor in (batch.tokens.input_ids, batch.picks, batch.pick_labels)
    )
    for example, start, length in zip(
        batch.example_ids.tolist(), layout.starts, layout.lengths, strict=False
    ):
        inside = [at for at, place in enumerate(picks) if start <= place < start + length]
        seen[example] = [
            ids[start : start + length],
            [picks[at] - start for at in inside],
            [labels[at] for at in inside],
        ]
    return seen


def recorded(config: PretrainConfig, stop_after: int = 0) -> tuple[dict[str, Any], Seen, int]:
    """Pretrain in this process; return the summary, what was read by step, and the number of steps.

    With ``stop_after`` the last rank alone is told to stop while it makes that step.
    """
    batches, take = Parts.batches, recipe._take
    seen: Seen = {}
    steps: list[int] = []

    def record(parts: Parts, step: int) -> list[PretrainingBatch]:
        found = batches(parts, step)
        now: dict[int, list[list[int]]] = {}
        for batch in found:
            assert not now.keys() & set(batch.example_ids.tolist())
            now |= seen_of(batch)
        assert seen.setdefault(step, now) == now
        here = distributed.ranks()
        if step + 1 == stop_after and here.rank == here.world - 1:
            os.kill(os.getpid(), signal.SIGTERM)
        return found

    def count(parts: Any, standing: Any, step: Any, log: Any) -> None:
        steps.append(step.step)
        take(parts, standing, step, log)

    Parts.batches, recipe._take = record, count  # type: ignore[method-assign]
    try:
        return recipe.pretrain(config), seen, len(steps)
    finally:
        Parts.batches, recipe._take = batches, take  # type: ignore[method-assign]


def pretrain_on(world: int, config: PretrainConfig, stop_after: int = 0) -> tuple[dict[str, Any], Seen, int]:
    """Pretrain on so many ranks; return the summary, what all of them read, and the number of steps."""
    if world == 1:
        return recorded(config, stop_after)
    values = values_of(run_ranks(world, recorded, config, stop_after))
    summaries, reads, steps = zip(*values, strict=True)
    assert len(set(steps)) == 1, "all ranks make the same number of steps"
    assert all(summary == summaries[0] for summary in summaries)
    together: Seen = {}
    for read in reads:
        for step, examples in read.items():
            assert not together.setdefault(step, {}).keys() & examples.keys(), "no example is read twice"
            together[step] |= examples
    return summaries[0], together, steps[0]


def losses(run: Path) -> list[float]:
    """Return the logged losses of a run, training and held-out, in their order."""
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [value for event in events for name, value in event.items() if name.endswith("loss")]
