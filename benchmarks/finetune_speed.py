"""Speed of fine-tuning steps on a processor: ours beside transformers, taking turns.

    python benchmarks/finetune_speed.py [--data GLUE/SST-2] [--model MODEL] [--repeats N] [--json]

MiniLM-L6 on SST-2, batches of 32 rows in random order. A step is forward, backward, clipping and AdamW,
dropout 0.1; every side gets the same rows, encoded beforehand. Peers: transformers'
``BertForSequenceClassification`` with its fused AdamW, rows padded to 128 in float32 (as its example script
does), padded to the longest of the batch in float32, and that under bfloat16 autocast.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable

import numpy as np
import torch
import transformers

from bertsmith.bundle import load_bundle, load_classification_model
from bertsmith.device import limit_threads
from bertsmith.objectives import ClassificationObjective
from bertsmith.tasks.encode import RowBatch, TrainingRows, encode_rows
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import find_task, gold_of
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import LoopSettings, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget
from local_data import glue_directory, minilm_directory
from measure import OURS, Contender, interleave, note, report, show

BATCH_SIZE = 32
SEQ_LEN = 128
RATE = 2e-5
CPU = torch.device("cpu")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    glue = glue_directory()
    sst2 = str(glue / "SST-2") if glue else None
    parser.add_argument("--data", default=sst2, help="directory with SST-2's train.tsv(.gz)")
    parser.add_argument("--model", default=None, help="model directory; default: the installed MiniLM")
    parser.add_argument("--repeats", type=int, default=40, help="counted steps")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.data is None:
        sys.exit("no SST-2: give --data, or set BERTSMITH_DATA to the folder of real data")
    threads = limit_threads()
    note(f"fine-tuning on {threads} threads ...")
    result = compare(arguments.model or minilm_directory(), arguments.data, arguments.repeats)
    if arguments.json:
        print(json.dumps(result))
    else:
        show(result)


def compare(model: str, data: str, repeats: int) -> dict[str, object]:
    batches = sst2_batches(model, data)
    steps = [batches.batch(step)[0] for step in range(repeats + 2)]
    contenders = {
        OURS: Contender(ours(model, batches, len(steps)), keeps_memory=True),
        "transformers float32, padded to 128": Contender(peer(model, steps, torch.float32, SEQ_LEN)),
        "transformers float32, dynamic padding": Contender(peer(model, steps, torch.float32, None)),
        "transformers bfloat16, dynamic padding": Contender(peer(model, steps, torch.bfloat16, None)),
    }
    speeds = interleave(contenders, repeats)
    mean_tokens = float(np.mean([length for batch in steps for length in batch.tokens.layout.lengths]))
    return report(
        f"fine-tuning on SST-2, batch {BATCH_SIZE}", speeds, "rows/s", mean_tokens=round(mean_tokens, 1)
    )


def sst2_batches(model: str, data: str) -> TrainingRows:
    task = find_task("sst2")
    rows = task.read(DataSource(data), "train")
    if rows is None:
        sys.exit(f"{data}: no train.tsv")
    bundle = load_bundle(model)
    encoded = encode_rows([row.texts for row in rows.rows], bundle.tokenizer, SEQ_LEN)
    return TrainingRows(encoded, gold_of(task, rows, task.labels), BATCH_SIZE, seed=0)


def ours(model: str, batches: TrainingRows, num_steps: int) -> Callable[[int], int]:
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


def peer(
    model: str, steps: list[RowBatch], dtype: torch.dtype, padded_to: int | None
) -> Callable[[int], int]:
    """A plain loop around transformers' model."""
    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    loaded = transformers.BertForSequenceClassification.from_pretrained(model, num_labels=2).train()
    optimizer = torch.optim.AdamW(loaded.parameters(), lr=RATE, weight_decay=0.01, fused=True)
    inputs = [padded_inputs(batch, padded_to) for batch in steps]

    def step(index: int) -> int:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = loaded(**inputs[index]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(loaded.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return steps[index].tokens.layout.batch

    return step


def padded_inputs(batch: RowBatch, padded_to: int | None) -> dict[str, torch.Tensor]:
    lengths = batch.tokens.layout.lengths
    width = padded_to or max(lengths)
    ids = torch.zeros(len(lengths), width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for row, values in enumerate(batch.tokens.input_ids.split(list(lengths))):
        ids[row, : len(values)] = values
        mask[row, : len(values)] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": batch.labels}


if __name__ == "__main__":
    main()
