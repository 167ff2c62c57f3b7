"""Both encoders give the ids of the tokenizer, on real text and on anything else."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.encoders import ENCODERS, choose_encoder
from bertsmith.errors import InputError
from bertsmith.text.config import CorpusConfig, TokenizerConfig
from bertsmith.text.corpus import CorpusCounts, read_documents
from bertsmith.text.sentences import document_sentences
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import read_vocabulary

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
SETTINGS = {
    "uncased": TokenizerConfig(),
    "cased": TokenizerConfig(lowercase=False),
    "chinese": TokenizerConfig(),
    "multilingual-cased": TokenizerConfig(lowercase=False),
}
CORPORA = ("starter-en.txt.gz", "books-en/heldout.txt.gz", "wiki-en/heldout.txt.gz", "zh/heldout.txt.gz")
SAMPLE_CHARACTERS = 400_000


@pytest.fixture(scope="module")
def sentences(shared_data: Path) -> list[str]:
    """Sentences of every corpus, English and Chinese, from its beginning."""
    found: list[str] = []
    for name in CORPORA:
        size = 0
        for document in read_documents([shared_data / "corpus" / name], CorpusConfig(), CorpusCounts()):
            found += document_sentences(document, CorpusConfig())
            size += sum(map(len, document))
            if size > SAMPLE_CHARACTERS:
                break
    return found


def load(shared_data: Path, folder: Path, name: str) -> Tokenizer:
    path = folder / "vocab.txt"
    packed = shared_data / "vocab" / f"bert-base-{name}-vocab.txt.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return Tokenizer(read_vocabulary(path), SETTINGS[name])


def assert_same_ids(tokenizer: Tokenizer, encoder: str, texts: Sequence[str]) -> None:
    expected = tokenizer.encode_batch(texts)
    ids, lengths = ENCODERS[encoder](tokenizer)(texts)
    assert lengths.dtype == np.int64
    assert lengths.tolist() == list(map(len, expected))
    assert ids.tolist() == [id for row in expected for id in row]


@pytest.mark.parametrize("name", list(SETTINGS))
def test_real_text(shared_data: Path, tmp_path: Path, sentences: list[str], name: str) -> None:
    tokenizer = load(shared_data, tmp_path, name)
    assert len(sentences) > 10_000
    expected = tokenizer.encode_batch(sentences)
    for encoder in ENCODERS:
        ids, lengths = ENCODERS[encoder](tokenizer)(sentences)
        assert lengths.tolist() == list(map(len, expected))
        assert ids.tolist() == [id for row in expected for id in row]


def random_texts(number: int, seed: int) -> list[str]:
    """Texts of characters of all planes, often of those that the rules look at, without surrogates."""
    draw = np.random.default_rng(seed)
    common = (
        "abcZÉéßŉıİſ ĳﬁ中文。，！[]##\t\u200b\u00a0\u3000\u2028\u0301\u0323\u0e33한국हि\ud7a3👩\u200d\ufe0f½①"
    )
    ranges = [(0x20, 0x7F), (0xA0, 0x24F), (0x300, 0x370), (0x400, 0x600), (0x900, 0xE7F), (0x1E00, 0x2FFF)]
    ranges += [(0x3000, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x1FFFF), (0x20000, 0x10FFFF)]
    texts = []
    for _ in range(number):
        characters = []
        for _ in range(draw.integers(1, 40)):
            low, high = ranges[draw.integers(len(ranges))]
            is_common = draw.random() < 0.5
            characters.append(
                common[draw.integers(len(common))] if is_common else chr(draw.integers(low, high))
            )
        texts.append("".join(characters))
    return texts


@pytest.mark.parametrize("encoder", list(ENCODERS))
@pytest.mark.parametrize("name", ["uncased", "multilingual-cased"])
def test_random_unicode(shared_data: Path, tmp_path: Path, name: str, encoder: str) -> None:
    tokenizer = load(shared_data, tmp_path, name)
    assert_same_ids(tokenizer, encoder, random_texts(10_000, seed=len(name)))


WORDS = ["a", "##a", "b", "##b", "é", "e", "É", "中", "[", "]", "sep", "SEP", "mask", "##:", ".", "x" * 30]


@pytest.mark.parametrize("encoder", list(ENCODERS))
@pytest.mark.parametrize(
    "config",
    [
        TokenizerConfig(),
        TokenizerConfig(lowercase=False),
        TokenizerConfig(lowercase=False, strip_accents=True),
        TokenizerConfig(strip_accents=False),
        TokenizerConfig(split_chinese=False),
        TokenizerConfig(max_word_characters=3),
        TokenizerConfig(max_word_characters=100_000),
    ],
)
def test_every_setting(encoder: str, config: TokenizerConfig) -> None:
    tokenizer = Tokenizer([*SPECIALS, *WORDS, "a"], config)  # of equal entries the last one counts
    texts = [
        *("[SEP] [MASK][CLS] [PAD] [UNK]", "aaa aaaa éé ÉÉ", "a中a 中a", "", " ", "\u200b", "a" * 5000),
        *("a\tb\u00a0a\u3000b", "x" * 30, "x" * 31, "[ [] ]]", "a.b.c", "SEP sep"),
        *random_texts(300, seed=1),
    ]
    assert_same_ids(tokenizer, encoder, texts)


def test_literal_special_tokens_stay_text(shared_data: Path, tmp_path: Path) -> None:
    tokenizer = load(shared_data, tmp_path, "uncased")
    for encoder in ENCODERS.values():
        ids, _ = encoder(tokenizer)(["[SEP] a [MASK] b[CLS]"])
        assert not set(ids.tolist()) & tokenizer.special_ids


def test_auto_takes_nanotoken_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Tokenizer([*SPECIALS, *WORDS], TokenizerConfig())
    assert choose_encoder("auto", tokenizer) == "nanotoken"
    assert choose_encoder("tokenizers", tokenizer) == "tokenizers"
    with pytest.raises(
        InputError, match="encoder 'fast' is unknown; take one of auto, tokenizers, nanotoken"
    ):
        choose_encoder("fast", tokenizer)
    monkeypatch.setitem(sys.modules, "nanotoken", None)  # as if it were not installed
    assert choose_encoder("auto", tokenizer) == "tokenizers"
    with pytest.raises(
        InputError, match=r"needs the package nanotoken: pip install 'bertsmith\[nanotoken\]'"
    ):
        choose_encoder("nanotoken", tokenizer)


class OtherRules(Tokenizer):
    """A tokenizer whose engine does not tell its rules: nanotoken would read them otherwise."""

    def encode(self, text: str) -> list[int]:
        return super().encode(text)[::-1]


class OtherModel(Tokenizer):
    """A tokenizer with an engine that nanotoken does not know."""

    def engine_json(self) -> str:
        return super().engine_json().replace('"type":"WordPiece"', '"type":"WordLevel"')


@pytest.mark.parametrize(
    "kind, message", [(OtherRules, "gives other ids"), (OtherModel, "does not support this tokenizer")]
)
def test_only_who_asks_for_nanotoken_hears_that_it_does_not_fit(
    kind: type[Tokenizer], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = kind([*SPECIALS, *WORDS], TokenizerConfig())
    assert choose_encoder("auto", tokenizer) == "tokenizers"
    assert not caplog.text
    with pytest.raises(InputError, match=message):
        choose_encoder("nanotoken", tokenizer)
