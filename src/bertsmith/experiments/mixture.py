"""What stood in the place of the pieces that a run predicted, counted on batches that it read."""

from __future__ import annotations

import numpy as np

from bertsmith.data.loader import PretrainingLoader
from bertsmith.data.shards import Instances
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_loader import targets_of
from bertsmith.text.tokenizer import Tokenizer

_STEPS = 40


def measured_mixture(config: PretrainConfig) -> dict[str, float]:
    """Return the shares of [MASK], of the same piece and of others among the predicted pieces.

    Of the run's first batches, made as the run makes them. A random piece that happens to be the right one
    counts as the same. A left-to-right run predicts what stands behind each place and masks none: it has no
    mixture.
    """
    targets = targets_of(config, config.architecture)
    if targets.pieces != "masked":
        return {}
    instances, tokenizer = Instances.open(config.data, "train"), Tokenizer.load(config.data)
    loader = PretrainingLoader(
        instances,
        tokenizer,
        config.masking,
        config.seed,
        config.batch_size,
        targets=targets,
    )
    masked = same = pieces = 0
    for step in range(min(_STEPS, loader.steps_per_epoch)):
        for batch in loader.batch(step):
            found = batch.tokens.input_ids[batch.picks].numpy()
            masked += int(np.count_nonzero(found == tokenizer.mask_id))
            same += int(np.count_nonzero(found == batch.pick_labels.numpy()))
            pieces += len(found)
    shares = {"mask": masked, "same": same, "random": pieces - masked - same}
    return {name: count / pieces for name, count in shares.items()} | {"pieces": float(pieces)}
