"""The original's tokenizer, written from its rules as plainly as possible: the tokenizer's reference.

Source: tokenization.py, BasicTokenizer, WordpieceTokenizer, load_vocab and the functions that they call.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_ideograph(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in IDEOGRAPHS)


def is_dropped(character: str) -> bool:
    if character in "\t\n\r":
        return False
    return character in "\0\ufffd" or unicodedata.category(character) in ("Cc", "Cf")


def is_space(character: str) -> bool:
    return character in " \t\n\r" or unicodedata.category(character) == "Zs"


def is_punctuation(character: str) -> bool:
    is_ascii_sign = character.isascii() and character.isprintable() and not character.isalnum()
    return (is_ascii_sign and character != " ") or unicodedata.category(character).startswith("P")


def cleaned(text: str) -> str:
    kept = []
    for character in text:
        if is_dropped(character):
            continue
        if is_space(character):
            kept.append(" ")
        elif is_ideograph(character):
            kept += [" ", character, " "]
        else:
            kept.append(character)
    return "".join(kept)


def words_of(text: str, lowercase: bool) -> list[str]:
    """Return what WordPiece is given, one by one."""
    words = []
    for token in cleaned(text).split():
        if lowercase:
            decomposed = unicodedata.normalize("NFD", token.lower())
            token = "".join(letter for letter in decomposed if unicodedata.category(letter) != "Mn")
        words += "".join(f" {letter} " if is_punctuation(letter) else letter for letter in token).split()
    return words


def pieces_of(word: str, ids: Mapping[str, int], longest: int) -> list[str]:
    """Return the longest piece that the word begins with, and so on; [UNK] if one cannot be found."""
    if len(word) > longest:
        return ["[UNK]"]
    pieces = []
    start = 0
    while start < len(word):
        prefix = "##" if start else ""
        ends = range(len(word), start, -1)
        end = next((end for end in ends if prefix + word[start:end] in ids), None)
        if end is None:
            return ["[UNK]"]
        pieces.append(prefix + word[start:end])
        start = end
    return pieces


def ids_of(text: str, ids: Mapping[str, int], lowercase: bool, longest: int = 200) -> list[int]:
    words = words_of(text, lowercase)
    return [ids[piece] for word in words for piece in pieces_of(word, ids, longest)]


def read_vocabulary(text: str) -> dict[str, int]:
    """Return piece -> number of its line."""
    return {line.strip(): number for number, line in enumerate(text.split("\n"))}
