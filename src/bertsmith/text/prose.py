"""Telling prose from lists, tables and headers.

BERT is trained on running text only: lists, tables and headers are left out. The rules look at one line and
are careful: dialogue, short exclamations, verse with stops and Chinese sentences are prose.

Source: paper, section 3.1; the original has no code for it.
"""

from __future__ import annotations

import re
import string
import unicodedata

_SHORT_WORDS = 12
_SHORT_CHARACTERS = 100
_SHORT_IDEOGRAPHS = 30
_CELL_CHARACTERS = 20
_MOST_DIGITS = 0.3
_WORDS_BEFORE_A_COLON = 2
_ASCII_LETTERS = string.ascii_letters.encode()

_IDEOGRAPH = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")
_LINK = re.compile(r"\[\[[^\]]*\]\]")
_BULLET = re.compile(r"[*+•‣◦▪●■□○◆◇★☆]\s*\w")
_ITEM = re.compile(
    r"[-·–—]\s+\S|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]+)[.)]\s+\S|[一二三四五六七八九十]+、|（[一二三四五六七八九十\d]+）"
)
_CLOSING = "\\s'\"”’»)\\]）】」』》*_"
_WHITE_SPACE = (
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002"
    "\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
_CLOSING_CHARACTERS = "'\"”’»)]）」』】》*_" + _WHITE_SPACE
_STOPS = frozenset(".!?…。！？｡।॥؟۔።‽")
_PAUSE = re.compile(f"(?:[,，、—–]|--|……)[{_CLOSING}]*$")
_COLON = re.compile(f"[:;：；][{_CLOSING}]*$")


def fault_of_line(line: str) -> str | None:
    """Return why a line is no prose, or ``None`` if it is.

    Args:
        line: one line (paragraph), without surrounding white space, not empty.

    Returns:
        "table" (cells between tabs or bars), "few letters", "many digits", "list" (begins with a bullet; or
        with a dash or number, is short and has no end of a sentence), "header" (short, without the end of a
        sentence), or ``None``.
    """
    if _is_table_row(line):
        return "table"
    if 2 * _num_letters(line) < len(line) and (fault := _fault_of_characters(line)):
        return fault
    if _BULLET.match(line):
        return "list"
    if line.rstrip(_CLOSING_CHARACTERS)[-1:] in _STOPS or not _is_short(line):
        return None
    if _ITEM.match(line):
        return "list"
    goes_on = _PAUSE.search(line) or (_COLON.search(line) and _num_words(line) >= _WORDS_BEFORE_A_COLON)
    return None if goes_on else "header"


def _num_letters(line: str) -> int:
    if line.isascii():
        return len(line) - len(line.encode().translate(None, _ASCII_LETTERS))
    return sum(map(str.isalpha, line))


def _is_table_row(line: str) -> bool:
    if line.count("\t") >= 2:
        return True
    if line.count("|") < 2:
        return False
    bars = _LINK.sub("", line).count("|")
    return bars >= 2 and len(line) < _CELL_CHARACTERS * (bars + 1)


def _fault_of_characters(line: str) -> str | None:
    """Judge by the kinds of characters; sentence punctuation and quotes count for nothing."""
    kinds = [unicodedata.category(character)[0] for character in line]
    letters = kinds.count("L") + kinds.count("M")
    digits = kinds.count("N")
    if digits > letters or digits > _MOST_DIGITS * (len(line) - kinds.count("Z")):
        return "many digits"
    marks = kinds.count("S") + sum(line.count(mark) for mark in "*_=-#~/\\")
    return "few letters" if letters <= marks else None


def _num_words(line: str) -> int:
    return max(len(line.split()), len(_IDEOGRAPH.findall(line)) // 2)


def _is_short(line: str) -> bool:
    ideographs = len(_IDEOGRAPH.findall(line))
    if 2 * ideographs > len(line):
        return ideographs < _SHORT_IDEOGRAPHS
    return len(line) < _SHORT_CHARACTERS and len(line.split()) < _SHORT_WORDS
