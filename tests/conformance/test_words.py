"""Fact 33, and fact 27's share of it: entities of real files, their scores, and a tag for every word."""

from __future__ import annotations

import random

import numpy as np
import pytest
from seqeval.metrics import f1_score as seqeval_f1
from seqeval.scheme import IOB2

from bertsmith.tasks.entities import (
    SCHEMES,
    count_entities,
    entities_of,
    entity_metrics,
    find_scheme,
    strict_entities_of,
    tags_of,
)
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.tagged_rows import in_words
from bertsmith.tasks.tagging import TAGGING
from bertsmith.tasks.task import TASKS
from bertsmith.text.tokenizer import Tokenizer
from tests.tasks.test_entities import conlleval


@pytest.fixture(scope="module")
def sentences(shared_data):
    """The development set of CoNLL-2003 as it was published, in IOB1."""
    return TASKS["conll"].read(DataSource(str(shared_data / "conll2003")), "dev")


def tags_in(rows, scheme="iob2"):
    return [tags_of(in_words(row), len(row.words), scheme) for row in rows]


def worn(tags, draw):
    """Tags with some letters and labels changed, so that stray ones and cut entities occur."""
    return [draw.choice(["O", "I-LOC", "B-PER", "I-PER"]) if draw.random() < 0.1 else tag for tag in tags]


def test_fact_33_iob1_and_iob2_are_the_same_entities(fact, sentences, shared_data):
    line = fact(33, "entities of CoNLL-2003 in IOB1, IOB2, BIOES", "the file that others converted")
    converted = TASKS["conll"].read(DataSource(str(shared_data / "conll2003" / "iob2")), "dev")
    assert [in_words(row) for row in sentences.rows] == [in_words(row) for row in converted.rows]
    assert sum(len(row.entities) for row in sentences.rows) == 5942, "the published number"
    for scheme in SCHEMES:
        written = tags_in(sentences.rows, scheme)
        assert find_scheme(written) == scheme
        assert [entities_of(tags) for tags in written] == [in_words(row) for row in sentences.rows]
    line.exact()


def test_fact_33_scores_are_those_of_the_script(fact, sentences):
    line = fact(33, "precision, recall and F1 of entities, stray tags and all", "conlleval.pl, re-derived")
    draw = random.Random(0)
    gold = tags_in(sentences.rows)
    found = [worn(tags, draw) for tags in gold]
    counts = count_entities([entities_of(tags) for tags in gold], [entities_of(tags) for tags in found])
    ours = entity_metrics(counts)
    right, predicted, correct = conlleval(gold, found)
    theirs = {
        "precision": correct / predicted,
        "recall": correct / right,
        "f1": 2 * correct / (right + predicted),
    }
    line.difference(max(abs(ours[name] - value) for name, value in theirs.items()), 1e-12)


@pytest.mark.filterwarnings("ignore:.*seems not to be NE tag")
def test_fact_33_strict_scores_are_seqevals(fact, sentences):
    line = fact(33, "strict F1: an entity counts only if every tag is as IOB2 writes it", "seqeval, strict")
    draw = random.Random(1)
    gold = tags_in(sentences.rows)
    found = [worn(tags, draw) for tags in gold]
    counts = count_entities(
        [strict_entities_of(tags) for tags in gold], [strict_entities_of(tags) for tags in found]
    )
    theirs = seqeval_f1(gold, found, mode="strict", scheme=IOB2)
    line.difference(abs(entity_metrics(counts)["f1"] - theirs), 1e-12)


@pytest.mark.parametrize("seq_len", [16, 128, 512])
def test_fact_33_every_word_has_one_tag(fact, sentences, seq_len, shared_vocabulary_file):
    line = fact(
        33, "every word of the file is read once, at its first piece, whatever the length", "the file's words"
    )
    tokenizer = Tokenizer.load(shared_vocabulary_file("bert-base-cased"))
    rows = sentences.rows[::8]
    labels = TAGGING.labels(TASKS["conll"], sentences)
    split = TAGGING.encode(TASKS["conll"], RowSet(rows, "dev"), labels, Encoding(tokenizer, seq_len, "tail"))
    words = [word for row in rows for word in row.spelled]
    tags = [tag for own in tags_in(rows) for tag in own]
    read = np.concatenate([window.words for window in split.encoded])
    assert sorted(read.tolist()) == list(range(len(words)))
    for window in split.encoded:
        assert len(window.ids) <= seq_len
        for pick, word in zip(window.picks, window.words, strict=True):
            assert window.ids[pick] == (tokenizer.encode(words[word]) or [tokenizer.unk_id])[0]
    assert [labels[number] for number in split.gold] == tags
    line.exact()
