"""Vocabularies for the tests of text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import BertTokenizer

from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

SHARED_VOCABULARIES = {
    "bert-base-uncased": True,
    "bert-base-cased": False,
    "bert-base-chinese": True,
    "bert-base-multilingual-cased": False,
}
"""Name -> whether text is lower-cased."""


@pytest.fixture
def small_tokenizer() -> Callable[..., Tokenizer]:
    """A maker of tokenizers from a few pieces: ``small_tokenizer("a b ##c", lowercase=False)``."""

    def make(pieces: str, **settings: object) -> Tokenizer:
        return Tokenizer([*SPECIAL_TOKENS, *pieces.split()], TokenizerConfig(**settings))  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def pairs(shared_vocabulary_file: Callable[[str], Path]) -> dict[str, tuple[Tokenizer, Any]]:
    """Name -> (our tokenizer, transformers' one) for the four shared vocabularies."""
    made = {}
    for name, lowercase in SHARED_VOCABULARIES.items():
        file = shared_vocabulary_file(name)
        ours = Tokenizer.load(file)
        theirs = BertTokenizer(
            vocab={token: place for place, token in enumerate(ours.vocab)}, do_lower_case=lowercase
        )
        assert ours.config.lowercase == lowercase, "the casing is read off the vocabulary"
        made[name] = (ours, theirs)
    return made
