"""Settings of tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from bertsmith.errors import InputError


@dataclass(frozen=True)
class SpanConfig:
    """How passages are cut into windows and answers are chosen.

    Attributes:
        window_step: pieces from the start of a window over a passage to that of the next, as the original's
            doc_stride; ``None``: 128, unless window_overlap is given.
        window_overlap: pieces that neighbouring windows share, as the stride of tokenizers.
        max_query_len: pieces of the longest question; longer ones are cut and counted.
        max_answer_len: pieces of the longest answer.
        n_best: answers to a question that are weighed against each other and reported.

    Source: run_squad.py, the flags of the same meaning and their defaults.
    """

    window_step: int | None = None
    window_overlap: int | None = None
    max_query_len: int = 64
    max_answer_len: int = 30
    n_best: int = 20

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SpanConfig:
        """Return the settings that a model stores.

        Raises:
            InputError: one is unknown or no whole number.
        """
        known = {field.name for field in fields(cls)}
        for name, value in settings.items():
            if name not in known or not (value is None or type(value) is int):
                names = ", ".join(sorted(known))
                raise InputError(f"task.json, settings: {name} is {value!r}; {names} are whole numbers")
        return cls(**settings)

    def step(self, space: int) -> int:
        """Return the pieces from one window's start to the next's, where a window has ``space`` pieces."""
        if self.window_overlap is not None:
            return space - self.window_overlap
        return 128 if self.window_step is None else self.window_step


@dataclass(frozen=True)
class EmbeddingConfig:
    """How vectors of texts are made, and how they are trained.

    Attributes:
        pooling: "mean", "max" or "cls".
        normalize: vectors are scaled to length 1 when they are used.
        temperature: by which cosines are divided before the softmax over the texts of a batch; ``None``:
            0.05.

    Source of the temperature: arXiv 2104.08821 (SimCSE), section 3; 1 / 0.05 is the scale of
        sentence-transformers' MultipleNegativesRankingLoss.
    """

    pooling: str = "mean"
    normalize: bool = True
    temperature: float | None = None

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> EmbeddingConfig:
        """Return the settings that were given or that a model stores; what is ``None`` takes its default.

        Raises:
            InputError: the temperature is no number above 0.
        """
        known = {field.name for field in fields(cls)}
        given = {name: value for name, value in settings.items() if name in known and value is not None}
        temperature = given.get("temperature", 0.05)
        if type(temperature) not in (int, float) or not 0.0 < temperature < math.inf:
            raise InputError(f"temperature is {temperature!r}; it has to be a number above 0, such as 0.05")
        return cls(**given)

    @property
    def divisor(self) -> float:
        """The temperature that counts."""
        return 0.05 if self.temperature is None else self.temperature
