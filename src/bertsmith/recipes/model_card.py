"""Model cards: Markdown that people read and whose head the Hugging Face hub reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

NOT_KNOWN = (
    "Nothing was examined beyond these figures: not other kinds of text or other languages, not fairness "
    "between groups of people, not texts made to deceive the model. People should check answers that matter."
)
LICENSE = (
    "The license is not stated: that of the data, and of the model that training began with, decide. Add it "
    "here before the model is passed on."
)


def card(title: str, metadata: Mapping[str, Any], parts: Sequence[str]) -> str:
    """Return a model card.

    Args:
        title: its heading.
        metadata: what the hub reads, such as tags and results.
        parts: paragraphs, lists, tables and headings, in Markdown.
    """
    head = yaml.safe_dump(dict(metadata), sort_keys=False, allow_unicode=True)
    return f"---\n{head}---\n\n# {cell(title)}\n\n" + "\n\n".join(parts) + "\n"


def table(headings: Sequence[str], lines: Sequence[Sequence[Any]]) -> str:
    """Return a Markdown table whose first column is text and whose others are numbers."""
    rule = "|".join(["---", *["---:"] * (len(headings) - 1)])
    rows = [f"| {' | '.join(map(cell, line))} |" for line in lines]
    return "\n".join([f"| {' | '.join(map(cell, headings))} |", f"|{rule}|", *rows])


def listed(items: Sequence[str]) -> str:
    """Return sentences as a list."""
    return "\n".join(f"- {cell(item)}" for item in items)


def code(language: str, *lines: str) -> str:
    """Return lines as code."""
    return "\n".join([f"```{language}", *lines, "```"])


def cell(value: Any) -> str:
    """Return a value as text that Markdown shows as it is, on one line."""
    if isinstance(value, float):
        value = f"{value:.4f}" if 1e-3 <= abs(value) < 1000 or value == 0 else f"{value:.4g}"
    elif value is None:
        value = "–"
    text = " ".join(str(value).split()).replace("&", "&amp;").replace("<", "&lt;")
    for mark in "\\|`*_[":
        text = text.replace(mark, f"\\{mark}")
    return text
