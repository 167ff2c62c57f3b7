"""Tags and entities: every scheme both ways, scores equal to the CoNLL script's rules and to seqeval's."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.errors import InputError
from bertsmith.tasks.entities import (
    SCHEMES,
    Entity,
    count_entities,
    entities_of,
    entity_metrics,
    find_scheme,
    irregular_tags,
    parts_of,
    strict_entities_of,
    tags_of,
)

LABELS = ("PER", "LOC", "B-side")


def conlleval(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> tuple[int, int, int]:
    """Gold, predicted and correct chunks by one pass over the words, as conlleval.pl counts them.

    Written from the script's description: a chunk is counted when it starts; it is correct when it started
    and ended together with the other side's, with the same type from beginning to end.
    """

    def parts(tag: str) -> tuple[str, str]:
        letter, _, label = tag.partition("-")
        return letter, label

    def ends(before: tuple[str, str], now: tuple[str, str]) -> bool:
        pairs = {"BB", "BO", "IB", "IO", "EE", "EI", "EO"}
        return before[0] + now[0] in pairs or (before[0] != "O" and before[1] != now[1])

    def starts(before: tuple[str, str], now: tuple[str, str]) -> bool:
        pairs = {"BB", "IB", "OB", "OI", "EE", "EI", "OE"}
        return before[0] + now[0] in pairs or (now[0] != "O" and before[1] != now[1])

    found_gold = found_predicted = correct = 0
    inside = False
    last_gold = last_predicted = ("O", "")
    words = [
        pair
        for sentence in zip(gold, predicted, strict=True)
        for pair in [*zip(*sentence, strict=True), ("O", "O")]
    ]
    for gold_tag, predicted_tag in words:
        right, guess = parts(gold_tag), parts(predicted_tag)
        if inside:
            both_end = (ends(last_gold, right), ends(last_predicted, guess))
            if all(both_end) and last_gold[1] == last_predicted[1]:
                inside = False
                correct += 1
            elif both_end[0] != both_end[1] or right[1] != guess[1]:
                inside = False
        if starts(last_gold, right) and starts(last_predicted, guess) and right[1] == guess[1]:
            inside = True
        found_gold += starts(last_gold, right)
        found_predicted += starts(last_predicted, guess)
        last_gold, last_predicted = right, guess
    return found_gold, found_predicted, correct + inside


def counted(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> tuple[int, int, int]:
    counts = count_entities([entities_of(tags) for tags in gold], [entities_of(tags) for tags in predicted])
    values = counts.values()
    return sum(c.gold for c in values), sum(c.predicted for c in values), sum(c.correct for c in values)


def random_tags(draw: random.Random, letters: str, number: int) -> list[str]:
    tags = []
    for _ in range(number):
        letter = draw.choice(letters)
        tags.append("O" if letter == "O" else f"{letter}-{draw.choice(LABELS)}")
    return tags


def random_entities(draw: random.Random, num_words: int) -> list[Entity]:
    entities, place = [], 0
    while place < num_words:
        size = draw.randint(1, 4)
        if draw.random() < 0.6 and place + size <= num_words:
            entities.append(Entity(place, place + size, draw.choice(LABELS)))
            place += size
        else:
            place += 1
    return entities


@pytest.mark.parametrize("scheme", SCHEMES)
def test_entities_survive_being_written_and_read_in_every_scheme(scheme: str) -> None:
    draw = random.Random(1)
    for _ in range(400):
        size = draw.randint(0, 12)
        entities = random_entities(draw, size)
        tags = tags_of(entities, size, scheme)
        assert len(tags) == size
        assert entities_of(tags) == entities
        assert irregular_tags(tags, scheme) == []
        assert strict_entities_of(tags, scheme) == entities


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [
        ("iob1", "I-LOC O I-PER I-PER B-PER I-ORG I-ORG I-ORG O"),
        ("iob2", "B-LOC O B-PER I-PER B-PER B-ORG I-ORG I-ORG O"),
        ("bioes", "S-LOC O B-PER E-PER S-PER B-ORG I-ORG E-ORG O"),
        ("bilou", "U-LOC O B-PER L-PER U-PER B-ORG I-ORG L-ORG O"),
        ("bmes", "S-LOC O B-PER E-PER S-PER B-ORG M-ORG E-ORG O"),
    ],
)
def test_schemes_as_they_are_defined(scheme: str, expected: str) -> None:
    entities = [Entity(0, 1, "LOC"), Entity(2, 4, "PER"), Entity(4, 5, "PER"), Entity(5, 8, "ORG")]
    assert " ".join(tags_of(entities, 9, scheme)) == expected


def test_labels_may_be_empty() -> None:
    assert tags_of([Entity(0, 2, "")], 3, "bmes") == ["B", "E", "O"]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_files_scheme_is_found(scheme: str) -> None:
    draw = random.Random(2)
    sentences = [tags_of(random_entities(draw, 9), 9, scheme) for _ in range(60)]
    assert find_scheme(sentences) == scheme
    assert find_scheme([["O", "O"], []]) == "iob2"


def test_a_few_irregular_tags_do_not_hide_the_scheme() -> None:
    draw = random.Random(3)
    sentences = [tags_of(random_entities(draw, 9), 9, "iob2") for _ in range(60)]
    sentences.append(["O", "I-PER", "O"])
    assert find_scheme(sentences) == "iob2"
    assert irregular_tags(sentences[-1], "iob2") == [1]


@pytest.mark.parametrize("tag", ["PER", "O-PER", "B-", "b-PER", "", "X-PER", "BPER", "-PER", "B_PER"])
def test_what_is_no_tag_is_refused(tag: str) -> None:
    with pytest.raises(InputError, match="no known scheme"):
        parts_of(tag)


def test_mixed_schemes_are_refused() -> None:
    with pytest.raises(InputError, match="no scheme has together"):
        find_scheme([["B-PER", "L-PER"], ["B-PER", "E-PER"]])


def test_c043_iob1_counts() -> None:
    gold, predicted = (
        [["I-LOC", "O", "I-PER", "I-PER", "B-PER", "O"]],
        [["I-LOC", "O", "I-PER", "I-PER", "I-PER", "O"]],
    )
    counts = count_entities([entities_of(gold[0])], [entities_of(predicted[0])])
    metrics = entity_metrics(counts)
    assert counted(gold, predicted) == (3, 2, 1)
    assert metrics["precision"] == 0.5
    assert metrics["recall"] == pytest.approx(1 / 3)
    assert metrics["f1"] == pytest.approx(0.4)
    as_iob2 = [tags_of(entities_of(gold[0]), 6, "iob2")]
    assert as_iob2 == [["B-LOC", "O", "B-PER", "I-PER", "B-PER", "O"]]
    assert counted(as_iob2, predicted) == (3, 2, 1)


def test_c043_a_stray_inside_tag_counts_leniently_and_not_strictly() -> None:
    gold, predicted = ["B-TEL", "I-TEL"], ["I-TEL", "I-TEL"]
    assert entities_of(predicted) == entities_of(gold)
    assert strict_entities_of(gold) == entities_of(gold)
    assert strict_entities_of(predicted) == []


def test_c043_bioes_gives_the_same_counts_as_iob2() -> None:
    draw = random.Random(4)
    gold = [random_entities(draw, 10) for _ in range(50)]
    predicted = [random_entities(draw, 10) for _ in range(50)]
    expected = counted([tags_of(e, 10, "iob2") for e in gold], [tags_of(e, 10, "iob2") for e in predicted])
    for scheme in SCHEMES:
        found = counted([tags_of(e, 10, scheme) for e in gold], [tags_of(e, 10, "iob2") for e in predicted])
        assert found == expected


def test_counts_are_the_conll_scripts() -> None:
    draw = random.Random(5)
    for letters in ("OBI", "OI", "BI", "OOOBII"):
        for _ in range(150):
            sizes = [draw.randint(0, 9) for _ in range(4)]
            gold = [random_tags(draw, letters, size) for size in sizes]
            predicted = [random_tags(draw, letters, size) for size in sizes]
            assert counted(gold, predicted) == conlleval(gold, predicted), (gold, predicted)


@pytest.mark.parametrize("letters", ["OBI", "OOOBI", "OBIES"])
def test_scores_are_seqevals_in_both_modes(letters: str) -> None:
    seqeval = pytest.importorskip("seqeval.metrics")
    scheme = pytest.importorskip("seqeval.scheme")
    draw = random.Random(6)
    ours, theirs = ("bioes", scheme.IOBES) if "S" in letters else ("iob2", scheme.IOB2)
    for _ in range(60):
        sizes = [draw.randint(1, 8) for _ in range(5)]
        gold = [random_tags(draw, letters, size) for size in sizes]
        predicted = [random_tags(draw, letters, size) for size in sizes]
        modes = (
            (entities_of, {}),
            (lambda tags: strict_entities_of(tags, ours), {"mode": "strict", "scheme": theirs}),
        )
        for read, mode in modes:
            metrics = entity_metrics(
                count_entities([read(tags) for tags in gold], [read(tags) for tags in predicted])
            )
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                expected = {
                    "precision": seqeval.precision_score(gold, predicted, zero_division=0, **mode),
                    "recall": seqeval.recall_score(gold, predicted, zero_division=0, **mode),
                    "f1": seqeval.f1_score(gold, predicted, zero_division=0, **mode),
                    "macro_f1": seqeval.f1_score(gold, predicted, average="macro", zero_division=0, **mode),
                }
            assert metrics == pytest.approx(expected), (mode, gold, predicted)


@given(
    st.lists(
        st.sampled_from(["O", *(f"{letter}-{label}" for letter in "BIES" for label in LABELS)]), max_size=12
    )
)
def test_any_tags_give_entities_in_order_that_do_not_overlap(tags: list[str]) -> None:
    entities = entities_of(tags)
    covered = [place for entity in entities for place in range(entity.start, entity.end)]
    assert covered == [place for place, tag in enumerate(tags) if tag != "O"]
    assert entities == sorted(entities)


def test_no_entities_give_zero() -> None:
    assert entity_metrics(count_entities([[]], [[]])) == {
        "f1": 0.0,
        "precision": 0.0,
        "recall": 0.0,
        "macro_f1": 0.0,
    }
