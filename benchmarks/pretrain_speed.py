"""Speed of pretraining steps on a processor: ours beside transformers, taking turns.

    python benchmarks/pretrain_speed.py [--data DATA] [--shapes mini base] [--repeats N] [--json]

A step is forward, backward, clipping and AdamW, dropout 0.1, on the same instances (the peers get them
padded, made beforehand; ours are fetched from the loader within the step). Tokens are counted without
padding. Peers: transformers' ``BertForPreTraining`` with its fused AdamW in float32 (its default) and under
bfloat16 autocast. ``fraction_of_product_rate`` is the arithmetic that a step needs, over its time and the
rate of a bare matrix product of the model's shape.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import transformers

from bertsmith.data.batch import IGNORED, PretrainingBatch, tokens_of
from bertsmith.data.config import MaskingConfig
from bertsmith.data.loader import PretrainingLoader
from bertsmith.data.shards import Instances
from bertsmith.device import limit_threads
from bertsmith.interop.huggingface import config_to_huggingface
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.objectives import PretrainingObjective
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.loop import LoopSettings, train
from bertsmith.training.optimizer import build_optimizer
from bertsmith.training.schedule import Budget
from measure import OURS, Contender, interleave, note, product_rate, report, show, together

VOCAB_SIZE = 30_522
SEQ_LEN = 128
PAD_ID = 0
CPU = torch.device("cpu")
Batches = Callable[[int], list[PretrainingBatch]]


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", help="a directory written by prepare; default: random instances")
    parser.add_argument("--shapes", nargs="+", choices=list(SHAPES), default=list(SHAPES))
    parser.add_argument("--repeats", type=int, default=0, help="counted steps; 0: fit for four minutes")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    limit_threads()
    results = {}
    for name in arguments.shapes:
        note(f"bert-{name} ...")
        results[name] = compare(name, SHAPES[name], arguments.data, arguments.repeats)
        if not arguments.json:
            show(results[name])
    if arguments.json:
        print(json.dumps(together(results)))


def compare(name: str, shape: Shape, data: str | None, repeats: int) -> dict[str, object]:
    repeats = repeats or shape.repeats
    vocab_size, batches = stored_batches(data, shape) if data else (VOCAB_SIZE, random_batches(shape))
    config = shape.config(vocab_size)
    steps = [batches(step)[0] for step in range(repeats + 2)]
    contenders = {
        OURS: Contender(ours(config, batches, len(steps)), keeps_memory=True),
        "transformers float32": Contender(peer(config, steps, torch.float32)),
        "transformers bfloat16 autocast": Contender(peer(config, steps, torch.bfloat16)),
    }
    speeds = interleave(contenders, repeats)
    tokens = float(np.mean([batch.tokens.layout.num_tokens for batch in steps]))
    needed = float(np.mean([operations(config, batch) for batch in steps])) / tokens * speeds[OURS] / 1e9
    rate = product_rate(int(tokens), config.hidden_size, config.intermediate_size, torch.bfloat16)
    return report(
        f"pretraining bert-{name}, {shape.batch_size} x {SEQ_LEN}",
        speeds,
        "tokens/s",
        gflops=round(needed),
        product_gflops=round(rate),
        fraction_of_product_rate=round(needed / rate, 2),
    )


def stored_batches(data: str, shape: Shape) -> tuple[int, Batches]:
    tokenizer = Tokenizer.load(data)
    instances = Instances.open(data, "train")
    loader = PretrainingLoader(instances, tokenizer, MaskingConfig(), 0, shape.batch_size)
    return tokenizer.vocab_size, loader.batch


def random_batches(shape: Shape) -> Batches:
    """Instances as ``prepare`` makes them: nine in ten are full, 15 % of the pieces are predicted."""

    def batch(step: int) -> list[PretrainingBatch]:
        generator = np.random.default_rng(step)
        full = generator.random(shape.batch_size) < 0.9
        lengths = np.sort(np.where(full, SEQ_LEN, generator.integers(8, SEQ_LEN, shape.batch_size)))
        rows = [generator.integers(1000, VOCAB_SIZE, length) for length in lengths]
        tokens = tokens_of(rows, lengths // 2)
        picks = [
            start
            + np.sort(generator.choice(length - 2, min(20, max(1, round(0.15 * length))), replace=False))
            for start, length in zip(tokens.layout.starts, lengths, strict=True)
        ]
        places = torch.from_numpy(np.concatenate(picks) + 1)
        nsp_labels = torch.from_numpy(generator.integers(0, 2, shape.batch_size))
        return [PretrainingBatch(tokens, places, tokens.input_ids[places], nsp_labels, np.arange(len(rows)))]

    return batch


def ours(config: BertConfig, batches: Batches, num_steps: int) -> Callable[[int], int]:
    """The product's own loop, objective and optimiser."""
    torch.manual_seed(0)
    model = BertForPreTraining(config)
    steps = train(
        model,
        build_optimizer(model, OptimizerConfig()),
        PretrainingObjective(),
        batches,
        LoopSettings(0, CPU, torch.bfloat16),
        Budget(steps=num_steps),
    )
    return lambda _: next(steps).tokens


def peer(config: BertConfig, steps: list[PretrainingBatch], dtype: torch.dtype) -> Callable[[int], int]:
    """A plain loop around transformers' model, which scores all positions and skips the loss of most."""
    torch.manual_seed(0)
    values = config_to_huggingface(config, "BertForPreTraining", None, PAD_ID, None)
    del values["dtype"]
    model = transformers.BertForPreTraining(transformers.BertConfig(**values)).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    inputs = [padded_inputs(batch) for batch in steps]

    def step(index: int) -> int:
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
            loss = model(**inputs[index]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return steps[index].tokens.layout.num_tokens

    return step


def padded_inputs(batch: PretrainingBatch) -> dict[str, torch.Tensor]:
    tokens = batch.tokens
    labels = torch.full_like(tokens.input_ids, IGNORED).scatter(0, batch.picks, batch.pick_labels)
    lengths = list(tokens.layout.lengths)

    def rectangle(values: torch.Tensor, filler: int) -> torch.Tensor:
        rows = list(values.split(lengths))
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=filler)

    return {
        "input_ids": rectangle(tokens.input_ids, PAD_ID),
        "token_type_ids": rectangle(tokens.segment_ids, 0),
        "attention_mask": rectangle(torch.ones_like(tokens.input_ids), 0),
        "labels": rectangle(labels, IGNORED),
        "next_sentence_label": batch.nsp_labels,
    }


def operations(config: BertConfig, batch: PretrainingBatch) -> float:
    """Return the floating-point operations of a step's matrix products: forward, and twice that backward."""
    hidden, tokens, picks = config.hidden_size, batch.tokens.layout.num_tokens, len(batch.picks)
    read = picks + batch.tokens.layout.batch
    projections = 3 * hidden * hidden
    rest = hidden * hidden + 2 * hidden * config.intermediate_size
    scores = 2 * hidden * sum(length**2 for length in batch.tokens.layout.lengths)
    layers = config.num_layers * (tokens * projections + scores) + (config.num_layers - 1) * tokens * rest
    heads = read * rest + picks * hidden * (hidden + config.vocab_size)
    return 6.0 * (layers + heads)


if __name__ == "__main__":
    main()
