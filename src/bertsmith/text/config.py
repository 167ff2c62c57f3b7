"""Settings of corpora and tokenizers."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.errors import InputError

RULES = ("tokenizers", "original")

_CHOICES = {
    "documents": ("blank-line", "line"),
    "sentences": ("split", "line"),
    "invalid_utf8": ("replace", "error"),
}


@dataclass(frozen=True)
class CorpusConfig:
    """How raw text becomes documents and sentences.

    Attributes:
        documents: "blank-line" (documents are separated by blank lines) or "line" (one document a line).
            In .jsonl each object is a document whatever this says.
        sentences: "split" (a paragraph is split into sentences) or "line" (each line is one sentence already,
            the original's input form).
        prose_only: drop lines that are no prose: lists, tables, headers (paper, section 3.1). Counted.
        text_field: the field of a .jsonl object that holds the text.
        invalid_utf8: "replace" (a counted warning; U+FFFD is removed) or "error" (stop at the first).
    """

    documents: str = "blank-line"
    sentences: str = "split"
    prose_only: bool = True
    text_field: str = "text"
    invalid_utf8: str = "replace"

    def __post_init__(self) -> None:
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                raise InputError(f"text.{name} is {getattr(self, name)!r}; it has to be {' or '.join(known)}")


@dataclass(frozen=True)
class TokenizerConfig:
    """How text becomes pieces; stored with the vocabulary.

    Attributes:
        lowercase: uncased vocabulary.
        strip_accents: drop combining marks; null: as ``lowercase`` (the original's rule).
        split_chinese: put spaces around CJK ideographs.
        max_word_characters: a longer word is one [UNK] (200 in the original, 100 in Hugging Face's port).
        rules: which characters are dropped or stand alone, and how case is lowered: "tokenizers" (the
            library's, as all of Hugging Face) or "original" (the published code's; they differ in private-use
            characters, some newer ones, some ideographs, and the last sigma of a Greek word).
    """

    lowercase: bool = True
    strip_accents: bool | None = None
    split_chinese: bool = True
    max_word_characters: int = 100
    rules: str = "tokenizers"

    def __post_init__(self) -> None:
        if self.rules not in RULES:
            raise InputError(f"tokenizer.rules is {self.rules!r}; it has to be {' or '.join(RULES)}")


@dataclass(frozen=True)
class BpeConfig:
    """How text becomes pieces of byte-level BPE; stored with the vocabulary.

    Attributes:
        merges: pairs of pieces that become one, the first to be merged first.
        prefix_space: put a space before a text that begins with none, so that its first word is like others
            (RoBERTa's own files: no).
    """

    merges: tuple[tuple[str, str], ...]
    prefix_space: bool = False


@dataclass(frozen=True)
class SpecialTokens:
    """The names of the special tokens of one kind of vocabulary."""

    pad: str
    unk: str
    cls: str
    sep: str
    mask: str

    @property
    def all(self) -> tuple[str, ...]:
        """All five."""
        return (self.pad, self.unk, self.cls, self.sep, self.mask)
