"""What a pretraining run reads at each step, from its settings."""

from __future__ import annotations

import logging

from bertsmith.data.config import MaskingConfig, Targets
from bertsmith.data.cuts import BatchWarmup
from bertsmith.data.loader import PretrainingLoader
from bertsmith.data.shards import Instances
from bertsmith.errors import InputError
from bertsmith.model.config import BertConfig
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.text.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


def loader_of(
    config: PretrainConfig, instances: Instances, tokenizer: Tokenizer, targets: Targets
) -> PretrainingLoader:
    """Return the loader of a run."""
    if not config.masking.dynamic and instances.manifest["settings"].get("passes", 1) == 1:
        logger.warning(
            "masking.dynamic is false and %s holds one pass: all epochs have the same masks; the original "
            "prepares ten passes (--passes 10)",
            config.data,
        )
    warmup = batch_warmup_of(config)
    size = config.batch_size
    return PretrainingLoader(instances, tokenizer, config.masking, config.seed, size, warmup, targets)


def targets_of(config: PretrainConfig, architecture: BertConfig) -> Targets:
    """Return what a run predicts: masked pieces, unless no place of the model sees both sides at once.

    Raises:
        InputError: masks are set, which nothing would read.
    """
    unmasked = "next" if architecture.context == "left" else "neighbours"
    pieces = "masked" if architecture.sees_both else unmasked
    if pieces != "masked" and config.masking != MaskingConfig():
        raise InputError(
            "masking is set, but such an architecture (context left, or mixing lstm) predicts all pieces and "
            "masks none; leave masking out"
        )
    return Targets(pieces, config.next_sentence)


def batch_warmup_of(config: PretrainConfig) -> BatchWarmup | None:
    """Return how the batch grows, if it does.

    Raises:
        InputError: the settings do not fit one another.
    """
    fraction, start = config.batch_warmup_fraction, config.batch_warmup_start
    if not 0.0 <= fraction < 1.0:
        raise InputError(f"--batch-warmup-fraction is {fraction}; it has to be at least 0 and below 1")
    if fraction == 0.0:
        if start:
            raise InputError(f"--batch-warmup-start is {start} without a use: give --batch-warmup-fraction")
        return None
    if config.steps is None:
        raise InputError(
            "--batch-warmup-fraction needs --steps: with --budget nobody knows which step is how far"
        )
    if config.long_data is not None and fraction > 1.0 - config.long_fraction:
        raise InputError(
            f"--batch-warmup-fraction is {fraction}; but the first phase is {1 - config.long_fraction:g} of "
            "the run: the batch would never have its size; give less"
        )
    start = start or max(1, config.batch_size // 8)
    if start >= config.batch_size:
        raise InputError(
            f"--batch-warmup-start is {start}; it has to be below --batch-size {config.batch_size}"
        )
    return BatchWarmup(start, max(1, round(fraction * config.steps)))
