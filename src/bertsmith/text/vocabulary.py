"""Reading vocabulary files, and training vocabularies: WordPiece and byte-level BPE."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from pathlib import Path

import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bertsmith.errors import InputError
from bertsmith.text import bpe
from bertsmith.text.config import BpeConfig, TokenizerConfig
from bertsmith.text.rules import normalizer_of, splitter_of
from bertsmith.text.tokenizer import CONTINUATION, SPECIAL_TOKENS, UNK

_LOG = logging.getLogger(__name__)
_BOM = b"\xef\xbb\xbf"
_MOST_DISTINCT_SPACED = 2_000_000
_MOST_DISTINCT_WORDS = 4_000_000
_WORDS_PER_BLOCK = 4096
ALPHABET_COVERAGE = 0.9999
"""Share of the characters of a text that a vocabulary can write at least."""
_SMALLEST_ALPHABET = 1000


def read_vocabulary(path: str | Path) -> list[str]:
    """Read a vocab.txt: the number of the line is the id, whatever the line holds.

    A byte order mark and lines that end in CR LF are tolerated with a warning.

    Raises:
        InputError: the file is not UTF-8, is empty, or lacks a special token; names both.
    """
    path = Path(path)
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a vocab.txt") from None
    if raw.startswith(_BOM):
        _LOG.warning("%s: starts with a byte order mark; it is no part of the first entry", path)
        raw = raw[len(_BOM) :]
    try:
        lines = raw.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error}); a vocabulary is text, one entry a line") from None
    if lines[-1] == "":
        lines.pop()
    if any(line.endswith("\r") for line in lines):  # no entry can end in one: white space splits words
        _LOG.warning("%s: lines end in CR LF; the CR is no part of the entries", path)
        lines = [line.removesuffix("\r") for line in lines]
    for token in SPECIAL_TOKENS:
        if token not in lines:
            raise InputError(f"{path}: the special token {token} is missing; add a line with it")
    return lines


def train_vocabulary(
    lines: Iterable[str],
    size: int,
    tokenizer: TokenizerConfig,
    min_frequency: int = 2,
    limit_alphabet: int = 0,
) -> list[str]:
    """Train a WordPiece vocabulary; the same text gives the same vocabulary, whatever the threads.

    The engine breaks ties between equally frequent pairs by the ids of their pieces, and numbers continuing
    characters in the order of a hash table. So words are counted here, and every single piece is given to it
    in sorted order before it starts.

    Args:
        lines: the text, read once; memory grows with the number of distinct words only, up to a bound.
        size: entries wanted, special tokens included.
        tokenizer: how text becomes words.
        min_frequency: a pair of pieces must occur at least that often to be merged.
        limit_alphabet: the most frequent single characters to keep; a word with another one is [UNK]. 0: as
            many as make up 99.99 % of the text, at least 1000 (enough for Chinese as well as for English).

    Returns:
        [PAD] [UNK] [CLS] [SEP] [MASK], the single characters, the continuing ones, then the merged pieces,
        the most frequent first. Fewer than ``size``, with a warning, when the text has no more pairs.

    Raises:
        InputError: a number is out of range, there is no text, or ``size`` is too small for the single
            characters.
    """
    _check_numbers(
        ("size", size, len(SPECIAL_TOKENS) + 1),
        ("min_frequency", min_frequency, 1),
        ("limit_alphabet", limit_alphabet, 0),
        ("max_word_characters", tokenizer.max_word_characters, 1),
    )
    words = count_words(lines, tokenizer)
    if not words:
        raise InputError("vocab: the corpus holds no words; give a corpus with text")
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            letters[character] += count
    frequent = sorted(letters, key=lambda character: (-letters[character], character))
    alphabet = set(frequent[: limit_alphabet or _covering(letters, frequent)])
    usable = {word: count for word, count in words.items() if alphabet.issuperset(word)}
    continuing = {character for word in usable for character in word[1:]}
    single = [*sorted(alphabet), *(CONTINUATION + character for character in sorted(continuing))]
    if len(SPECIAL_TOKENS) + len(single) > size:
        raise InputError(
            f"vocab: size {size} is too small: the special tokens and single characters alone are "
            f"{len(SPECIAL_TOKENS) + len(single)}; raise size or lower limit_alphabet (now {len(alphabet)})"
        )
    vocab = _merged(usable, [*SPECIAL_TOKENS, *single], size, min_frequency)
    warn_if_small(len(vocab), size, min_frequency)
    return vocab


def train_bpe(lines: Iterable[str], size: int, min_frequency: int = 2) -> tuple[list[str], BpeConfig]:
    """Train a byte-level BPE vocabulary in RoBERTa's layout; the same text gives the same, always.

    The engine breaks ties between equally frequent pairs by the ids of their pieces; all 256 bytes have
    theirs before it starts.

    Args:
        lines: the text, read once; memory grows with the number of distinct words.
        size: entries wanted, special tokens included.
        min_frequency: a pair of pieces must occur at least that often to be merged.

    Returns:
        <s> <pad> </s> <unk>, the bytes, the merged pieces, the most frequent first, <mask>; and the merges.
        Fewer than ``size``, with a warning, when the text has no more pairs.

    Raises:
        InputError: a number is out of range, or there is no text.
    """
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    specials = [*bpe.FIRST_SPECIALS, bpe.SPECIALS.mask]
    _check_numbers(("size", size, len(specials) + len(alphabet)), ("min_frequency", min_frequency, 1))
    engine = tokenizers.Tokenizer(models.BPE())
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(specials),
        min_frequency=min_frequency,
        initial_alphabet=alphabet,
        show_progress=False,
    )
    read = Counter[bool]()
    engine.train_from_iterator(_counted(lines, read), trainer)
    if not read[True]:
        raise InputError("vocab: the corpus holds no words; give a corpus with text")
    merges = tuple(tuple(pair) for pair in json.loads(engine.to_str())["model"]["merges"])
    ids = engine.get_vocab()
    vocab = [*bpe.FIRST_SPECIALS, *sorted(ids, key=ids.__getitem__), bpe.SPECIALS.mask]
    warn_if_small(len(vocab), size, min_frequency)
    return vocab, BpeConfig(merges)


def _counted(lines: Iterable[str], read: Counter[bool]) -> Iterator[str]:
    for line in lines:
        read[bool(line.strip())] += 1
        yield line


def _check_numbers(*limits: tuple[str, int, int]) -> None:
    for name, value, least in limits:
        if value < least:
            raise InputError(f"vocab: {name} is {value}; it has to be at least {least}")


def warn_if_small(found: int, size: int, min_frequency: int) -> None:
    """Say that a corpus had too little for the entries that were wanted."""
    if found < size:
        _LOG.warning(
            "vocab: the corpus is too small for %d entries: the vocabulary has %d, because no further "
            "pair of pieces occurs %d times",
            *(size, found, min_frequency),
        )


def _covering(letters: Counter[str], frequent: list[str]) -> int:
    """Return how many of the most frequent characters cover the text."""
    wanted = ALPHABET_COVERAGE * letters.total()
    covered = accumulate(letters[character] for character in frequent)
    enough = next(number for number, sum_ in enumerate(covered, start=1) if sum_ >= wanted)
    return max(enough, _SMALLEST_ALPHABET)


def count_words(lines: Iterable[str], tokenizer: TokenizerConfig) -> dict[str, int]:
    """Return the words of a text, normalised and split at punctuation, with their counts, sorted.

    Words beyond ``max_word_characters`` are left out: they are [UNK]. When distinct words pass four million,
    those that occurred once are forgotten, so that memory is bounded whatever the corpus.
    """
    spaced: Counter[str] = Counter()
    words: Counter[str] = Counter()
    for line in lines:
        spaced.update(line.split())
        if len(spaced) > _MOST_DISTINCT_SPACED:
            _fold(spaced, words, tokenizer)
            spaced.clear()
            if len(words) > _MOST_DISTINCT_WORDS:
                words = Counter({word: count for word, count in words.items() if count > 1})
    _fold(spaced, words, tokenizer)
    return dict(sorted(words.items()))


def _fold(spaced: Counter[str], words: Counter[str], tokenizer: TokenizerConfig) -> None:
    """Add the words of white-space separated strings."""
    normalizer = normalizer_of(tokenizer)
    splitter = splitter_of(tokenizer)
    for text, count in spaced.items():
        for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)):
            if len(word) <= tokenizer.max_word_characters:
                words[word] += count


def _merged(words: dict[str, int], first: list[str], size: int, min_frequency: int) -> list[str]:
    """Return ``first`` and the merged pieces in the order of their merging."""
    engine = tokenizers.Tokenizer(models.WordPiece(unk_token=UNK))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        special_tokens=first,
        continuing_subword_prefix=CONTINUATION,
        show_progress=False,
    )
    engine.train_from_iterator(repeated(words), trainer)
    ids = engine.get_vocab(with_added_tokens=True)
    vocab = sorted(ids, key=ids.__getitem__)
    assert vocab[: len(first)] == first, "the trainer keeps the pieces it is given in their order"
    return vocab


def repeated(words: Mapping[str, int]) -> Iterator[str]:
    """Yield each word as often as it occurs, many in one string."""
    block: list[str] = []
    for word, count in words.items():
        while count > 0:
            repeats = min(count, _WORDS_PER_BLOCK - len(block))
            block.extend([word] * repeats)
            count -= repeats
            if len(block) == _WORDS_PER_BLOCK:
                yield " ".join(block)
                block = []
    if block:
        yield " ".join(block)
