"""The verb ``bench``: figures of this machine, as a ratio to a peer where the peer is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rich.console import Console

from bertsmith.bench import finetuning, pretraining
from bertsmith.bench.turns import lines_of, peer_is_installed, together
from bertsmith.config import nearest
from bertsmith.device import limit_threads
from bertsmith.errors import InputError
from bertsmith.recipes.machine_config import BenchConfig
from bertsmith.tasks.rows import Columns, find_columns, iterate_rows
from bertsmith.tasks.tables import open_table


def bench(config: BenchConfig) -> dict[str, Any]:
    """Measure one kind of work beside its peers, taking turns; medians.

    Returns:
        ``ours``, ``peers``, ``ratios``, ``unit``, ``versions`` and details.

    Raises:
        InputError: the work is unknown, lacks a setting, or a setting would be ignored.
    """
    if config.work not in WORKS:
        raise InputError(f"bench {config.work!r} is unknown; {nearest(config.work, list(WORKS))}")
    if config.repeats < 0:
        raise InputError(f"repeats is {config.repeats}; it has to be 0 (fit for minutes) or more")
    for name in sorted(set().union(*_READ_BY.values()) - _READ_BY[config.work]):
        if getattr(config, name):
            raise InputError(f"--{name} would be ignored by bench {config.work}; leave it out")
    limit_threads()
    Console(stderr=True).print(f"bench {config.work}: measuring takes some minutes", highlight=False)
    return WORKS[config.work](config)


def show(summary: dict[str, Any]) -> None:
    """Print a summary for people on standard output."""
    console = Console(highlight=False)
    for result in summary["details"].values() if "details" in summary else (summary,):
        for line in lines_of(result):
            console.print(line, soft_wrap=True, markup=False)
    measured = ", ".join(f"{name} {value}" for name, value in summary["versions"].items())
    console.print(f"  on {measured}", soft_wrap=True, markup=False)


def _pretrain(config: BenchConfig) -> dict[str, Any]:
    shapes = config.shapes or list(pretraining.SHAPES)
    for name in shapes:
        if name not in pretraining.SHAPES:
            raise InputError(f"shape {name!r} is unknown; {nearest(name, list(pretraining.SHAPES))}")
    results = {name: pretraining.compare(name, config.data, config.repeats) for name in shapes}
    return together(results)


def _finetune(config: BenchConfig) -> dict[str, Any]:
    if config.data is None or config.model is None:
        raise InputError(
            "bench finetune needs --data (the directory of the task's files) and --model (a model directory)"
        )
    task = config.task or "sst2"
    if task not in finetuning.COMPARISONS:
        known = list(finetuning.COMPARISONS)
        raise InputError(f"bench finetune --task {task}: {nearest(task, known)}")
    return finetuning.compare(task, config.model, config.data, config.repeats)


def _prepare(config: BenchConfig) -> dict[str, Any]:
    if not config.corpus or config.vocab is None:
        raise InputError("bench prepare needs --corpus (.txt files) and --vocab (a vocab.txt)")
    if not config.megabytes >= 0:
        raise InputError(f"megabytes is {config.megabytes}; it has to be 0 (all) or more")
    if not peer_is_installed("psutil"):
        raise InputError("bench prepare measures memory with psutil; pip install 'bertsmith[bench]'")
    from bertsmith.bench import preparing

    return together(preparing.compare(config.corpus, config.vocab, config.megabytes, config.repeats))


def _embed(config: BenchConfig) -> dict[str, Any]:
    if config.data is None or config.model is None:
        raise InputError("bench embed needs --data (a file of texts) and --model (a model directory)")
    from bertsmith.bench import embedding

    table = open_table(config.data)
    columns = find_columns(table, None, {"text": None, "second_text": None, "label": None}, pair=False)
    texts = [row.texts[0] for row in iterate_rows(table, Columns(columns.text)) if not row.missing]
    if not texts:
        raise InputError(f"{config.data}: no text; give a file with some hundred sentences")
    return embedding.compare(config.model, texts, config.repeats)


WORKS: Mapping[str, Callable[[BenchConfig], dict[str, Any]]] = {
    "pretrain": _pretrain,
    "finetune": _finetune,
    "prepare": _prepare,
    "embed": _embed,
}

_READ_BY: Mapping[str, set[str]] = {
    "pretrain": {"data", "shapes"},
    "finetune": {"data", "model", "task"},
    "prepare": {"corpus", "vocab", "megabytes"},
    "embed": {"data", "model"},
}
"""The settings that each work reads besides the repeats."""
