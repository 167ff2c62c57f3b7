"""Byte-level BPE: RoBERTa's kind of vocabulary. A piece that begins a word holds the space before it.

Every text can be encoded, whatever its script, because all 256 bytes are pieces: nothing is lower-cased,
stripped or unknown.

Source: RoBERTa, arXiv 1907.11692, section 4.4; GPT-2's encoder.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, pre_tokenizers, processors

from bertsmith.errors import InputError
from bertsmith.files import write_text
from bertsmith.text.config import BpeConfig, SpecialTokens

SPECIALS = SpecialTokens("<pad>", "<unk>", "<s>", "</s>", "<mask>")
FIRST_SPECIALS = (SPECIALS.cls, SPECIALS.pad, SPECIALS.sep, SPECIALS.unk)
"""At the beginning of RoBERTa's vocabulary, in this order; its last entry is <mask>."""
VOCABULARY_FILE = "vocab.json"
MERGES_FILE = "merges.txt"
_UNDECODABLE = "\ufffd"


class ByteLevelBpe:
    """What byte-level BPE does its own way; see ``scheme.Scheme``."""

    algorithm = "bpe"
    specials = SPECIALS
    masks: tuple[str, ...] = (SPECIALS.mask, "[MASK]")
    separators_between = 2

    def __init__(self, config: BpeConfig, where: str) -> None:
        self._config = config
        self._where = where
        self._decoder = decoders.ByteLevel()

    def engine(self, ids: dict[str, int]) -> tokenizers.Tokenizer:
        """Return what encodes; it knows no special tokens in text.

        Raises:
            InputError: a merge joins or makes a piece that the vocabulary lacks.
        """
        try:
            engine = tokenizers.Tokenizer(models.BPE(ids, list(self._config.merges)))
        except Exception as error:  # the engine raises nothing narrower
            raise InputError(
                f"{self._where}: vocabulary and merges do not belong together ({error}); train them anew"
            ) from None
        engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=self._config.prefix_space)
        engine.post_processor = processors.ByteLevel(trim_offsets=True)
        engine.decoder = decoders.ByteLevel()
        return engine

    def exported(self, ids: dict[str, int]) -> tokenizers.Tokenizer:
        """Return an engine that knows the special tokens and adds <s> and </s>."""
        engine = self.engine(ids)
        engine.add_special_tokens(
            [
                tokenizers.AddedToken(token, special=True, normalized=False, lstrip=token == SPECIALS.mask)
                for token in SPECIALS.all
            ]
        )
        engine.post_processor = processors.RobertaProcessing(
            (SPECIALS.sep, ids[SPECIALS.sep]),
            (SPECIALS.cls, ids[SPECIALS.cls]),
            trim_offsets=True,
            add_prefix_space=self._config.prefix_space,
        )
        return engine

    def continues(self, piece: str) -> bool:
        """Say whether a piece goes on with a word.

        A word begins with a space or at a punctuation mark, which the engine never joins with letters. So the
        first word of a text, and one right after a bracket, look as if they went on.
        """
        if piece in SPECIALS.all:
            return False
        first = self._decoder.decode([piece])[:1]
        return first == _UNDECODABLE or first.isalnum() or unicodedata.category(first or " ").startswith("M")

    def shown(self, piece: str) -> str:
        """Return a piece as people read it: with its space, if it has one."""
        return piece if piece in SPECIALS.all else str(self._decoder.decode([piece]))

    def attached(self, text: str, piece: str) -> str:
        """Return a text with a piece at its end; the piece brings its own space or goes on with a word."""
        return (text.rstrip() + self.shown(piece)) if text.strip() else self.shown(piece).lstrip()

    def joined(self, pieces: Sequence[str]) -> str:
        """Return the text that the pieces encode."""
        return str(self._decoder.decode(list(pieces)))

    def before_mask(self, text: str) -> str:
        """Return the text before a mask as it is encoded: a piece in the mask's place holds the space."""
        return text.rstrip()

    def in_document(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return a document's sentences as they are encoded one by one.

        Put end to end, their pieces are those of the document: each sentence but the first holds the space
        before it, except in scripts without spaces.
        """
        return [
            f" {sentence}" if place and not _is_wide(sentences[place - 1][-1:] + sentence[:1]) else sentence
            for place, sentence in enumerate(sentences)
        ]

    def write(self, directory: Path, vocab: Sequence[str], name: str | None) -> None:
        """Write the vocabulary's own files."""
        assert name in (None, VOCABULARY_FILE), "other programs know vocab.json by its name"
        ids = {token: place for place, token in enumerate(vocab)}
        write_text(directory / VOCABULARY_FILE, json.dumps(ids, ensure_ascii=False) + "\n")
        lines = ["#version: 0.2", *(f"{first} {second}" for first, second in self._config.merges)]
        write_text(directory / MERGES_FILE, "\n".join(lines) + "\n")

    def settings(self) -> dict[str, Any]:
        """Return what tokenizer_config.json says besides the special tokens."""
        return {
            "tokenizer_class": "RobertaTokenizer",
            "model_input_names": ["input_ids", "attention_mask"],
            "add_prefix_space": self._config.prefix_space,
            "trim_offsets": True,
            "bos_token": SPECIALS.cls,
            "eos_token": SPECIALS.sep,
        }


def _is_wide(characters: str) -> bool:
    """Say whether one of the characters is of a script that puts no spaces between sentences."""
    return any(unicodedata.east_asian_width(character) in "WF" for character in characters)


def read_files(vocabulary: Path, merges: Path) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    """Read a vocab.json and the merges.txt beside it.

    Raises:
        InputError: a file is missing or broken; it is named.
    """
    try:
        ids = json.loads(vocabulary.read_text(encoding="utf-8-sig"))
        lines = merges.read_text(encoding="utf-8-sig").split("\n")
    except OSError as error:
        raise InputError(
            f"{error.filename}: cannot be read ({error.strerror}); byte-level BPE needs vocab.json and "
            "merges.txt, or a tokenizer.json"
        ) from None
    except ValueError as error:
        raise InputError(f"{vocabulary}: broken, or {merges.name} is ({error}); copy both again") from None
    if lines and lines[0].startswith("#version"):
        lines = lines[1:]
    return _in_order(ids, vocabulary), _pairs([line for line in lines if line.strip()], merges)


def read_engine(engine: Mapping[str, Any], path: Path) -> tuple[list[str], tuple[tuple[str, str], ...]]:
    """Return vocabulary and merges of a tokenizer.json.

    Raises:
        InputError: it is broken.
    """
    model = engine["model"]
    ids = dict(model.get("vocab") or {})
    for token in engine.get("added_tokens") or []:
        ids.setdefault(token["content"], token["id"])
    return _in_order(ids, path), _pairs(model.get("merges") or [], path)


def byte_level(engine: Mapping[str, Any], path: Path) -> Mapping[str, Any]:
    """Return the settings of the byte-level splitter in a tokenizer.json.

    Raises:
        InputError: it has none, or more is done to a text than GPT-2's rules do: the ids would be others.
    """
    splitter: Mapping[str, Any] = engine.get("pre_tokenizer") or {}
    parts: list[Mapping[str, Any]] = splitter.get("pretokenizers") or [splitter]
    if all(part.get("type") != "ByteLevel" for part in parts):
        raise InputError(
            f"{path}: no byte-level BPE vocabulary; supported are that and WordPiece's vocab.txt"
        )
    if engine.get("normalizer") or len(parts) > 1 or parts[0].get("use_regex") is False:
        raise InputError(
            f"{path}: normalises or splits text otherwise than GPT-2 and RoBERTa do; other rules are not "
            "supported"
        )
    return parts[0]


def _in_order(ids: Any, path: Path) -> list[str]:
    if not isinstance(ids, dict) or sorted(ids.values(), key=repr) != sorted(range(len(ids)), key=repr):
        raise InputError(f"{path}: the ids of the pieces have to be 0, 1, 2 and so on; copy the file again")
    return sorted(ids, key=ids.__getitem__)


def _pairs(lines: Sequence[Any], path: Path) -> tuple[tuple[str, str], ...]:
    pairs = [tuple(line.split(" ") if isinstance(line, str) else line) for line in lines]
    for pair in pairs:
        if len(pair) != 2:
            raise InputError(
                f"{path}: {' '.join(map(str, pair))!r} is no pair of pieces; copy the file again"
            )
    return tuple((str(first), str(second)) for first, second in pairs)
