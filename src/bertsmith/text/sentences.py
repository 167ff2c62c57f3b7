"""Splitting paragraphs into sentences."""

from __future__ import annotations

import sentencex

from bertsmith.errors import InputError
from bertsmith.text.config import CorpusConfig


def split_sentences(paragraph: str) -> list[str]:
    """Split a paragraph of English or Chinese into sentences."""
    return [part for sentence in sentencex.segment("en", paragraph) if (part := sentence.strip())]


def document_sentences(lines: list[str], config: CorpusConfig) -> list[str]:
    """Return the sentences of a document.

    Args:
        lines: the document's lines.
        config: ``sentences`` says whether lines are split or are sentences already.
    """
    if config.sentences == "line":
        return list(lines)
    if config.sentences != "split":
        raise InputError(f"sentences is {config.sentences!r}; it has to be split or line")
    return [sentence for line in lines for sentence in split_sentences(line)]
