"""Telling prose from lists, tables and headers.

BERT is trained on running text only: the paper drops lists, tables and headers of Wikipedia (section 3.1).
The rules look at one line and are careful: dialogue, short exclamations and Chinese sentences are prose.
"""

from __future__ import annotations

import re
import unicodedata

_SHORT_WORDS = 12
_SHORT_CHARACTERS = 100
_SHORT_IDEOGRAPHS = 30
_FEWEST_LETTERS = 0.5
_MOST_DIGITS = 0.3
_BULLET = re.compile(r"\s*(?:[-*+•‣◦▪●■□·–—]\s+\S|(?:\(?\d{1,3}[.)]|\(?[a-zA-Z][)])\s+\S)")
_ENDS = re.compile(r"[.!?…。！？:;：；,，、—–\-]['\"”’»)\]）】」』》*_]*$")
_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def fault_of_line(line: str) -> str | None:
    """Return why a line is no prose, or ``None`` if it is.

    Args:
        line: one line (paragraph), without surrounding white space, not empty.

    Returns:
        "table" (cells between tabs or bars), "few letters", "many digits", "list" (a bullet or number before
        a short item without the end of a sentence), "header" (short, without the end of a sentence), or
        ``None``.
    """
    if line.count("\t") >= 2 or line.count("|") >= 2:
        return "table"
    visible = [character for character in line if not character.isspace()]
    letters = sum(character.isalpha() or unicodedata.category(character)[0] == "M" for character in visible)
    digits = sum(character.isdigit() for character in visible)
    if letters < _FEWEST_LETTERS * len(visible):
        return "many digits" if digits > _MOST_DIGITS * len(visible) else "few letters"
    if _ENDS.search(line) or not _is_short(line):
        return None
    return "list" if _BULLET.match(line) else "header"


def _is_short(line: str) -> bool:
    ideographs = len(_IDEOGRAPH.findall(line))
    if 2 * ideographs > len(line):
        return ideographs < _SHORT_IDEOGRAPHS
    return len(line) < _SHORT_CHARACTERS and len(line.split()) < _SHORT_WORDS
