"""Speed of fine-tuning steps on a processor: ours beside transformers, taking turns.

A step is forward, backward, clipping and AdamW, dropout 0.1; every side gets the same training rows in the
same random order, encoded beforehand. Peers: transformers' model with its fused AdamW as its example script
runs it by default (float32; padded to the limit for classes and spans, to the batch's longest for tags),
padded to the longest in float32, and that under bfloat16 autocast. bfloat16, ours too, only where the
processor computes in it.

Source: transformers' run_glue.py, run_qa.py and run_ner.py, their defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertsmith.bench.turns import OURS, Contender, interleave, peer_is_installed, plain_step, report
from bertsmith.bundle import load_bundle
from bertsmith.data.batch import IGNORED
from bertsmith.device import computes_bfloat16, dtype_name, pick_precision
from bertsmith.errors import InputError
from bertsmith.layout import Tokens
from bertsmith.tasks.encode import TrainingRows
from bertsmith.tasks.kind import Encoding, Kind, Labels, Split
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import find_task
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import LoopSettings, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget

RATE = 2e-5
REPEATS = 40
CPU = torch.device("cpu")


def _of_rows(batch: Any) -> dict[str, Tensor]:
    return {"labels": batch.labels}


def _of_spans(batch: Any) -> dict[str, Tensor]:
    return {"start_positions": batch.labels[:, 0], "end_positions": batch.labels[:, 1]}


def _of_words(batch: Any) -> dict[str, Tensor]:
    labels = torch.full_like(batch.tokens.input_ids, IGNORED)
    labels[batch.picks] = batch.labels
    return {"labels": _padded(labels, batch.tokens, None, IGNORED)}


@dataclass(frozen=True)
class Comparison:
    """How one task is compared.

    Attributes:
        architecture: transformers' class.
        targets: from our batch to what that class takes beside the inputs.
        batch_size: units a step, on every side.
        seq_len: pieces of the longest input.
        is_padded: the example script pads every input to ``seq_len``.
        unit: what ``count`` counts.
        count: of a batch.
        settings: of our task, so that both sides read the same inputs.
    """

    architecture: str
    targets: Callable[[Any], dict[str, Tensor]]
    batch_size: int
    seq_len: int
    is_padded: bool
    unit: str
    count: Callable[[Any], int]
    settings: Mapping[str, Any] = field(default_factory=dict)


COMPARISONS: Mapping[str, Comparison] = {
    "sst2": Comparison(
        "BertForSequenceClassification",
        *(_of_rows, 32, 128, True, "rows/s"),
        count=lambda batch: len(batch.labels),
    ),
    "squad1": Comparison(
        "BertForQuestionAnswering",
        *(_of_spans, 8, 384, True, "windows/s"),
        count=lambda batch: len(batch.labels),
    ),
    "conll": Comparison(
        "BertForTokenClassification",
        *(_of_words, 8, 128, False, "words/s"),
        count=lambda batch: len(batch.labels),
        settings={"context": "sentence"},
    ),
}


def compare(task: str, model: str, data: str, repeats: int) -> dict[str, Any]:
    """Measure fine-tuning.

    Args:
        task: a name of ``COMPARISONS``.
        model: a model directory.
        data: the directory of the task's files, or its training file.
        repeats: counted steps of each side; 0: forty.

    Returns:
        The result object of ``report``.

    Raises:
        InputError: there are no training rows, or no model.
    """
    repeats = repeats or REPEATS
    comparison = COMPARISONS[task]
    kind, labels, split = _training_split(task, model, data)
    batches = TrainingRows(split.num_units, split.batch, comparison.batch_size, seed=0)
    steps: list[Any] = [batches.batch(step)[0] for step in range(repeats + 2)]
    counts = [comparison.count(batch) for batch in steps]
    ours = _ours(kind, labels, split, model, steps)
    contenders = {OURS: Contender(lambda index: (next(ours), counts[index])[1], keeps_memory=True)}
    if peer_is_installed("transformers"):
        longest = comparison.seq_len if comparison.is_padded else None
        ways: dict[str, tuple[torch.dtype, int | None]] = {"float32, dynamic padding": (torch.float32, None)}
        if longest is not None:
            ways = {f"float32, padded to {longest}": (torch.float32, longest)} | ways
        if computes_bfloat16(CPU):
            ways["bfloat16, dynamic padding"] = (torch.bfloat16, None)
        for name, (dtype, width) in ways.items():
            inputs = [_padded_inputs(batch.tokens, width) | comparison.targets(batch) for batch in steps]
            step = _peer(model, comparison.architecture, kind.num_outputs(labels), dtype, (inputs, counts))
            contenders[f"transformers {name}"] = Contender(step)
    speeds = interleave(contenders, repeats)
    mean_tokens = float(np.mean([length for batch in steps for length in batch.tokens.layout.lengths]))
    title = f"fine-tuning on {task}, batch {comparison.batch_size}"
    precision = dtype_name(pick_precision("auto", CPU))
    return report(title, speeds, comparison.unit, precision=precision, mean_tokens=round(mean_tokens, 1))


def _training_split(name: str, model: str, data: str) -> tuple[Kind, Labels, Split]:
    task, comparison = find_task(name), COMPARISONS[name]
    rows = task.read(DataSource(data), "train")
    if rows is None:
        raise InputError(f"{data}: no training file of {name}; give its directory")
    labels = task.kind.labels(task, rows)
    settings = {**task.kind.settings, **comparison.settings}
    encoding = Encoding(load_bundle(model).tokenizer, comparison.seq_len, "tail", settings)
    return task.kind, labels, task.kind.encode(task, rows, labels, encoding)


def _ours(kind: Kind, labels: Labels, split: Split, model: str, steps: list[Any]) -> Any:
    """Return the steps of the product's own loop, objective and optimiser."""
    torch.manual_seed(0)
    loaded = kind.load_model(load_bundle(model), kind.num_outputs(labels))
    return train(
        loaded,
        build_optimizer(loaded, OptimizerConfig(learning_rate=RATE)),
        kind.objective(split),
        lambda step: [steps[step]],
        LoopSettings(0, CPU, pick_precision("auto", CPU)),
        Budget(steps=len(steps)),
    )


def _peer(
    model: str,
    architecture: str,
    num_labels: int,
    dtype: torch.dtype,
    work: tuple[list[dict[str, Tensor]], list[int]],
) -> Callable[[int], int]:
    """Return the steps of a plain loop around transformers' model."""
    import transformers

    torch.manual_seed(0)
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    loaded = getattr(transformers, architecture).from_pretrained(model, num_labels=num_labels).train()
    optimizer = torch.optim.AdamW(loaded.parameters(), lr=RATE, weight_decay=0.01, fused=True)
    return plain_step(loaded, optimizer, dtype, *work)


def _padded_inputs(tokens: Tokens, width: int | None) -> dict[str, Tensor]:
    return {
        "input_ids": _padded(tokens.input_ids, tokens, width),
        "token_type_ids": _padded(tokens.segment_ids, tokens, width),
        "attention_mask": _padded(torch.ones_like(tokens.input_ids), tokens, width),
    }


def _padded(values: Tensor, tokens: Tokens, width: int | None, filler: int = 0) -> Tensor:
    """Return values of the token axis as rows of ``width``, or of the longest; int64 ``(batch, width)``."""
    lengths = tokens.layout.lengths
    rows = torch.full((len(lengths), width or max(lengths)), filler, dtype=torch.int64)
    for row, part in enumerate(torch.split(values, list(lengths))):
        rows[row, : len(part)] = part
    return rows
