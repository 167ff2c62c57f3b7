"""What a tokenizer asks its kind of vocabulary; ``wordpiece`` and ``bpe`` answer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import tokenizers

from bertsmith.text.config import SpecialTokens


class Scheme(Protocol):
    """What each kind of vocabulary does its own way.

    Attributes:
        algorithm: its name.
        specials: its special tokens.
        masks: what stands for a mask in a text to fill.
        separators_between: how many separators stand between the texts of a pair.
    """

    algorithm: str
    specials: SpecialTokens
    masks: tuple[str, ...]
    separators_between: int

    def engine(self, ids: dict[str, int]) -> tokenizers.Tokenizer:
        """Return what encodes; it knows no special tokens in text."""
        ...

    def exported(self, ids: dict[str, int]) -> tokenizers.Tokenizer:
        """Return an engine for other programs, which knows and adds special tokens."""
        ...

    def continues(self, piece: str) -> bool:
        """Say whether a piece goes on with a word."""
        ...

    def shown(self, piece: str) -> str:
        """Return a piece as people read it."""
        ...

    def attached(self, text: str, piece: str) -> str:
        """Return a text with a piece at its end."""
        ...

    def joined(self, pieces: Sequence[str]) -> str:
        """Return the text of pieces."""
        ...

    def before_mask(self, text: str) -> str:
        """Return the text before a mask as it is encoded."""
        ...

    def in_document(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return a document's sentences as they are encoded one by one."""
        ...

    def write(self, directory: Path, vocab: Sequence[str], name: str | None) -> None:
        """Write the vocabulary's own files; ``None``: under their usual names."""
        ...

    def settings(self) -> dict[str, Any]:
        """Return what tokenizer_config.json says besides the special tokens."""
        ...
