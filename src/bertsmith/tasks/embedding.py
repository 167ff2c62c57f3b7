"""Vectors of texts, so that what belongs together lies together.

Rows of an anchor and what belongs to it are trained against the other texts of the batch, and dev measures
retrieval: each anchor looks for its own among all texts of the dev rows. Rows with a score are trained on the
cosine of both texts, and dev measures how it is correlated with the score. What is trained and what is
measured is said by the rows of train and of dev, each by themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bertsmith import features, metrics
from bertsmith.bundle import Bundle, load_embedding_model
from bertsmith.errors import InputError
from bertsmith.layout import Tokens, moved
from bertsmith.model.bert import BertForEmbedding
from bertsmith.model.config import BertConfig
from bertsmith.significance import MANY, Sample, mean_score
from bertsmith.tasks.classification import stacked
from bertsmith.tasks.config import EmbeddingConfig
from bertsmith.tasks.embedding_objectives import ContrastiveObjective, CosineObjective
from bertsmith.tasks.embedding_rows import EmbeddingRowSet
from bertsmith.tasks.encode import EncodedRow, batch_of, encode_rows
from bertsmith.tasks.inference import Inference, evaluation_mode
from bertsmith.tasks.kind import Encoding, Kind, Labels, Outputs, Score, Split, Task
from bertsmith.tasks.retrieval import (
    RETRIEVAL_METRICS,
    Floats,
    Judgements,
    Ranking,
    query_metrics,
    rank,
)
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.vectors import choose, embed_rows, normalized
from bertsmith.training.loop import Objective

SIMILARITY_METRICS = ("spearman", "pearson")


@dataclass(frozen=True)
class TextBatch:
    """Texts for one forward pass, each once, and which of them are looked at together.

    Attributes:
        tokens: an input for each text, sorted by length.
        firsts: int64 ``(rows,)``, which input each row's first text is.
        seconds: int64, which inputs the second texts are: ``(rows,)``, or ``(candidates,)``.
        targets: float32 ``(rows,)``, the cosine aimed at, or int64 ``(rows,)``, the place of the row's second
            text among the candidates.
        excluded: bool ``(rows, candidates)``, which candidates are no negatives of a row; of scored rows
            ``(rows, 0)``.
    """

    tokens: Tokens
    firsts: torch.Tensor
    seconds: torch.Tensor
    targets: torch.Tensor
    excluded: torch.Tensor

    def to(self, device: torch.device | str) -> TextBatch:
        """Return the same batch on another device."""
        rest = (self.firsts, self.seconds, self.targets, self.excluded)
        return TextBatch(self.tokens.to(device), *(moved(part, device) for part in rest))


@dataclass(frozen=True)
class EmbeddingSplit:
    """A split of rows of texts; every text is an input once, however many rows hold it.

    Attributes:
        rows: what was read.
        encoded: the pieces of each text.
        numbers: the input that each text is.
        settings: pooling and temperature.
        score_range: the scores that cosines of 0 and 1 stand for; ``None``: scores are cosines as they are.
    """

    rows: EmbeddingRowSet
    encoded: list[EncodedRow]
    numbers: Mapping[str, int]
    settings: EmbeddingConfig
    score_range: tuple[float, float] | None = None

    @property
    def truncated(self) -> list[bool]:
        """Whether one of a row's texts lost pieces."""
        return [
            any(self.encoded[self.numbers[text]].truncated for text in row.texts) for row in self.rows.rows
        ]

    @property
    def gold_objects(self) -> list[Any]:
        """The score of each row, or the text that belongs to its anchor."""
        return [row.label for row in self.rows.rows]

    @property
    def num_units(self) -> int:
        """Rows."""
        return len(self.rows.rows)

    @cached_property
    def anchors(self) -> NDArray[np.int64]:
        """The input that each row's first text is, int64 ``(rows,)``."""
        return np.array([self.numbers[row.anchor] for row in self.rows.rows], dtype=np.int64)

    @cached_property
    def positives(self) -> NDArray[np.int64]:
        """The input that each row's second text is, int64 ``(rows,)``."""
        return np.array([self.numbers[row.positive] for row in self.rows.rows], dtype=np.int64)

    @cached_property
    def belonging(self) -> Mapping[int, Sequence[int]]:
        """The inputs that belong to each anchor, by any row, in the order of the rows, each once."""
        found: dict[int, dict[int, None]] = {}
        for anchor, positive in zip(self.anchors.tolist(), self.positives.tolist(), strict=True):
            found.setdefault(anchor, {})[positive] = None
        return {anchor: tuple(positives) for anchor, positives in found.items()}

    @cached_property
    def scores(self) -> NDArray[np.float64]:
        """The score of each row, float64 ``(rows,)``."""
        return np.array([row.score for row in self.rows.rows], dtype=np.float64)

    def cosines_meant(self) -> NDArray[np.float64]:
        """Return the cosine that each row's score stands for, float64 ``(rows,)``."""
        low, high = self.score_range or (0.0, 1.0)
        return (self.scores - low) / (high - low)

    def batch(self, units: Sequence[int]) -> TextBatch:
        """Return rows as one batch."""
        firsts, seconds = self.anchors[units], self.positives[units]
        if self.rows.is_scored:
            targets = torch.from_numpy(self.cosines_meant()[units]).float()
            return self._batch(firsts, seconds, targets, np.zeros((len(units), 0), dtype=bool))
        negatives = [self.numbers[text] for unit in units for text in self.rows.rows[unit].negatives]
        candidates = list(dict.fromkeys([*seconds.tolist(), *negatives]))
        places = {number: place for place, number in enumerate(candidates)}
        own = np.array([places[number] for number in seconds.tolist()], dtype=np.int64)
        # What belongs to an anchor by another row is no negative of it, nor is the anchor's own text.
        excluded = np.zeros((len(units), len(candidates)), dtype=bool)
        for row, anchor in enumerate(firsts.tolist()):
            known = [places[number] for number in (anchor, *self.belonging[anchor]) if number in places]
            excluded[row, known] = True
        excluded[np.arange(len(units)), own] = False
        return self._batch(firsts, np.array(candidates), torch.from_numpy(own), excluded)

    def _batch(
        self,
        firsts: NDArray[np.int64],
        seconds: NDArray[np.int64],
        targets: torch.Tensor,
        excluded: NDArray[np.bool_],
    ) -> TextBatch:
        batch = batch_of(self.encoded, np.unique(np.concatenate([firsts, seconds])).tolist())
        place_of = np.zeros(len(self.encoded), dtype=np.int64)
        place_of[batch.rows] = np.arange(len(batch.rows))
        first_places, second_places = (torch.from_numpy(place_of[numbers]) for numbers in (firsts, seconds))
        return TextBatch(batch.tokens, first_places, second_places, targets, torch.from_numpy(excluded))


def _split(split: Split) -> EmbeddingSplit:
    assert isinstance(split, EmbeddingSplit), "a split of texts to embed"
    return split


def measured_by(task: Task, rows: RowSet[Any]) -> Task:
    """Return the task with the metrics that fit its dev rows."""
    assert isinstance(rows, EmbeddingRowSet), "rows of texts to embed"
    names = SIMILARITY_METRICS if rows.is_scored else RETRIEVAL_METRICS
    return replace(task, metrics=names, main_metric=names[0])


def _load(bundle: Bundle, num_outputs: int | None) -> nn.Module:
    return load_embedding_model(bundle)


def _encode(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> EmbeddingSplit:
    assert isinstance(rows, EmbeddingRowSet), "rows of texts to embed"
    settings = EmbeddingConfig.of(encoding.settings)
    if settings.pooling not in features.POOLINGS:
        raise InputError(f"pooling is {settings.pooling!r}; take one of {', '.join(features.POOLINGS)}")
    first_row: dict[str, int] = {}
    for number, row in enumerate(rows.rows):
        for text in row.texts:
            first_row.setdefault(text, number)
    places = list(first_row.values())
    encoded = encode_rows(
        [(text, None) for text in first_row],
        encoding.tokenizer,
        encoding.seq_len,
        encoding.truncation,
        lambda number: rows.where(places[number]),
    )
    split = EmbeddingSplit(rows, encoded, {text: n for n, text in enumerate(first_row)}, settings)
    return replace(split, score_range=_score_range(split)) if rows.is_scored else split


def _score_range(split: EmbeddingSplit) -> tuple[float, float] | None:
    """Return what the lowest and the highest score are; ``None`` where all could be cosines."""
    low, high = float(split.scores.min()), float(split.scores.max())
    if low >= -1.0 and high <= 1.0:
        return None
    return low, max(high, float(np.nextafter(low, np.inf)))


def _fit(task: Task, train: Split, dev: Split) -> tuple[Split, Split]:
    """Measure the dev scores by the range of those trained on."""
    ours, theirs = _split(train), _split(dev)
    if not ours.rows.is_scored:
        if len({number for own in ours.belonging.values() for number in own}) < 2 and not any(
            row.negatives for row in ours.rows.rows
        ):
            raise InputError(
                f"{ours.rows.path}: the same text belongs to every anchor; nothing can be learnt"
            )
        return train, dev
    if ours.settings.temperature is not None:
        raise InputError(
            f"temperature would be ignored: the rows of {ours.rows.path} have scores, which are trained "
            "without it; leave it out"
        )
    if metrics.is_constant(ours.scores):
        raise InputError(f"{ours.rows.path}: every row has the score {ours.scores[0]}; nothing can be learnt")
    return train, replace(theirs, score_range=ours.score_range) if theirs.rows.is_scored else dev


def _check(split: Split, architecture: BertConfig, batch_size: int) -> None:
    """Refuse a pooling that means nothing in a model, or batches in which nothing can be compared."""
    ours = _split(split)
    features.check_pooling(ours.settings.pooling, architecture)
    if batch_size == 1 and not ours.rows.is_scored and not any(row.negatives for row in ours.rows.rows):
        raise InputError(
            f"--batch-size 1: the rows of {ours.rows.path} have no negatives, so each would be alone with "
            "its own text and nothing can be learnt; take larger batches, or add a column negative"
        )


def _objective(split: Split) -> Objective[Any]:
    settings = _split(split).settings
    if _split(split).rows.is_scored:
        return CosineObjective(settings.pooling)
    return ContrastiveObjective(settings.pooling, settings.divisor)


def _outputs(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the vector of each text, float32 ``(texts, hidden)``.

    Raises:
        InputError: the pooling means nothing in such a model.
    """
    assert isinstance(model, BertForEmbedding), "an encoder for vectors of texts"
    choice = choose(model.bert, _split(split).settings.pooling, -1)
    with evaluation_mode(model):
        return embed_rows(model.bert, split.encoded, choice, inference)


def _cosines(split: EmbeddingSplit, vectors: Floats) -> NDArray[np.float64]:
    """Return the cosine of each row's two texts, float64 ``(rows,)``."""
    pairs = vectors[split.anchors].astype(np.float64) * vectors[split.positives]
    cosines: NDArray[np.float64] = pairs.sum(axis=1)
    return cosines


def _rankings(split: EmbeddingSplit, vectors: Floats) -> tuple[dict[int, Ranking], list[int]]:
    """Return the ranking of each anchor, by input, and the inputs that were ranked."""
    texts = [text for row in split.rows.rows for text in row.texts[1:]]
    documents = list(dict.fromkeys(split.numbers[text] for text in texts))
    places = {number: place for place, number in enumerate(documents)}
    judged = Judgements(
        [[places[number] for number in own] for own in split.belonging.values()],
        [-1 if anchor in own else places.get(anchor, -1) for anchor, own in split.belonging.items()],
    )
    anchors = list(split.belonging)
    found = rank(vectors[anchors], vectors[documents], judged, split.settings.divisor)
    return dict(zip(anchors, found, strict=True)), documents


def _score(task: Task, split: Split, outputs: Outputs, tuned: Mapping[str, Any]) -> Score:
    ours, vectors = _measured(_split(split), tuned), normalized(stacked(outputs))
    if ours.rows.is_scored:
        cosines = _cosines(ours, vectors)
        constant = len(cosines) > 1 and metrics.is_constant(cosines)
        loss = float(np.mean((cosines - ours.cosines_meant()) ** 2))
        return Score(metrics.compute(SIMILARITY_METRICS, ours.scores, cosines), loss, constant)
    rankings, documents = _rankings(ours, vectors)
    single = [query_metrics(ranking.ranks) for ranking in rankings.values()]
    loss = float(np.mean(np.concatenate([ranking.losses for ranking in rankings.values()])))
    constant = len(vectors) > 1 and float(np.ptp(vectors, axis=0).max()) <= 1e-6
    details = {"queries": len(rankings), "documents": len(documents)}
    found = {name: float(np.mean([one[name] for one in single])) for name in RETRIEVAL_METRICS}
    return Score(found, loss, constant, details)


def _measured(split: EmbeddingSplit, tuned: Mapping[str, Any]) -> EmbeddingSplit:
    """Return a split whose scores are measured as those that a model was trained on."""
    stored = tuned.get("score_range")
    return replace(split, score_range=(float(stored[0]), float(stored[1]))) if stored else split


def _tune(task: Task, split: Split, outputs: Outputs) -> dict[str, Any]:
    """Keep what scores were measured by."""
    stored = _split(split).score_range
    return {"score_range": list(stored)} if stored else {}


def _answers(
    split: Split, outputs: Outputs, labels: Labels, tuned: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the ``cosine`` of each row's texts, and the one that its score stands for as ``meant``.

    Of what belongs together instead its ``rank``, the number of the ``query`` that the row is of, and the
    text that is ``best`` for it.
    """
    ours, vectors = _measured(_split(split), tuned), normalized(stacked(outputs))
    if ours.rows.is_scored:
        pairs = zip(_cosines(ours, vectors).tolist(), ours.cosines_meant().tolist(), strict=True)
        return [{"cosine": cosine, "meant": meant} for cosine, meant in pairs]
    rankings, documents = _rankings(ours, vectors)
    queries = {anchor: number for number, anchor in enumerate(rankings)}
    texts = list(ours.numbers)
    answers = []
    for anchor, positive in zip(ours.anchors.tolist(), ours.positives.tolist(), strict=True):
        found, place = rankings[anchor], ours.belonging[anchor].index(positive)
        answers.append(
            {
                "rank": int(found.ranks[place]),
                "best": texts[documents[found.best]],
                "cosine": float(found.cosines[place]),
                "query": queries[anchor],
            }
        )
    return answers


def _sample(
    metric: str, gold: Sequence[Any], answers: Sequence[Mapping[str, Any]], labels: Labels
) -> Sample | None:
    """Return rows with scores, or queries: the rows of one are drawn together."""
    if metric in SIMILARITY_METRICS:
        cosines = np.array([answer["cosine"] for answer in answers])
        return Sample(MANY[metric], np.array(gold, dtype=np.float64), cosines)
    ranks: dict[int, set[int]] = {}
    for answer in answers:
        ranks.setdefault(answer["query"], set()).add(answer["rank"])
    values = [query_metrics(np.array(sorted(found)))[metric] for found in ranks.values()]
    return Sample(mean_score, np.zeros(len(values)), np.array(values))


EMBEDDING = Kind(
    name="embedding",
    verb="embed",
    labels=lambda task, rows: None,
    num_outputs=lambda labels: 0,
    load_model=_load,
    encode=_encode,
    objective=_objective,
    outputs=_outputs,
    score=_score,
    answers=_answers,
    fit=_fit,
    check=_check,
    tune=_tune,
    settings={"pooling": "mean", "normalize": True, "temperature": None},
    inherited=("pooling", "normalize"),
    example='"a text"',
    sample=_sample,
)
