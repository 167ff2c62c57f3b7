"""Windows of long texts: nothing lost, every piece counted the same, one result a row."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.tasks.encode import encode_rows
from bertsmith.tasks.text_windows import encode_inputs, fair_shares, spread
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = [f"w{number}" for number in range(400)]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer([*SPECIAL_TOKENS, *WORDS], TokenizerConfig())


def words(start: int, number: int) -> str:
    return " ".join(WORDS[start : start + number])


def pieces(tokenizer: Tokenizer, ids: np.ndarray) -> list[str]:
    return [tokenizer.token(id) for id in ids]


@given(st.integers(0, 3000), st.integers(2, 600))
def test_windows_hold_every_piece_overlap_and_are_no_more_than_needed(length: int, space: int) -> None:
    spans = spread(length, space)
    assert spans[0][0] == 0
    assert spans[-1][1] == length
    if length <= space:
        assert len(spans) == 1
        return
    assert {end - start for start, end in spans} == {space}, "all windows are full"
    overlaps = [a_end - b_start for (_, a_end), (b_start, _) in pairwise(spans)]
    assert min(overlaps) >= max(1, space // 4)
    step = space - max(1, space // 4)
    assert len(spans) == 1 + math.ceil((length - space) / step)


@given(st.integers(1, 500), st.integers(2, 100))
def test_every_piece_counts_the_same(length: int, space: int) -> None:
    """Counted one by one: a piece gives each of its windows an equal part of its one vote."""
    spans = spread(length, space)
    votes = [0.0] * len(spans)
    for piece in range(length):
        holders = [number for number, (start, end) in enumerate(spans) if start <= piece < end]
        for number in holders:
            votes[number] += 1 / len(holders)
    assert fair_shares(spans) == pytest.approx(np.array(votes) / length)
    assert fair_shares(spans).sum() == pytest.approx(1.0)


def test_a_long_text_is_read_whole_and_a_short_one_as_ever(tokenizer: Tokenizer) -> None:
    texts = [(words(0, 5), None), (words(0, 23), None), ("", None), (words(40, 8), None)]
    inputs = encode_inputs(texts, tokenizer, 10, "windows")
    assert inputs.owners.tolist() == [0, 1, 1, 1, 1, 2, 3]
    assert inputs.truncated == [False] * 4
    read = [pieces(tokenizer, row.ids)[1:-1] for row in inputs.encoded[1:5]]
    assert [part[0] for part in read] == ["w0", "w5", "w10", "w15"]
    assert {word for part in read for word in part} == set(WORDS[:23])
    for number, index in ((0, 0), (2, 5), (3, 6)):
        plain = encode_rows([texts[number]], tokenizer, 10)[0]
        assert inputs.encoded[index].ids.tolist() == plain.ids.tolist()


def test_a_pair_keeps_its_shorter_text_in_every_window(tokenizer: Tokenizer) -> None:
    for pair in ((words(0, 3), words(10, 20)), (words(10, 20), words(0, 3))):
        inputs = encode_inputs([pair], tokenizer, 12, "windows")
        assert inputs.num_rows == 1
        assert len(inputs.encoded) == 4
        assert inputs.truncated == [False]
        found = [pieces(tokenizer, row.ids) for row in inputs.encoded]
        assert all(set(WORDS[:3]) <= set(tokens) and tokens.count("[SEP]") == 2 for tokens in found)
        assert {word for tokens in found for word in tokens if word in WORDS[10:30]} == set(WORDS[10:30])
        assert {len(row.ids) for row in inputs.encoded} == {12}
    short_first = encode_inputs([(words(0, 3), words(10, 20))], tokenizer, 12, "windows").encoded[0]
    assert short_first.second_start == 5


def test_two_long_texts_lose_the_end_of_the_shorter_and_say_so(tokenizer: Tokenizer) -> None:
    inputs = encode_inputs([(words(0, 30), words(100, 20))], tokenizer, 23, "windows")
    assert inputs.truncated == [True]
    found = {token for row in inputs.encoded for token in pieces(tokenizer, row.ids)}
    assert set(WORDS[:30]) <= found
    assert [word for word in WORDS[100:120] if word in found] == WORDS[100:110]
    equal = encode_inputs([(words(0, 30), words(100, 30))], tokenizer, 23, "windows")
    second = {token for row in equal.encoded for token in pieces(tokenizer, row.ids[row.second_start :])}
    assert set(WORDS[100:130]) <= second, "of equally long texts the second has the windows"


def test_a_rows_outputs_are_the_mean_of_its_windows(tokenizer: Tokenizer) -> None:
    texts = [(words(0, 4), None), (words(0, 25), None), (words(0, 9), None)]
    inputs = encode_inputs(texts, tokenizer, 10, "windows")
    draw = np.random.default_rng(0)
    outputs = draw.normal(size=(len(inputs.encoded), 3)).astype(np.float32)
    means = inputs.of_rows(outputs)
    assert means[0].tolist() == outputs[0].tolist(), "one window: its very numbers"
    for row in range(3):
        own = inputs.owners == row
        expected = np.average(outputs[own].astype(np.float64), axis=0, weights=inputs.shares[own])
        assert means[row] == pytest.approx(expected, abs=1e-6)
    constant = inputs.of_rows(np.full((len(inputs.encoded), 1), 2.5, dtype=np.float32))
    assert constant == pytest.approx(np.full((3, 1), 2.5))


def test_in_training_every_row_counts_once(tokenizer: Tokenizer) -> None:
    texts = [(words(0, number), None) for number in (3, 50, 200)]
    inputs = encode_inputs(texts, tokenizer, 20, "windows")
    weights = inputs.weights()
    assert weights.mean() == pytest.approx(1.0), "so that a batch's mean estimates that over the rows"
    by_row = [weights[inputs.owners == row].sum() for row in range(3)]
    assert by_row == pytest.approx([by_row[0]] * 3)
    assert encode_inputs(texts, tokenizer, 400, "tail").weights().tolist() == [1.0] * 3


@pytest.mark.parametrize("truncation", ["tail", "head", "head+tail"])
def test_other_policies_give_one_input_a_row(tokenizer: Tokenizer, truncation: str) -> None:
    texts = [(words(0, number), None) for number in (3, 50)]
    inputs = encode_inputs(texts, tokenizer, 18, truncation)
    plain = encode_rows(texts, tokenizer, 18, truncation)
    assert [row.ids.tolist() for row in inputs.encoded] == [row.ids.tolist() for row in plain]
    assert inputs.truncated == [False, True]
    assert inputs.shares.tolist() == [1.0, 1.0]


def test_no_rows_give_no_inputs(tokenizer: Tokenizer) -> None:
    for truncation in ("tail", "windows"):
        inputs = encode_inputs([], tokenizer, 18, truncation)
        assert (inputs.num_rows, inputs.truncated) == (0, [])
        assert inputs.of_rows(np.zeros((0, 2), dtype=np.float32)).shape == (0, 2)
