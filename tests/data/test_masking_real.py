"""Masks of real text: budgets, whole words, spans beside those of SpanBERT's own procedure."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.config import MaskingConfig
from bertsmith.data.masking import Ids, MaskingVocabulary, mask, max_predictions_of
from bertsmith.randomness import generator
from bertsmith.text.tokenizer import Tokenizer

SEQ_LEN = 128


@pytest.fixture(scope="module")
def tokenizer(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
    path.write_bytes(gzip.decompress((shared_data / "vocab" / "bert-base-uncased-vocab.txt.gz").read_bytes()))
    return Tokenizer.load(path)


@pytest.fixture(scope="module")
def rows(tokenizer: Tokenizer, shared_data: Path) -> list[Ids]:
    """Instances of two texts, of books and of wiki."""
    made = []
    for part in ("books-en", "wiki-en"):
        with gzip.open(shared_data / "corpus" / part / "heldout.txt.gz", "rt", encoding="utf-8") as file:
            lines = [line for line in file.read(400_000).split("\n") if line]
        pieces = [piece for ids in tokenizer.encode_batch(lines) for piece in ids]
        for start in range(0, 300 * (SEQ_LEN - 3), SEQ_LEN - 3):
            middle, end = start + 50, start + SEQ_LEN - 3
            first, second = pieces[start:middle], pieces[middle:end]
            sep = tokenizer.sep_id
            made.append(np.array([tokenizer.cls_id, *first, sep, *second, sep]))
    assert {len(row) for row in made} == {SEQ_LEN}
    return made


def words_of(row: Ids, tokenizer: Tokenizer) -> list[list[int]]:
    words: list[list[int]] = []
    for place, id in enumerate(row.tolist()):
        if id in (tokenizer.cls_id, tokenizer.sep_id):
            continue
        if tokenizer.continuation[id] and words and words[-1][-1] == place - 1:
            words[-1].append(place)
        else:
            words.append([place])
    return words


def run_lengths(chosen: set[int], words: list[list[int]]) -> list[int]:
    """Return the number of words in each run of neighbouring chosen words."""
    lengths, last = [0], -2
    for word in words:
        if word[0] in chosen:
            if word[0] != last + 1:
                lengths.append(0)
            lengths[-1] += 1
            last = word[-1]
    return lengths[1:]


def spanbert(words: list[list[int]], budget: int, random: np.random.Generator) -> set[int]:
    """SpanBERT's masking.py, PairWithSpanMaskingScheme.mask, with BERT's budget and no special tokens."""
    shares = np.array([0.2 * 0.8**length for length in range(10)])
    word_of = {place: index for index, word in enumerate(words) for place in word}
    places = list(word_of)
    chosen: set[int] = set()
    while len(chosen) < budget:
        length = 1 + random.choice(10, p=shares / shares.sum())
        anchor = places[random.integers(len(places))]
        if anchor in chosen:
            continue
        for word in words[word_of[anchor] : word_of[anchor] + length]:
            for place in word:
                if len(chosen) < budget:
                    chosen.add(place)
    return chosen


@pytest.mark.parametrize("mode", [{}, {"whole_words": True}, {"span_mean": 3.8}], ids=str)
def test_the_budget_is_exact_and_words_are_whole(mode, rows, tokenizer) -> None:
    config = MaskingConfig(**mode)
    vocabulary = MaskingVocabulary.of(tokenizer, config)
    cap = max_predictions_of(config, SEQ_LEN)
    short = parted = masks = same = picks = 0
    for index, row in enumerate(rows):
        masked, positions, labels = mask(row, generator(0, "masking", 0, index), config, vocabulary, cap)
        assert len(positions) <= 19  # round(128 * 0.15)
        short += len(positions) < 19
        chosen = set(positions.tolist())
        touched = [word for word in words_of(row, tokenizer) if chosen & set(word)]
        parted += sum(not chosen >= set(word) for word in touched)
        assert not set(labels.tolist()) & {tokenizer.cls_id, tokenizer.sep_id}
        picks += len(positions)
        masks += int((masked[positions] == tokenizer.mask_id).sum())
        same += int((masked[positions] == labels).sum())
    assert short == 0
    assert (parted == 0) == bool(mode)
    assert masks / picks == pytest.approx(0.8, abs=0.03)
    assert same / picks == pytest.approx(0.1, abs=0.03)


def test_spans_are_about_as_long_as_spanberts(rows, tokenizer) -> None:
    config = MaskingConfig(span_mean=3.8)
    vocabulary = MaskingVocabulary.of(tokenizer, config)
    random = np.random.default_rng(0)
    ours: list[int] = []
    theirs: list[int] = []
    for index, row in enumerate(rows):
        words = words_of(row, tokenizer)
        positions = mask(row, generator(0, "masking", 0, index), config, vocabulary, 20)[1]
        ours += run_lengths(set(positions.tolist()), words)
        theirs += run_lengths(spanbert(words, 19, random), words)
    assert np.mean(ours) == pytest.approx(np.mean(theirs), rel=0.1)
    for length in (1, 2, 4, 8):
        shares = [np.mean(np.array(lengths) <= length) for lengths in (ours, theirs)]
        assert shares[0] == pytest.approx(shares[1], abs=0.08)
    assert math.isclose(np.mean(ours), 3.0, abs_tol=0.8)
