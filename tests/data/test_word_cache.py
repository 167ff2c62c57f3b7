"""Remembered words give the ids that the tokenizer gives."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.word_cache import WordCache
from bertsmith.text.config import BpeConfig, TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import read_vocabulary, train_bpe

LETTERS = [*"abcdeorn红一", *(f"##{letter}" for letter in "abcdeorn")]
WORDS = ["red", "one", "."]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.text(max_size=30)
        | st.text(st.characters(max_codepoint=127), max_size=30)
        | st.sampled_from(["red", " ", "\u0301", "one[SEP]", "红一", "Red-One.", "_a_", "e\x01d"])
    ).map("".join)
)
def test_remembered_words_change_no_id(text) -> None:
    for config in (TokenizerConfig(), TokenizerConfig(lowercase=False, max_word_characters=5)):
        engine = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS], config)
        words = WordCache(engine)
        for _ in range(2):
            ids: list[int] = []
            words.extend(ids, text)
            assert ids == engine.encode(text)


@pytest.mark.parametrize("name", ["bert-base-uncased", "bert-base-cased", "bert-base-chinese"])
def test_remembered_words_change_no_id_of_real_text(shared_data, tmp_path, name) -> None:
    packed = shared_data / "vocab" / f"{name}-vocab.txt.gz"
    (tmp_path / "vocab.txt").write_bytes(gzip.decompress(packed.read_bytes()))
    config = TokenizerConfig(lowercase="uncased" in name)
    engine = Tokenizer(read_vocabulary(tmp_path / "vocab.txt"), config)
    words = WordCache(engine)
    for corpus in ("wiki-en/heldout.txt.gz", "books-en/heldout.txt.gz", "zh/heldout.txt.gz"):
        text = gzip.decompress((shared_data / "corpus" / corpus).read_bytes()).decode()
        for line in text.splitlines()[:600]:
            ids: list[int] = []
            words.extend(ids, line)
            assert ids == engine.encode(line)


def test_a_full_memory_starts_anew(monkeypatch) -> None:
    monkeypatch.setattr("bertsmith.data.word_cache._MOST_WORDS", 4)
    engine = Tokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS], TokenizerConfig())
    words = WordCache(engine)
    text = "red one . a b c d e red-one a.b  one"
    for _ in range(3):
        ids: list[int] = []
        words.extend(ids, text)
        assert ids == engine.encode(text)
        assert len(words._known) <= 4


@pytest.fixture(scope="module")
def byte_level() -> Tokenizer:
    # Runs of white space become pieces of their own, which a cut in their midst would change.
    text = ["one  two   three \n\n four \t five", "a \u00a0 b\u3000\u3000 c", "it's \x1c\x1c odd"] * 9
    return Tokenizer(*train_bpe(text, 400))


@settings(max_examples=500, deadline=None)
@given(
    st.lists(
        st.text(max_size=8)
        | st.sampled_from([" ", "  ", "\n", "\t", "\u00a0", "\u3000", "\x1c", "one", "it's", "!", "红"])
    ).map("".join)
)
def test_remembered_words_change_no_id_of_byte_level_bpe(byte_level, text) -> None:
    for engine in (byte_level, Tokenizer(byte_level.vocab, BpeConfig(byte_level.config.merges, True))):
        words = WordCache(engine)
        for _ in range(2):
            ids: list[int] = []
            words.extend(ids, text)
            assert ids == engine.encode(text)
