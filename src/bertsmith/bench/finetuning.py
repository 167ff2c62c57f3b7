"""Speed of fine-tuning steps on a processor: ours beside transformers, taking turns.

SST-2's training rows in random order, batches of 32. A step is forward, backward, clipping and AdamW,
dropout 0.1; every side gets the same rows, encoded beforehand. Peers: transformers'
``BertForSequenceClassification`` with its fused AdamW, rows padded to 128 in float32 (as its example script
does), padded to the longest of the batch in float32, and that under bfloat16 autocast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from bertsmith.bench.turns import OURS, Contender, interleave, peer_is_installed, plain_step, report
from bertsmith.bundle import load_bundle, load_classification_model
from bertsmith.errors import InputError
from bertsmith.objectives import ClassificationObjective
from bertsmith.tasks.classification import labelled
from bertsmith.tasks.encode import RowBatch, TrainingRows
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import find_task
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import LoopSettings, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget

BATCH_SIZE = 32
SEQ_LEN = 128
RATE = 2e-5
REPEATS = 40
CPU = torch.device("cpu")


def compare(model: str, data: str, repeats: int) -> dict[str, Any]:
    """Measure fine-tuning.

    Args:
        model: a model directory.
        data: a directory with SST-2's train.tsv.
        repeats: counted steps of each side; 0: forty.

    Returns:
        The result object of ``report``.

    Raises:
        InputError: there are no training rows, or no model.
    """
    repeats = repeats or REPEATS
    batches = _sst2_batches(model, data)
    steps = [batches.batch(step)[0] for step in range(repeats + 2)]
    contenders = {OURS: Contender(_ours(model, batches, len(steps)), keeps_memory=True)}
    if peer_is_installed("transformers"):
        for name, dtype, padded_to in (
            ("float32, padded to 128", torch.float32, SEQ_LEN),
            ("float32, dynamic padding", torch.float32, None),
            ("bfloat16, dynamic padding", torch.bfloat16, None),
        ):
            contenders[f"transformers {name}"] = Contender(_peer(model, steps, dtype, padded_to))
    speeds = interleave(contenders, repeats)
    mean_tokens = float(np.mean([length for batch in steps for length in batch.tokens.layout.lengths]))
    return report(
        f"fine-tuning on SST-2, batch {BATCH_SIZE}", speeds, "rows/s", mean_tokens=round(mean_tokens, 1)
    )


def _sst2_batches(model: str, data: str) -> TrainingRows[RowBatch]:
    task = find_task("sst2")
    rows = task.read(DataSource(data), "train")
    if rows is None:
        raise InputError(f"{data}: no train.tsv; give the directory of SST-2")
    bundle = load_bundle(model)
    split = task.kind.encode(task, rows, task.labels, Encoding(bundle.tokenizer, SEQ_LEN, "tail"))
    return TrainingRows(split.num_units, labelled(split).batch, BATCH_SIZE, seed=0)


def _ours(model: str, batches: TrainingRows[RowBatch], num_steps: int) -> Callable[[int], int]:
    """The product's own loop, objective and optimiser."""
    torch.manual_seed(0)
    loaded = load_classification_model(load_bundle(model), 2)
    steps = train(
        loaded,
        build_optimizer(loaded, OptimizerConfig(learning_rate=RATE)),
        ClassificationObjective(),
        batches.batch,
        LoopSettings(0, CPU, torch.bfloat16),
        Budget(steps=num_steps),
    )

    def step(index: int) -> int:
        next(steps)
        return len(batches.indices(index))

    return step


def _peer(
    model: str, steps: list[RowBatch], dtype: torch.dtype, padded_to: int | None
) -> Callable[[int], int]:
    """A plain loop around transformers' model."""
    import transformers

    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    loaded = transformers.BertForSequenceClassification.from_pretrained(model, num_labels=2).train()
    optimizer = torch.optim.AdamW(loaded.parameters(), lr=RATE, weight_decay=0.01, fused=True)
    inputs = [_padded_inputs(batch, padded_to) for batch in steps]
    units = [batch.tokens.layout.batch for batch in steps]
    return plain_step(loaded, optimizer, dtype, inputs, units)


def _padded_inputs(batch: RowBatch, padded_to: int | None) -> dict[str, torch.Tensor]:
    lengths = batch.tokens.layout.lengths
    width = padded_to or max(lengths)
    ids = torch.zeros(len(lengths), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, values in enumerate(torch.split(batch.tokens.input_ids, list(lengths))):
        ids[row, : len(values)] = values
        mask[row, : len(values)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": batch.labels}
