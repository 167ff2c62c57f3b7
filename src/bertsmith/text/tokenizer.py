"""Text to ids and back, whatever the kind of vocabulary: WordPiece or byte-level BPE.

The only place that knows the special tokens, with ``wordpiece`` and ``bpe``, which say what each kind does
its own way. Literal special tokens in running text ("[SEP]") are text like any other; only
``encode_with_masks`` reads a mask as the real token. The saved tokenizer.json does know them as special
tokens and adds [CLS] and [SEP] (<s> and </s>), as other programs expect.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bertsmith.config import to_dict
from bertsmith.errors import InputError
from bertsmith.files import write_json, write_text
from bertsmith.text import bpe, wordpiece
from bertsmith.text.bpe import ByteLevelBpe
from bertsmith.text.config import BpeConfig, TokenizerConfig
from bertsmith.text.scheme import Scheme
from bertsmith.text.wordpiece import CONTINUATION, WordPiece, holds_capitals

__all__ = ["CONTINUATION", "SPECIAL_TOKENS", "UNK", "Tokenizer", "holds_capitals"]

_LOG = logging.getLogger(__name__)

SPECIAL_TOKENS = wordpiece.SPECIALS.all
"""Of WordPiece: [PAD] [UNK] [CLS] [SEP] [MASK]."""
UNK = wordpiece.SPECIALS.unk
TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """A vocabulary with its settings.

    Attributes:
        config: how text becomes pieces; its type says which kind of vocabulary this is.
        vocab: the pieces; the place is the id.
        max_length: positions of the model it belongs to, for programs that read the saved files; ``None``:
            unknown. Nothing is cut here.
    """

    def __init__(
        self, vocab: Sequence[str], config: TokenizerConfig | BpeConfig, where: str = "vocabulary"
    ) -> None:
        """Make a tokenizer.

        Args:
            vocab: the pieces in the order of their ids.
            config: how text becomes pieces.
            where: what to call the vocabulary in errors, such as its file.

        Raises:
            InputError: a special token is missing, the word limit is out of range, or merges do not fit.
        """
        scheme: Scheme = (
            ByteLevelBpe(config, where) if isinstance(config, BpeConfig) else WordPiece(config, where)
        )
        for token in scheme.specials.all:
            if token not in vocab:
                raise InputError(f"{where}: the special token {token} is missing; add a line with it")
        self.config = config
        self.vocab = list(vocab)
        self.max_length: int | None = None
        self._scheme = scheme
        self._ids = _ids_of(self.vocab)
        self._engine = scheme.engine(self._ids)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Load a vocabulary with the settings that lie beside it.

        Settings are read from tokenizer_config.json, else from tokenizer.json (Hugging Face's files and ours
        alike). Without either, the casing of a WordPiece vocabulary is settled by the vocabulary: cased if it
        holds capitals; a warning says so.

        Args:
            path: a vocab.txt (WordPiece), a vocab.json with merges.txt beside it (byte-level BPE), a
                tokenizer.json of either, or a directory that holds one of them.

        Raises:
            InputError: there is no vocabulary, a special token is missing, or a settings file is broken.
        """
        file = _vocabulary_file(Path(path))
        directory = file.parent
        settings = _read_json(directory / SETTINGS_FILE) or {}
        engine = _read_json(directory / TOKENIZER_FILE) or {}
        model = (engine.get("model") or {}).get("type")
        is_bpe = file.suffix == ".json" and (file.name, model) != (TOKENIZER_FILE, "WordPiece")
        read = _read_bpe if is_bpe else _read_wordpiece
        vocab, config = read(file, settings, engine)
        tokenizer = cls(vocab, config, where=str(file))
        length = settings.get("model_max_length")
        tokenizer.max_length = length if isinstance(length, int) and 0 < length < 1 << 31 else None
        return tokenizer

    def save(self, directory: Path, vocabulary_name: str | None = None) -> None:
        """Write tokenizer.json, tokenizer_config.json and, last, the vocabulary's files into a directory.

        Args:
            directory: where to; made if missing.
            vocabulary_name: the vocabulary's file name; ``None``: the usual one.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        write_text(directory / TOKENIZER_FILE, self._scheme.exported(self._ids).to_str(pretty=True))
        write_json(directory / SETTINGS_FILE, self._settings())
        self._scheme.write(directory, self.vocab, vocabulary_name)

    @property
    def algorithm(self) -> str:
        """The kind of vocabulary: "wordpiece" or "bpe"."""
        return self._scheme.algorithm

    @property
    def vocab_size(self) -> int:
        """Number of entries."""
        return len(self.vocab)

    @property
    def pad_id(self) -> int:
        """Id of [PAD] or <pad>."""
        return self._ids[self._scheme.specials.pad]

    @property
    def unk_id(self) -> int:
        """Id of [UNK] or <unk>."""
        return self._ids[self._scheme.specials.unk]

    @property
    def cls_id(self) -> int:
        """Id of [CLS] or <s>."""
        return self._ids[self._scheme.specials.cls]

    @property
    def sep_id(self) -> int:
        """Id of [SEP] or </s>."""
        return self._ids[self._scheme.specials.sep]

    @property
    def mask_id(self) -> int:
        """Id of [MASK] or <mask>."""
        return self._ids[self._scheme.specials.mask]

    @property
    def between_ids(self) -> list[int]:
        """What stands between the texts of a pair: [SEP], or </s> </s>."""
        return [self.sep_id] * self._scheme.separators_between

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the five special tokens."""
        return frozenset(self._ids[token] for token in self._scheme.specials.all)

    @cached_property
    def continuation(self) -> npt.NDArray[np.bool_]:
        """Which pieces go on with a word, bool ``(vocab,)``."""
        return np.array([self._scheme.continues(token) for token in self.vocab], dtype=np.bool_)

    def holds(self, token: str) -> bool:
        """Say whether a piece is in the vocabulary."""
        return token in self._ids

    def id(self, token: str) -> int:
        """Return the id of a piece, that of [UNK] if there is none."""
        return self._ids.get(token, self.unk_id)

    def token(self, id: int) -> str:
        """Return the piece of an id."""
        return self.vocab[id]

    def shown(self, id: int) -> str:
        """Return the piece of an id as people read it."""
        return self._scheme.shown(self.vocab[id])

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; no special tokens are added or read."""
        ids: list[int] = self._encoding(text).ids
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text; no special tokens are added or read.

        It starts no threads, so it can be used in processes that were forked and in those that fork.
        """
        return [self.encode(text) for text in texts]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return ids, and for each where its piece starts and ends in ``text``, in characters."""
        encoding = self._encoding(text)
        return encoding.ids, encoding.offsets

    def encode_with_masks(self, text: str) -> list[int]:
        """Return the ids of a text in which each "[MASK]" (of BPE also "<mask>") is the real token."""
        return self.encode_with_masks_and_offsets(text)[0]

    def encode_with_masks_and_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Return ids as ``encode_with_masks``, and places as ``encode_with_offsets``."""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        for mask in re.finditer(self._masks, text):
            found = self.encode_with_offsets(self._scheme.before_mask(text[start : mask.start()]))
            ids += [*found[0], self.mask_id]
            offsets += [*((start + first, start + end) for first, end in found[1]), mask.span()]
            start = mask.end()
        found = self.encode_with_offsets(text[start:])
        return ids + found[0], offsets + [(start + first, start + end) for first, end in found[1]]

    def filled(self, text: str, ids: Iterable[int]) -> str:
        """Return a text with a piece in the place of each of its masks, given as ids in their order."""
        first, *parts = re.split(self._masks, text)
        for id, part in zip(ids, parts, strict=True):
            first = self._scheme.attached(first, self.vocab[id]) + part
        return first

    def in_document(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return the sentences of a document as they have to be encoded one by one.

        So that their ids, put end to end, are those of the document.
        """
        return self._scheme.in_document(sentences)

    def decode(self, ids: Iterable[int]) -> str:
        """Return readable text; special tokens are kept."""
        return self._scheme.joined([self.vocab[int(id)] for id in ids])

    def engine_json(self) -> str:
        """Return the tokenizer.json of the engine as ``encode`` uses it: it knows no special tokens."""
        text: str = self._engine.to_str()
        return text

    def identity(self) -> str:
        """Return the SHA-256 over vocabulary and settings, in hexadecimal."""
        settings = to_dict(self.config)
        if settings.get("rules") == TokenizerConfig.rules:
            del settings["rules"]  # a later setting: what was hashed without it keeps its hash
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256("\n".join([text, *self.vocab]).encode()).hexdigest()

    @property
    def _masks(self) -> str:
        return "|".join(map(re.escape, self._scheme.masks))

    def _encoding(self, text: str) -> Any:
        try:
            return self._engine.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            if not _SURROGATE.search(text):
                raise
        return self._engine.encode(_SURROGATE.sub("\ufffd", text), add_special_tokens=False)

    def _settings(self) -> dict[str, Any]:
        specials = self._scheme.specials
        settings = self._scheme.settings() | {
            "pad_token": specials.pad,
            "unk_token": specials.unk,
            "cls_token": specials.cls,
            "sep_token": specials.sep,
            "mask_token": specials.mask,
        }
        if self.max_length is not None:
            settings["model_max_length"] = self.max_length
        return settings


def _ids_of(vocab: Sequence[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for place, token in enumerate(vocab):
        ids[token] = place  # of equal lines the last one counts, as in the original's loader
    return ids


def _vocabulary_file(path: Path) -> Path:
    """Return the file that holds the vocabulary.

    Raises:
        InputError: there is none, or a directory holds two.
    """
    if not path.is_dir():
        if not path.is_file():
            raise InputError(f"{path}: no such vocabulary; give a vocab.txt, a vocab.json or their directory")
        return path
    found = [path / name for name in (wordpiece.VOCABULARY_FILE, bpe.VOCABULARY_FILE)]
    found = [file for file in found if file.is_file()]
    if len(found) == 2:
        raise InputError(
            f"{path}: holds {found[0].name} and {found[1].name}; remove the one that is not meant"
        )
    if found:
        return found[0]
    engine = (_read_json(path / TOKENIZER_FILE) or {}).get("model") or {}
    if engine.get("type") in ("BPE", "WordPiece"):  # transformers writes no other file since version 5
        return path / TOKENIZER_FILE
    raise InputError(
        f"{path / wordpiece.VOCABULARY_FILE}: no such vocabulary; give a vocab.txt, a vocab.json or their "
        "directory"
    )


def _read_wordpiece(
    file: Path, settings: dict[str, Any], engine: dict[str, Any]
) -> tuple[list[str], TokenizerConfig]:
    from bertsmith.text.vocabulary import read_vocabulary  # it needs the special tokens of this module

    vocab = bpe.read_engine(engine, file)[0] if file.name == TOKENIZER_FILE else read_vocabulary(file)
    config = wordpiece.stored_config(settings, engine, str(file.parent))
    if config is None:
        config = TokenizerConfig(lowercase=not holds_capitals(vocab))
        _LOG.warning(
            "%s: no %s beside it, so the casing is taken from the vocabulary: %s",
            *(file, SETTINGS_FILE, "uncased" if config.lowercase else "cased, because it holds capitals"),
        )
    return vocab, config


def _read_bpe(file: Path, settings: dict[str, Any], engine: dict[str, Any]) -> tuple[list[str], BpeConfig]:
    splitter = bpe.byte_level(engine, file.parent / TOKENIZER_FILE) if engine else {}
    if file.name == TOKENIZER_FILE:
        vocab, merges = bpe.read_engine(engine, file)
    else:
        vocab, merges = bpe.read_files(file, file.parent / bpe.MERGES_FILE)
    prefix_space = settings.get("add_prefix_space", splitter.get("add_prefix_space", False))
    if not isinstance(prefix_space, bool):
        raise InputError(f"{file.parent}: add_prefix_space is {prefix_space!r}; mend {SETTINGS_FILE}")
    return vocab, BpeConfig(merges, prefix_space)


def _read_json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error}); write it anew or remove it") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: has to hold one JSON object; write it anew or remove it")
    return value
