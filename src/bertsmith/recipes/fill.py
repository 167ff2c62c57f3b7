"""Fill the [MASK]s of a text with the most probable pieces."""

from __future__ import annotations

import dataclasses
from typing import Any

from bertsmith import predictor
from bertsmith.device import limit_threads
from bertsmith.recipes.config import FillConfig


def fill(config: FillConfig) -> dict[str, Any]:
    """Fill a text.

    Returns:
        ``text`` with the best piece in each [MASK], ``masks``: for each [MASK] its candidates with
        probabilities, best first, and ``truncated``.

    Raises:
        InputError: the text has no [MASK], or the model has no masked language model head.
    """
    limit_threads()
    return dataclasses.asdict(predictor.load(config.model).fill([config.text], config.top)[0])
