"""What the predictor is asked, as splits of the kinds: items of a list instead of rows of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bertsmith.errors import InputError
from bertsmith.tasks.choice import ChoiceSplit, encode_choices
from bertsmith.tasks.choice_rows import row_to_choose
from bertsmith.tasks.classification import LabelledRows
from bertsmith.tasks.encode import checked_texts, listed
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.questions import Questions, encode_questions
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.squad import Question, QuestionSet
from bertsmith.tasks.text_windows import encode_inputs


def texts_to_score(
    texts: Any, columns: Mapping[str, Any] | None, encoding: Encoding, where: str
) -> LabelledRows:
    """Return texts or pairs for a head that reads whole rows.

    Args:
        texts: what the caller gave.
        columns: those the model was trained on, which say whether its rows are pairs; ``None``: unknown.
        encoding: of the model.
        where: the model, for messages.

    Raises:
        InputError: a text is none, or no pair where the model was trained on pairs, or the other way round.
    """
    pairs = checked_texts(texts)
    for number, (_, second) in enumerate(pairs):
        if columns and (second is None) != (columns.get("second_text") is None):
            form = "single texts" if second is not None else "pairs, given as (first, second)"
            raise InputError(f"{where}: the model was trained on {form}; text number {number} is not")
    rows: RowSet[Row] = RowSet([Row(pair, None, number) for number, pair in enumerate(pairs)], "texts")
    inputs = encode_inputs(pairs, encoding.tokenizer, encoding.seq_len, encoding.truncation)
    return LabelledRows(rows, inputs, np.zeros(len(pairs)))


def items_to_choose(items: Any, encoding: Encoding) -> ChoiceSplit:
    """Return contexts with their choices.

    Raises:
        InputError: an item is no context with choices.
    """
    rows = RowSet([row_to_choose(number, item) for number, item in enumerate(listed(items))], "items")
    return encode_choices(rows, encoding, "item number {}".format)


def questions_to_answer(questions: Any, encoding: Encoding) -> Questions:
    """Return questions with their passages.

    Raises:
        InputError: an item is no pair of texts.
    """
    rows = []
    for number, (question, passage) in enumerate(checked_texts(questions)):
        if passage is None:
            raise InputError(f"text number {number} is a single text; expected (question, passage)")
        rows.append(Question(str(number), question, passage, (), False, number))
    return encode_questions(QuestionSet(rows, "questions"), encoding)


def texts_to_rank(query: Any, texts: Any) -> list[str]:
    """Return the texts.

    Raises:
        InputError: the query is no text, or an item is none.
    """
    if not isinstance(query, str):
        raise InputError(f"the query is a {type(query).__name__}; expected a text")
    singles: Sequence[tuple[str, str | None]] = checked_texts(texts)
    for number, (_, second) in enumerate(singles):
        if second is not None:
            raise InputError(f"text number {number} is a pair; expected a text to rank")
    return [text for text, _ in singles]
