"""The tokenizer against those of transformers, on the shared vocabularies."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer
from transformers.models.bert.tokenization_bert_legacy import BertTokenizerLegacy

from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from tests.text.conftest import SHARED_VOCABULARIES


def without_special_tokens(text: str) -> str:
    for token in SPECIAL_TOKENS:
        text = text.replace(token, token.lower())
    return text


def real_lines(shared_data: Path, part: str, number: int) -> list[str]:
    with gzip.open(shared_data / "corpus" / part / "heldout.txt.gz", "rt", encoding="utf-8") as file:
        return [line for line in file.read().split("\n") if line][:number]


@pytest.mark.parametrize("name", SHARED_VOCABULARIES)
def test_ids_equal_transformers_on_real_text(
    name: str, pairs: dict[str, tuple[Tokenizer, Any]], shared_data: Path
) -> None:
    ours, theirs = pairs[name]
    lines = [line for part in ("books-en", "wiki-en", "zh") for line in real_lines(shared_data, part, 250)]
    expected = theirs(lines, add_special_tokens=False)["input_ids"]
    assert ours.encode_batch(lines) == expected
    assert sum(map(len, expected)) > 50_000


@pytest.mark.parametrize("name", SHARED_VOCABULARIES)
def test_ids_equal_the_python_tokenizer_of_transformers_on_real_text(
    name: str,
    shared_vocabulary_file: Callable[[str], Path],
    pairs: dict[str, tuple[Tokenizer, Any]],
    shared_data: Path,
) -> None:
    theirs = BertTokenizerLegacy(
        str(shared_vocabulary_file(name)), do_lower_case=SHARED_VOCABULARIES[name], model_max_length=10**9
    )
    for part in ("books-en", "wiki-en", "zh"):
        for line in real_lines(shared_data, part, 60):
            assert pairs[name][0].encode(line) == theirs.convert_tokens_to_ids(theirs.tokenize(line))


@pytest.mark.parametrize("name", SHARED_VOCABULARIES)
def test_ids_equal_transformers_on_random_unicode(name: str, pairs: dict[str, tuple[Tokenizer, Any]]) -> None:
    ours, theirs = pairs[name]
    characters = st.characters(exclude_categories=("Cs",))
    unicode = st.text(characters, max_size=60)
    mixed = st.lists(
        st.one_of(
            st.text(characters, max_size=6),
            st.sampled_from(["the ", " [", "]", "##", "é", "İ", "한국", "中文"]),
        ),
        max_size=12,
    ).map("".join)

    @settings(max_examples=250, deadline=None)
    @given(st.lists(st.one_of(unicode, mixed).map(without_special_tokens), min_size=1, max_size=8))
    def check(texts: list[str]) -> None:
        assert ours.encode_batch(texts) == theirs(texts, add_special_tokens=False)["input_ids"]

    check()


@pytest.mark.parametrize("name", SHARED_VOCABULARIES)
def test_a_saved_tokenizer_is_the_same_in_transformers(
    name: str, pairs: dict[str, tuple[Tokenizer, Any]], shared_data: Path, tmp_path: Path
) -> None:
    ours, _ = pairs[name]
    ours.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    lines = real_lines(shared_data, "wiki-en", 20) + real_lines(shared_data, "zh", 20)
    for line, ids in zip(lines, theirs(lines)["input_ids"], strict=True):
        assert [ours.cls_id, *ours.encode(line), ours.sep_id] == ids
    pair = theirs("one", "two three")
    assert pair["token_type_ids"][-1] == 1
    assert pair["input_ids"].count(ours.sep_id) == 2
    assert Tokenizer.load(tmp_path).identity() == ours.identity()


@pytest.mark.parametrize("name", SHARED_VOCABULARIES)
def test_literal_special_tokens_stay_text_in_the_shared_vocabularies(
    name: str, pairs: dict[str, tuple[Tokenizer, Any]]
) -> None:
    ours, _ = pairs[name]
    for token in SPECIAL_TOKENS:
        ids = ours.encode(f"x {token} y")
        assert not (set(ids) - {ours.unk_id}) & ours.special_ids
        assert len(ids) > 3


def test_masks_are_encoded_as_in_transformers(pairs: dict[str, tuple[Tokenizer, Any]]) -> None:
    ours, theirs = pairs["bert-base-uncased"]
    for text in ("[MASK]", "Paris is the [MASK] of France.", "un[MASK]able, [MASK][MASK]!", "  [MASK] x"):
        assert ours.encode_with_masks(text) == theirs(text, add_special_tokens=False)["input_ids"]
