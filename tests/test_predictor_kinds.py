"""Every verb of the predictor: no list is an error, an empty one has no answers, neighbours do not matter."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from bertsmith import predictor
from bertsmith.bundle import save_bundle
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForChoice, BertForClassification, BertForSpans
from bertsmith.model.task_heads import BertForTagging, FeatureClassifier, FeatureTagger
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from tests.recipes.tiny import SHAPE, VOCABULARY

TEXTS = [
    "so good",
    "",
    "bad " * 90,
    "\u4e2d\u6587\U0001f600 \u0645\u0631\u062d\u0628\u0627 so",
    "fine \0 x",
    "worda",
]
CHOICES = [(text, ["good", "bad " * 60, text][: 2 + place % 2]) for place, text in enumerate(TEXTS)]
TAGS = ["O", "B-A", "I-A"]
KINDS: dict[str, tuple[str, Any, dict[str, Any], list[Any]]] = {
    "classification": ("classify", lambda: BertForClassification(SHAPE, 2), {"labels": ["a", "b"]}, TEXTS),
    "multi-label": ("multilabel", lambda: BertForClassification(SHAPE, 2), {"labels": ["a", "b"]}, TEXTS),
    "regression": ("regress", lambda: BertForClassification(SHAPE, 1), {}, TEXTS),
    "choice": ("choose", lambda: BertForChoice(SHAPE), {}, CHOICES),
    "tagging": ("tag", lambda: BertForTagging(SHAPE, 3), {"labels": TAGS}, TEXTS),
    "feature-tagging": (
        "tag",
        lambda: FeatureTagger(SHAPE, 3, layers=(2,), weighted=False),
        {"labels": TAGS, "settings": {"features": "last"}},
        TEXTS,
    ),
    "feature-classification": (
        "classify",
        lambda: FeatureClassifier(SHAPE, 2, layers=(1, 2), weighted=True, lstm_size=8, pairs=True),
        {
            "labels": ["a", "b"],
            "settings": {"features": "weighted-all", "lstm_size": 8},
            "columns": {"text": "a", "second_text": "b", "label": "c"},
        },
        list(zip(TEXTS, TEXTS[2:] + TEXTS[:2], strict=True)),
    ),
    "feature-multi-label": (
        "multilabel",
        lambda: FeatureClassifier(SHAPE, 2, layers=(2,), weighted=False, lstm_size=8, pairs=False),
        {"labels": ["a", "b"], "settings": {"features": "last", "lstm_size": 8}},
        TEXTS,
    ),
    "feature-regression": (
        "regress",
        lambda: FeatureClassifier(SHAPE, 1, layers=(0,), weighted=False, lstm_size=8, pairs=False),
        {"settings": {"features": "embeddings", "lstm_size": 8}},
        TEXTS,
    ),
    "spans": (
        "answer",
        lambda: BertForSpans(SHAPE),
        {"settings": {"max_query_len": 8}},
        [("so", text) for text in TEXTS],
    ),
}


def close(first: Any, second: Any) -> bool:
    """Say whether two answers are equal, their numbers to 1e-5."""
    if dataclasses.is_dataclass(first):
        return type(first) is type(second) and close(vars(first), vars(second))
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(close(first[key], second[key]) for key in first)
    if isinstance(first, (list, tuple)):
        return len(first) == len(second) and all(map(close, first, second))
    return first == (pytest.approx(second, abs=1e-5) if isinstance(first, float) else second)


@pytest.mark.parametrize("head", KINDS)
def test_answers_are_those_of_each_item_by_itself_in_any_order(tmp_path: Path, head: str) -> None:
    verb, make, stored, items = KINDS[head]
    torch.manual_seed(0)
    task = {"task": verb, "head": head, "labels": None, "seq_len": 32, **stored}
    save_bundle(tmp_path / "model", make(), Tokenizer(VOCABULARY, TokenizerConfig()), task, "card")
    ask = getattr(predictor.load(tmp_path / "model"), verb)
    answers = ask(items)
    assert close(answers, [ask([item])[0] for item in items])
    assert close(answers, ask(items[::-1])[::-1])
    assert ask([]) == []
    for wrong in (None, 5, b"so", {"a": 1}, {"a"}, [None], [3], [b"so"], [["a", 1]]):
        with pytest.raises(InputError, match=r"expected|is no"):
            ask(wrong)
