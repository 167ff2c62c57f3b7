"""task.json as people and programs spoil it: one clear error, never a crash later."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.features import POOLINGS
from bertsmith.stored_task import check_stored_task

PATH = Path("model/task.json")
WHOLE = {
    "task": "multilabel",
    "head": "multi-label",
    "labels": ["a", "b"],
    "seq_len": 16,
    "truncation": "tail",
    "settings": {"label_separator": None},
    "columns": {"text": "text", "second_text": None, "label": "labels"},
    "tuned": {"thresholds": [0, 0.5]},
}


def test_a_whole_task_and_an_empty_one_are_taken():
    check_stored_task(WHOLE, PATH, 64, 2)
    check_stored_task({}, PATH, 64, None)
    check_stored_task(dict.fromkeys(WHOLE), PATH, 64, None)


@pytest.mark.parametrize("value", [3, "x", [1], {"a": 1}, True, math.nan])
@pytest.mark.parametrize("name", WHOLE)
def test_every_value_of_a_wrong_type_is_refused(name, value):
    if isinstance(value, type(WHOLE[name])) and type(value) is not bool and name not in ("labels", "columns"):
        return
    if name == "seq_len" and value == 3 and type(value) is int:
        return
    with pytest.raises(InputError, match=f"model/task.json: {name}"):
        check_stored_task(WHOLE | {name: value}, PATH, 64, 2)


@pytest.mark.parametrize(
    "tuned, message",
    [
        ({"thresholds": 0.5}, "0.5 thresholds; expected 2"),
        ({"thresholds": {"a": 0.5, "b": 0.5}}, "expected 2, one for each label"),
        ({"thresholds": [0.5]}, "1 thresholds; expected 2"),
        ({"thresholds": ["a", "b"]}, "a threshold is 'a'; expected a probability"),
        ({"thresholds": [0.5, math.nan]}, "a threshold is nan"),
        ({"thresholds": [0.5, 2]}, "a threshold is 2; expected a probability, 0 to 1"),
        ({"thresholds": [0.5, True]}, "a threshold is True"),
        ({"temperature": 0}, "temperature is 0; expected a number above 0"),
        ({"temperature": math.nan}, "temperature is nan"),
        ({"temperature": None}, "temperature is None"),
        ({"null_threshold": math.nan}, "null_threshold is nan; expected a number"),
        ({"null_threshold": True}, "null_threshold is True"),
        ({"null_threshold": [1]}, "null_threshold is"),
        ({"score_range": 5}, "score_range is 5; expected"),
        ({"score_range": [1, 1]}, "score_range is"),
        ({"score_range": [0, math.nan]}, "score_range is"),
        ({"score_range": [0, 2, 5]}, "score_range is"),
    ],
)
def test_what_was_tuned_is_numbers_in_range(tuned, message):
    with pytest.raises(InputError, match=message):
        check_stored_task(WHOLE | {"tuned": tuned}, PATH, 64, 2)


def test_an_embedding_model_says_how_its_vectors_are_made():
    task = {"task": "embed", "head": "embedding", "labels": None, "seq_len": 16}
    for pooling in POOLINGS:
        check_stored_task(task | {"settings": {"pooling": pooling, "normalize": True}}, PATH, 64, None)
    for settings, message in [
        (None, "pooling is None; expected mean, max, cls"),
        ({"pooling": "sum", "normalize": True}, "pooling is 'sum'"),
        ({"pooling": "mean"}, "normalize is None; expected true or false"),
        ({"pooling": "mean", "normalize": 1}, "normalize is 1"),
    ]:
        with pytest.raises(InputError, match=message):
            check_stored_task(task | {"settings": settings}, PATH, 64, None)


@pytest.mark.parametrize("labels", [["a", "a"], ["a", ""], ["a", 1], ["a"], [], None, [1, 2]])
def test_labels_are_different_names_one_for_each_output(labels):
    with pytest.raises(InputError, match="expected 2 names, one for each output"):
        check_stored_task(WHOLE | {"labels": labels}, PATH, 64, 2)


@pytest.mark.parametrize(
    "change", [{"text": None}, {"text": ""}, {"second_text": 3}, {"label": [1]}, {"x": "y"}]
)
def test_columns_are_names(change):
    with pytest.raises(InputError, match=r"columns"):
        check_stored_task(WHOLE | {"columns": WHOLE["columns"] | change}, PATH, 64, 2)
