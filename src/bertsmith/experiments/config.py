"""The settings of ablate. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass, field

import tyro


@dataclass(frozen=True)
class AblateConfig:
    """Run an experiment of the paper at your own scale: models that differ in one thing, and what it gives.

    The same command goes on where it was stopped; finished runs are kept, and experiments that share --out
    share their runs.

    Attributes:
        experiment: masking (table 8), objective (table 5), size (table 6), steps (figure 5), features
            (table 7) or recipe (from BERT to RoBERTa, one change at a time).
        data: a directory written by prepare with --pairing nsp.
        out: the directory of the study: runs, and a directory with table and report for each experiment.
        task_data: the directory of the tasks' data, under their published names (SST-2, MRPC, conll2003,
            squad and so on, or in a folder glue).
        preset: of the pretraining.
        steps: optimiser steps of each pretraining; give this or budget.
        budget: wall-clock time of each pretraining, such as 10m.
        seeds: runs of each row, with seeds seed, seed + 1, ...
        seed: the first seed.
        tasks: what models are judged by after fine-tuning, such as sst2 mrpc conll conll-features squad1;
            default: what the paper's table has. "none": held-out losses alone.
        rows: only these rows of the table; default: all.
        mixtures: masking: other rows, as mask/same/random in percent, such as 90/5/5.
        corpus: objective, recipe: the text that data was made of, for rows with other pairs; without it they
            are left out.
        model: features: a pretrained model directory, instead of pretraining one.
        pretraining: further settings of pretrain for all rows, such as batch-size=64
            optimizer.learning-rate=1e-3.
        finetuning: further settings of finetune for all rows, such as epochs=3 limit-rows=5000; of one task:
            squad1:limit-rows=2000.
        processes: ranks of each pretraining on this machine.
    """

    experiment: tyro.conf.Positional[str]
    out: str
    data: str = ""
    task_data: str | None = None
    preset: str = "bert-tiny"
    steps: int | None = None
    budget: str | None = None
    seeds: int = 3
    seed: int = 0
    tasks: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    mixtures: list[str] = field(default_factory=list)
    corpus: list[str] = field(default_factory=list)
    model: str | None = None
    pretraining: list[str] = field(default_factory=list)
    finetuning: list[str] = field(default_factory=list)
    processes: int = 1
