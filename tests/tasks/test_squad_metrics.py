"""The scores of the published scripts, held to a second implementation and to their odd cases."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import string
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.tasks import squad_metrics
from bertsmith.tasks.squad_metrics import (
    cmrc2018,
    normalized,
    official_best,
    own,
    question_scores,
    reachable_best,
    squad1,
    squad2,
    sweep,
    with_threshold,
)

NEEDS_NLTK = pytest.mark.skipif(importlib.util.find_spec("nltk") is None, reason="nltk is not installed")
WORDS = [
    "the",
    "The",
    "a",
    "an",
    "theory",
    "oslo",
    "Oslo,",
    "U.S.",
    "-",
    "“x”",
    "\u00a0",
    "İ",
    "9,000",
    "b a",
    "",
]
ANSWERS = st.lists(st.sampled_from(WORDS), max_size=6).map(" ".join) | st.text(max_size=12)


def plain_words(text: str) -> list[str]:
    """The description in other words: drop, replace, split."""
    text = text.lower().translate(str.maketrans("", "", string.punctuation))
    return re.sub(r"\b(?:a|an|the)\b", " ", text).split()


def plain_f1(gold: list[str], predicted: list[str]) -> float:
    rest, same = list(gold), 0
    for word in predicted:
        if word in rest:
            rest.remove(word)
            same += 1
    return 0.0 if same == 0 else 2 * same / (len(gold) + len(predicted))


@given(ANSWERS, st.lists(ANSWERS, min_size=1, max_size=4))
def test_squad1_is_the_rule_in_other_words(prediction: str, golds: list[str]) -> None:
    words = plain_words(prediction)
    exact, f1 = squad1(prediction, golds)
    assert exact == max(" ".join(plain_words(gold)) == " ".join(words) for gold in golds)
    assert f1 == pytest.approx(max(plain_f1(plain_words(gold), words) for gold in golds), abs=1e-12)


@given(ANSWERS, st.lists(ANSWERS, max_size=4))
def test_squad2_is_the_rule_in_other_words(prediction: str, golds: list[str]) -> None:
    words = plain_words(prediction)
    counted = [plain_words(gold) for gold in golds if plain_words(gold)] or [[]]
    exact, f1 = squad2(prediction, golds)
    assert exact == max(gold == words for gold in counted)
    empty = [float(not gold and not words) for gold in counted if not gold or not words]
    assert f1 == pytest.approx(max([*empty, *(plain_f1(gold, words) for gold in counted)]), abs=1e-12)


def test_odd_cases_of_the_scripts() -> None:
    assert squad1("the", ["A."]) == (1.0, 0.0), (
        "both are empty after normalising: equal, but no word in common"
    )
    assert squad2("the", ["A."]) == (1.0, 1.0)
    assert squad2("", ["the"]) == (1.0, 1.0), "a gold answer of an article alone does not count"
    assert squad2("Oslo", []) == (0.0, 0.0)
    assert squad2("", []) == (1.0, 1.0)
    assert squad2("", ["Oslo"]) == (0.0, 0.0)
    assert squad1("Oslo", []) == (0.0, 0.0), "nothing can be right; the script stops"
    assert normalized("The U.S.-led\tthea a") == "usled thea"
    assert normalized("“x”") == "“x”", "only ASCII punctuation goes"
    assert squad1("to to be", ["to be be"])[1] == pytest.approx(2 / 3), "words count as often as they occur"


@given(ANSWERS, st.lists(ANSWERS, max_size=3))
def test_own_data_without_foreign_signs_is_squad2(prediction: str, golds: list[str]) -> None:
    if all(text.isascii() for text in (prediction, *golds)):
        assert own(prediction, golds) == squad2(prediction, golds)


def test_own_data_counts_chinese_characters_as_words() -> None:
    assert squad2("北京市", ["北京"]) == (0.0, 0.0)
    exact, f1 = own("北京市", ["北京"])
    assert (exact, f1) == (0.0, pytest.approx(0.8))
    assert own("《北京》。", ["北京"]) == (1.0, 1.0)
    assert own("", ["。"]) == (1.0, 1.0)


def longest_run(first: Sequence[str], second: Sequence[str]) -> int:
    """Length of the longest run that both hold, by looking for every one."""
    runs = {tuple(first[i:j]) for i in range(len(first)) for j in range(i + 1, len(first) + 1)}
    found = (len(run) for run in runs for i in range(len(second)) if tuple(second[i : i + len(run)]) == run)
    return max(found, default=0)


@NEEDS_NLTK
@settings(deadline=None)  # the first call imports nltk
@given(*2 * [st.text("北京市a1 ，。.", max_size=9)])
def test_cmrc_f1_is_of_the_longest_common_run(gold: str, predicted: str) -> None:
    first, second = squad_metrics._segments(gold), squad_metrics._segments(predicted)
    same = longest_run(first, second)
    expected = 2 * same / (len(first) + len(second)) if same else 0.0
    assert cmrc2018(predicted, [gold])[1] == pytest.approx(expected, abs=1e-12)


@NEEDS_NLTK
def test_cmrc_segments_and_exact_match() -> None:
    assert squad_metrics._segments("在1998年，A. B.公司(Bc)") == (
        "在",
        "1998",
        "年",
        "a.",
        "b",
        ".",
        "公",
        "司",
        "(",
        "bc",
        ")",
    )
    assert cmrc2018("《北京》", ["北京。"])[0] == 1.0
    assert cmrc2018("北京…", ["北京"])[0] == 0.0, "the script's ellipsis is two characters, so one stays"
    assert cmrc2018("", ["，"]) == (1.0, 0.0)
    assert cmrc2018("北京", []) == (0.0, 0.0)
    # The run 京市 of two is longest; 北京市 and 南京市 share it.
    assert cmrc2018("南京市", ["北京市"])[1] == pytest.approx(2 / 3)


def test_a_question_without_prediction_counts_nothing() -> None:
    scores = question_scores(squad1, ["Oslo", None], [["Oslo"], [""]])
    np.testing.assert_array_equal(scores, [[1.0, 1.0], [0.0, 0.0]])


def slow_threshold_scores(
    scores: list[float], odds: list[float], has_answer: list[bool], tau: float
) -> float:
    total = 0.0
    for score, odd, has in zip(scores, odds, has_answer, strict=True):
        total += (not has) if odd > tau else score
    return total / len(scores)


def random_questions(
    draw: random.Random, number: int, ties: bool
) -> tuple[list[float], list[float], list[bool], list[bool]]:
    has = [draw.random() < 0.5 for _ in range(number)]
    answered = [draw.random() < 0.9 for _ in range(number)]
    scores = [
        draw.choice([0.0, 0.25, 1.0]) if has_it else float(not text)
        for has_it, text in zip(has, answered, strict=True)
    ]
    odds = [float(draw.randint(-3, 3)) if ties else draw.uniform(-5, 5) for _ in range(number)]
    return scores, odds, has, answered


@pytest.mark.parametrize("ties", [False, True])
def test_the_best_threshold_is_the_best_of_all(ties: bool) -> None:
    draw = random.Random(1)
    for _ in range(300):
        scores, odds, has, answered = random_questions(draw, draw.randint(1, 9), ties)
        arrays = np.array(scores), np.array(odds), np.array(has), np.array(answered)
        ordered, means = sweep(*arrays)
        tried = {
            tau: slow_threshold_scores(scores, odds, has, tau)
            for tau in [min(odds) - 1, *(odd for odd in odds)]
        }
        tau = reachable_best(means, ordered)
        assert slow_threshold_scores(scores, odds, has, tau) == pytest.approx(max(tried.values()), abs=1e-12)
        applied = with_threshold(arrays[0][:, None], arrays[1], arrays[2], tau)
        assert float(applied.mean()) == pytest.approx(max(tried.values()), abs=1e-12)
        best, official_tau = official_best(means, ordered)
        if not ties:
            assert best == pytest.approx(max(tried.values()), abs=1e-12)
        if not ties and best > means[0]:
            assert slow_threshold_scores(scores, odds, has, official_tau) == pytest.approx(best, abs=1e-12)


def test_the_official_threshold_has_its_odd_cases() -> None:
    # Answering nothing is best: the script names 0, at which the first question is answered.
    odds, has = np.array([-1.0, 2.0]), np.array([False, False])
    ordered, means = sweep(np.zeros(2), odds, has, np.array([True, True]))
    assert official_best(means, ordered) == (1.0, 0.0)
    assert reachable_best(means, ordered) < -1.0
    # Equal odds: the script stops between them, at a score that no threshold reaches.
    ordered, means = sweep(np.array([1.0, 0.0]), np.zeros(2), np.array([True, False]), np.array([True, True]))
    assert official_best(means, ordered) == (1.0, 0.0)
    assert json.dumps(reachable_best(means, ordered)) == "-1.0"
