"""Settings of tasks."""

from __future__ import annotations

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
