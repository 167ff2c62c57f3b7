"""WordPiece: BERT's kind of vocabulary. A word is cut greedily; pieces inside it begin with ``##``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import decoders, models, processors

from bertsmith.errors import InputError
from bertsmith.files import write_text
from bertsmith.text.config import SpecialTokens, TokenizerConfig
from bertsmith.text.rules import normalizer_of, splitter_of

SPECIALS = SpecialTokens("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
CONTINUATION = "##"
VOCABULARY_FILE = "vocab.txt"
_LONGEST_WORD_LIMIT = 1 << 20
_HUGGING_FACE_WORD_LIMIT = 100
_MARKER = re.compile(r"\[.*\]|<.*>")

_KINDS: dict[str, tuple[type, ...]] = {
    "lowercase": (bool,),
    "strip_accents": (bool, type(None)),
    "split_chinese": (bool,),
    "max_word_characters": (int,),
}


class WordPiece:
    """What WordPiece does its own way; see ``scheme.Scheme``."""

    algorithm = "wordpiece"
    specials = SPECIALS
    masks: tuple[str, ...] = (SPECIALS.mask,)
    separators_between = 1

    def __init__(self, config: TokenizerConfig, where: str) -> None:
        """Check the settings.

        Raises:
            InputError: the word limit is out of range.
        """
        if not 0 < config.max_word_characters <= _LONGEST_WORD_LIMIT:
            raise InputError(
                f"{where}: max_word_characters is {config.max_word_characters}; it has to be from 1 to "
                f"{_LONGEST_WORD_LIMIT}"
            )
        self._config = config

    def engine(self, ids: dict[str, int]) -> tokenizers.Tokenizer:
        """Return what encodes; it knows no special tokens in text."""
        model = models.WordPiece(
            ids, unk_token=SPECIALS.unk, max_input_chars_per_word=self._config.max_word_characters
        )
        engine = tokenizers.Tokenizer(model)
        engine.normalizer = normalizer_of(self._config)
        engine.pre_tokenizer = splitter_of(self._config)
        engine.decoder = decoders.WordPiece(prefix=CONTINUATION)
        return engine

    def exported(self, ids: dict[str, int]) -> tokenizers.Tokenizer:
        """Return an engine that knows the special tokens and adds [CLS] and [SEP]."""
        engine = self.engine(ids)
        engine.add_special_tokens([tokenizers.AddedToken(token, special=True) for token in SPECIALS.all])
        cls, sep = SPECIALS.cls, SPECIALS.sep
        engine.post_processor = processors.TemplateProcessing(
            single=f"{cls}:0 $A:0 {sep}:0",
            pair=f"{cls}:0 $A:0 {sep}:0 $B:1 {sep}:1",
            special_tokens=[(cls, ids[cls]), (sep, ids[sep])],
        )
        return engine

    def continues(self, piece: str) -> bool:
        """Say whether a piece goes on with a word."""
        return piece.startswith(CONTINUATION) and piece != CONTINUATION

    def shown(self, piece: str) -> str:
        """Return a piece as people read it: as it is."""
        return piece

    def attached(self, text: str, piece: str) -> str:
        """Return a text with a piece at its end; one that goes on with a word joins it."""
        return text.rstrip() + piece[len(CONTINUATION) :] if self.continues(piece) else text + piece

    def joined(self, pieces: Sequence[str]) -> str:
        """Return readable text: pieces joined to words, words by spaces."""
        words: list[str] = []
        for piece in pieces:
            if words and self.continues(piece):
                words[-1] += piece.removeprefix(CONTINUATION)
            else:
                words.append(piece)
        return " ".join(words)

    def before_mask(self, text: str) -> str:
        """Return the text before a mask as it is encoded: as it is."""
        return text

    def in_document(self, sentences: Sequence[str]) -> Sequence[str]:
        """Return a document's sentences as they are encoded one by one: as they are."""
        return sentences

    def write(self, directory: Path, vocab: Sequence[str], name: str | None) -> None:
        """Write the vocabulary's own file."""
        write_text(directory / (name or VOCABULARY_FILE), "".join(f"{token}\n" for token in vocab))

    def settings(self) -> dict[str, Any]:
        """Return what tokenizer_config.json says besides the special tokens."""
        # transformers' BertTokenizer knows this word limit and these rules only; the general class reads
        # tokenizer.json.
        is_plain = (
            self._config.max_word_characters == _HUGGING_FACE_WORD_LIMIT
            and self._config.rules == "tokenizers"
        )
        return {
            "tokenizer_class": "BertTokenizer" if is_plain else "PreTrainedTokenizerFast",
            "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
            "do_lower_case": self._config.lowercase,
            "strip_accents": self._config.strip_accents,
            "tokenize_chinese_chars": self._config.split_chinese,
            "max_word_characters": self._config.max_word_characters,
            "rules": self._config.rules,
        }


def holds_capitals(vocab: Iterable[str]) -> bool:
    """Say whether a vocabulary is cased: a piece has a capital, markers such as [unused1] or <S> aside."""
    return any(token != token.lower() and not _MARKER.fullmatch(token) for token in vocab)


def stored_config(
    settings: Mapping[str, Any], engine: Mapping[str, Any], where: str
) -> TokenizerConfig | None:
    """Return the settings in a tokenizer_config.json or tokenizer.json.

    Args:
        settings: content of tokenizer_config.json; it counts first.
        engine: content of tokenizer.json.
        where: what to call them in errors.

    Returns:
        ``None`` if neither says whether the vocabulary is cased.

    Raises:
        InputError: a setting has the wrong type, or the rules are unknown.
    """
    normalizer = _stored_normalizer(engine.get("normalizer"))
    lowercase = settings.get("do_lower_case", normalizer.get("lowercase"))
    if lowercase is None:
        return None
    default = TokenizerConfig()
    strip = settings.get("strip_accents", normalizer.get("strip_accents"))
    split = settings.get("tokenize_chinese_chars", normalizer.get("handle_chinese_chars"))
    limit = settings.get("max_word_characters", (engine.get("model") or {}).get("max_input_chars_per_word"))
    try:
        config = TokenizerConfig(
            lowercase=lowercase,
            strip_accents=strip,
            split_chinese=default.split_chinese if split is None else split,
            max_word_characters=default.max_word_characters if limit is None else limit,
            rules=settings.get("rules", default.rules),
        )
    except InputError as error:
        raise InputError(f"{where}: {error}; mend tokenizer_config.json") from None
    for name, kinds in _KINDS.items():
        if type(getattr(config, name)) not in kinds:
            value = asdict(config)[name]
            raise InputError(
                f"{where}: the tokenizer setting {name} is {value!r}; mend tokenizer_config.json"
            )
    return config


def _stored_normalizer(normalizer: Any) -> Mapping[str, Any]:
    """Return the settings of the BertNormalizer in a tokenizer.json, alone or in a sequence."""
    if not isinstance(normalizer, dict):
        return {}
    for part in normalizer.get("normalizers") or [normalizer]:
        if isinstance(part, dict) and part.get("type") == "BertNormalizer":
            return part
    return {}
