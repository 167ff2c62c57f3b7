"""The settings of the verbs that measure this machine: plan and bench. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import tyro

from bertsmith.data.config import MaskingConfig
from bertsmith.model.config import BertConfig
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.training.config import OptimizerConfig


@dataclass(frozen=True)
class PlanConfig:
    """Measure this machine for a minute; state time, memory, disk and cost of a pretraining run.

    Attributes:
        preset: architecture, rates and batch to start from; see pretrain.
        tokens: tokens to train on, such as 500M, 3.3B or 137B; give this or budget.
        budget: wall-clock time, such as 12h or 4d, for which to say how many tokens are reached.
        devices: plan for 1, 2, 4, ... devices up to that many, each like the one measured.
        device_hour_cost: price of one device for an hour, in any currency.
        seq_len: pieces of an instance.
        vocab_size: entries of the vocabulary.
        batch_size: instances an optimiser step.
        scaling_efficiency: share of its speed that each device keeps when there are several (assumed).
        measure_seconds: how long to measure.
        memory: plan for that much memory, such as 16G; default: what is free on this device.
        precision: "auto", "float32" or "bfloat16".
        compile: see pretrain.
        checkpoint_activations: see pretrain.
        architecture: the shape of the encoder.
        optimizer: optimiser and schedule.
        masking: the masked language model's masks.
    """

    preset: str = "bert-mini"
    tokens: str | None = None
    budget: str | None = None
    devices: int = 1
    device_hour_cost: float | None = None
    seq_len: int = 128
    vocab_size: int = 30522
    batch_size: int = 32
    scaling_efficiency: float = 0.9
    measure_seconds: float = 60.0
    memory: str | None = None
    precision: str = "auto"
    compile: bool = False
    checkpoint_activations: bool = False
    architecture: BertConfig = field(default_factory=BertConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)

    @classmethod
    def of_preset(cls, preset: PretrainConfig) -> PlanConfig:
        """Return the plan of a preset's run."""
        shape = preset.architecture
        if preset.dropout is not None:
            shape = replace(shape, hidden_dropout=preset.dropout, attention_dropout=preset.dropout)
        return cls(
            preset=preset.preset,
            batch_size=preset.batch_size,
            precision=preset.precision,
            compile=preset.compile,
            checkpoint_activations=preset.checkpoint_activations,
            architecture=shape,
            optimizer=preset.optimizer,
            masking=preset.masking,
        )


@dataclass(frozen=True)
class BenchConfig:
    """Measure this machine beside a peer (transformers, where it is installed): figures and ratios.

    Attributes:
        work: "pretrain", "finetune", "prepare" or "embed".
        corpus: prepare: .txt files, plain or .gz, or folders of them.
        vocab: prepare: a vocab.txt, or a directory that holds one.
        megabytes: prepare: text to take of each file; 0: all.
        data: pretrain: a directory written by prepare (default: random instances); finetune: the directory
            of the task's files, or its training file; embed: a file of texts.
        model: finetune, embed: a model directory.
        task: finetune: "sst2" (default), "squad1" or "conll".
        shapes: pretrain: "mini" (4 layers of 256) and "base" (12 layers of 768); default: both.
        repeats: counted steps of each side (embed: turns over all texts); 0: fit for some minutes.
    """

    work: tyro.conf.Positional[str]
    corpus: list[str] = field(default_factory=list)
    vocab: str | None = None
    megabytes: float = 0.0
    data: str | None = None
    model: str | None = None
    task: str | None = None
    shapes: list[str] = field(default_factory=list)
    repeats: int = 0
