"""Windows: both ways of cutting, and the window that knows a piece best."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer as Engine
from tokenizers import models, pre_tokenizers

from bertsmith.tasks.windows import Window, best_known, cut, passage_of
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

SIZES = st.integers(0, 60), st.integers(1, 20), st.integers(1, 25)


def originals_windows(pieces: int, space: int, step: int) -> list[tuple[int, int]]:
    """The original's loop. Source: run_squad.py, convert_examples_to_features."""
    spans = []
    start = 0
    while start < pieces:
        length = min(pieces - start, space)
        spans.append((start, length))
        if start + length == pieces:
            break
        start += min(length, step)
    return spans


@given(*SIZES)
def test_windows_are_the_originals(pieces: int, space: int, step: int) -> None:
    windows = cut(pieces, space, step)
    assert windows == (originals_windows(pieces, space, step) or [(0, 0)])
    assert sorted({p for first, n in windows for p in range(first, first + n)}) == list(range(pieces))


@given(st.integers(1, 60), st.integers(2, 20), st.integers(0, 19))
def test_windows_by_overlap_are_those_of_tokenizers(pieces: int, space: int, overlap: int) -> None:
    if overlap >= space:
        return
    engine = Engine(models.WordLevel({"x": 0}, unk_token="x"))
    engine.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    engine.enable_truncation(space, stride=overlap)
    encoding = engine.encode(" ".join(["x"] * pieces))
    theirs = [(part.offsets[0][0] // 2, len(part)) for part in (encoding, *encoding.overflowing)]
    assert cut(pieces, space, space - overlap) == theirs


@given(*SIZES)
def test_each_piece_belongs_to_the_window_that_knows_it_best(pieces: int, space: int, step: int) -> None:
    windows = [Window(0, first, number, 0) for first, number in cut(pieces, space, step)]
    owned = best_known(windows)
    for piece in range(pieces):
        best, best_score = None, None
        for number, window in enumerate(windows):  # Source: run_squad.py, _check_is_max_context
            if window.first <= piece < window.first + window.pieces:
                left, right = piece - window.first, window.first + window.pieces - 1 - piece
                score = min(left, right) + 0.01 * window.pieces
                if best_score is None or score > best_score:
                    best, best_score = number, score
        owners = [
            number
            for number, (window, mask) in enumerate(zip(windows, owned, strict=True))
            if window.first <= piece < window.first + window.pieces and mask[piece - window.first]
        ]
        assert owners == [best]
    assert [len(mask) for mask in owned] == [window.pieces for window in windows]


def test_pieces_of_characters_and_back() -> None:
    vocabulary = [*SPECIAL_TOKENS, "pay", "100", "kr", "now", "müll", "##er", "dr", ".", "oslo"]
    tokenizer = Tokenizer(vocabulary, TokenizerConfig(strip_accents=False))
    text = "pay \u00a0100\u00a0kr now"
    passage = passage_of(text, tokenizer)
    assert passage.pieces_of(5, 11) == (1, 2)
    start, end = passage.characters_of(1, 2)
    assert text[start:end] == "100\u00a0kr"
    assert passage.pieces_of(3, 5) is None, "white space alone has no piece"
    name = passage_of("Dr Müller", tokenizer)
    assert name.pieces_of(3, 9) == (1, 2)
    assert name.pieces_of(4, 5) == (1, 1), "a part of a piece is that piece"
    assert passage_of(" \u200b", tokenizer).pieces_of(0, 2) is None
    assert passage_of("", tokenizer).offsets.shape == (0, 2)
    np.testing.assert_array_equal(passage_of(" Oslo.", tokenizer).offsets, [[1, 5], [5, 6]])
