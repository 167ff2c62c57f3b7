"""Sentences to ids in bulk: by remembered words, or by nanotoken where it is installed. Same ids."""

from __future__ import annotations

import importlib.util
import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.word_cache import WordCache
from bertsmith.errors import InputError
from bertsmith.text.tokenizer import Tokenizer

_LOG = logging.getLogger(__name__)

Encoder = Callable[[Sequence[str]], tuple[NDArray[Any], NDArray[np.int64]]]
"""Takes texts; returns their ids end to end, ``(pieces,)``, and int64 ``(texts,)``, the number of each."""

_CACHED_WORDS = 1 << 17
"""Words that nanotoken remembers in each of its two tables; about 130 bytes each."""
_PROBES = (
    'The quick brown fox doesn\'t jump; it says [SEP] and [MASK] (in "quotes") 3.14 times, unaffably.',
    "Ünïcödé: naïve café, ĳssel, straße, İstanbul, ὈΔΥΣΣΕΎΣ, e\u0301 a\u0308\u0323, \ufb01n, 한국어, हिन्दी",
    "中文和 English 混排，“引号”。日本語テキスト㐀𠀀豈",
    "soft\u00adhyphen zero\u200bwidth tab\tno\u00a0break \u3000wide emoji 👩‍👩‍👧 $€£ ^`~ ⅔ ½ ① \u2028end",
    "a" * 99 + " " + "b" * 100 + " " + "c" * 101 + " " + "é" * 100 + " " + "é" * 101 + " " + "x" * 1000,
)
"""Texts that any difference in rules would show on; they cost a millisecond."""


def word_cache_encoder(tokenizer: Tokenizer) -> Encoder:
    """Return an encoder that remembers the ids of words; see ``WordCache``."""
    words = WordCache(tokenizer)

    def encode(texts: Sequence[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        ids: list[int] = []
        lengths: list[int] = []
        for text in texts:
            start = len(ids)
            words.extend(ids, text)
            lengths.append(len(ids) - start)
        return np.array(ids, dtype=np.int32), np.array(lengths, dtype=np.int64)

    return encode


def nanotoken_encoder(tokenizer: Tokenizer) -> Encoder:
    """Return an encoder by nanotoken.

    Raises:
        InputError: it is not installed, it does not support the tokenizer's settings, or it gives other ids.
    """
    try:
        import nanotoken
    except ImportError:
        raise InputError(
            "--encoder nanotoken needs the package nanotoken: pip install 'bertsmith[nanotoken]'"
        ) from None
    nanotoken.set_cache_entries(_CACHED_WORDS)
    try:
        engine = nanotoken.Tokenizer.from_json(tokenizer.engine_json())
    except ValueError as error:  # its UnsupportedTokenizerError is one
        raise InputError(f"nanotoken does not support this tokenizer ({error})") from error

    def encode(texts: Sequence[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        # One thread: the processes share the processors already.
        found = engine.encode_batch(texts, add_special_tokens=False, parallel=False)
        return found.ids, found.lengths

    ids, lengths = encode(_PROBES)
    expected = tokenizer.encode_batch(_PROBES)
    if ids.tolist() != list(itertools.chain(*expected)) or lengths.tolist() != list(map(len, expected)):
        raise InputError("nanotoken gives other ids than tokenizers with this tokenizer")
    return encode


ENCODERS: dict[str, Callable[[Tokenizer], Encoder]] = {
    "tokenizers": word_cache_encoder,
    "nanotoken": nanotoken_encoder,
}


def choose_encoder(name: str, tokenizer: Tokenizer) -> str:
    """Return the name of the encoder to use; "auto" is nanotoken where it is installed and fits.

    Raises:
        InputError: the name is unknown, or nanotoken is asked for by name and cannot be used.
    """
    if name not in ("auto", *ENCODERS):
        raise InputError(f"encoder {name!r} is unknown; take one of auto, {', '.join(ENCODERS)}")
    if name == "auto" and importlib.util.find_spec("nanotoken") is None:
        return "tokenizers"
    if name != "tokenizers":
        try:
            nanotoken_encoder(tokenizer)
        except InputError as error:
            if name == "nanotoken":
                raise
            _LOG.info("prepare: %s; encoding with tokenizers", error)
            return "tokenizers"
        return "nanotoken"
    return name
