"""Speed of pretraining steps: ours beside transformers, taking turns.

A step is forward, backward, clipping and AdamW, dropout 0.1, on the same instances (the peers get them
padded, made beforehand; ours are fetched from the loader within the step). Tokens are counted without
padding. Peers: transformers' ``BertForPreTraining`` with its fused AdamW in float32 (its default) and, where
the processor computes in bfloat16, under its autocast; ours is in bfloat16 there, else in float32.
``fraction_of_product_rate`` is the arithmetic that a step needs, over its time and the rate of a bare matrix
product of the model's shape.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from bertsmith.bench.synthetic import Batches, operations, random_batches
from bertsmith.bench.turns import (
    OURS,
    Contender,
    interleave,
    peer_is_installed,
    plain_step,
    product_rate,
    report,
)
from bertsmith.data.batch import IGNORED, PretrainingBatch
from bertsmith.data.config import MaskingConfig
from bertsmith.data.loader import PretrainingLoader
from bertsmith.data.shards import Instances
from bertsmith.device import computes_bfloat16, dtype_name, pick_precision
from bertsmith.interop.huggingface import config_to_huggingface
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.objectives import PretrainingObjective
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import LoopSettings, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget

VOCAB_SIZE = 30_522
SEQ_LEN = 128
PAD_ID = 0
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    """A model with its batch, and how often a step is repeated."""

    num_layers: int
    hidden_size: int
    num_heads: int
    batch_size: int
    repeats: int

    def config(self, vocab_size: int) -> BertConfig:
        """Return the architecture."""
        return BertConfig(vocab_size, self.hidden_size, self.num_layers, self.num_heads, 4 * self.hidden_size)


SHAPES = {"mini": Shape(4, 256, 4, 32, 9), "base": Shape(12, 768, 12, 8, 5)}


def compare(name: str, data: str | None, repeats: int) -> dict[str, Any]:
    """Measure one shape on a processor.

    Args:
        name: a key of ``SHAPES``.
        data: a directory written by prepare; ``None``: random instances.
        repeats: counted steps of each side; 0: the shape's own.

    Returns:
        The result object of ``report``.
    """
    shape = SHAPES[name]
    repeats = repeats or shape.repeats
    vocab_size, batches = _stored(data, shape) if data else (VOCAB_SIZE, _random(shape))
    config = shape.config(vocab_size)
    steps = [batches(step)[0] for step in range(repeats + 2)]
    contenders = {OURS: Contender(_ours(config, batches, len(steps)), keeps_memory=True)}
    if peer_is_installed("transformers"):
        contenders["transformers float32"] = Contender(_peer(config, steps, torch.float32))
        if computes_bfloat16(CPU):
            contenders["transformers bfloat16 autocast"] = Contender(_peer(config, steps, torch.bfloat16))
    speeds = interleave(contenders, repeats)
    tokens = float(np.mean([batch.tokens.layout.num_tokens for batch in steps]))
    needed = float(np.mean([operations(config, batch) for batch in steps])) / tokens * speeds[OURS] / 1e9
    precision = pick_precision("auto", CPU)
    rate = product_rate(int(tokens), config.hidden_size, config.intermediate_size, precision)
    return report(
        f"pretraining bert-{name}, {shape.batch_size} x {SEQ_LEN}",
        speeds,
        "tokens/s",
        precision=dtype_name(precision),
        gflops=round(needed),
        product_gflops=round(rate),
        fraction_of_product_rate=round(needed / rate, 2),
    )


def _stored(data: str, shape: Shape) -> tuple[int, Batches]:
    tokenizer = Tokenizer.load(data)
    instances = Instances.open(data, "train")
    loader = PretrainingLoader(instances, tokenizer, MaskingConfig(), 0, shape.batch_size)
    return tokenizer.vocab_size, loader.batch


def _random(shape: Shape) -> Batches:
    return random_batches(VOCAB_SIZE, shape.batch_size, SEQ_LEN, MaskingConfig())


def _ours(config: BertConfig, batches: Batches, num_steps: int) -> Callable[[int], int]:
    """The product's own loop, objective and optimiser."""
    torch.manual_seed(0)
    model = BertForPreTraining(config)
    steps = train(
        model,
        build_optimizer(model, OptimizerConfig()),
        PretrainingObjective(),
        batches,
        LoopSettings(0, CPU, pick_precision("auto", CPU)),
        Budget(steps=num_steps),
    )
    return lambda _: next(steps).tokens


def _peer(config: BertConfig, steps: list[PretrainingBatch], dtype: torch.dtype) -> Callable[[int], int]:
    """A plain loop around transformers' model, which scores all positions and skips the loss of most."""
    import transformers

    torch.manual_seed(0)
    values = config_to_huggingface(config, "BertForPreTraining", None, PAD_ID, None)
    del values["dtype"]
    model = transformers.BertForPreTraining(transformers.BertConfig(**values)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    inputs = [_padded_inputs(batch) for batch in steps]
    units = [batch.tokens.layout.num_tokens for batch in steps]
    return plain_step(model, optimizer, dtype, inputs, units)


def _padded_inputs(batch: PretrainingBatch) -> dict[str, torch.Tensor]:
    tokens = batch.tokens
    labels = torch.full_like(tokens.input_ids, IGNORED).scatter(0, batch.picks, batch.pick_labels)
    lengths = list(tokens.layout.lengths)

    def rectangle(values: torch.Tensor, filler: int) -> torch.Tensor:
        rows = list(torch.split(values, lengths))
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=filler)

    return {
        "input_ids": rectangle(tokens.input_ids, PAD_ID),
        "token_type_ids": rectangle(tokens.segment_ids, 0),
        "attention_mask": rectangle(torch.ones_like(tokens.input_ids), 0),
        "labels": rectangle(labels, IGNORED),
        "next_sentence_label": batch.nsp_labels,
    }
