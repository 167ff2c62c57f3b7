from __future__ import annotations

import gzip
import hashlib
import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers, trainers

from bertsmith.errors import InputError
from bertsmith.text import vocabulary
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.rules import normalizer_of
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertsmith.text.vocabulary import count_words, read_vocabulary, train_vocabulary

SPECIAL_LINES = "".join(f"{token}\n" for token in SPECIAL_TOKENS)


# --- reading ----------------------------------------------------------------------------------------


def test_c009_a_bom_and_crlf_are_no_part_of_the_entries(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(b"\xef\xbb\xbf" + (SPECIAL_LINES + "hello\n").replace("\n", "\r\n").encode())
    with caplog.at_level(logging.WARNING):
        vocab = read_vocabulary(path)
    assert vocab == [*SPECIAL_TOKENS, "hello"]
    assert "byte order mark" in caplog.text
    assert "CR LF" in caplog.text
    tokenizer = Tokenizer.load(path)
    assert (tokenizer.vocab_size, tokenizer.id("[PAD]"), tokenizer.id("hello")) == (6, 0, 5)
    tokenizer.save(tmp_path / "saved")
    assert (tmp_path / "saved" / "vocab.txt").read_bytes() == (SPECIAL_LINES + "hello\n").encode()


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_c010_a_missing_special_token_is_named_with_the_file(token: str, tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text(SPECIAL_LINES.replace(token + "\n", "") + "a\nb\nc\n")
    with pytest.raises(InputError, match=rf"own\.txt: .*\[{token[1:-1]}\]"):
        read_vocabulary(path)
    with pytest.raises(InputError, match=rf"own\.txt: .*\[{token[1:-1]}\]"):
        Tokenizer.load(path)


def test_the_line_number_is_the_id_whatever_the_line_holds(tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    odd = ["\u2028", "##\u2028", "", "\x85", " ", "a\u2029b", "\x0c"]
    path.write_bytes("\n".join([*SPECIAL_TOKENS, *odd, "last"]).encode())
    vocab = read_vocabulary(path)
    assert vocab == [*SPECIAL_TOKENS, *odd, "last"]
    tokenizer = Tokenizer.load(path)
    assert tokenizer.encode("last") == [len(vocab) - 1]
    tokenizer.save(tmp_path / "saved")
    assert read_vocabulary(tmp_path / "saved" / "vocab.txt") == vocab


@pytest.mark.parametrize(
    "name, size",
    [
        ("bert-base-uncased", 30522),
        ("bert-base-cased", 28996),
        ("bert-base-chinese", 21128),
        ("bert-base-multilingual-cased", 119547),
    ],
)
def test_the_shared_vocabularies_have_their_official_sizes(
    name: str, size: int, shared_vocabulary_file: Callable[[str], Path], tmp_path: Path
) -> None:
    path = shared_vocabulary_file(name)
    tokenizer = Tokenizer.load(path)
    assert tokenizer.vocab_size == size
    tokenizer.save(tmp_path)
    assert (tmp_path / "vocab.txt").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("content", [b"", b"\xff\xfe[PAD]"])
def test_a_vocabulary_that_is_none_is_an_input_error(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"vocab\.txt"):
        read_vocabulary(path)
    with pytest.raises(InputError, match=r"cannot be read"):
        read_vocabulary(tmp_path)


# --- training ---------------------------------------------------------------------------------------


def wiki_lines(shared_data: Path, characters: int) -> Iterator[str]:
    with gzip.open(shared_data / "corpus" / "wiki-en" / "heldout.txt.gz", "rt", encoding="utf-8") as file:
        for line in file:
            yield line
            characters -= len(line)
            if characters <= 0:
                return


@pytest.mark.parametrize("lowercase", [True, False])
def test_the_vocabulary_has_the_size_asked_for_and_covers_the_text(
    lowercase: bool, shared_data: Path
) -> None:
    config = TokenizerConfig(lowercase=lowercase)
    lines = list(wiki_lines(shared_data, 400_000))
    vocab = train_vocabulary(iter(lines), 4000, config)
    assert len(vocab) == len(set(vocab)) == 4000
    assert tuple(vocab[:5]) == SPECIAL_TOKENS
    assert any(token != token.lower() for token in vocab[5:]) is not lowercase
    tokenizer = Tokenizer(vocab, config)
    ids = [id for row in tokenizer.encode_batch(lines) for id in row]
    assert ids.count(tokenizer.unk_id) == 0
    assert len(ids) / sum(len(line.split()) for line in lines) < 1.7
    assert len(set(ids)) > 3600, "nearly every piece is of use"
    for token in ("the", "##ing", "of", "##ed"):
        assert token in vocab


def test_it_learns_what_the_engine_alone_learns(shared_data: Path) -> None:
    """The order of ties aside: the engine alone breaks them at random."""
    config = TokenizerConfig()
    lines = list(wiki_lines(shared_data, 300_000))
    engine = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizer_of(config)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=2500, min_frequency=2, special_tokens=list(SPECIAL_TOKENS), show_progress=False
    )
    engine.train_from_iterator(lines, trainer)
    ours = set(train_vocabulary(iter(lines), 2500, config))
    assert len(ours & set(engine.get_vocab())) > 0.99 * 2500


_TRAINS = """
import sys
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.vocabulary import train_vocabulary
import hashlib
lines = sys.stdin.read().split("\\n")
vocab = train_vocabulary(iter(lines), 3000, TokenizerConfig())
print(hashlib.sha256("\\n".join(vocab).encode()).hexdigest())
"""


def test_training_does_not_depend_on_process_threads_or_hash_seed(shared_data: Path) -> None:
    text = "".join(wiki_lines(shared_data, 200_000))
    digests = []
    for threads, seed in (("1", "0"), ("2", "1"), ("3", "random")):
        environment = os.environ | {"RAYON_NUM_THREADS": threads, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", _TRAINS],
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            env=environment,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        digests.append(done.stdout)
    assert digests[0] == digests[1] == digests[2]
    vocab = train_vocabulary(iter(text.split("\n")), 3000, TokenizerConfig())
    assert digests[0].strip() == hashlib.sha256("\n".join(vocab).encode()).hexdigest()


def test_ties_are_broken_alike_whatever_the_order_of_the_lines() -> None:
    lines = [f"{first}{second}{third}" for first in "abcdef" for second in "uvwxyz" for third in "klmno"]
    expected = train_vocabulary(iter(lines), 90, TokenizerConfig(), min_frequency=1)
    for _ in range(5):
        assert train_vocabulary(iter(lines[::-1]), 90, TokenizerConfig(), min_frequency=1) == expected


def test_a_corpus_that_is_too_small_gives_fewer_entries_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        vocab = train_vocabulary(iter(["ab ab ab abc"] * 3), 1000, TokenizerConfig())
    assert vocab == [*SPECIAL_TOKENS, "a", "b", "c", "##b", "##c", "ab", "abc"]
    assert f"1000 entries: the vocabulary has {len(vocab)}" in caplog.text


def test_pairs_below_the_frequency_are_not_merged() -> None:
    lines = ["ab ab ab cd"]
    assert "cd" not in train_vocabulary(iter(lines), 100, TokenizerConfig(), min_frequency=2)
    assert "cd" in train_vocabulary(iter(lines), 100, TokenizerConfig(), min_frequency=1)


def test_the_alphabet_is_limited_to_the_most_frequent_characters() -> None:
    lines = ["aa aa aa bb bb c xay"]
    vocab = train_vocabulary(iter(lines), 100, TokenizerConfig(), limit_alphabet=2)
    assert set(vocab[5:]) == {"a", "b", "##a", "##b", "aa", "bb"}


def test_literal_special_tokens_in_the_corpus_are_words_like_others() -> None:
    vocab = train_vocabulary(iter(["[SEP] [MASK] text"] * 5), 200, TokenizerConfig())
    assert vocab.count("[SEP]") == 1
    assert {"sep", "mask", "[", "]", "text"} <= set(vocab)


def test_chinese_characters_stand_alone() -> None:
    vocab = train_vocabulary(iter(["今天天气很好。今天很冷！"] * 4), 100, TokenizerConfig())
    assert set("今天气很好冷。！") <= set(vocab)
    assert not any(token.startswith("##") for token in vocab)


def test_a_size_below_the_alphabet_is_an_input_error() -> None:
    with pytest.raises(InputError, match=r"size 7 is too small.*alone are 10"):
        train_vocabulary(iter(["abc bc"]), 7, TokenizerConfig(), min_frequency=1)


@pytest.mark.parametrize("lines", [[], ["", "  "], ["\x00"]])
def test_a_corpus_without_words_is_an_input_error(lines: list[str]) -> None:
    with pytest.raises(InputError, match="no words"):
        train_vocabulary(iter(lines), 100, TokenizerConfig())


def test_words_are_counted_as_the_engine_splits_them() -> None:
    config = TokenizerConfig()
    lines = ["Café, café! İstan", "don't — 中文 ab" + "\u200b" + "c", "x" * 101 + " " + "y" * 100]
    normalizer = normalizer_of(config)
    splitter = pre_tokenizers.BertPreTokenizer()
    expected: Counter[str] = Counter()
    for line in lines:
        expected.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(line)))
    del expected["x" * 101]
    counted = count_words(iter(lines), config)
    assert counted == dict(expected)
    assert counted["cafe"] == 2
    assert list(counted) == sorted(counted)


def test_memory_is_bounded_by_forgetting_single_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "_MOST_DISTINCT_SPACED", 50)
    monkeypatch.setattr(vocabulary, "_MOST_DISTINCT_WORDS", 50)
    lines = [f"often word{number}" for number in range(1000)]
    counted = count_words(iter(lines), TokenizerConfig())
    assert counted["often"] == 1000
    assert len(counted) <= 101


def test_the_alphabet_covers_chinese_unless_told_otherwise():
    frequent = [chr(0x4E00 + number) for number in range(3000)]
    rare = [chr(0x9000 + number) for number in range(200)]
    lines = [*(" ".join(frequent) for _ in range(100)), " ".join(rare[:15])]
    vocab = train_vocabulary(iter(lines), 8000, TokenizerConfig())
    assert set(frequent) <= set(vocab)  # beyond the 1000 that an alphabet of letters would need
    assert len(set(rare) & set(vocab)) == 0  # 15 of 300,015 characters: beyond 99.99 %
    assert len(set(frequent) & set(train_vocabulary(iter(lines), 8000, TokenizerConfig(), 2, 1000))) == 1000


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"size": 5}, "size is 5; it has to be at least 6"),
        ({"min_frequency": -1}, "min_frequency is -1"),
        ({"limit_alphabet": -2}, "limit_alphabet is -2"),
        ({"tokenizer": TokenizerConfig(max_word_characters=0)}, "max_word_characters is 0"),
    ],
)
def test_numbers_out_of_range_are_refused_before_the_text_is_read(
    changes: dict[str, int], message: str
) -> None:
    def unread() -> Iterator[str]:
        pytest.fail("the text was read")
        yield ""

    with pytest.raises(InputError, match=message):
        train_vocabulary(unread(), **({"size": 100, "tokenizer": TokenizerConfig()} | changes))
