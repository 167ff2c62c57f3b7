"""Random numbers as pure functions of what they are for.

Every draw comes from a counter-based generator (Philox) whose key names the seed and the purpose and whose
counter names the epoch and the item. So nothing depends on ranks, workers, micro-batches, or on where a run
was cut: the generator for (seed, purpose, epoch, index) is the same wherever and whenever it is made.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

_MASK64 = (1 << 64) - 1


@lru_cache(maxsize=256)
def _purpose_key(purpose: str) -> int:
    return int.from_bytes(hashlib.blake2b(purpose.encode(), digest_size=8).digest(), "little")


def generator(seed: int, purpose: str, epoch: int = 0, index: int = 0) -> np.random.Generator:
    """Return the generator of one item.

    Args:
        seed: the run's seed.
        purpose: what the numbers are for, such as ``"masking"``.
        epoch: the pass over the data.
        index: the item (example, document, step) within the epoch.

    Returns:
        A generator independent of those of every other (seed, purpose, epoch, index).
    """
    key = (seed & _MASK64) | (_purpose_key(purpose) << 64)
    counter = ((epoch & _MASK64) << 192) | ((index & _MASK64) << 128)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def seed_of(seed: int, purpose: str, epoch: int = 0, index: int = 0) -> int:
    """Return a 63-bit seed for libraries that take one number (``torch.manual_seed``)."""
    return int(generator(seed, purpose, epoch, index).integers(1 << 63))
