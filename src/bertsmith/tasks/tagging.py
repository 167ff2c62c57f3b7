"""One tag for each word: entities, read at first pieces, with the context of their document."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith import metrics
from bertsmith.bundle import Bundle, load_task_model
from bertsmith.data.batch import tokens_of
from bertsmith.errors import InputError
from bertsmith.layout import Tokens, moved
from bertsmith.model.task_heads import BertForTagging
from bertsmith.objectives import TaggingObjective
from bertsmith.significance import Sample, counted_f1
from bertsmith.tasks.document_windows import Window, document_windows
from bertsmith.tasks.encode import EncodedRow
from bertsmith.tasks.entities import (
    OUTSIDE,
    count_entities,
    entities_of,
    entity_metrics,
    find_scheme,
    strict_entities_of,
    tags_of,
)
from bertsmith.tasks.inference import Inference, evaluation_mode, in_batches, lengths_of
from bertsmith.tasks.kind import Encoding, Kind, Labels, Outputs, Score, Split, Task
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.tagged_rows import TaggedRow, in_characters, in_words
from bertsmith.text.tokenizer import Tokenizer

CONTEXTS = ("document", "sentence")
_TOLD = ("irregular_tags", "unspelled_entities")


@dataclass(frozen=True)
class EncodedWindow(EncodedRow):
    """Words that go through the model together.

    Attributes:
        picks: int64 ``(n,)``, places in ``ids`` of the first pieces of the words that are scored here.
        words: int64 ``(n,)``, which words of the split these are.
    """

    picks: NDArray[np.int64]
    words: NDArray[np.int64]


@dataclass(frozen=True)
class TaggingBatch:
    """Windows of one forward pass.

    Attributes:
        tokens: the unpadded windows.
        picks: int64 ``(words,)``, places of first pieces on the token axis.
        labels: int64 ``(words,)``, their tags.
        words: int64 ``(words,)``, on the host: which words of the split these are.
    """

    tokens: Tokens
    picks: torch.Tensor
    labels: torch.Tensor
    words: NDArray[np.int64]

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What ``BertForTagging`` takes."""
        return self.tokens, self.picks

    def to(self, device: torch.device | str) -> TaggingBatch:
        """Return the same batch on another device."""
        return replace(
            self,
            tokens=self.tokens.to(device),
            picks=moved(self.picks, device),
            labels=moved(self.labels, device),
        )


@dataclass(frozen=True)
class TaggedWords:
    """A split of words with a tag each; its inputs are windows.

    Attributes:
        rows: what was read.
        encoded: the windows; each word is scored in one of them.
        gold: int64 ``(words,)``, numbers of the tags; 0 where the file says nothing.
        starts: int64 ``(rows + 1,)``, the first word of each row, and the number of words.
        is_empty: bool ``(words,)``: the tokenizer removes all of the word; it stands as [UNK], and is O.
        truncated: whether a word of each row lost pieces: it alone is longer than a window takes.
        labels: the tags by number.
    """

    rows: RowSet[TaggedRow]
    encoded: list[EncodedWindow]
    gold: NDArray[np.int64]
    starts: NDArray[np.int64]
    is_empty: NDArray[np.bool_]
    truncated: list[bool]
    labels: tuple[str, ...]

    @property
    def gold_objects(self) -> list[Any]:
        """The entities of each row."""
        return [
            [
                {"label": e.label, "start": e.start, "end": e.end, "text": row.text[e.start : e.end]}
                for e in row.entities or ()
            ]
            for row in self.rows.rows
        ]

    @property
    def num_units(self) -> int:
        """Windows."""
        return len(self.encoded)

    def batch(self, units: Sequence[int]) -> TaggingBatch:
        """Return windows as one batch."""
        return windows_batch(self.encoded, units, self.gold)


def windows_batch(
    windows: Sequence[EncodedWindow], units: Sequence[int], gold: NDArray[np.int64] | None = None
) -> TaggingBatch:
    """Return windows as one batch, sorted by length so that equal lengths are neighbours.

    Args:
        windows: all windows of the split.
        units: which of them.
        gold: tags of all words; ``None``: zeros (prediction).
    """
    chosen = [windows[unit] for unit in sorted(units, key=lambda unit: (len(windows[unit].ids), unit))]
    tokens = tokens_of([window.ids for window in chosen], [window.second_start for window in chosen])
    starts = zip(tokens.layout.starts, chosen, strict=True)
    picks = np.concatenate([start + window.picks for start, window in starts])
    words = np.concatenate([window.words for window in chosen])
    labels = np.zeros_like(words) if gold is None else gold[words]
    return TaggingBatch(tokens, torch.from_numpy(picks), torch.from_numpy(labels), words)


def tagged(split: Split) -> TaggedWords:
    """Return a split of this kind as what it is."""
    assert isinstance(split, TaggedWords), "a split of tagged words"
    return split


def tag_names(task: Task, rows: RowSet[Any]) -> tuple[str, ...]:
    """Return the tags of all labels of the training rows in "iob2": O, then B- and I- of each.

    Raises:
        InputError: no row holds an entity, or none says what it holds.
    """
    if all(row.entities is None for row in rows.rows):
        raise InputError(f"{rows.path}: no tags or spans in it; there is nothing to learn")
    names = sorted({entity.label for row in rows.rows for entity in row.entities or ()})
    if not names:
        raise InputError(f"{rows.path}: no entity in it; there is nothing to learn")
    return (OUTSIDE, *(tag for name in names for tag in ((f"B-{name}", f"I-{name}") if name else ("B", "I"))))


def encode_words(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> TaggedWords:
    """Cut documents into windows and number the tags of their words.

    Raises:
        InputError: a label is unknown to the model, its labels are none of words, or the context is unknown.
    """
    context = encoding.settings.get("context", "document")
    if context not in CONTEXTS:
        raise InputError(f"context is {context!r}; take one of {', '.join(CONTEXTS)}")
    assert labels is not None, "tags have names"
    if OUTSIDE not in labels:
        raise InputError(f"the labels are {', '.join(labels)}; a model that tags words needs {OUTSIDE}")
    words = [row.spelled for row in rows.rows]
    capacity = encoding.seq_len - 2
    pieces, is_empty, is_cut = _pieces(words, encoding.tokenizer, capacity // 2)
    starts = np.cumsum([0, *map(len, words)], dtype=np.int64)
    encoded = []
    for first, behind in _documents(rows.rows, context):
        sentences = [
            [len(ids) for ids in pieces[starts[row] : starts[row + 1]]] for row in range(first, behind)
        ]
        for window in document_windows(sentences, capacity):
            encoded.append(_encoded(window, int(starts[first]), pieces, encoding.tokenizer))
    return TaggedWords(
        rows,
        encoded,
        _gold(rows, starts, labels),
        starts,
        np.array(is_empty, dtype=np.bool_),
        [bool(any(is_cut[starts[row] : starts[row + 1]])) for row in range(len(words))],
        labels,
    )


def _pieces(
    rows: Sequence[Sequence[str]], tokenizer: Tokenizer, most: int
) -> tuple[list[list[int]], list[bool], list[bool]]:
    """Return the ids of each word, at least one; which words have none of their own; which lost some."""
    spelled = [word for words in rows for word in tokenizer.in_document(words)]
    known = {word: tokenizer.encode(word) for word in dict.fromkeys(spelled)}
    pieces = [known[word][:most] or [tokenizer.unk_id] for word in spelled]
    return pieces, [not known[word] for word in spelled], [len(known[word]) > most for word in spelled]


def _documents(rows: Sequence[TaggedRow], context: str) -> list[tuple[int, int]]:
    """Return the first row of each document and the one behind its last."""
    firsts = [
        place
        for place, row in enumerate(rows)
        if context == "sentence" or place == 0 or row.document != rows[place - 1].document
    ]
    return list(itertools.pairwise([*firsts, len(rows)]))


def _encoded(
    window: Window, first: int, pieces: Sequence[Sequence[int]], tokenizer: Tokenizer
) -> EncodedWindow:
    parts = pieces[first + window.start : first + window.end]
    ids = np.array(
        [tokenizer.cls_id, *(id for part in parts for id in part), tokenizer.sep_id], dtype=np.int64
    )
    places = np.cumsum([1, *map(len, parts)], dtype=np.int64)  # (words + 1,), behind [CLS]
    scored = np.concatenate([np.arange(start, end) for start, end in window.scored]).astype(np.int64)
    return EncodedWindow(ids, len(ids), False, places[scored - window.start], first + scored)


def _gold(rows: RowSet[TaggedRow], starts: NDArray[np.int64], labels: tuple[str, ...]) -> NDArray[np.int64]:
    numbers = {name: number for number, name in enumerate(labels)}
    scheme = find_scheme([[label] for label in labels])
    gold = np.zeros(starts[-1], dtype=np.int64)
    for place, row in enumerate(rows.rows):
        tags = tags_of(in_words(row), len(row.words), scheme)
        for tag in set(tags) - set(numbers):
            shown = ", ".join(labels[:10]) + (", …" if len(labels) > 10 else "")
            raise InputError(
                f"{rows.where(place)} tag {tag!r} is unknown to the model (it knows {shown}); mend the label "
                "or train with rows of it"
            )
        gold[starts[place] : starts[place + 1]] = [numbers[tag] for tag in tags]
    return gold


def load_tagger(bundle: Bundle, num_outputs: int | None) -> nn.Module:
    """Return the encoder with a head for words.

    Raises:
        InputError: the stored head is asked for and there is none.
    """
    return load_task_model(bundle, BertForTagging, num_outputs)


def window_outputs(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the scores of the words of each window, float32 ``(words, tags)`` each."""
    words = tagged(split)
    scores = np.zeros((len(words.gold), len(words.labels)), dtype=np.float32)
    with evaluation_mode(model):
        for batch, found in in_batches(
            lengths_of(words.encoded), words.batch, lambda batch: model(*batch.inputs), inference
        ):
            scores[batch.words] = found.float().cpu().numpy()
    return [scores[window.words] for window in words.encoded]


def by_words(split: TaggedWords, outputs: Outputs) -> NDArray[np.float32]:
    """Return the scores of all words in their order, float32 ``(words, tags)``, from those of windows."""
    scores = np.zeros((len(split.gold), len(split.labels)), dtype=np.float32)
    for window, part in zip(split.encoded, outputs, strict=True):
        scores[window.words] = part
    return scores


def predicted_tags(split: TaggedWords, scores: NDArray[np.float32]) -> list[list[str]]:
    """Return the best tag of each word of each row; of words that the tokenizer removes: O."""
    best = np.where(split.is_empty, split.labels.index(OUTSIDE), scores.argmax(axis=1))
    names = [split.labels[number] for number in best]
    return [names[start:end] for start, end in zip(split.starts, split.starts[1:], strict=False)]


def score_words(task: Task, split: Split, outputs: Outputs, tuned: Mapping[str, Any]) -> Score:
    """Return the scores of entities, which count where both ends and the label are right, in characters."""
    words = tagged(split)
    scores = by_words(words, outputs)
    tags = predicted_tags(words, scores)
    scheme = find_scheme([[label] for label in words.labels])
    rows = words.rows.rows
    gold = [row.entities or () for row in rows]
    found = [in_characters(row.words, entities_of(own)) for row, own in zip(rows, tags, strict=True)]
    strict = [
        in_characters(row.words, strict_entities_of(own, scheme)) for row, own in zip(rows, tags, strict=True)
    ]
    counts = count_entities(gold, found)
    right = [
        tag == words.labels[number]
        for tag, number in zip((t for own in tags for t in own), words.gold, strict=True)
    ]
    values = {
        **entity_metrics(counts),
        "strict_f1": entity_metrics(count_entities(gold, strict))["f1"],
        "accuracy": float(np.mean(right)) if right else 0.0,
    }
    details = {
        "scoring": {
            "f1": "conlleval: a stray I- begins an entity",
            "strict_f1": f"{scheme}: a stray I- is none",
        },
        "by_label": {
            label: {
                "f1": c.f1,
                "precision": c.precision,
                "recall": c.recall,
                "gold": c.gold,
                "predicted": c.predicted,
            }
            for label, c in counts.items()
        },
        **{name: words.rows.counts[name] for name in _TOLD if words.rows.counts.get(name)},
    }
    constant = len(right) > 1 and len({tag for own in tags for tag in own}) == 1
    loss = metrics.classification_loss(scores, words.gold) if len(scores) else 0.0
    return Score({name: values[name] for name in task.metrics}, loss, constant, details)


def word_answers(
    split: Split, outputs: Outputs, labels: Labels, tuned: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return ``words``, their ``tags`` and the ``entities`` of each row.

    An entity has its label, its place in the text in characters, its text, and a probability: the mean of
    those of its words' tags.
    """
    words = tagged(split)
    scores = by_words(words, outputs)
    best = metrics.probabilities_of(scores).max(axis=1) if len(scores) else np.zeros(0)
    answers = []
    for row, tags, start in zip(words.rows.rows, predicted_tags(words, scores), words.starts, strict=False):
        found = entities_of(tags)
        entities = [
            {
                "label": entity.label,
                "start": entity.start,
                "end": entity.end,
                "text": row.text[entity.start : entity.end],
                "probability": float(best[start + place.start : start + place.end].mean()),
            }
            for place, entity in zip(found, in_characters(row.words, found), strict=True)
        ]
        answers.append({"words": row.spelled, "tags": tags, "entities": entities})
    return answers


def sample_of_entities(
    metric: str, gold: Sequence[Any], answers: Sequence[Mapping[str, Any]], labels: Labels
) -> Sample | None:
    """Return how many entities each row has, got and got right: of them F1 can be computed."""
    if metric != "f1":
        return None
    both = [
        ({_place_of(entity) for entity in right}, {_place_of(entity) for entity in answer["entities"]})
        for right, answer in zip(gold, answers, strict=True)
    ]
    counts = np.array([(len(right), len(found), len(right & found)) for right, found in both])
    return Sample(counted_f1, np.zeros(len(counts)), counts)


def _place_of(entity: Mapping[str, Any]) -> tuple[str, int, int]:
    return entity["label"], entity["start"], entity["end"]


TAGGING = Kind(
    name="tagging",
    verb="tag",
    labels=tag_names,
    num_outputs=lambda labels: len(labels or ()),
    load_model=load_tagger,
    encode=encode_words,
    objective=lambda split: TaggingObjective(),
    outputs=window_outputs,
    score=score_words,
    answers=word_answers,
    sample=sample_of_entities,
    truncations=("tail",),  # nothing is cut
    baseline=lambda task, split: 0.0,  # no entity anywhere
    settings={"context": "document", "scheme": None, "features": None},
)
