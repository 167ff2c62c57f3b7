"""Pairs, against a plain list version of the original and by properties."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.config import PairingConfig
from bertsmith.data.pairing import (
    NEXT,
    NO_LABEL,
    PACKED_DOCUMENTS,
    RANDOM,
    Documents,
    Instance,
    instances_of,
    num_units,
)
from bertsmith.errors import InputError
from bertsmith.randomness import generator

Corpus = list[list[list[int]]]


def numbered(sentence_lengths: list[list[int]]) -> Corpus:
    """Return documents whose ids count upwards over the corpus, so that each piece is known by its id."""
    count = 0
    corpus: Corpus = []
    for document in sentence_lengths:
        corpus.append([])
        for length in document:
            corpus[-1].append(list(range(count, count + length)))
            count += length
    return corpus


def texts_of(documents: Documents, instance: Instance) -> list[list[int]]:
    return [documents.ids[start:end].tolist() for start, end in instance.parts]


def all_instances(
    documents: Documents, config: PairingConfig, seed: int = 0, pass_: int = 0
) -> list[Instance]:
    units = num_units(documents, config)
    return [item for unit in range(units) for item in instances_of(documents, config, seed, pass_, unit)]


def ordinary(number: int, seed: int = 0) -> Corpus:
    draw = np.random.default_rng(seed)
    return numbered([[int(draw.integers(1, 60)) for _ in range(draw.integers(1, 60))] for _ in range(number)])


SHAPES = st.lists(
    st.lists(st.one_of(st.integers(1, 12), st.integers(1, 150)), min_size=1, max_size=12),
    min_size=2,
    max_size=6,
)


# --- NSP ---------------------------------------------------------------------------------------------------


def plain_nsp(corpus: Corpus, index: int, config: PairingConfig, draw: Callable[[], float]) -> list[tuple]:
    """Pair one document as BERT-FACTS 7-10 say, token by token on lists, drawing in the same order."""
    document = corpus[index]
    room = config.seq_len - 3
    target = room
    if draw() < config.short_seq_prob:
        target = 2 + int(draw() * (room - 1))
    made = []
    chunk: list[list[int]] = []
    place = 0
    while place < len(document):
        chunk.append(document[place])
        if place == len(document) - 1 or sum(map(len, chunk)) >= target:
            cut = 1 if len(chunk) == 1 else 1 + int(draw() * (len(chunk) - 1))
            first = [id for sentence in chunk[:cut] for id in sentence]
            second: list[int] = []
            if len(chunk) == 1 or draw() < config.random_next_prob:
                label = RANDOM
                others = [*range(index + 1, len(corpus)), *range(index)]
                other = corpus[others[int(draw() * len(others))]]
                for sentence in other[int(draw() * len(other)) :]:
                    second += sentence
                    if len(second) >= target - len(first):
                        break
                place -= len(chunk) - cut
            else:
                label = NEXT
                second = [id for sentence in chunk[cut:] for id in sentence]
            while len(first) + len(second) > room:
                longer = first if len(first) > len(second) else second
                longer.pop(0 if draw() < 0.5 else -1)
            made.append((first, second, label))
            chunk = []
        place += 1
    return made


@settings(max_examples=150, deadline=None)
@given(SHAPES, st.integers(8, 64), st.sampled_from([0.0, 0.1, 1.0]), st.integers(0, 1000))
def test_nsp_equals_the_plain_version(shapes, seq_len, short, seed) -> None:
    corpus = numbered(shapes)
    documents = Documents.from_lists(corpus)
    config = PairingConfig(seq_len=seq_len, short_seq_prob=short)
    for index in range(len(corpus)):
        ours = list(instances_of(documents, config, seed, 3, index))
        plain = plain_nsp(corpus, index, config, generator(seed, "pairing", 3, index).random)
        assert [(*texts_of(documents, item), item.label) for item in ours] == plain


@settings(max_examples=150, deadline=None)
@given(SHAPES, st.integers(8, 64), st.integers(0, 1000))
def test_nsp_labels_tell_the_truth(shapes, seq_len, seed) -> None:
    corpus = numbered(shapes)
    home = {id: number for number, document in enumerate(corpus) for part in document for id in part}
    documents = Documents.from_lists(corpus)
    config = PairingConfig(seq_len=seq_len)
    for index in range(len(corpus)):
        for item in instances_of(documents, config, seed, 0, index):
            first, second = texts_of(documents, item)
            assert first
            assert second
            assert item.num_pieces == len(first) + len(second) + 3 <= seq_len
            assert item.second_start == len(first) + 2
            assert {home[id] for id in first} == {index}
            (other,) = {home[id] for id in second}
            assert (other == index) == (item.label == NEXT)
            if item.label == NEXT:
                assert first[-1] < second[0]


def test_nsp_puts_unused_sentences_back() -> None:
    """Without truncation the texts from the document itself are the document, each piece once."""
    corpus = numbered([[3] * 40, [2, 5] * 10, [4] * 7])
    documents = Documents.from_lists(corpus)
    for seed in range(20):
        for index, document in enumerate(corpus):
            own: list[int] = []
            # two sentences of at most 5 pieces beyond the target fit: nothing is cut
            config = PairingConfig(seq_len=1000, short_seq_prob=1.0)
            for item in instances_of(documents, config, seed, 0, index):
                first, second = texts_of(documents, item)
                own += first + (second if item.label == NEXT else [])
            assert own == [id for sentence in document for id in sentence]


def test_c015_two_documents_random_is_always_the_other_one() -> None:
    red, blue = [[10, 11], [10, 12], [10, 13]], [[20, 21], [20, 22]]
    documents = Documents.from_lists([red, blue])
    config = PairingConfig(seq_len=40)
    labels = []
    for pass_ in range(20):
        for item in all_instances(documents, config, pass_=pass_):
            first, second = texts_of(documents, item)
            colours = [{id // 10 for id in text} for text in (first, second)]
            assert all(len(colour) == 1 for colour in colours)
            assert (colours[0] != colours[1]) == (item.label == RANDOM)
            if item.label == NEXT:
                document = [id for sentence in (red if 1 in colours[0] else blue) for id in sentence]
                whole = first + second
                assert any(document[at : at + len(whole)] == whole for at in range(len(document)))
            labels.append(item.label)
    assert set(labels) == {NEXT, RANDOM}


@pytest.mark.parametrize("number", [0, 1])
def test_c015_one_document_is_refused(number) -> None:
    documents = Documents.from_lists([[[1, 2], [3, 4], [5, 6]]] * 2).choose(np.arange(number))
    with pytest.raises(InputError, match="NSP needs at least two documents"):
        list(instances_of(documents, PairingConfig(seq_len=40), 0, 0, 0))


def test_nsp_balance_is_the_originals() -> None:
    """About 55 % random on ordinary documents, all random on documents of one sentence."""
    labels = np.array(
        [item.label for item in all_instances(Documents.from_lists(ordinary(800)), PairingConfig())]
    )
    assert 0.51 < labels.mean() < 0.59
    single = Documents.from_lists(numbered([[20]] * 50))
    assert {item.label for item in all_instances(single, PairingConfig())} == {RANDOM}


def test_the_other_document_is_drawn_evenly() -> None:
    documents = Documents.from_lists(numbered([[5]] * 6))
    config = PairingConfig(seq_len=16)
    counts = np.zeros(6)
    for pass_ in range(3000):
        (item,) = instances_of(documents, config, 0, pass_, 2)
        counts[item.parts[1][0] // 5] += 1
    assert counts[2] == 0
    assert np.abs(counts[[0, 1, 3, 4, 5]] / 3000 - 0.2).max() < 0.03


def test_the_target_length_is_drawn_once_per_document() -> None:
    """In documents of one-piece sentences an uncut pair is as long as the target: one length a document."""
    documents = Documents.from_lists(numbered([[1] * 3000] * 60))
    config = PairingConfig(seq_len=35, short_seq_prob=0.5, random_next_prob=0.0)
    lengths = []
    for index in range(len(documents)):
        sizes = {item.num_pieces - 3 for item in list(instances_of(documents, config, 0, 0, index))[:-1]}
        assert len(sizes) == 1
        lengths += sizes
    short = np.array([length for length in lengths if length < 32])
    assert 15 <= len(short) <= 45
    assert short.min() >= 2
    assert short.min() <= 6
    assert short.max() >= 26


# --- SOP ---------------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.integers(8, 64), st.integers(0, 1000))
def test_sop_pairs_neighbours_and_says_which_came_first(shapes, seq_len, seed) -> None:
    corpus = numbered(shapes)
    documents = Documents.from_lists(corpus)
    home = {id: number for number, document in enumerate(corpus) for part in document for id in part}
    for index, document in enumerate(corpus):
        made = list(instances_of(documents, PairingConfig("sop", seq_len), seed, 0, index))
        assert (len(document) == 1) == (made == [])
        for item in made:
            first, second = texts_of(documents, item)
            assert first
            assert second
            assert item.num_pieces <= seq_len
            assert {home[id] for id in first + second} == {index}
            assert (first[0] < second[0]) == (item.label == NEXT)


def test_sop_uses_every_sentence_and_swaps_half() -> None:
    corpus = numbered([[4] * 41] * 100)
    documents = Documents.from_lists(corpus)
    config = PairingConfig("sop", 64, short_seq_prob=0.0)
    made = all_instances(documents, config)
    used = {id for item in made for text in texts_of(documents, item) for id in text}
    assert len(used) > 0.9 * len(documents.ids)  # only truncation takes pieces away
    assert 0.4 < np.mean([item.label for item in made]) < 0.6


# --- packing -----------------------------------------------------------------------------------------------


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.integers(8, 64), st.integers(0, 2), st.sampled_from(["full-sentences", "doc-sentences"]))
def test_packing_loses_nothing(shapes, seq_len, pass_, pairing) -> None:
    documents = Documents.from_lists(numbered(shapes))
    made = all_instances(documents, PairingConfig(pairing, seq_len), pass_=pass_)
    assert all(item.num_pieces <= seq_len for item in made)
    assert {item.label for item in made} == {NO_LABEL}
    assert all(item.second_start == item.num_pieces for item in made)
    ids = [id for item in made for text in texts_of(documents, item) for id in text]
    assert sorted(ids) == documents.ids.tolist()
    if pass_ == 0:
        assert ids == documents.ids.tolist()


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.integers(8, 64))
def test_packed_instances_end_at_sentences_and_are_full(shapes, seq_len) -> None:
    corpus = numbered(shapes)
    home = {id: number for number, document in enumerate(corpus) for part in document for id in part}
    sentence_of = {id: sentence for document in corpus for sentence in document for id in sentence}
    documents = Documents.from_lists(corpus)
    for pairing in ("full-sentences", "doc-sentences"):
        made = all_instances(documents, PairingConfig(pairing, seq_len))
        for item, following in itertools.pairwise(made):
            for text in texts_of(documents, item):
                assert len({home[id] for id in text}) == 1  # a [SEP] stands between documents
            last, after = texts_of(documents, item)[-1][-1], texts_of(documents, following)[0][0]
            if pairing == "doc-sentences":
                assert len(item.parts) == 1
                if home[last] != home[after]:
                    continue
            size = min(len(sentence_of[after]), seq_len - 2) + (home[last] != home[after])
            assert item.num_pieces + size > seq_len or sentence_of[last] is sentence_of[after]


def test_full_sentences_run_on_within_a_block_only() -> None:
    documents = Documents.from_lists(numbered([[3]] * (PACKED_DOCUMENTS + 10)))
    config = PairingConfig("full-sentences", 128)
    assert num_units(documents, config) == 2
    first, second = (list(instances_of(documents, config, 0, 0, unit)) for unit in range(2))
    assert max(len(item.parts) for item in first) == 31
    assert sum(len(item.parts) for item in first) == PACKED_DOCUMENTS
    assert sum(len(item.parts) for item in second) == 10


# --- all ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pairing", ["nsp", "sop", "full-sentences", "doc-sentences"])
def test_passes_and_seeds_draw_anew_and_the_order_of_calls_does_not_matter(pairing) -> None:
    documents = Documents.from_lists(ordinary(20))
    config = PairingConfig(pairing, 64)
    units = range(num_units(documents, config))
    first = {unit: list(instances_of(documents, config, 0, 0, unit)) for unit in units}
    again = {unit: list(instances_of(documents, config, 0, 0, unit)) for unit in reversed(units)}
    assert first == again
    assert all_instances(documents, config, pass_=1) != all_instances(documents, config, pass_=0)
    assert all_instances(documents, config, pass_=1) != all_instances(documents, config, pass_=2)
    assert all_instances(documents, config, seed=1, pass_=1) != all_instances(documents, config, pass_=1)


@pytest.mark.parametrize("pairing", ["nsp", "sop", "full-sentences", "doc-sentences"])
def test_odd_documents_neither_loop_nor_break(pairing) -> None:
    odd: Corpus = [
        [[7]],
        [[], [8], []],
        [],
        [[]],
        [list(range(100, 5100))],
        [[1], list(range(5000)), [2], list(range(3000)), [3]],
        [[9]] * 2000,
    ]
    documents = Documents.from_lists(odd)
    assert len(documents) == 5
    short = {} if pairing.endswith("-sentences") else {"short_seq_prob": 0.5}
    for seed in range(4):
        made = all_instances(documents, PairingConfig(pairing, 8, **short), seed)
        assert made
        for item in made:
            assert item.num_pieces <= 8
            assert all(end > start for start, end in item.parts)


def test_wrong_settings_name_field_and_remedy() -> None:
    for change in ({"pairing": "nps"}, {"seq_len": 4}, {"passes": 0}, {"short_seq_prob": 1.5}):
        with pytest.raises(InputError, match=re.compile("|".join(change).replace("_", "."))):
            PairingConfig(**change)


@pytest.mark.parametrize("pairing", ["full-sentences", "doc-sentences"])
def test_settings_that_a_pairing_has_no_use_for_are_refused(pairing) -> None:
    PairingConfig(pairing)
    with pytest.raises(InputError, match=f"short_seq_prob is 0.2, but pairing {pairing} has no use for it"):
        PairingConfig(pairing, short_seq_prob=0.2)
    with pytest.raises(InputError, match=r"random_next_prob is 0\.0, but"):
        PairingConfig(pairing, random_next_prob=0.0)


@pytest.mark.parametrize("seq_len", [7, 10**12])
def test_lengths_out_of_range_are_refused(seq_len) -> None:
    with pytest.raises(InputError, match=f"seq-len is {seq_len}"):
        PairingConfig(seq_len=seq_len)
