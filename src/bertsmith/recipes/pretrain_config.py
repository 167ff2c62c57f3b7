"""The settings of pretrain. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass, field

from bertsmith.data.config import MaskingConfig
from bertsmith.model.config import BertConfig
from bertsmith.training.config import OptimizerConfig


@dataclass(frozen=True)
class PretrainConfig:
    """Pretrain a BERT on prepared data.

    Attributes:
        data: a directory written by prepare.
        out: the run directory to write.
        preset: architecture and rates to start from: bert-SIZE, fast-SIZE (for a budget of minutes
            to hours; tiny to medium) or roberta-SIZE (no next sentence prediction:
            prepare with --pairing full-sentences); SIZE is tiny, mini, small, medium, base or large;
            bert-exact: base with every detail of the original's code (needs --long-data).
        init: a model directory to go on from (continued pretraining): its weights, architecture and
            vocabulary count, not those of the preset. Heads that it lacks are drawn at random.
        steps: optimiser steps; give this or budget.
        budget: wall-clock time of the training, such as 30m or 2h; the schedule follows the clock.
        long_data: longer instances of the same vocabulary and pairing, for the end of the run (the original:
            length 128, then 512).
        long_fraction: of the run that is trained on long_data.
        long_batch_size: instances of long_data an optimiser step; 0: as many as hold the tokens of
            batch_size short ones (the original keeps the number of instances).
        batch_size: instances an optimiser step, on all ranks together.
        batch_warmup_fraction: share of the steps in which the batch grows to batch_size; needs steps.
        batch_warmup_start: instances of the first step of a growing batch; 0: an eighth of batch_size.
        micro_batch_size: instances a forward pass of a rank; 0: all of its share. Fewer need less memory,
            same result.
        sharding: "none" (every rank has all weights) or "fsdp" (each keeps its part of the weights and of the
            optimiser's state, for models that do not fit).
        precision: "auto" (bfloat16 where the processor computes in it), "float32" or "bfloat16".
        compile: compile the layers; the first steps take longer. Without a compiler it warns and goes on.
        checkpoint_activations: compute activations again in the backward pass: less memory, more time.
        dropout: overrides both dropouts of the architecture.
        word_bias: start of the word scores' bias: "zero", or "frequency": the logarithm of each piece's share
            of the data, so that the plateau of word frequencies need not be learnt.
        next_sentence: predict whether pairs belong together; without, only pieces are predicted.
        seed: of weights, order, masks and dropout.
        resume: go on from the newest checkpoint of out.
        checkpoint_steps: steps between checkpoints; 0: by time, every checkpoint_seconds.
        checkpoint_seconds: seconds between checkpoints when checkpoint_steps is 0.
        keep_checkpoints: newest checkpoints to keep.
        evaluate_steps: steps between held-out evaluations; 0: about ten in a run.
        evaluate_examples: held-out instances to evaluate, with fixed masks (of long_data: as many tokens).
        probes: tasks such as sst2 cola, on which a linear model of the frozen encoder is scored meanwhile.
        probe_data: the directory of these tasks (for one task of own data: its file).
        probe_steps: steps between probes; 0: about ten in a run.
        log_steps: steps between log lines.
        on_divergence: a loss that is NaN or infinite ends the run ("stop"), or the run goes back to its last
            good checkpoint ("rollback"), then also after a jump of the loss or of the gradients that lasts.
        max_rollbacks: how often it may go back.
        rollback_rate_factor: each rollback multiplies the learning rate by it; 1: the rate stays.
        rollback_skips_batches: go on with the batches after the divergence instead of the same again.
        architecture: the shape of the encoder.
        optimizer: optimiser and schedule.
        masking: the masked language model's masks.
    """

    data: str
    out: str
    preset: str = "bert-mini"
    init: str | None = None
    steps: int | None = None
    budget: str | None = None
    long_data: str | None = None
    long_fraction: float = 0.1
    long_batch_size: int = 0
    batch_size: int = 32
    batch_warmup_fraction: float = 0.0
    batch_warmup_start: int = 0
    micro_batch_size: int = 0
    sharding: str = "none"
    precision: str = "auto"
    compile: bool = False
    checkpoint_activations: bool = False
    dropout: float | None = None
    word_bias: str = "zero"
    next_sentence: bool = True
    seed: int = 0
    resume: bool = False
    checkpoint_steps: int = 0
    checkpoint_seconds: int = 300
    keep_checkpoints: int = 2
    evaluate_steps: int = 0
    evaluate_examples: int = 1000
    probes: list[str] = field(default_factory=list)
    probe_data: str | None = None
    probe_steps: int = 0
    log_steps: int = 10
    on_divergence: str = "stop"
    max_rollbacks: int = 3
    rollback_rate_factor: float = 0.5
    rollback_skips_batches: bool = True
    architecture: BertConfig = field(default_factory=BertConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    masking: MaskingConfig = field(default_factory=MaskingConfig)
