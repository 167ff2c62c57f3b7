"""Longer vocabularies for a domain: old ids stay, words need fewer pieces."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bertsmith.errors import InputError
from bertsmith.text.extension import extended_vocabulary, pieces_of
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import train_bpe

Maker = Callable[..., Tokenizer]
PIECES = "card ##io ##my ##opa ##thy the heart ##s is a ##a c ##c my ##i ##o ##m ##y ##p ##t ##h"
DOMAIN = [
    *["the cardiomyopathy is a heart myopathy"] * 6,
    *["the myopathy"] * 4,
    *["cardios"] * 3,
    *["hearts"] * 2,
]


def count(tokenizer: Tokenizer, lines: list[str]) -> int:
    return sum(len(tokenizer.encode(line)) for line in lines)


def test_the_most_useful_words_come_behind_the_old_entries(small_tokenizer: Maker) -> None:
    old = small_tokenizer(PIECES)
    vocab = extended_vocabulary(DOMAIN, old, old.vocab_size + 2)
    assert vocab[: old.vocab_size] == old.vocab
    # Ten times two pieces are saved by myopathy, six times four by cardiomyopathy.
    assert vocab[old.vocab_size :] == ["cardiomyopathy", "myopathy"]
    new = Tokenizer(vocab, old.config)
    assert count(new, DOMAIN) == count(old, DOMAIN) - 6 * 4 - 10 * 2
    assert [new.token(id) for id in new.encode("the heart is my")] == ["the", "heart", "is", "my"]


def test_characters_that_made_words_unknown_come_first(small_tokenizer: Maker) -> None:
    old = small_tokenizer(PIECES)
    text = [*["μ heart"] * 5, *["caμ"] * 3, "ω", *DOMAIN]
    vocab = extended_vocabulary(text, old, old.vocab_size + 4)
    assert vocab[old.vocab_size :][:2] == ["μ", "##μ"]  # ω occurs once only
    new = Tokenizer(vocab, old.config)
    assert old.unk_id in old.encode("μ caμ")
    assert new.unk_id not in new.encode("μ caμ")


def test_the_same_text_in_another_order_gives_the_same(small_tokenizer: Maker) -> None:
    old = small_tokenizer(PIECES)
    size = old.vocab_size + 6
    assert extended_vocabulary(DOMAIN, old, size) == extended_vocabulary(DOMAIN[::-1], old, size)


def test_a_small_text_gives_fewer_entries_with_a_warning(
    small_tokenizer: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    old = small_tokenizer(PIECES)
    assert len(extended_vocabulary(DOMAIN, old, 5000)) < 100
    assert "too small for 5000 entries" in caplog.text


@pytest.mark.parametrize(
    "piece, cuts",
    [
        ("cardiomy", ["card", "##io", "##my"]),
        ("##iomy", ["##io", "##my"]),
        ("myth", ["my", "##t", "##h"]),
        ("heartx", None),
    ],
)
def test_a_new_piece_is_cut_as_the_old_vocabulary_would(
    piece: str, cuts: list[str] | None, small_tokenizer: Maker
) -> None:
    old = small_tokenizer(PIECES)
    found = pieces_of(piece, old)
    assert (found and [old.token(id) for id in found]) == cuts
    if cuts and not piece.startswith("##"):
        assert found == old.encode(piece)


def test_what_cannot_be_extended_is_refused(small_tokenizer: Maker) -> None:
    old = small_tokenizer(PIECES)
    with pytest.raises(InputError, match=f"size is {old.vocab_size}, but the model's vocabulary has"):
        extended_vocabulary(DOMAIN, old, old.vocab_size)
    with pytest.raises(InputError, match="nothing to extend"):
        extended_vocabulary(["the heart is"] * 4, old, old.vocab_size + 5)
    with pytest.raises(InputError, match="only WordPiece"):
        extended_vocabulary(DOMAIN, Tokenizer(*train_bpe(DOMAIN, 300)), 400)
