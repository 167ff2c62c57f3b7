"""Scores of extractive answers by the rules of the published evaluation scripts, re-derived.

A question's score is the best over its gold answers. All are fractions; the scripts print percent.
A question without a prediction counts 0 (the script of SQuAD 2.0 leaves it out of its mean instead).

Source: evaluate-v1.1.py and evaluate-v2.0.py of SQuAD; cmrc2018_evaluate.py; mlqa_evaluation_v1.py.
"""

from __future__ import annotations

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import SequenceMatcher
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bertsmith.errors import InputError

Rule = Callable[[str, Sequence[str]], tuple[float, float]]
"""From a prediction and the gold answers to (exact match, F1)."""
Floats = NDArray[np.float64]

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_IDEOGRAPH = re.compile("([\u4e00-\u9fa5])")
_ASCII_PUNCTUATION = frozenset(string.punctuation)
# Of CMRC 2018. The script also lists an ellipsis of two characters, which no single character equals.
_CMRC_PUNCTUATION = frozenset("-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")


def squad1(prediction: str, golds: Sequence[str]) -> tuple[float, float]:
    """Return exact match and F1 by the rules of SQuAD 1.1.

    Two texts of nothing but articles and punctuation match exactly, but have F1 0: they share no word.
    Without gold answers nothing is right.
    """
    found = [normalized(gold) for gold in golds]
    predicted = normalized(prediction)
    f1s = [_overlap(gold.split(), predicted.split()) for gold in found]
    return float(predicted in found), max(f1s, default=0.0)


def squad2(prediction: str, golds: Sequence[str]) -> tuple[float, float]:
    """Return exact match and F1 by the rules of SQuAD 2.0.

    Gold answers of nothing but articles and punctuation do not count; where none is left, only a prediction
    of nothing is right.
    """
    found = [gold for gold in map(normalized, golds) if gold] or [""]
    predicted = normalized(prediction)
    f1s = [_agreement(gold.split(), predicted.split()) for gold in found]
    return float(predicted in found), max(f1s)


def own(prediction: str, golds: Sequence[str]) -> tuple[float, float]:
    """Return exact match and F1 for own data: SQuAD 2.0's rules for English and Chinese.

    As in MLQA, all of Unicode's punctuation is dropped and each Chinese character is a word.
    """
    found = [words for words in map(_words, golds) if words] or [[]]
    predicted = _words(prediction)
    return float(predicted in found), max(_agreement(gold, predicted) for gold in found)


def cmrc2018(prediction: str, golds: Sequence[str]) -> tuple[float, float]:
    """Return exact match and F1 by the rules of CMRC 2018.

    F1 is of the longest run of segments that both share: Chinese characters, and words between them. Without
    gold answers nothing is right.

    Raises:
        InputError: nltk, which splits the words, is not installed.
    """
    predicted = _segments(prediction)
    f1s = []
    for gold in map(_segments, golds):
        match = SequenceMatcher(None, gold, predicted, autojunk=False).find_longest_match()
        f1s.append(_f1(match.size, len(gold), len(predicted)))
    exact = _without_punctuation(prediction) in map(_without_punctuation, golds)
    return float(exact), max(f1s, default=0.0)


@lru_cache(maxsize=1 << 16)
def normalized(text: str) -> str:
    """Return a text in lower case, without ASCII punctuation and articles, words one space apart."""
    kept = "".join(character for character in text.lower() if character not in _ASCII_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", kept).split())


def _words(text: str) -> list[str]:
    kept = "".join(
        character
        for character in text.lower()
        if character not in _ASCII_PUNCTUATION and not unicodedata.category(character).startswith("P")
    )
    return _IDEOGRAPH.sub(r" \1 ", _ARTICLES.sub(" ", kept)).split()


def _without_punctuation(text: str) -> str:
    return "".join(character for character in text.lower().strip() if character not in _CMRC_PUNCTUATION)


@lru_cache(maxsize=1 << 16)
def _segments(text: str) -> tuple[str, ...]:
    try:
        from nltk.tokenize import NLTKWordTokenizer
    except ImportError:
        raise InputError(
            "the metric of CMRC 2018 splits words with nltk, which is not installed: "
            "pip install 'bertsmith[cmrc]'"
        ) from None
    split = NLTKWordTokenizer().tokenize
    segments: list[str] = []
    for part in _IDEOGRAPH.split(_without_punctuation(text)):
        segments += [part] if _IDEOGRAPH.fullmatch(part) else split(part)
    return tuple(segments)


def _overlap(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the F1 of two bags of words; 0 where they share none."""
    return _f1((Counter(gold) & Counter(predicted)).total(), len(gold), len(predicted))


def _agreement(gold: Sequence[str], predicted: Sequence[str]) -> float:
    """Return the F1 of two bags of words; where one is empty, whether both are."""
    return _overlap(gold, predicted) if gold and predicted else float(len(gold) == len(predicted))


def _f1(same: int, gold: int, predicted: int) -> float:
    if same == 0:
        return 0.0
    precision, recall = same / predicted, same / gold
    return 2 * precision * recall / (precision + recall)


def question_scores(rule: Rule, predictions: Sequence[str | None], golds: Sequence[Sequence[str]]) -> Floats:
    """Return exact match and F1 of every question, float64 ``(questions, 2)``; 0 without a prediction."""
    assert len(predictions) == len(golds) > 0, "every question has a place for its prediction"
    pairs = zip(predictions, golds, strict=True)
    return np.array([rule(text, gold) if text is not None else (0.0, 0.0) for text, gold in pairs])


def with_threshold(scores: Floats, null_odds: Floats, has_answer: NDArray[np.bool_], tau: float) -> Floats:
    """Return the scores when a question is left unanswered where its null odds exceed ``tau``.

    Args:
        scores: of the best answers, float64 ``(questions, n)``.
        null_odds: score of "no answer" minus that of the best answer, float64 ``(questions,)``.
        has_answer: bool ``(questions,)``.
        tau: in the unit of the odds.
    """
    unanswered = null_odds > tau
    return np.where(unanswered[:, None], ~has_answer[:, None], scores)


def sweep(
    scores: Floats, null_odds: Floats, has_answer: NDArray[np.bool_], answered: NDArray[np.bool_]
) -> tuple[Floats, Floats]:
    """Return every threshold that can matter and the mean score at it.

    Args:
        scores: of the best answers under one metric, float64 ``(questions,)``.
        null_odds: float64 ``(questions,)``.
        has_answer: bool ``(questions,)``.
        answered: the best answer is not empty, bool ``(questions,)``.

    Returns:
        The null odds in rising order, float64 ``(questions,)``, and the mean scores, float64
        ``(questions + 1,)``: number i when the first i questions are answered and the others are not.
    """
    order = np.argsort(null_odds, kind="stable")
    gains = np.where(has_answer, scores, -answered.astype(np.float64))[order]
    unanswerable = float(np.count_nonzero(~has_answer))
    totals = np.cumsum(np.concatenate([[unanswerable], gains]))
    return null_odds[order], totals / len(scores)


def official_best(means: Floats, null_odds: Floats) -> tuple[float, float]:
    """Return the best mean of a sweep and its threshold as the script of SQuAD 2.0 finds them.

    The script does not mind that questions of equal odds share their fate, and names the threshold 0 where
    answering nothing is best: with such data its best score cannot be reached.
    """
    best = int(np.argmax(means))
    return float(means[best]), float(null_odds[best - 1]) if best else 0.0


def reachable_best(means: Floats, null_odds: Floats) -> float:
    """Return the threshold of the best mean of a sweep that a threshold can reach.

    It lies midway between two questions, so that rounding moves neither to the other side.
    """
    ends = np.concatenate([[True], np.diff(null_odds) > 0, [True]])  # nothing splits equal odds
    best = int(np.argmax(np.where(ends, means, -1.0)))
    if best == 0:
        return float(null_odds[0]) - 1.0
    if best == len(null_odds):
        return float(null_odds[-1]) + 1.0
    return float(null_odds[best - 1] + null_odds[best]) / 2
