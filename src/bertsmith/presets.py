"""Whole configurations of pretraining by name.

The shapes are the published ones. The rates differ with what a preset is for: bert-tiny to bert-medium are
for minutes to hours on one machine, where the paper's 1e-4 and 10,000 steps of warm-up would end on the
plateau of word frequencies; their rates fall with the width. bert-base and bert-large follow the paper: batch
256, rate 1e-4, warm-up 10,000 of 1,000,000 steps, the original's Adam; they are cut into micro-batches so
that they fit into memory.
"""

from __future__ import annotations

from collections.abc import Callable

from bertsmith.model.config import BertConfig
from bertsmith.recipes.config import PretrainConfig
from bertsmith.training.config import OptimizerConfig


def bert_tiny(data: str, out: str) -> PretrainConfig:
    """Return 2 layers of width 128, 4.4 M parameters."""
    return PretrainConfig(
        data=data,
        out=out,
        preset="bert-tiny",
        architecture=_shape(num_layers=2, hidden_size=128),
        optimizer=OptimizerConfig(learning_rate=2e-3),
    )


def bert_mini(data: str, out: str) -> PretrainConfig:
    """Return 4 layers of width 256, 11.2 M parameters."""
    return PretrainConfig(
        data=data,
        out=out,
        preset="bert-mini",
        architecture=_shape(num_layers=4, hidden_size=256),
        optimizer=OptimizerConfig(learning_rate=1e-3),
    )


def bert_small(data: str, out: str) -> PretrainConfig:
    """Return 4 layers of width 512, 28.8 M parameters."""
    return PretrainConfig(
        data=data,
        out=out,
        preset="bert-small",
        architecture=_shape(num_layers=4, hidden_size=512),
        optimizer=OptimizerConfig(learning_rate=7e-4),
    )


def bert_medium(data: str, out: str) -> PretrainConfig:
    """Return 8 layers of width 512, 41.4 M parameters."""
    return PretrainConfig(
        data=data,
        out=out,
        preset="bert-medium",
        architecture=_shape(num_layers=8, hidden_size=512),
        optimizer=OptimizerConfig(learning_rate=5e-4),
    )


def bert_base(data: str, out: str) -> PretrainConfig:
    """Return 12 layers of width 768, 110 M parameters, with the paper's rates."""
    return PretrainConfig(
        data=data,
        out=out,
        preset="bert-base",
        batch_size=256,
        micro_batch_size=32,
        architecture=_shape(num_layers=12, hidden_size=768),
        optimizer=_paper_optimizer(),
    )


def bert_large(data: str, out: str) -> PretrainConfig:
    """Return 24 layers of width 1024, 340 M parameters, with the paper's rates."""
    return PretrainConfig(
        data=data,
        out=out,
        preset="bert-large",
        batch_size=256,
        micro_batch_size=16,
        architecture=_shape(num_layers=24, hidden_size=1024),
        optimizer=_paper_optimizer(),
    )


def _shape(num_layers: int, hidden_size: int) -> BertConfig:
    """Return the published shape: heads of 64, a feed-forward layer four times as wide."""
    return BertConfig(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
    )


def _paper_optimizer() -> OptimizerConfig:
    return OptimizerConfig(name="bert-adam", learning_rate=1e-4, warmup_fraction=0.01)


PRESETS: dict[str, Callable[[str, str], PretrainConfig]] = {
    "bert-tiny": bert_tiny,
    "bert-mini": bert_mini,
    "bert-small": bert_small,
    "bert-medium": bert_medium,
    "bert-base": bert_base,
    "bert-large": bert_large,
}
