"""The settings of a pretraining run: whether they fit, and what must not change when it is resumed."""

from __future__ import annotations

import dataclasses
import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bertsmith.bundle import Bundle
from bertsmith.config import duration_seconds, to_dict
from bertsmith.data.shards import Instances
from bertsmith.errors import InputError
from bertsmith.files import alone_in
from bertsmith.model.config import BertConfig
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_loader import batch_warmup_of
from bertsmith.recipes.pretrain_phases import Phases
from bertsmith.recipes.pretrain_ranks import check_sharding
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training import checkpoint
from bertsmith.training.checkpoint import Checkpoint

logger = logging.getLogger(__name__)

_AT_LEAST = {
    "steps": 1,
    "batch_size": 1,
    "batch_warmup_start": 0,
    "micro_batch_size": 0,
    "long_batch_size": 0,
    "checkpoint_steps": 0,
    "checkpoint_seconds": 1,
    "keep_checkpoints": 1,
    "evaluate_steps": 0,
    "evaluate_examples": 0,
    "log_steps": 1,
}


def check(config: PretrainConfig) -> None:
    """Refuse settings that cannot be meant.

    Raises:
        InputError: naming the setting.
    """
    if config.steps is None and config.budget is None:
        raise InputError("give either --steps or --budget, not neither: for example --budget 30m")
    if config.steps is not None and config.budget is not None:
        raise InputError(
            f"give either --steps or --budget, not both: steps is {config.steps} (--steps None takes a "
            "preset's away)"
        )
    if config.budget is not None:
        duration_seconds(config.budget)
    for name, least in _AT_LEAST.items():
        value = getattr(config, name)
        if value is not None and value < least:
            raise InputError(f"--{name.replace('_', '-')} is {value}; it has to be at least {least}")
    batch_warmup_of(config)
    check_sharding(config)


def tokenizer_of(instances: Instances) -> Tokenizer:
    """Return the tokenizer that lies beside the instances.

    Raises:
        InputError: it is not the one that they were made with.
    """
    tokenizer = Tokenizer.load(instances.directory)
    if tokenizer.identity() != instances.manifest.get("vocabulary", {}).get("identity"):
        raise InputError(
            f"{instances.directory}: the vocabulary or its settings are not those that the data was prepared "
            "with; prepare the data again"
        )
    return tokenizer


def architecture_of(
    config: PretrainConfig, bundle: Bundle | None, tokenizer: Tokenizer, phases: Phases
) -> BertConfig:
    """Return the architecture, of the model to go on from if any, with vocabulary and dropout filled in.

    Raises:
        InputError: the data does not fit into it.
    """
    architecture = config.architecture if bundle is None else bundle.config
    vocab_size, seq_len = tokenizer.vocab_size, phases.seq_len
    if architecture.vocab_size == 0:
        architecture = dataclasses.replace(architecture, vocab_size=vocab_size)
    if architecture.vocab_size < vocab_size:
        raise InputError(
            f"architecture.vocab_size is {architecture.vocab_size}, but the vocabulary of {config.data} has "
            f"{vocab_size} entries; leave it at 0"
        )
    if architecture.max_positions < seq_len:
        raise InputError(
            f"architecture.max_positions is {architecture.max_positions}, but the data was prepared with "
            f"--seq-len {seq_len}; raise the one or prepare again with the other"
        )
    pairing = phases.first.manifest["settings"].get("pairing")
    if architecture.family == "roberta" and pairing in ("nsp", "sop"):
        raise InputError(
            f"{config.data} was prepared with --pairing {pairing}, but a RoBERTa has no second task to learn "
            "from pairs; prepare it with --pairing full-sentences, or take a bert preset"
        )
    if not config.next_sentence and pairing not in ("nsp", "sop"):
        raise InputError(
            f"--no-next-sentence would be ignored: {config.data} was prepared with --pairing {pairing}, "
            "which makes no pairs to learn from; leave it out"
        )
    if bundle is None and architecture.family == "roberta" and tokenizer.algorithm != "bpe":
        logger.warning(
            "%s has a WordPiece vocabulary; RoBERTa's is byte-level BPE (vocab --algorithm bpe)", config.data
        )
    if config.dropout is not None:
        architecture = dataclasses.replace(
            architecture, hidden_dropout=config.dropout, attention_dropout=config.dropout
        )
    return architecture


def fixed_settings(
    config: PretrainConfig,
    architecture: BertConfig,
    precision: str,
    phases: Phases,
    tokenizer: Tokenizer,
) -> dict[str, Any]:
    """Return the settings that make a run what it is: a resumed run must have the same.

    The data counts by its content, not by its path. The number of steps and the budget count, for the
    schedule follows from them. Ranks and micro-batches do not: examples and masks are the same.
    """
    return {
        "data": phases.first.identity(),
        "vocabulary": tokenizer.identity(),
        "init": config.init,
        "steps": config.steps,
        "budget": config.budget,
        "batch_size": config.batch_size,
        "batch_warmup_fraction": config.batch_warmup_fraction,
        "batch_warmup_start": config.batch_warmup_start,
        "precision": precision,
        "compile": config.compile,
        "word_bias": config.word_bias,
        "next_sentence": config.next_sentence,
        "seed": config.seed,
        "architecture": to_dict(architecture),
        "optimizer": to_dict(config.optimizer),
        "masking": to_dict(config.masking),
        **phases.settings(),
    }


def open_run(config: PretrainConfig, settings: dict[str, Any], held: ExitStack) -> Checkpoint | None:
    """Make the run directory, or find the checkpoint from which to go on; no other process gets it meanwhile.

    Raises:
        InputError: the directory is in use and ``resume`` is not set; another process is at work in it; it is
            no run; its settings differ.
    """
    out = Path(config.out)
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {out} is a file; give a new directory")
    # A run that was killed while it wrote its first file left a temporary one: it can be started again.
    if out.exists() and any(not path.name.startswith(".config.yaml.") for path in out.iterdir()):
        if not config.resume:
            raise InputError(
                f"--out {out} is not empty; add --resume to go on with it, or choose another --out"
            )
        if not (out / "config.yaml").exists():
            raise InputError(
                f"--out {out} is not empty and no run: it has no config.yaml; choose another --out"
            )
    held.enter_context(alone_in(out))
    found = checkpoint.latest(out)
    if found is not None:
        defaults = to_dict(PretrainConfig(config.data, config.out))
        checkpoint.require_same_settings(found, settings, to_dict(config), defaults)
    return found
