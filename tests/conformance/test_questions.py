"""Fact 32: windows over passages and the scores of answers, on the real development sets."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tokenizers import Tokenizer as Engine

from bertsmith.errors import InputError
from bertsmith.tasks.config import SpanConfig
from bertsmith.tasks.decoding import decode
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.questions import encode_questions
from bertsmith.tasks.squad import QuestionSet, read_questions
from bertsmith.tasks.squad_metrics import question_scores, squad1, squad2
from bertsmith.tasks.windows import best_known
from bertsmith.text.tokenizer import Tokenizer
from tests.conformance import plain_answers
from tests.conformance.plain_answers import knows_best, windows_over
from tests.tasks.test_decoding import windows_of, words
from tests.tasks.test_squad_metrics import plain_f1, plain_words

SEQ_LEN = 96


@pytest.fixture(scope="module")
def questions(shared_data):
    return read_questions(str(shared_data / "squad" / "dev-v1.1.rebuilt.json.gz"))


@pytest.fixture(scope="module")
def tokenizer(shared_vocabulary_file):
    return Tokenizer.load(shared_vocabulary_file("bert-base-uncased"))


def encoded(questions, tokenizer, **settings):
    encoding = Encoding(tokenizer, SEQ_LEN, "tail", settings)
    return encode_questions(QuestionSet(questions[::100], "dev"), encoding)


def by_question(split):
    found = {}
    for window in split.windows:
        found.setdefault(window.row, []).append(window)
    return found


def test_fact_32_windows_are_the_originals(fact, questions, tokenizer):
    line = fact(32, "windows over real passages, doc_stride as the step", "the original's loop")
    split = encoded(questions, tokenizer, window_step=24)
    for row, windows in by_question(split).items():
        space = SEQ_LEN - windows[0].place - 1
        expected = windows_over(len(split.passages[row].ids), space, 24)
        assert [(window.first, window.pieces) for window in windows] == expected
    assert SpanConfig().step(320) == 128, "the original's default"
    assert len(split.windows) > 2 * len(split.rows.rows)
    line.exact()


def test_fact_32_windows_by_overlap_are_those_of_tokenizers(fact, questions, tokenizer):
    line = fact(32, "windows over real passages, stride as the overlap", "tokenizers, truncation with stride")
    split = encoded(questions, tokenizer, window_overlap=24)
    engine = Engine.from_str(tokenizer.engine_json())
    for row, windows in by_question(split).items():
        engine.enable_truncation(SEQ_LEN - windows[0].place - 1, stride=24)
        encoding = engine.encode(split.rows.rows[row].passage, add_special_tokens=False)
        theirs = [part.ids for part in (encoding, *encoding.overflowing)]
        ids = split.passages[row].ids
        assert [ids[window.first : window.first + window.pieces].tolist() for window in windows] == theirs
    with pytest.raises(InputError, match="leave one of them out"):
        encoded(questions[:100], tokenizer, window_step=24, window_overlap=24)
    line.exact()


def test_fact_32_each_piece_counts_where_it_has_most_context(fact, questions, tokenizer):
    line = fact(32, "the window that a piece counts in", "_check_is_max_context, re-derived")
    for windows in by_question(encoded(questions, tokenizer, window_step=24)).values():
        spans = [(window.first, window.pieces) for window in windows]
        for number, owned in enumerate(best_known(windows)):
            first, pieces = spans[number]
            expected = [knows_best(spans, number, piece) for piece in range(first, first + pieces)]
            assert owned.tolist() == expected
    line.exact()


def test_fact_32_every_span_is_weighed(fact):
    line = fact(
        32, "the best span where its start is not among the best starts", "write_predictions, re-derived"
    )
    text, passage = words(30)
    windows = windows_of(30, 30, 30)
    scores = np.zeros((36, 2), dtype=np.float32)
    scores[4:7, 0], scores[28:31, 1] = 3.0, 3.0  # starts and ends that are too far apart for an answer
    scores[20, 0], scores[22, 1] = 2.5, 2.5
    best, _ = plain_answers.best_and_null(windows, [scores], max_length=5, n_best=3)
    found = decode(text, passage, windows, [scores], 5, 3).spans[0]
    assert best[0] < found.score == 5.0
    line.deliberate(
        "every allowed span is weighed; the original joins the 20 best starts and ends of a window, and can "
        "miss the best span"
    )


def some_predictions(questions, nothing):
    """Gold answers, worn a little; some of them another question's, some ``nothing``."""
    draw = random.Random(0)
    for number, question in enumerate(questions):
        texts = [gold.text for gold in question.golds] or [questions[number - 1].passage[:30]]
        text = draw.choice(texts)
        worn = [
            "The " + text.upper() + "!",
            text + " in",
            text[: len(text) // 2],
            "a, the",
            questions[number - 1].id,
        ]
        yield draw.choice([text, text, *worn, nothing])


def test_fact_32_scores_of_squad_1(fact, questions):
    line = fact(
        32,
        "exact match and F1 of SQuAD 1.1; a question without a prediction counts 0",
        "evaluate-v1.1, re-derived",
    )
    golds = [[gold.text for gold in question.golds] for question in questions]
    predictions = list(some_predictions(questions, None))
    expected = []
    for text, answers in zip(predictions, golds, strict=True):
        if text is None:
            expected.append((0.0, 0.0))
            continue
        found = [plain_words(answer) for answer in answers]
        mine = plain_words(text)
        expected.append((float(mine in found), max(plain_f1(answer, mine) for answer in found)))
    ours = question_scores(squad1, predictions, golds)
    assert 0.3 < ours.mean() < 0.9, "otherwise this shows little"
    line.difference(float(np.abs(ours - expected).max()), 1e-12)


def test_fact_32_scores_of_squad_2(fact, shared_data):
    line = fact(
        32,
        "exact match and F1 of SQuAD 2.0: no answer is right where there is none",
        "evaluate-v2.0, re-derived",
    )
    questions = read_questions(str(shared_data / "squad" / "dev-v2.0.rebuilt.json.gz"))
    golds = [[gold.text for gold in question.golds] for question in questions]
    predictions = list(some_predictions(questions, ""))
    expected = []
    for text, answers in zip(predictions, golds, strict=True):
        found = [words for words in map(plain_words, answers) if words] or [[]]
        mine = plain_words(text)
        f1s = [plain_f1(words, mine) if words and mine else float(words == mine) for words in found]
        expected.append((float(mine in found), max(f1s)))
    ours = question_scores(squad2, predictions, golds)
    assert any(not answers for answers in golds)
    line.difference(float(np.abs(ours - expected).max()), 1e-12)
