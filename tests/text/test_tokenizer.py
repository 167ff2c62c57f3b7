from __future__ import annotations

import json
import logging
import multiprocessing
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from bertsmith.errors import InputError
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

Maker = Callable[..., Tokenizer]


def pieces(tokenizer: Tokenizer, text: str) -> list[str]:
    return [tokenizer.token(id) for id in tokenizer.encode(text)]


# --- the cases ------------------------------------------------------------------------------------


def test_c001_accents_are_stripped_or_kept_as_set_and_the_setting_is_saved(
    small_tokenizer: Maker, tmp_path: Path
) -> None:
    vocabulary = "musste müsste cafe 한 ##국"
    uncased = small_tokenizer(vocabulary)
    assert pieces(uncased, "müsste") == ["musste"]
    assert pieces(uncased, "Café") == ["cafe"]
    assert pieces(uncased, "Cafe\u0301") == ["cafe"]
    assert pieces(uncased, "한국") == ["[UNK]"]
    kept = small_tokenizer(vocabulary, strip_accents=False)
    kept.save(tmp_path)
    for tokenizer in (kept, Tokenizer.load(tmp_path)):
        assert pieces(tokenizer, "müsste") == ["müsste"]
        assert pieces(tokenizer, "한국") == ["한", "##국"]
    assert Tokenizer.load(tmp_path).config == kept.config


@pytest.mark.parametrize("limit, numbers", [(100, (100, 1, 1, 1)), (200, (100, 101, 200, 1))])
def test_c003_the_word_limit_is_a_stored_setting(
    limit: int, numbers: tuple[int, ...], small_tokenizer: Maker, tmp_path: Path
) -> None:
    small_tokenizer("x ##x", max_word_characters=limit).save(tmp_path)
    tokenizer = Tokenizer.load(tmp_path)
    words = ["x" * length for length in (100, 101, 200, 201)]
    assert tuple(len(ids) for ids in tokenizer.encode_batch(words)) == numbers
    ids, offsets = tokenizer.encode_with_offsets("x " + "x" * (limit + 1) + " x")
    assert ids == [5, tokenizer.unk_id, 5]
    assert offsets == [(0, 1), (2, limit + 3), (limit + 4, limit + 5)]


def test_c003_the_words_around_a_long_address_are_unchanged(small_tokenizer: Maker) -> None:
    tokenizer = small_tokenizer("see it http : / now x ##x")
    ids = tokenizer.encode(f"see http://{'x' * 300} now")
    names = [tokenizer.token(id) for id in ids]
    assert names == ["see", "http", ":", "/", "/", "[UNK]", "now"]


def test_c003_the_word_limit_holds_in_transformers_too(small_tokenizer: Maker, tmp_path: Path) -> None:
    ours = small_tokenizer("x ##x", max_word_characters=200)
    ours.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    for length in (101, 200, 201):
        text = "x" * length
        encoded = theirs(text, "x")
        assert encoded["input_ids"] == [2, *ours.encode(text), 3, 5, 3]
        assert encoded["token_type_ids"][-2:] == [1, 1]


def test_c006_offsets_point_into_the_original_text(small_tokenizer: Maker) -> None:
    tokenizer = small_tokenizer("a istan b")
    text = "a İstan b"
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert [tokenizer.token(id) for id in ids] == ["a", "istan", "b"]
    assert offsets == [(0, 1), (2, 7), (8, 9)]
    assert text[2:7] == "İstan"


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from(["İ", "ß", "a", "é", "e\u0301", "ﬁ", "中", "한", "\u200b", "\ufffd", "😀", " ", "Ǆ"])
    )
)
def test_c006_offsets_are_in_order_and_inside_whatever_normalisation_does(parts: list[str]) -> None:
    characters = "aeinfißs中dz"
    pieces = [*characters, *(f"##{character}" for character in characters)]
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *pieces], TokenizerConfig())
    text = "".join(parts) + " b"
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text)
    assert offsets[-1] == (len(text) - 1, len(text))
    for (start, end), (following, _) in zip(offsets, [*offsets[1:], (len(text), 0)], strict=True):
        assert 0 <= start < end <= len(text)
        assert start <= following


def write_vocabulary(directory: Path, *tokens: str) -> None:
    (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in (*SPECIAL_TOKENS, *tokens)))


def test_c007_the_casing_is_taken_from_the_vocabulary_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_vocabulary(tmp_path, "Paris", "paris", "is")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with caplog.at_level(logging.WARNING):
        tokenizer = Tokenizer.load(tmp_path)
    assert pieces(tokenizer, "Paris is") == ["Paris", "is"]
    assert "cased, because it holds capitals" in caplog.text
    tokenizer.save(tmp_path)
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        again = Tokenizer.load(tmp_path)
    assert pieces(again, "Paris is") == ["Paris", "is"]
    assert caplog.text == ""
    assert json.loads((tmp_path / "tokenizer_config.json").read_text())["do_lower_case"] is False


def test_c007_capitals_in_special_and_unused_entries_do_not_make_a_vocabulary_cased(tmp_path: Path) -> None:
    write_vocabulary(tmp_path, "[unused0]", "[Q]", "<S>", "paris")
    assert Tokenizer.load(tmp_path).config.lowercase is True


@pytest.mark.parametrize(
    "files, expected",
    [
        ({"tokenizer_config.json": {"do_lower_case": False}}, TokenizerConfig(lowercase=False)),
        (
            {"tokenizer_config.json": {"do_lower_case": True, "strip_accents": False}},
            TokenizerConfig(strip_accents=False),
        ),
        (
            {"tokenizer_config.json": {"do_lower_case": False, "tokenize_chinese_chars": False}},
            TokenizerConfig(lowercase=False, split_chinese=False),
        ),
        (
            {
                "tokenizer.json": {
                    "normalizer": {
                        "type": "BertNormalizer",
                        "handle_chinese_chars": False,
                        "strip_accents": True,
                        "lowercase": False,
                    },
                    "model": {"type": "WordPiece", "max_input_chars_per_word": 200},
                }
            },
            TokenizerConfig(
                lowercase=False, strip_accents=True, split_chinese=False, max_word_characters=200
            ),
        ),
        (
            {
                "tokenizer_config.json": {"model_max_length": 512},
                "tokenizer.json": {
                    "normalizer": {
                        "type": "Sequence",
                        "normalizers": [{"type": "NFC"}, {"type": "BertNormalizer", "lowercase": True}],
                    }
                },
            },
            TokenizerConfig(lowercase=True),
        ),
    ],
)
def test_c007_settings_of_hugging_face_files_are_read(
    files: dict[str, Any], expected: TokenizerConfig, tmp_path: Path
) -> None:
    write_vocabulary(tmp_path, "Paris", "paris")
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    assert Tokenizer.load(tmp_path).config == expected
    assert Tokenizer.load(tmp_path / "vocab.txt").config == expected


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "not JSON"),
        ("[]", "one JSON object"),
        ('{"do_lower_case": "no"}', "lowercase is 'no'"),
        ('{"do_lower_case": true, "max_word_characters": "many"}', "max_word_characters is 'many'"),
        ('{"do_lower_case": true, "max_word_characters": 0}', "max_word_characters is 0"),
    ],
)
def test_a_broken_settings_file_is_an_input_error(content: str, message: str, tmp_path: Path) -> None:
    write_vocabulary(tmp_path, "a")
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(InputError, match=message):
        Tokenizer.load(tmp_path)


# --- special tokens -------------------------------------------------------------------------------


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_literal_special_tokens_in_text_are_text(token: str, small_tokenizer: Maker) -> None:
    tokenizer = small_tokenizer("a [ ] pad unk cls sep mask")
    for text in (f"a {token} a", f"a{token}a", token):
        ids, _ = tokenizer.encode_with_offsets(text)
        assert ids == tokenizer.encode(text) == tokenizer.encode_batch([text])[0]
        assert not set(ids) & tokenizer.special_ids
        assert [tokenizer.token(id) for id in ids if id != 5] == ["[", token[1:-1].lower(), "]"]


def test_mask_is_real_only_where_it_is_asked_for(small_tokenizer: Maker) -> None:
    tokenizer = small_tokenizer("the cat sat [ ] mask sep")
    ids = tokenizer.encode_with_masks("the [MASK] sat[MASK]. [SEP]")
    assert [tokenizer.token(id) for id in ids] == [
        *("the", "[MASK]", "sat", "[MASK]", "[UNK]", "[", "sep", "]"),
    ]
    assert tokenizer.encode_with_masks("the cat") == tokenizer.encode("the cat")
    assert tokenizer.mask_id not in tokenizer.encode_with_masks("the [mask] sat")


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_a_missing_special_token_is_named(token: str) -> None:
    vocab = [other for other in (*SPECIAL_TOKENS, "a") if other != token]
    with pytest.raises(InputError, match=rf"here: .*\[{token[1:-1]}\] is missing"):
        Tokenizer(vocab, TokenizerConfig(), where="here")


# --- the rest of the interface --------------------------------------------------------------------


def test_ids_tokens_continuations(small_tokenizer: Maker) -> None:
    tokenizer = small_tokenizer("un ##able ## ###")
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id) == (
        *(0, 1, 2, 3, 4),
    )
    assert tokenizer.special_ids == {0, 1, 2, 3, 4}
    assert tokenizer.vocab_size == 9
    assert tokenizer.id("##able") == 6
    assert tokenizer.id("nothing") == tokenizer.unk_id
    assert tokenizer.token(5) == "un"
    assert tokenizer.continuation.dtype == np.bool_
    assert tokenizer.continuation.tolist() == [False] * 6 + [True, False, True]
    assert tokenizer.decode([*tokenizer.encode("unable [CLS]")[:2], tokenizer.sep_id]) == "unable [SEP]"
    assert tokenizer.decode([6, 5]) == "##able un"
    assert tokenizer.decode([]) == ""


def test_ids_are_line_numbers_wherever_the_special_tokens_stand(tmp_path: Path) -> None:
    tokens = ["a", "[MASK]", "[SEP]", "b", "[CLS]", "[UNK]", "[PAD]"]
    (tmp_path / "vocab.txt").write_text("\n".join(tokens))
    tokenizer = Tokenizer.load(tmp_path)
    assert [tokenizer.id(token) for token in tokens] == list(range(7))
    assert tokenizer.encode("a b c") == [0, 3, 5]
    tokenizer.save(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    assert theirs("a b c")["input_ids"] == [4, 0, 3, 5, 2]
    assert theirs.convert_tokens_to_ids(tokens) == list(range(7))


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", "\ud83d x", "x" * 5 + "\udc00"])
def test_lone_surrogates_do_not_crash(text: str, small_tokenizer: Maker) -> None:
    tokenizer = small_tokenizer("a b x ##x ##b")
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text) == tokenizer.encode_batch([text])[0]
    assert ids == tokenizer.encode("".join(c for c in text if not "\ud800" <= c <= "\udfff"))
    assert [text[start:end] for start, end in offsets] == [c for c in text if c in "abx"]


def test_what_is_no_text_is_refused(small_tokenizer: Maker) -> None:
    with pytest.raises(TypeError):
        small_tokenizer("a").encode(3)  # type: ignore[arg-type]


def test_the_identity_depends_on_vocabulary_and_settings(small_tokenizer: Maker) -> None:
    same = {small_tokenizer("a b").identity(), small_tokenizer("a b").identity()}
    others = [
        small_tokenizer("b a"),
        small_tokenizer("a b c"),
        small_tokenizer("a b", lowercase=False),
        small_tokenizer("a b", strip_accents=False),
        small_tokenizer("a b", split_chinese=False),
        small_tokenizer("a b", max_word_characters=200),
    ]
    assert len(same | {tokenizer.identity() for tokenizer in others}) == 1 + len(others)


def test_the_length_of_the_model_is_stored(small_tokenizer: Maker, tmp_path: Path) -> None:
    tokenizer = small_tokenizer("a")
    assert tokenizer.max_length is None
    tokenizer.max_length = 128
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).max_length == 128
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": True, "model_max_length": int(1e30)})
    )
    assert Tokenizer.load(tmp_path).max_length is None


def test_a_missing_vocabulary_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"vocab\.txt: no such vocabulary"):
        Tokenizer.load(tmp_path)
    with pytest.raises(InputError, match=r"other\.txt: no such vocabulary"):
        Tokenizer.load(tmp_path / "other.txt")


def test_the_vocabulary_of_minilm_is_read_with_its_settings(minilm_path: Path) -> None:
    tokenizer = Tokenizer.load(minilm_path)
    assert tokenizer.vocab_size == 30522
    assert tokenizer.config == TokenizerConfig()
    assert tokenizer.decode(tokenizer.encode("Embeddings are vectors.")) == "embeddings are vectors ."


_FORKS = """
import multiprocessing, sys
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
tokenizer = Tokenizer([*SPECIAL_TOKENS, "a"], TokenizerConfig())
def work(number):
    return tokenizer.encode_batch(["a a b"] * 200)
if __name__ == "__main__":
    expected = work(0)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert pool.map(work, range(4)) == [expected] * 4
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="no fork here")
def test_encoding_in_forked_processes_is_quiet_and_right() -> None:
    done = subprocess.run([sys.executable, "-c", _FORKS], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("config", [TokenizerConfig(), TokenizerConfig(lowercase=False, split_chinese=False)])
def test_what_transformers_saves_without_a_vocab_txt_is_the_same_tokenizer(
    config: TokenizerConfig, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = Tokenizer([*SPECIAL_TOKENS, "Paris", "paris", "##s", "é", "e", "你"], config)
    tokenizer.save(tmp_path / "ours")
    transformers.AutoTokenizer.from_pretrained(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    assert not (tmp_path / "theirs" / "vocab.txt").exists()
    for path in (tmp_path / "theirs", tmp_path / "theirs" / "tokenizer.json"):
        assert Tokenizer.load(path).identity() == tokenizer.identity()
