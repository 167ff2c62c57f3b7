"""Windows as inputs: equal to transformers' ones, exact targets, limits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.batch import IGNORED
from bertsmith.errors import InputError
from bertsmith.tasks.config import SpanConfig
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.questions import Questions, check_spans, encode_questions
from bertsmith.tasks.squad import Gold, Question, QuestionSet, found_near, read_questions
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

WORDS = ["oslo", "is", "the", "capital", "of", "norway", "where", "what", "dr", "m", "##ü", "##ller", "."]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer([*SPECIAL_TOKENS, *WORDS], TokenizerConfig(strip_accents=False))


def question(passage: str, answer: str | None, start: int | None = None, asked: str = "where") -> Question:
    golds = ()
    if answer is not None:
        golds = (found_near(passage, answer, start),)
    return Question("q", asked, passage, golds, answer is None, 1)


def encode(
    rows: Sequence[Question], tokenizer: Tokenizer, seq_len: int, config: SpanConfig, truncation: str = "tail"
) -> Questions:
    encoding = Encoding(tokenizer, seq_len, truncation, asdict(config))
    return encode_questions(QuestionSet(list(rows), "train.json"), encoding)


def answer_of(inputs: Questions, number: int, passage: str) -> str:
    """The characters that an input's target stands for."""
    first, last = inputs.targets[number]
    window = inputs.windows[number]
    pieces = inputs.passages[window.row]
    start, end = pieces.characters_of(*(int(p) - window.place + window.first for p in (first, last)))
    return passage[start:end]


def test_windows_are_those_of_transformers(minilm_path: Path, shared_data: Path) -> None:
    """By overlap: ids, segments, and where the answer's first and last piece stand in each window."""
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(minilm_path)
    ours = Tokenizer.load(minilm_path)
    questions = read_questions(str(shared_data / "squad" / "dev-v2.0.rebuilt.json.gz"))[::40]
    config = SpanConfig(window_overlap=20)
    inputs = encode(questions, ours, 96, config)
    batch = theirs(
        [question.question for question in questions],
        [question.passage for question in questions],
        truncation="only_second",
        max_length=96,
        stride=20,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    assert len(inputs.encoded) == len(batch["input_ids"]) > 1.5 * len(questions)
    for number, row in enumerate(inputs.encoded):
        window = inputs.windows[number]
        assert row.ids.tolist() == batch["input_ids"][number]
        assert window.row == batch["overflow_to_sample_mapping"][number]
        segments = [int(place >= row.second_start) for place in range(len(row.ids))]
        assert segments == batch["token_type_ids"][number]
        offsets = batch["offset_mapping"][number][window.place : window.place + window.pieces]
        mine = inputs.passages[window.row].offsets[window.first : window.first + window.pieces]
        assert [tuple(pair) for pair in mine.tolist()] == offsets
        golds = questions[window.row].golds
        expected = (0, 0)
        if golds:
            first = batch.char_to_token(number, golds[0].start, sequence_index=1)
            last = batch.char_to_token(number, golds[0].end - 1, sequence_index=1)
            expected = (first, last) if first is not None and last is not None else expected
        assert tuple(inputs.targets[number]) == expected
    assert np.count_nonzero(inputs.targets[:, 0]) > 50


def test_by_step_the_originals_windows_hold_every_answer(minilm_path: Path, shared_data: Path) -> None:
    ours = Tokenizer.load(minilm_path)
    questions = read_questions(str(shared_data / "squad" / "dev-v1.1.rebuilt.json.gz"))[::25]
    inputs = encode(questions, ours, 128, SpanConfig(window_step=32))
    held = {w.row for w, target in zip(inputs.windows, inputs.targets, strict=True) if target[0] > 0}
    assert len(held) == len(questions), "some window holds the whole answer"
    exact = 0
    for number, window in enumerate(inputs.windows):
        if inputs.targets[number, 0] > 0:
            found = answer_of(inputs, number, questions[window.row].passage)
            assert questions[window.row].golds[0].text in found
            exact += found == questions[window.row].golds[0].text
        starts = [w.first for w in inputs.windows if w.row == window.row][:2]
        assert len(starts) < 2 or starts[1] == 32
    assert exact > 0.99 * sum(inputs.targets[:, 0] > 0), "but for answers that end within a piece"


C039 = [("Oslo is the capital", 0), ("The capital is Oslo", 15), ("Oslo", 0)]


@pytest.mark.parametrize("passage, start", C039)
@pytest.mark.parametrize("fills", [False, True], ids=["room left", "fills the window"])
def test_c039_the_first_and_the_last_piece_are_answers(
    tokenizer: Tokenizer, passage: str, start: int, fills: bool
) -> None:
    pieces = len(tokenizer.encode(passage))
    seq_len = 1 + 1 + 1 + pieces + 1 if fills else 16
    asked = question(passage, "Oslo", start)
    assert not asked.impossible
    inputs = encode([asked], tokenizer, seq_len, SpanConfig(max_query_len=1))
    assert len(inputs.encoded) == 1
    place = 3 + (pieces - 1 if start else 0)  # [CLS] where [SEP] comes before
    assert inputs.targets.tolist() == [[place, place]]
    assert answer_of(inputs, 0, passage) == "Oslo"


def test_c037_targets_are_exactly_the_answers(tokenizer: Tokenizer) -> None:
    for passage, answer, start in [(" Oslo is capital.", "Oslo", 1), ("Dr Müller", "Müller", 3)]:
        inputs = encode([question(passage, answer, start)], tokenizer, 32, SpanConfig(max_query_len=8))
        assert answer_of(inputs, 0, passage) == answer
    inputs = encode([question("I saw Oslo.", "oslo", 6)], tokenizer, 32, SpanConfig(max_query_len=8))
    assert answer_of(inputs, 0, "I saw Oslo.") == "Oslo"


def test_what_has_no_place_teaches_nothing(tokenizer: Tokenizer) -> None:
    lost = Question("a", "where", "oslo", (Gold("Rome", None, 0, False),), False, 1)
    unlabelled = Question("b", "where", "oslo", (), False, 2)
    without_piece = question("oslo \u200b", "\u200b", 5)
    impossible = question("oslo", None)
    second = Question("c", "where", "oslo is", (Gold("Rome", None, 0, False), Gold("is", 5, 7)), False, 3)
    inputs = encode(
        [lost, unlabelled, without_piece, impossible, second], tokenizer, 32, SpanConfig(max_query_len=8)
    )
    ignored = [IGNORED, IGNORED]
    assert inputs.targets.tolist() == [ignored, ignored, ignored, [0, 0], [4, 4]]
    batch = inputs.batch([4, 0, 3])
    assert batch.rows.tolist() == [0, 3, 4], "sorted by length"
    assert batch.labels.tolist() == [ignored, [0, 0], [4, 4]]
    assert batch.num_targets == 2
    assert batch.to("meta").num_targets == 2


def test_an_answer_across_two_windows_is_none_of_both(tokenizer: Tokenizer) -> None:
    passage = "the the the the oslo norway the the the"
    inputs = encode(
        [question(passage, "oslo norway", 16)], tokenizer, 9, SpanConfig(window_step=5, max_query_len=1)
    )
    assert [(window.first, window.pieces) for window in inputs.windows] == [(0, 5), (5, 4)]
    assert inputs.targets.tolist() == [[0, 0], [0, 0]]


def test_long_questions_are_cut_and_counted(tokenizer: Tokenizer) -> None:
    rows = [question("oslo", "oslo", 0, "where where what what is"), question("oslo", "oslo", 0)]
    tail = encode(rows, tokenizer, 32, SpanConfig(max_query_len=3))
    assert tail.truncated == [True, False]
    assert tokenizer.decode(tail.encoded[0].ids) == "[CLS] where where what [SEP] oslo [SEP]"
    head = encode(rows, tokenizer, 32, SpanConfig(max_query_len=3), truncation="head")
    assert tokenizer.decode(head.encoded[0].ids) == "[CLS] what what is [SEP] oslo [SEP]"
    with pytest.raises(InputError, match=r"train\.json, question q: .* 5 pieces.*max-query-len 3"):
        encode(rows, tokenizer, 32, SpanConfig(max_query_len=3), truncation="error")


def test_an_empty_passage_or_question_is_still_an_input(tokenizer: Tokenizer) -> None:
    inputs = encode(
        [question("", None), question("oslo", "oslo", 0, "")], tokenizer, 32, SpanConfig(max_query_len=8)
    )
    assert [tokenizer.decode(row.ids) for row in inputs.encoded] == [
        "[CLS] where [SEP] [SEP]",
        "[CLS] [SEP] oslo [SEP]",
    ]


def test_c035_a_question_leaves_the_passage_room(tokenizer: Tokenizer) -> None:
    long = question(" ".join(["oslo"] * 30), "oslo", 0, " ".join(["where"] * 20))
    with pytest.raises(InputError, match=r"max-query-len is 64, but seq-len 16 has 13 places.* at most 12"):
        encode([long], tokenizer, 16, SpanConfig())
    config = SpanConfig(max_query_len=12)
    begun = time.perf_counter()
    inputs = encode([long], tokenizer, 16, config)
    assert time.perf_counter() - begun < 5
    assert [window.pieces for window in inputs.windows] == [1] * 30, "one piece at a time, then it ends"
    assert all(len(row.ids) == 16 for row in inputs.encoded)


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"window_step": 4, "window_overlap": 8}, "leave one of them out"),
        ({"window_overlap": 25}, "0 to 24"),
        ({"window_overlap": -1}, "0 to 24"),
        ({"window_step": 0}, "window-step is 0; it has to be at least 1"),
        ({"max_query_len": 0}, "max-query-len is 0"),
        ({"n_best": 0}, "n-best is 0"),
        ({"max_answer_len": 0}, "max-answer-len is 0"),
    ],
)
def test_settings_out_of_range_are_refused(
    tokenizer: Tokenizer, settings: dict[str, int], message: str
) -> None:
    config = SpanConfig(**({"max_query_len": 4} | settings))
    with pytest.raises(InputError, match=message):
        check_spans(config, tokenizer, 32)
