"""Facts 6 to 15: from text to masked instances, against a second implementation with the same random numbers.

What is compared has gone the whole way: a file of real text through ``prepare``, its shards, and the loader.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chisquare

from bertsmith.data.config import MASKED_AND_PAIRS, MaskingConfig, PairingConfig
from bertsmith.data.loader import PretrainingLoader
from bertsmith.data.masking import MaskingVocabulary, mask, max_predictions_of
from bertsmith.data.pairing import RANDOM, Documents, instances_of
from bertsmith.errors import InputError
from bertsmith.presets import bert_exact
from bertsmith.randomness import generator
from bertsmith.recipes.pretrain_phases import Phases
from bertsmith.text.config import CorpusConfig
from bertsmith.text.corpus import CorpusCounts, read_documents
from bertsmith.training.schedule import Budget
from tests.conformance import plain_instances
from tests.conformance.plain_instances import MaskNumbers, Numbers, Pieces
from tests.conformance.prepared import AS_GIVEN, MOST, SEED, Prepared, mask_numbers, words_of

STATIC = MaskingConfig(dynamic=False, random_specials=True)


def test_fact_06_sentences_and_documents(fact, corpus):
    line = fact(6, "documents and sentences of real text, a sentence a line", "plain reading of lines")
    ours = list(read_documents([corpus], AS_GIVEN, CorpusCounts()))
    assert ours == plain_instances.read_documents(corpus)
    assert len(ours) == 16
    line.exact()


def test_fact_06_the_end_of_a_file(fact, tmp_path):
    line = fact(6, "a file that does not end with an empty line", "plain reading of lines")
    for name in ("a.txt", "b.txt"):
        (tmp_path / name).write_text(f"The first of {name}.\nThe second.\n")
    ours = list(read_documents([tmp_path / "a.txt", tmp_path / "b.txt"], AS_GIVEN, CorpusCounts()))
    assert [document[0] for document in ours] == ["The first of a.txt.", "The first of b.txt."]
    line.deliberate(
        "a file's end is a document's end; in the original the next file goes on with the document"
    )


def test_fact_07_target_length_is_drawn_once_per_document(fact):
    """In documents of one-piece sentences a pair is as long as the target, but for a document's last."""
    line = fact(7, "target length, drawn once for each of 400 documents", "plain version")
    room = 61
    documents = Documents.from_lists([[[7]] * 300] * 400)
    config = PairingConfig(seq_len=room + 3, random_next_prob=0.0)
    targets = []
    for own in range(len(documents)):
        pairs = list(instances_of(documents, config, SEED, 0, own))[:-1]
        numbers = Numbers(generator(SEED, "pairing", 0, own).random)
        targets.append(numbers.between(2, room) if numbers.chance(0.1) else room)
        assert {pair.num_pieces - 3 for pair in pairs} == {targets[-1]}
    short = [target for target in targets if target < room]
    assert 20 < len(short) < 60
    assert min(short) < 10
    line.exact()


def test_fact_08_pairs_of_real_text(fact, prepared):
    line = fact(8, "every row of real text and its label, in order, at lengths 32 and 128", "plain version")
    for found in prepared.values():
        instances, pairs = found.instances, found.pairs
        every = np.arange(len(instances))
        assert len(pairs) == len(instances) > 500
        for ids, row in zip(instances.rows(every), found.rows, strict=True):
            assert words_of(found, ids) == row
        assert instances.labels(every).tolist() == [pair.label for pair in pairs]
        assert instances.second_starts(every).tolist() == [len(pair.first) + 2 for pair in pairs]
    line.exact()


def test_fact_08_the_balance_is_reported(fact, prepared):
    line = fact(8, "share of random second texts in the manifest: more than half", "plain version")
    for found in prepared.values():
        share = sum(pair.label for pair in found.pairs) / len(found.pairs)
        assert 0.51 < share < 0.75
        assert found.manifest["splits"]["train"]["nsp"]["random_share"] == round(share, 4)
    line.exact()


def test_fact_08_one_sentence_is_always_paired_with_another_document(fact):
    line = fact(8, "documents of one sentence: every second text is random", "plain version")
    documents = [[[str(number)] * 9] for number in range(50)]
    ours = Documents.from_lists([[[number] * 9] for number in range(50)])
    for own in range(50):
        numbers = Numbers(generator(SEED, "pairing", 0, own).random)
        (pair,) = plain_instances.pairs_of(documents, own, 64, 0.1, numbers)
        (instance,) = instances_of(ours, PairingConfig(seq_len=64), SEED, 0, own)
        (start, _) = instance.parts[1]
        assert (instance.label, str(ours.ids[start])) == (pair.label, pair.second[0])
        assert pair.label == RANDOM
    line.exact()


def test_fact_09_the_other_document(fact):
    line = fact(9, "the other document is another one, all alike", "at most ten tries among all documents")
    documents = Documents.from_lists([[[number] * 5] for number in range(4)])
    config = PairingConfig(seq_len=16)
    counts = np.zeros(4)
    for pass_ in range(3000):
        (pair,) = instances_of(documents, config, SEED, pass_, 2)
        counts[documents.ids[pair.parts[1][0]]] += 1
    assert counts[2] == 0
    assert chisquare(counts[[0, 1, 3]]).pvalue > 0.01
    with pytest.raises(InputError, match="NSP needs at least two documents"):
        list(instances_of(documents.choose(np.arange(1)), config, SEED, 0, 0))
    line.deliberate(
        "drawn from the others at once, and a single document is refused; after ten tries the original takes "
        "the document itself and calls it random, of two documents once in 1,024 times, of one always"
    )


def test_fact_10_long_pairs_are_cut_at_either_end(fact, prepared):
    """The rows are compared in fact 8; here those that were cut, by which pieces are left of them."""
    line = fact(10, "long pairs lose pieces one at a time from the longer text", "plain version")
    short_rows = prepared[32]
    cut = [number for number, pair in enumerate(short_rows.pairs) if pair.was_cut]
    assert len(cut) > 500
    rows = short_rows.instances.rows(np.array(cut))
    for ids, number in zip(rows, cut, strict=True):
        pair = short_rows.pairs[number]
        assert len(ids) == 32
        assert words_of(short_rows, ids) == ["[CLS]", *pair.first, "[SEP]", *pair.second, "[SEP]"]
    line.exact()


def compare_masks(
    prepared: Prepared, config: MaskingConfig, epoch: int, wanted: Callable[[Pieces], bool] = lambda _: True
) -> int:
    """Compare an epoch of batches, as training reads them; return how many rows were wanted and equal."""
    instances = prepared.instances
    loader = PretrainingLoader(instances, prepared.tokenizer, config, SEED, 64)
    rows = list(prepared.rows)
    most = MOST[instances.seq_len]
    compared, seen = 0, []
    for step in range(epoch * loader.steps_per_epoch, (epoch + 1) * loader.steps_per_epoch):
        (batch,) = loader.batch(step)
        layout = batch.tokens.layout
        seen += batch.example_ids.tolist()
        is_pick = np.zeros(layout.places, dtype=bool)
        is_pick[batch.picks] = True
        originals = batch.tokens.input_ids.numpy().copy()
        originals[batch.picks] = batch.pick_labels
        for number, start, length in zip(seen[-layout.batch :], layout.starts, layout.lengths, strict=True):
            row, part = rows[number], slice(start, start + length)
            assert words_of(prepared, originals[part]) == row
            if wanted(row):
                numbers = mask_numbers(
                    prepared, number, most, epoch if config.dynamic else 0, config.whole_words
                )
                masked, chosen = plain_instances.masked(
                    row, prepared.vocabulary, most, numbers, config.whole_words
                )
                assert np.flatnonzero(is_pick[part]).tolist() == chosen
                assert words_of(prepared, batch.tokens.input_ids.numpy()[part]) == masked
                compared += 1
    assert sorted(seen) == list(range(len(instances))), "an epoch reads each instance once"
    return compared


def test_fact_11_passes_and_static_masks(fact, prepared):
    """Rows of both passes lie one behind the other; each has its masks, in all epochs the same."""
    line = fact(11, "passes repeat segmentation, pairing and masks, epochs repeat rows", "plain version")
    short_rows = prepared[32]
    rows = [tuple(row) for row in short_rows.rows]
    half = len(rows) // 2
    assert len(set(rows[:half]) & set(rows[half:])) < 0.1 * half, "a pass pairs anew"
    for epoch in (0, 1):
        assert compare_masks(short_rows, STATIC, epoch) == len(rows)
    line.exact()


def test_fact_12_number_and_places_of_masks(fact, prepared):
    line = fact(12, "places to predict: [CLS] and [SEP] counted, not chosen", "plain version")
    assert compare_masks(prepared[128], STATIC, 0) == len(prepared[128].pairs)
    line.exact()


def test_fact_12_the_cap(fact):
    line = fact(12, "most predictions in 128 and in 512 pieces: 20 and 77", "length times 0.15, rounded up")
    assert [max_predictions_of(STATIC, seq_len) for seq_len in (128, 512)] == [20, 77]
    line.exact()


def test_fact_13_what_stands_in_the_place(fact, prepared):
    line = fact(13, "what stands in their place; random pieces from all entries", "plain version")
    assert compare_masks(prepared[128], replace(STATIC, dynamic=True), 1) == len(prepared[128].pairs)
    line.exact()


def test_fact_13_special_tokens_are_no_random_pieces(fact, prepared):
    line = fact(13, "random pieces by default", "drawn from all entries")
    tokenizer = prepared[128].tokenizer
    drawn = [MaskingVocabulary.of(tokenizer, config).replacements for config in (MaskingConfig(), STATIC)]
    assert np.array_equal(drawn[1], np.arange(len(prepared[128].vocabulary)))
    assert set(drawn[1]) - set(drawn[0]) == tokenizer.special_ids
    line.deliberate(
        "without the special tokens, which stand in no text; masking.random_specials draws from all, and "
        "bert-exact sets it"
    )


def is_ordinary(row: Pieces) -> bool:
    """No text begins inside a word, and the shortest word fits."""
    begins = [row[place + 1 : place + 2] for place, piece in enumerate(row) if piece in ("[CLS]", "[SEP]")]
    return not any(begin and begin[0].startswith("##") for begin in begins) and len(row) > 20


def test_fact_13_whole_words(fact, prepared):
    line = fact(13, "whole-word masks: a coin a piece, words beyond the budget skipped", "plain version")
    found, config = prepared[128], replace(STATIC, whole_words=True)
    assert compare_masks(found, config, 0, is_ordinary) > 0.5 * len(found.pairs)
    line.exact()


def test_fact_13_words_do_not_cross_a_separator(fact, prepared):
    line = fact(13, "whole-word masks of a text that was cut within a word", "plain version")
    tokenizer = prepared[128].tokenizer
    pieces = ["[CLS]", "word", "[SEP]", "##s", "[SEP]"]
    config = replace(STATIC, whole_words=True)
    vocabulary = MaskingVocabulary.of(tokenizer, config)
    ids = np.array([tokenizer.id(piece) for piece in pieces])
    ours = {tuple(mask(ids, generator(0, "masking", 0, n), config, vocabulary, 1)[1]) for n in range(200)}
    assert ours == {(1,), (3,)}
    _, theirs = plain_instances.masked(
        pieces, [], 1, MaskNumbers(lambda units: units, lambda count: [(0.0, 0.0)] * count), whole_words=True
    )
    assert theirs == []
    line.deliberate(
        "its first piece begins a word; the original joins it to the word before the separator. Where no "
        "word fits the budget, a part of one is chosen, so that every row predicts something"
    )


def test_fact_14_two_phases(fact, prepared):
    """The real loaders of both phases, at the steps around the switch; 32 and 128 stand for 128 and 512."""
    line = fact(14, "rows of bert-exact's steps: 900,000 times 256 short ones, then long", "the paper, A.2")
    short, long = prepared[32], prepared[128]
    config = replace(
        bert_exact(str(short.instances.directory), "RUN"), long_data=str(long.instances.directory)
    )
    phases = Phases.open(config, short.instances, short.tokenizer, MASKED_AND_PAIRS)
    for step in (0, 450_000, 899_999, 900_000, 999_999):
        batches = phases.batch(step, Budget(steps=config.steps))
        ids = np.concatenate([batch.example_ids for batch in batches])
        source = short if step < 900_000 else long
        lengths = [length for batch in batches for length in batch.tokens.layout.lengths]
        rest = len(source.instances) % 256  # an epoch's last batch may be short
        assert len(ids) in (256, rest)
        assert lengths == source.instances.lengths(ids).tolist()
    line.exact()


PAGE = """\
A History of Tea

Tea is a drink that is made from the leaves of a shrub. Nobody knows who drank it first.

Contents
1. Origins
2. Trade
* See also
- green tea
- black tea

Year | Pounds | Price
1700 | 20,000 | 16 s
1800 | 23,000,000 | 3 s

By 1750 it had become the drink of the whole country, and the price went on falling.
"""


def test_fact_15_documents_are_prose(fact, tmp_path):
    line = fact(15, "a page with a header, lists and a table: what is left of it", "its two paragraphs")
    (tmp_path / "page.txt").write_text(PAGE)
    documents = read_documents([tmp_path / "page.txt"], CorpusConfig(), CorpusCounts())
    lines = [text for document in documents for text in document]
    assert lines == [text for text in PAGE.splitlines() if text.startswith(("Tea is", "By 1750"))]
    line.exact()
