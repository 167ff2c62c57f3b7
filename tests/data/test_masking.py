"""Masks, against a plain loop and by properties."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.config import MaskingConfig
from bertsmith.data.masking import Ids, MaskingVocabulary, mask, max_predictions_of
from bertsmith.errors import InputError
from bertsmith.randomness import generator
from tests.data.conftest import SmallVocabulary

PAIRS = st.builds(
    lambda first, second: [2, *first, 3, *second, 3],
    st.lists(st.integers(5, 999), min_size=1, max_size=70),
    st.lists(st.integers(5, 999), min_size=1, max_size=70),
)
SHARES = st.sampled_from(
    [(0.8, 0.1, 0.1), (1.0, 0.0, 0.0), (0.0, 0.2, 0.8), (0.0, 0.0, 1.0), (0.8, 0.2, 0.0)]
)


def words_of(ids: list[int], whole_words: bool) -> list[list[int]]:
    """Return the places that may be chosen, those of one word together."""
    words: list[list[int]] = []
    for place, id in enumerate(ids):
        if id in (0, 2, 3, 4):
            continue
        if whole_words and id % 3 == 0 and words and words[-1][-1] == place - 1:
            words[-1].append(place)
        else:
            words.append([place])
    return words


# The mean of SpanBERT's lengths: geometric with p = 0.2, cut at ten.
SPANBERT_SHARES = [0.2 * 0.8 ** (length - 1) for length in range(1, 11)]
SPANBERT_MEAN = sum(length * share for length, share in enumerate(SPANBERT_SHARES, 1)) / sum(SPANBERT_SHARES)


def span_length(draw: float) -> int:
    """Return the length that a number between 0 and 1 stands for."""
    left = draw * sum(SPANBERT_SHARES)
    for length, share in enumerate(SPANBERT_SHARES, 1):
        left -= share
        if left < 0:
            return length
    return 10


def plain_spans(words: list[list[int]], draws: np.random.Generator, budget: int) -> dict[int, int]:
    """Return the chosen places, each with the place where its span begins."""
    span_of: dict[int, int] = {}
    keys = [draws.random() for _ in words]
    lengths = [span_length(draws.random()) for _ in words]
    order = sorted(range(len(words)), key=keys.__getitem__)
    for start in order:
        for word in range(start, min(start + lengths[start], len(words))):
            follows = word == start or words[word][0] == words[word - 1][-1] + 1
            if words[word][0] in span_of or len(span_of) + len(words[word]) > budget or not follows:
                break
            span_of |= dict.fromkeys(words[word], words[start][0])
    if words and not span_of:
        span_of = dict.fromkeys(words[order[0]][:budget], words[order[0]][0])
    return span_of


def plain_mask(ids: list[int], seed: int, config: MaskingConfig, cap: int) -> tuple[list[int], list[int]]:
    """Mask as BERT-FACTS 12-13 say, one piece after another, with the same draws."""
    draws = generator(seed, "masking")
    budget = min(cap, max(1, round(len(ids) * config.rate)))
    words = words_of(ids, config.whole_words or config.span_mean > 0)
    chosen: list[int] = []
    span_of = plain_spans(words, draws, budget) if config.span_mean else {}
    if config.span_mean:
        chosen = list(span_of)
    elif config.whole_words or len(words) > budget:
        keys = [draws.random() for _ in words]
        order = sorted(range(len(words)), key=keys.__getitem__)
        for word in order:
            if len(chosen) + len(words[word]) <= budget:
                chosen += words[word]
        if not chosen:
            chosen = words[order[0]][:budget]
    else:
        chosen = [word[0] for word in words]
    chosen.sort()
    coins = [draws.random() for _ in chosen]
    if span_of:
        coins = [coins[chosen.index(span_of[place])] for place in chosen]
    others = [draws.random() for _ in chosen]
    vocabulary = [id for id in range(1000) if config.random_specials or id >= 5]
    result = list(ids)
    for place, coin, other in zip(chosen, coins, others, strict=True):
        if coin < config.mask_share:
            result[place] = 4
        elif coin >= config.mask_share + config.same_share:
            result[place] = vocabulary[int(other * len(vocabulary))]
    return result, chosen


MODES = st.sampled_from([{}, {"whole_words": True}, {"span_mean": SPANBERT_MEAN}])


@settings(max_examples=300, deadline=None)
@given(PAIRS, SHARES, st.floats(0.01, 1.0), MODES, st.booleans(), st.integers(1, 40), st.integers(0, 99))
def test_masks_equal_the_plain_version(ids, shares, rate, mode, specials, cap, seed) -> None:
    config = MaskingConfig(rate, 0, *shares, random_specials=specials, **mode)
    vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
    array = np.array(ids)
    masked, positions, labels = mask(array, generator(seed, "masking"), config, vocabulary, cap)
    expected, chosen = plain_mask(ids, seed, config, cap)
    assert positions.tolist() == chosen
    assert masked.tolist() == expected
    assert labels.tolist() == [ids[place] for place in chosen]
    assert array.tolist() == ids  # the instance itself is left alone


@settings(max_examples=200, deadline=None)
@given(PAIRS, st.floats(0.01, 1.0), st.integers(1, 200), st.integers(0, 99))
def test_the_budget_is_exact(ids, rate, cap, seed) -> None:
    config = MaskingConfig(rate)
    vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
    _, positions, _ = mask(np.array(ids), generator(seed, "masking"), config, vocabulary, cap)
    assert len(positions) == min(cap, max(1, round(len(ids) * rate)), len(ids) - 3)
    assert (np.diff(positions) > 0).all()


def test_the_cap_is_the_originals() -> None:
    assert max_predictions_of(MaskingConfig(), 128) == 20
    assert max_predictions_of(MaskingConfig(), 512) == 77
    assert max_predictions_of(MaskingConfig(), 100) == 15
    assert max_predictions_of(MaskingConfig(), 8) == 2
    assert max_predictions_of(MaskingConfig(max_predictions=76), 512) == 76


@pytest.mark.parametrize("whole_words", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_c017_only_normal_tokens_are_chosen_in_the_right_shares(whole_words, dynamic) -> None:
    config = MaskingConfig(whole_words=whole_words, dynamic=dynamic)
    vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
    draw = np.random.default_rng(5)
    chosen = normal = masked_share = same_share = random_share = 0
    for index in range(1000):
        first, second = (draw.integers(5, 1000, draw.integers(5, 31)).tolist() for _ in range(2))
        ids = np.array([2, *first, 3, *second, 3, *[0] * (61 - len(first) - len(second))])
        used = len(first) + len(second) + 3
        # padding is never in a row of ours; were it there, it would count in the budget but not be chosen
        masked, positions, labels = mask(
            ids[:used], generator(0, "masking", int(dynamic), index), config, vocabulary, 10
        )
        assert 1 <= len(positions) <= 10
        assert not set(ids[positions].tolist()) & {0, 2, 3, 4}
        assert (ids[positions] == labels).all()
        rest = np.setdiff1d(np.arange(used), positions)
        assert (masked[rest] == ids[rest]).all()
        there = masked[positions]
        assert not set(there.tolist()) & {0, 1, 2, 3}
        chosen += len(positions)
        normal += len(first) + len(second)
        masked_share += int((there == 4).sum())
        same_share += int((there == labels).sum())
        random_share += int(((there != 4) & (there != labels)).sum())
        with_padding = mask(ids, generator(0, "masking", 0, index), config, vocabulary, 10)[1]
        assert with_padding.max() < used - 1
    assert (0.12 if whole_words else 0.14) <= chosen / normal <= 0.17
    assert abs(masked_share / chosen - 0.8) < 0.02
    assert abs(same_share / chosen - 0.1) < 0.02
    assert abs(random_share / chosen - 0.1) < 0.02


@pytest.mark.parametrize("specials", [False, True])
def test_random_pieces_are_even_over_the_vocabulary(specials) -> None:
    config = MaskingConfig(1.0, 0, 0.0, 0.0, 1.0, random_specials=specials)
    small = SmallVocabulary(50)
    vocabulary = MaskingVocabulary.of(small, config)
    ids = np.full(1000, 7)
    counts = np.zeros(50)
    for index in range(100):
        masked, _, _ = mask(ids, generator(0, "masking", 0, index), config, vocabulary, 1000)
        counts += np.bincount(masked, minlength=50)
    lowest = 0 if specials else 5
    assert counts[:lowest].sum() == 0 if not specials else (counts > 0).all()
    expected = 100_000 / (50 - lowest)
    assert np.abs(counts[lowest:] / expected - 1).max() < 0.12


def test_pieces_are_chosen_evenly() -> None:
    config = MaskingConfig()
    vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
    ids = np.array([2, *range(5, 43), 3])
    counts = np.zeros(len(ids))
    for index in range(20_000):
        counts[mask(ids, generator(1, "masking", 0, index), config, vocabulary, 20)[1]] += 1
    assert counts[[0, -1]].sum() == 0
    assert np.abs(counts[1:-1] / (20_000 * 6 / 38) - 1).max() < 0.1


@settings(max_examples=200, deadline=None)
@given(PAIRS, st.integers(1, 20), st.integers(0, 99))
def test_whole_words_are_whole_and_within_the_budget(ids, cap, seed) -> None:
    config = MaskingConfig(whole_words=True)
    vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
    budget = min(cap, max(1, round(len(ids) * 0.15)))
    _, positions, _ = mask(np.array(ids), generator(seed, "masking"), config, vocabulary, cap)
    chosen = set(positions.tolist())
    assert 1 <= len(chosen) <= budget
    words = words_of(ids, True)
    touched = [word for word in words if chosen & set(word)]
    if min(map(len, words)) <= budget:
        fitting = [word for word in words if len(word) <= budget - len(chosen) and word not in touched]
        assert all(chosen >= set(word) for word in touched) or len(touched) == 1
        assert not fitting  # no word that still fits is left out


def spans_of(ids: list[int], positions: Ids, words: list[list[int]]) -> list[int]:
    """Return the lengths in words of the runs of neighbouring chosen words."""
    chosen = set(positions.tolist())
    lengths: list[int] = []
    last = -2
    for word in words:
        if word[0] in chosen:
            lengths = [*lengths[:-1], lengths[-1] + 1] if word[0] == last + 1 else [*lengths, 1]
            last = word[-1]
    return lengths


@settings(max_examples=200, deadline=None)
@given(PAIRS, st.integers(1, 20), st.integers(0, 99))
def test_spans_are_whole_words_within_the_budget(ids, cap, seed) -> None:
    config = MaskingConfig(span_mean=3.8)
    vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
    budget = min(cap, max(1, round(len(ids) * 0.15)))
    _, positions, _ = mask(np.array(ids), generator(seed, "masking"), config, vocabulary, cap)
    chosen = set(positions.tolist())
    words = words_of(ids, True)
    touched = [word for word in words if chosen & set(word)]
    assert sum(map(len, touched)) >= len(chosen) >= 1
    assert len(chosen) <= budget
    if min(map(len, words)) <= budget:
        assert all(chosen >= set(word) for word in touched)
        rest = budget - len(chosen)
        assert not [word for word in words if word not in touched and len(word) <= rest]


@pytest.mark.parametrize("mean", [1.5, 3.8, 5.0])
def test_the_lengths_of_spans_have_the_mean(mean) -> None:
    """In long rows of words of one piece with few spans, which seldom meet."""
    config = MaskingConfig(rate=0.01, span_mean=mean)
    vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
    ids = np.array([2, *[7] * 6000, 3])
    words = words_of(ids.tolist(), True)
    lengths = []
    for index in range(60):
        found = spans_of(
            ids.tolist(), mask(ids, generator(0, "m", 0, index), config, vocabulary, 99)[1], words
        )
        lengths += found
    assert np.mean(lengths) == pytest.approx(mean, rel=0.06)
    assert max(lengths) >= (4 if mean == 1.5 else 10)
    if mean == 3.8:
        ones = np.mean(np.array(lengths) == 1)
        assert ones == pytest.approx(0.2 / sum(SPANBERT_SHARES), abs=0.04)


def test_a_span_throws_one_coin_and_draws_each_piece() -> None:
    config = MaskingConfig(rate=0.02, mask_share=0.4, same_share=0.3, random_share=0.3, span_mean=5.0)
    vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
    ids = np.array([2, *np.random.default_rng(0).integers(5, 1000, 3000), 3])
    changes = 0
    kinds: list[int] = []
    randoms: list[int] = []
    for index in range(40):
        masked, positions, labels = mask(ids, generator(0, "m", 0, index), config, vocabulary, 999)
        kind = np.where(masked[positions] == 4, 0, np.where(masked[positions] == labels, 1, 2))
        neighbours = np.diff(positions) == 1
        changes += int((np.diff(kind) != 0)[neighbours].sum())
        kinds += kind.tolist()
        randoms += masked[positions][kind == 2].tolist()
    assert min(kinds.count(kind) for kind in range(3)) > 0.2 * len(kinds)
    assert len(set(randoms)) > 0.4 * len(randoms)  # of 995 pieces
    # Within a span nothing changes, but for a random piece that is the right one, and spans that touch.
    assert changes < 0.02 * len(kinds)


def test_unknown_words_may_be_predicted_as_in_the_original() -> None:
    config = MaskingConfig(1.0)
    vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
    _, positions, labels = mask(np.array([2, 1, 9, 3]), generator(0, "masking"), config, vocabulary, 4)
    assert positions.tolist() == [1, 2]
    assert labels.tolist() == [1, 9]


def test_a_row_without_normal_pieces_has_no_picks() -> None:
    for mode in ({}, {"whole_words": True}, {"span_mean": 3.8}):
        config = MaskingConfig(**mode)
        vocabulary = MaskingVocabulary.of(SmallVocabulary(), config)
        masked, positions, labels = mask(np.array([2, 3, 3]), generator(0, "m"), config, vocabulary, 5)
        assert masked.tolist() == [2, 3, 3]
        assert len(positions) == len(labels) == 0


def test_special_ids_are_read_from_the_tokenizer() -> None:
    """A vocabulary with its special tokens at odd places, as the Chinese and multilingual ones have them."""
    tokenizer = SimpleNamespace(
        vocab_size=30, pad_id=0, unk_id=20, cls_id=21, sep_id=22, mask_id=23,
        special_ids=frozenset({0, 20, 21, 22, 23}), continuation=np.zeros(30, dtype=bool),
    )  # fmt: skip
    vocabulary = MaskingVocabulary.of(tokenizer, MaskingConfig())
    assert vocabulary.mask_id == 23
    assert np.flatnonzero(~vocabulary.choosable).tolist() == [0, 21, 22, 23]
    assert vocabulary.replacements.tolist() == [*range(1, 20), *range(24, 30)]


def test_wrong_shares_are_refused() -> None:
    for change in (
        {"rate": 0.0}, {"mask_share": 0.9}, {"max_predictions": -1}, {"random_share": -0.1},
        {"span_mean": 1.0}, {"span_mean": 5.5}, {"span_mean": float("nan")}, {"span_mean": -3.8},
        {"span_mean": 3.8, "whole_words": True},
    ):  # fmt: skip
        with pytest.raises(InputError):
            MaskingConfig(**change)


def test_a_share_that_is_no_number_is_refused() -> None:
    with pytest.raises(InputError, match="shares are"):
        MaskingConfig(mask_share=float("nan"))
