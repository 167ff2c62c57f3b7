"""WordPiece: text to ids and back. The only place that knows the special tokens.

Literal special tokens in running text ("[SEP]") are text like any other; only ``encode_with_masks`` reads
"[MASK]" as the real token. The saved tokenizer.json does know them as special tokens and adds [CLS] and
[SEP], as other programs expect.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from bertsmith.config import to_dict
from bertsmith.errors import InputError
from bertsmith.files import write_json, write_text
from bertsmith.text.config import TokenizerConfig

_LOG = logging.getLogger(__name__)

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
CONTINUATION = "##"
VOCABULARY_FILE = "vocab.txt"
TOKENIZER_FILE = "tokenizer.json"
SETTINGS_FILE = "tokenizer_config.json"
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONGEST_WORD_LIMIT = 1 << 20
_HUGGING_FACE_WORD_LIMIT = 100
_MARKER = re.compile(r"\[.*\]|<.*>")

_KINDS: dict[str, tuple[type, ...]] = {
    "lowercase": (bool,),
    "strip_accents": (bool, type(None)),
    "split_chinese": (bool,),
    "max_word_characters": (int,),
}


class Tokenizer:
    """A WordPiece vocabulary with its settings.

    Attributes:
        config: how text becomes pieces.
        vocab: the pieces; the place is the id.
        max_length: positions of the model it belongs to, for programs that read the saved files; ``None``:
            unknown. Nothing is cut here.
    """

    def __init__(self, vocab: Sequence[str], config: TokenizerConfig, where: str = "vocabulary") -> None:
        """Make a tokenizer.

        Args:
            vocab: the pieces in the order of their ids.
            config: how text becomes pieces.
            where: what to call the vocabulary in errors, such as its file.

        Raises:
            InputError: a special token is missing, or the word limit is out of range.
        """
        for token in SPECIAL_TOKENS:
            if token not in vocab:
                raise InputError(f"{where}: the special token {token} is missing; add a line with it")
        if not 0 < config.max_word_characters <= _LONGEST_WORD_LIMIT:
            raise InputError(
                f"{where}: max_word_characters is {config.max_word_characters}; it has to be from 1 to "
                f"{_LONGEST_WORD_LIMIT}"
            )
        self.config = config
        self.vocab = list(vocab)
        self.max_length: int | None = None
        self._ids = _ids_of(self.vocab)
        self._engine = _engine(self._ids, config)

    @classmethod
    def load(cls, path: str | Path) -> Tokenizer:
        """Load a vocab.txt, or a directory that holds one, with the settings that lie beside it.

        Settings are read from tokenizer_config.json, else from tokenizer.json (Hugging Face's files and ours
        alike). Without either, the casing is settled by the vocabulary: cased if it holds capitals; a warning
        says so.

        Raises:
            InputError: there is no vocabulary, a special token is missing, or a settings file is broken.
        """
        from bertsmith.text.vocabulary import read_vocabulary  # it needs the special tokens of this module

        path = Path(path)
        file = path / VOCABULARY_FILE if path.is_dir() else path
        if not file.is_file():
            raise InputError(f"{file}: no such vocabulary; give a vocab.txt or a directory that holds one")
        vocab = read_vocabulary(file)
        config = _stored_config(file.parent)
        if config is None:
            config = TokenizerConfig(lowercase=not holds_capitals(vocab))
            _LOG.warning(
                "%s: no %s beside it, so the casing is taken from the vocabulary: %s",
                *(file, SETTINGS_FILE, "uncased" if config.lowercase else "cased, because it holds capitals"),
            )
        tokenizer = cls(vocab, config, where=str(file))
        tokenizer.max_length = _stored_max_length(file.parent)
        return tokenizer

    def save(self, directory: Path, vocabulary_name: str = VOCABULARY_FILE) -> None:
        """Write the vocabulary, tokenizer.json and tokenizer_config.json into a directory.

        Args:
            directory: where to; made if missing.
            vocabulary_name: the vocabulary's file name.
        """
        directory = Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        write_text(directory / vocabulary_name, "".join(f"{token}\n" for token in self.vocab))
        write_text(directory / TOKENIZER_FILE, self._exported().to_str(pretty=True))
        write_json(directory / SETTINGS_FILE, self._settings())

    @property
    def vocab_size(self) -> int:
        """Number of entries."""
        return len(self.vocab)

    @property
    def pad_id(self) -> int:
        """Id of [PAD]."""
        return self._ids[PAD]

    @property
    def unk_id(self) -> int:
        """Id of [UNK]."""
        return self._ids[UNK]

    @property
    def cls_id(self) -> int:
        """Id of [CLS]."""
        return self._ids[CLS]

    @property
    def sep_id(self) -> int:
        """Id of [SEP]."""
        return self._ids[SEP]

    @property
    def mask_id(self) -> int:
        """Id of [MASK]."""
        return self._ids[MASK]

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Ids of the five special tokens."""
        return frozenset(self._ids[token] for token in SPECIAL_TOKENS)

    @cached_property
    def continuation(self) -> npt.NDArray[np.bool_]:
        """Which pieces go on with a word, bool ``(vocab,)``."""
        prefix = CONTINUATION
        return np.array(
            [token.startswith(prefix) and token != prefix for token in self.vocab], dtype=np.bool_
        )

    def id(self, token: str) -> int:
        """Return the id of a piece, that of [UNK] if there is none."""
        return self._ids.get(token, self.unk_id)

    def token(self, id: int) -> str:
        """Return the piece of an id."""
        return self.vocab[id]

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
        """Return the ids of a text in which each "[MASK]" is the real token."""
        ids = []
        for place, part in enumerate(text.split(MASK)):
            if place:
                ids.append(self.mask_id)
            ids.extend(self.encode(part))
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Return readable text: pieces joined to words, words by spaces; special tokens are kept."""
        words: list[str] = []
        for token in (self.vocab[int(id)] for id in ids):
            if words and token.startswith(CONTINUATION) and token != CONTINUATION:
                words[-1] += token.removeprefix(CONTINUATION)
            else:
                words.append(token)
        return " ".join(words)

    def identity(self) -> str:
        """Return the SHA-256 over vocabulary and settings, in hexadecimal."""
        settings = json.dumps(to_dict(self.config), sort_keys=True)
        return hashlib.sha256("\n".join([settings, *self.vocab]).encode()).hexdigest()

    def _encoding(self, text: str) -> Any:
        try:
            return self._engine.encode(text, add_special_tokens=False)
        except (TypeError, UnicodeEncodeError):
            if not _SURROGATE.search(text):
                raise
        return self._engine.encode(_SURROGATE.sub("\ufffd", text), add_special_tokens=False)

    def _exported(self) -> tokenizers.Tokenizer:
        """Return an engine that knows the special tokens and adds [CLS] and [SEP]."""
        engine = _engine(self._ids, self.config)
        engine.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in SPECIAL_TOKENS])
        engine.post_processor = processors.TemplateProcessing(
            single=f"{CLS}:0 $A:0 {SEP}:0",
            pair=f"{CLS}:0 $A:0 {SEP}:0 $B:1 {SEP}:1",
            special_tokens=[(CLS, self.cls_id), (SEP, self.sep_id)],
        )
        return engine

    def _settings(self) -> dict[str, Any]:
        # transformers' BertTokenizer knows this word limit only; the general class reads tokenizer.json.
        is_plain = self.config.max_word_characters == _HUGGING_FACE_WORD_LIMIT
        settings: dict[str, Any] = {
            "tokenizer_class": "BertTokenizer" if is_plain else "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "do_lower_case": self.config.lowercase,
            "strip_accents": self.config.strip_accents,
            "tokenize_chinese_chars": self.config.split_chinese,
            "max_word_characters": self.config.max_word_characters,
            "pad_token": PAD,
            "unk_token": UNK,
            "cls_token": CLS,
            "sep_token": SEP,
            "mask_token": MASK,
        }
        if self.max_length is not None:
            settings["model_max_length"] = self.max_length
        return settings


def holds_capitals(vocab: Iterable[str]) -> bool:
    """Say whether a vocabulary is cased: a piece has a capital, markers such as [unused1] or <S> aside."""
    return any(token != token.lower() and not _MARKER.fullmatch(token) for token in vocab)


def _ids_of(vocab: Sequence[str]) -> dict[str, int]:
    ids: dict[str, int] = {}
    for place, token in enumerate(vocab):
        ids[token] = place  # of equal lines the last one counts, as in the original's loader
    return ids


def bert_normalizer(config: TokenizerConfig) -> normalizers.BertNormalizer:
    """Return what cleans, lower-cases and strips text before it is split."""
    return normalizers.BertNormalizer(
        clean_text=True,
        handle_chinese_chars=config.split_chinese,
        strip_accents=config.strip_accents,
        lowercase=config.lowercase,
    )


def _engine(ids: dict[str, int], config: TokenizerConfig) -> tokenizers.Tokenizer:
    engine = tokenizers.Tokenizer(
        models.WordPiece(ids, unk_token=UNK, max_input_chars_per_word=config.max_word_characters)
    )
    engine.normalizer = bert_normalizer(config)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix=CONTINUATION)
    return engine


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


def _stored_config(directory: Path) -> TokenizerConfig | None:
    """Return the settings beside a vocabulary, ``None`` if no file says whether it is cased."""
    settings = _read_json(directory / SETTINGS_FILE) or {}
    engine = _read_json(directory / TOKENIZER_FILE) or {}
    normalizer = _stored_normalizer(engine.get("normalizer"))
    lowercase = settings.get("do_lower_case", normalizer.get("lowercase"))
    if lowercase is None:
        return None
    default = TokenizerConfig()
    strip = settings.get("strip_accents", normalizer.get("strip_accents"))
    split = settings.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars"))
    limit = settings.get("max_word_characters", (engine.get("model") or {}).get("max_input_chars_per_word"))
    config = TokenizerConfig(
        lowercase=lowercase,
        strip_accents=strip,
        split_chinese=default.split_chinese if split is None else split,
        max_word_characters=default.max_word_characters if limit is None else limit,
    )
    for name, kinds in _KINDS.items():
        if type(getattr(config, name)) not in kinds:
            value = asdict(config)[name]
            raise InputError(f"{directory}: the tokenizer setting {name} is {value!r}; mend {SETTINGS_FILE}")
    return config


def _stored_normalizer(normalizer: Any) -> dict[str, Any]:
    """Return the settings of the BertNormalizer in a tokenizer.json, alone or in a sequence."""
    if not isinstance(normalizer, dict):
        return {}
    for part in normalizer.get("normalizers") or [normalizer]:
        if isinstance(part, dict) and part.get("type") == "BertNormalizer":
            return part
    return {}


def _stored_max_length(directory: Path) -> int | None:
    length = (_read_json(directory / SETTINGS_FILE) or {}).get("model_max_length")
    return length if isinstance(length, int) and 0 < length < 1 << 31 else None
