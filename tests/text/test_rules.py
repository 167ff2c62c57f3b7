"""Both sets of rules as settings: stored, read by other programs, used wherever text is split.

What each of them does to every code point is held to the original in tests/conformance.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from bertsmith.data.encoders import choose_encoder
from bertsmith.data.word_cache import WordCache
from bertsmith.errors import InputError
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertsmith.text.vocabulary import count_words, train_vocabulary
from tests.conformance.plain_tokenizer import ids_of

Maker = Callable[..., Tokenizer]
ORIGINAL = TokenizerConfig(rules="original", max_word_characters=200)
TEXT = "\ue000 ΟΔΟΣ \U0002b820x Σ'Σ. É"
PIECES = "\ue000 οδος οδοσ \U0002b820 x σ ' . e"


def test_the_rules_are_stored_and_hold_in_other_programs(small_tokenizer: Maker, tmp_path: Path) -> None:
    ours = small_tokenizer(PIECES, rules="original")
    ours.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    loaded = Tokenizer.load(tmp_path)
    assert loaded.config == ours.config
    assert loaded.identity() == ours.identity()
    words = [ours.token(id) for id in loaded.encode(TEXT)]
    assert words == ["\ue000", "οδος", "\U0002b820", "x", "σ", "'", "[UNK]", ".", "e"], "a last sigma is ς"
    assert AutoTokenizer.from_pretrained(tmp_path)(TEXT)["input_ids"][1:-1] == ours.encode(TEXT)


def test_places_in_the_text_stay_known(small_tokenizer: Maker) -> None:
    _, offsets = small_tokenizer(PIECES, rules="original").encode_with_offsets(TEXT)
    found = [TEXT[start:end] for start, end in offsets]
    assert found == ["\ue000", "ΟΔΟΣ", "\U0002b820", "x", "Σ", "'", "Σ", ".", "É"]


def test_vocabularies_are_trained_on_the_words_that_the_rules_make() -> None:
    lines = ["\ue000 ΟΔΟΣ a\U0002b820b"] * 3
    assert count_words(lines, ORIGINAL) == {"\ue000": 3, "οδος": 3, "a": 3, "b": 3, "\U0002b820": 3}
    assert count_words(lines, TokenizerConfig()) == {"οδοσ": 3, "a\U0002b820b": 3}
    assert "\ue000" in train_vocabulary(lines, 40, ORIGINAL)


@settings(max_examples=150, deadline=None)
@given(
    st.text(st.characters(exclude_categories=("Cs", "Cn")) | st.sampled_from(" aΣςσİ'.\u0301中"), max_size=40)
)
def test_remembered_words_give_the_same_ids(text: str) -> None:
    letters = "ab\ue000οδσςi中'."
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *letters, *(f"##{letter}" for letter in letters)], ORIGINAL)
    ids: list[int] = []
    WordCache(tokenizer).extend(ids, text)
    assert ids == tokenizer.encode(text)


def test_bulk_encoding_falls_back_to_what_knows_the_rules(small_tokenizer: Maker) -> None:
    tokenizer = small_tokenizer(PIECES, rules="original")
    assert choose_encoder("auto", tokenizer) == "tokenizers"
    with pytest.raises(InputError, match="nanotoken"):
        choose_encoder("nanotoken", tokenizer)


def test_what_was_hashed_before_there_were_rules_keeps_its_hash(small_tokenizer: Maker) -> None:
    tokenizer = small_tokenizer("a b ##c")
    assert tokenizer.identity() == "a4c82fa0d53fa80c327775c8f080ba04c4bdf0975b5d090849eb6b0ed8b6e299"
    assert small_tokenizer("a b ##c", rules="original").identity() != tokenizer.identity()


@pytest.mark.parametrize("rules", ["orignal", 3, None])
def test_unknown_rules_are_refused_with_their_place(
    rules: object, small_tokenizer: Maker, tmp_path: Path
) -> None:
    small_tokenizer("a").save(tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"rules": rules}))
    with pytest.raises(
        InputError, match=f"{tmp_path}.*rules is {rules!r}; it has to be tokenizers or original"
    ):
        Tokenizer.load(tmp_path)


def test_google_s_vocabulary_gets_the_original_s_rules_by_a_file_beside_it(
    shared_vocabulary_file: Callable[[str], Path], caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    vocabulary = shared_vocabulary_file("bert-base-uncased").read_text(encoding="utf-8")
    (tmp_path / "vocab.txt").write_text(vocabulary, encoding="utf-8")
    settings = {"do_lower_case": True, "rules": "original", "max_word_characters": 200}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings))
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer.load(tmp_path)
    assert caplog.text == ""
    assert tokenizer.config == ORIGINAL
    ids = {token: number for number, token in enumerate(tokenizer.vocab)}
    assert tokenizer.encode(TEXT) == ids_of(TEXT, ids, lowercase=True)
