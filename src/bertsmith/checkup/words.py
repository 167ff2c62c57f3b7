"""Words of running text as 64-bit numbers, and runs of words (n-grams) as numbers, whole blocks at a time.

A word is what stands between white space and punctuation, in lower case; an ideograph is a word of its own.
"""

from __future__ import annotations

import re
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]

_PUNCTUATION = {code: " " for code in range(128) if not chr(code).isalnum()}
_WORD = re.compile(
    "[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]|[^\\W_\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]+"
)
_MOST_KNOWN = 1 << 20
_MULTIPLIER = 0x9E3779B97F4A7C15  # odd, its bits are well mixed: 2^64 over the golden ratio


def words_of(text: str) -> list[str]:
    """Return the words of a text, lower-cased, without punctuation."""
    if text.isascii():
        return text.lower().translate(_PUNCTUATION).split()
    return _WORD.findall(text.lower())


class WordHashes(dict[str, int]):
    """The number of each word: the first eight bytes of its BLAKE2b, remembered.

    Not Python's ``hash``, which differs from process to process: findings should not.
    """

    def __missing__(self, word: str) -> int:
        if len(self) >= _MOST_KNOWN:
            self.clear()
        value = int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little")
        self[word] = value
        return value

    def of(self, words: list[str]) -> Hashes:
        """Return uint64 ``(words,)``."""
        return np.fromiter(map(self.__getitem__, words), dtype=np.uint64, count=len(words))


def run_hashes(words: Hashes, length: int) -> Hashes:
    """Return the number of each run of ``length`` words, uint64 ``(words - length + 1,)``, empty if too few.

    Runs are equal when their words are (numbers of different runs agree once in 2^64 pairs).
    """
    count = len(words) - length + 1
    if count <= 0:
        return np.zeros(0, dtype=np.uint64)
    result = np.zeros(count, dtype=np.uint64)
    for place in range(length):  # wraps around: arithmetic modulo 2^64
        result *= np.uint64(_MULTIPLIER)
        result += words[place : place + count]
    result ^= result >> np.uint64(29)
    result *= np.uint64(_MULTIPLIER)
    return result
