"""Facts 23 to 25: text to pieces, code point by code point and on real text; vocabulary files."""

from __future__ import annotations

import gzip
import logging
import unicodedata
from collections import Counter
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertTokenizer

from bertsmith.errors import InputError
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.rules import normalizer_of, splitter_of
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.conformance import plain_tokenizer
from tests.conformance.plain_tokenizer import ids_of, words_of

ASSIGNED = [one for one in map(chr, range(0x110000)) if unicodedata.category(one) not in ("Cn", "Cs")]
"""Code points with a meaning in this Python's Unicode, private ones among them."""
MOVED = {"\U0001171e"}
"""Without width up to Unicode 15, with one since 16: the engine's tables are newer than Python 3.11's."""
ORIGINAL = TokenizerConfig(rules="original", max_word_characters=200)
CASED = TokenizerConfig(lowercase=False, rules="original", max_word_characters=200)


@cache
def originals_words(character: str, lowercase: bool) -> list[str]:
    """The reference for a character between letters."""
    return words_of(f"a{character}b", lowercase)


def differing(config: TokenizerConfig) -> set[str]:
    """Return the code points that the engine treats otherwise than the reference."""
    normalizer, splitter = normalizer_of(config), splitter_of(config)

    def words(characters: list[str]) -> list[str]:
        text = normalizer.normalize_str(" ".join(f"a{one}b" for one in characters))
        return [word for word, _ in splitter.pre_tokenize_str(text)]

    found: set[str] = set()
    for start in range(0, len(ASSIGNED), 500):
        block = ASSIGNED[start : start + 500]
        expected = [originals_words(one, config.lowercase) for one in block]
        if words(block) != [word for part in expected for word in part]:
            found |= {one for one, right in zip(block, expected, strict=True) if words([one]) != right}
    return found


@pytest.mark.parametrize("config", [ORIGINAL, CASED], ids=["uncased", "cased"])
def test_fact_23_every_code_point_is_treated_as_in_the_original(fact, config):
    line = fact(
        23,
        "every assigned code point (not U+1171E, which Unicode 16 recategorised), rules original",
        "the rules in plain Python",
    )
    assert differing(config) <= MOVED
    line.exact()


def real_lines(shared_data, number):
    lines = []
    for part in ("books-en", "wiki-en", "zh"):
        with gzip.open(shared_data / "corpus" / part / "heldout.txt.gz", "rt", encoding="utf-8") as file:
            lines += [line for line in file.read().split("\n") if line][:number]
    return lines


@pytest.mark.parametrize(
    "name, lowercase",
    [
        ("bert-base-uncased", True),
        ("bert-base-cased", False),
        ("bert-base-chinese", True),
        ("bert-base-multilingual-cased", False),
    ],
)
def test_fact_23_ids_of_real_text(fact, name, lowercase, shared_data, shared_vocabulary_file):
    line = fact(
        23, "ids of books, Wikipedia and Chinese with the published vocabularies", "the rules in plain Python"
    )
    text = shared_vocabulary_file(name).read_text(encoding="utf-8")
    ids = plain_tokenizer.read_vocabulary(text)
    ours = Tokenizer.load(shared_vocabulary_file(name))
    exact = Tokenizer(ours.vocab, ORIGINAL if lowercase else CASED)
    for sentence in real_lines(shared_data, 60):
        assert exact.encode(sentence) == ids_of(sentence, ids, lowercase)
        assert ours.encode(sentence) == ids_of(sentence, ids, lowercase, longest=100)
    line.exact()


def test_fact_23_ids_of_random_text(fact):
    line = fact(23, "ids of random Unicode, rules original", "the rules in plain Python")
    letters = "abeinsfzoσς中한\ue000.'[]"
    vocabulary = [*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters), "##ba", "abe", "##zos"]
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    characters = st.characters(exclude_categories=("Cs", "Cn"), exclude_characters=MOVED)
    parts = st.sampled_from(
        ["ab", "ΟΣ", "Σ", "İ", "e\u0301", "中", "[SEP]", "\u2028", "\u00ad", "x" * 201, " "]
    )

    @settings(max_examples=300, deadline=None)
    @given(st.lists(st.sampled_from(letters) | parts | characters, max_size=25).map("".join), st.booleans())
    def check(text: str, lowercase: bool) -> None:
        tokenizer = Tokenizer(vocabulary, ORIGINAL if lowercase else CASED)
        assert tokenizer.encode(text) == ids_of(text, ids, lowercase)

    check()
    line.exact()


def test_fact_24_the_word_limit(fact):
    line = fact(
        24, "longest word: 200 characters, or 100 as in Hugging Face's port", "the rules in plain Python"
    )
    vocabulary = [*SPECIAL_TOKENS, "x", "##x"]
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    for limit in (100, 200):
        tokenizer = Tokenizer(vocabulary, TokenizerConfig(max_word_characters=limit))
        for length in (1, 99, 100, 101, 199, 200, 201):
            text = f"x {'x' * length} x"
            assert tokenizer.encode(text) == ids_of(text, ids, True, longest=limit)
    assert TokenizerConfig().max_word_characters == 100
    line.exact()


def test_fact_24_the_default_rules_differ_in_known_code_points(fact):
    line = fact(
        24,
        "assigned code points that the default rules treat otherwise, uncased",
        "the rules in plain Python",
    )
    others = differing(TokenizerConfig())
    ideographs = {chr(number) for number in range(0x2B820, 0x2B920)}
    private = {one for one in ASSIGNED if unicodedata.category(one) == "Co"}
    assert private | ideographs <= others
    assert len(private) == 137_468
    if unicodedata.unidata_version == "14.0.0":  # of Python 3.11; the page is written with it
        assert Counter(unicodedata.category(one) for one in others - private - ideographs) == {
            **{"Mn": 384, "Po": 94, "Cf": 13, "Ps": 4, "Pe": 4, "Pd": 2, "Mc": 2, "So": 1},
        }
        assert len(others) == 138_228
    line.deliberate(
        "138,228: the default is the tokenizers library, whose ids all of Hugging Face has; it drops 137,468 "
        "private-use characters, leaves 256 ideographs (U+2B820 to U+2B91F) in their words, and its tables "
        "are older or newer than Python's for 504 others; the setting tokenizer.rules chooses"
    )


def test_fact_24_literal_special_tokens_are_text(fact, shared_vocabulary_file):
    line = fact(
        24,
        "a literal [SEP] in a text is text, [MASK] is one in fill alone",
        "the rules in plain Python; transformers",
    )
    file = shared_vocabulary_file("bert-base-uncased")
    ids = plain_tokenizer.read_vocabulary(file.read_text(encoding="utf-8"))
    ours = Tokenizer.load(file)
    theirs = BertTokenizer(vocab=ids, do_lower_case=True)
    for token in SPECIAL_TOKENS:
        text = f"it says {token} here"
        assert ours.encode(text) == ids_of(text, ids, True)
        read = theirs(text, add_special_tokens=False)["input_ids"]
        assert ids[token] in read, "the library reads the token"
        assert ids[token] not in ours.encode(text)
        if token == "[MASK]":
            assert ours.encode_with_masks(text) == read
        else:
            assert ours.encode_with_masks(text) == ours.encode(text)
    line.exact()


def test_fact_25_line_number_is_id(fact, shared_vocabulary_file, tmp_path, caplog):
    line = fact(25, "vocab.txt: line number is id; BOM and CRLF are tolerated", "the rules in plain Python")
    published = shared_vocabulary_file("bert-base-multilingual-cased").read_text(encoding="utf-8")
    odd = "[PAD]\n\n[UNK]\na\n##b\n[CLS]\n\u3000\n[SEP]\n[unused1]\n[MASK]\nc"
    for text in (published, odd):
        expected = plain_tokenizer.read_vocabulary(text)
        for written in (text, "\ufeff" + text, text.replace("\n", "\r\n")):
            caplog.clear()
            file = tmp_path / "vocab.txt"
            file.write_bytes(written.encode())
            with caplog.at_level(logging.WARNING):
                tokenizer = Tokenizer.load(file)
            assert {piece: tokenizer.id(piece) for piece in expected if piece} == {
                piece: number for piece, number in expected.items() if piece
            }
            told = [record for record in caplog.records if "casing" not in record.getMessage()]
            assert len(told) == (written != text), "a warning where something is tolerated"
    line.exact()


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_fact_25_a_missing_special_token_is_an_error(fact, token, shared_vocabulary_file, tmp_path):
    line = fact(25, "a vocabulary without a special token is refused when it is loaded", "each one taken out")
    published = shared_vocabulary_file("bert-base-uncased").read_text(encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(published.replace(f"{token}\n", "x\n", 1), encoding="utf-8")
    with pytest.raises(InputError, match=rf"\[{token[1:-1]}\] is missing"):
        Tokenizer.load(tmp_path)
    line.exact()
