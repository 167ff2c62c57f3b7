"""Whole configurations of pretraining by name.

The shapes are the published ones. The rates differ with what a preset is for: bert-tiny to bert-medium are
for minutes to hours on one machine, where the paper's 1e-4 and 10,000 steps of warm-up would end on the
plateau of word frequencies; their rates fall with the width. bert-base and bert-large follow the paper: batch
256, rate 1e-4, warm-up 10,000 of 1,000,000 steps, the original's Adam; they are cut into micro-batches so
that they fit into memory.

bert-exact is bert-base with every numeric detail of the original's code; docs/conformance.md tells by number
what is left, and how the other presets differ from it. It needs both phases: prepare twice, with
``--passes 10``, at lengths 128 and 512; see docs/pretraining.md.

The fast presets are for a wall-clock budget of minutes to hours: every deviation from the bert ones, and what
it gave, is in docs/recipes.md. Prepare for them with ``--pairing full-sentences``: ``--data`` at length 64,
``--long-data`` at 128.

The roberta presets have one segment, no next sentence prediction and larger batches: for data prepared with
``--pairing full-sentences`` and a byte-level BPE vocabulary. roberta-base and roberta-large follow that
paper's table 9: batch 8,192, 500,000 steps, no clipping.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from bertsmith.data.config import MaskingConfig
from bertsmith.model.config import BertConfig
from bertsmith.recipes.pretrain_config import PretrainConfig
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


def bert_exact(data: str, out: str) -> PretrainConfig:
    """Return bert-base as the original's code trains it: 1,000,000 steps, the last tenth of long instances.

    Source: google-research/bert at its head, eedf571: modeling.py, optimization.py, run_pretraining.py.
    """
    base = bert_base(data, out)
    return replace(
        base,
        preset="bert-exact",
        steps=1_000_000,
        long_batch_size=base.batch_size,
        precision="float32",
        architecture=replace(base.architecture, activation="gelu_tanh"),
        optimizer=replace(base.optimizer, schedule="bert-linear"),
        masking=MaskingConfig(dynamic=False, random_specials=True),
    )


def roberta_tiny(data: str, out: str) -> PretrainConfig:
    """Return the shape and rate of bert-tiny with RoBERTa's recipe."""
    return _small_roberta(bert_tiny(data, out), "roberta-tiny")


def roberta_mini(data: str, out: str) -> PretrainConfig:
    """Return the shape and rate of bert-mini with RoBERTa's recipe."""
    return _small_roberta(bert_mini(data, out), "roberta-mini")


def roberta_small(data: str, out: str) -> PretrainConfig:
    """Return the shape and rate of bert-small with RoBERTa's recipe."""
    return _small_roberta(bert_small(data, out), "roberta-small")


def roberta_medium(data: str, out: str) -> PretrainConfig:
    """Return the shape and rate of bert-medium with RoBERTa's recipe."""
    return _small_roberta(bert_medium(data, out), "roberta-medium")


def roberta_base(data: str, out: str) -> PretrainConfig:
    """Return the shape of bert-base with RoBERTa's recipe: warm-up 24,000 of 500,000 steps.

    Source: RoBERTa, arXiv 1907.11692, table 9.
    """
    return PretrainConfig(
        data=data,
        out=out,
        preset="roberta-base",
        batch_size=8192,
        micro_batch_size=16,
        architecture=_roberta_shape(num_layers=12, hidden_size=768),
        optimizer=_roberta_optimizer(6e-4, warmup_fraction=24_000 / 500_000, max_grad_norm=0.0),
    )


def roberta_large(data: str, out: str) -> PretrainConfig:
    """Return the shape of bert-large with RoBERTa's recipe: warm-up 30,000 of 500,000 steps.

    Source: RoBERTa, arXiv 1907.11692, table 9.
    """
    return PretrainConfig(
        data=data,
        out=out,
        preset="roberta-large",
        batch_size=8192,
        micro_batch_size=8,
        architecture=_roberta_shape(num_layers=24, hidden_size=1024),
        optimizer=_roberta_optimizer(4e-4, warmup_fraction=30_000 / 500_000, max_grad_norm=0.0),
    )


def fast_tiny(data: str, out: str) -> PretrainConfig:
    """Return the shape of bert-tiny with the fast recipe."""
    return _fast(bert_tiny(data, out), "fast-tiny")


def fast_mini(data: str, out: str) -> PretrainConfig:
    """Return the shape of bert-mini with the fast recipe."""
    return _fast(bert_mini(data, out), "fast-mini")


def fast_small(data: str, out: str) -> PretrainConfig:
    """Return the shape of bert-small with the fast recipe."""
    return _fast(bert_small(data, out), "fast-small")


def fast_medium(data: str, out: str) -> PretrainConfig:
    """Return the shape of bert-medium with the fast recipe."""
    return _fast(bert_medium(data, out), "fast-medium")


def _fast(bert: PretrainConfig, name: str) -> PretrainConfig:
    """Return a preset for a wall-clock budget. Muon's rate is twice bert's, AdamW's is bert's."""
    rate = bert.optimizer.learning_rate
    shape = replace(bert.architecture, norm="pre", initializer_std=0.05)
    return replace(
        bert,
        preset=name,
        dropout=0.0,
        word_bias="frequency",
        architecture=shape,
        optimizer=OptimizerConfig(name="muon", learning_rate=2 * rate, adam_rate=rate, beta2=0.98),
    )


def _small_roberta(bert: PretrainConfig, name: str) -> PretrainConfig:
    """Return a preset for one machine: four times the batch, in as large pieces as before."""
    shape = bert.architecture
    return replace(
        bert,
        preset=name,
        batch_size=4 * bert.batch_size,
        micro_batch_size=bert.batch_size,
        architecture=_roberta_shape(shape.num_layers, shape.hidden_size),
        optimizer=_roberta_optimizer(bert.optimizer.learning_rate),
    )


def _shape(num_layers: int, hidden_size: int) -> BertConfig:
    """Return the published shape: heads of 64, a feed-forward layer four times as wide."""
    return BertConfig(
        hidden_size=hidden_size,
        num_layers=num_layers,
        num_heads=hidden_size // 64,
        intermediate_size=4 * hidden_size,
    )


def _roberta_shape(num_layers: int, hidden_size: int) -> BertConfig:
    """Return the same with one segment. Source: fairseq, models/roberta/model.py (LayerNorm's eps: 1e-5)."""
    shape = _shape(num_layers, hidden_size)
    return replace(shape, num_segments=1, layer_norm_eps=1e-5, family="roberta")


def _roberta_optimizer(
    learning_rate: float, warmup_fraction: float = 0.1, max_grad_norm: float = 1.0
) -> OptimizerConfig:
    """Return Adam with bias correction; its second moments have a shorter memory, for large batches."""
    return OptimizerConfig(
        learning_rate=learning_rate,
        beta2=0.98,
        eps=1e-6,
        weight_decay=0.01,
        max_grad_norm=max_grad_norm,
        warmup_fraction=warmup_fraction,
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
    "bert-exact": bert_exact,
    "fast-tiny": fast_tiny,
    "fast-mini": fast_mini,
    "fast-small": fast_small,
    "fast-medium": fast_medium,
    "roberta-tiny": roberta_tiny,
    "roberta-mini": roberta_mini,
    "roberta-small": roberta_small,
    "roberta-medium": roberta_medium,
    "roberta-base": roberta_base,
    "roberta-large": roberta_large,
    "roberta": roberta_base,
}
