"""Finding texts by their vectors: the nearest ones, exactly, and how well a model ranks those that belong.

Source of the metrics: Jarvelin and Kekalainen (2002) for nDCG, with gain 1 for what belongs; trec_eval's
``ndcg_cut``, ``recall`` and ``recip_rank`` of binary judgements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEPTH = 10
"""Metrics look at so many texts of a ranking."""
RETRIEVAL_METRICS = ("ndcg_at_10", "recall_at_1", "recall_at_10", "mrr_at_10")
_SCORES_AT_ONCE = 1 << 24

Floats = NDArray[np.float32]


def nearest(queries: Floats, documents: Floats, top: int) -> tuple[NDArray[np.int64], Floats]:
    """Return the documents whose product with each query is largest, best first; of equals the first.

    Every document is looked at, block by block, so ``documents`` may lie on the disk.

    Args:
        queries: float32 ``(queries, hidden)``.
        documents: float32 ``(documents, hidden)``.
        top: how many, at least 1.

    Returns:
        Numbers of documents and their products, each ``(queries, min(top, documents))``.
    """
    rows = np.zeros((len(queries), 0), dtype=np.int64)
    scores = np.zeros((len(queries), 0), dtype=np.float32)
    block = max(1, _SCORES_AT_ONCE // max(1, len(queries)))
    for start in range(0, len(documents), block):
        found = queries @ documents[start : start + block].T  # (queries, block)
        best = _best(found, top)
        rows = np.concatenate([rows, best + start], axis=1)
        scores = np.concatenate([scores, np.take_along_axis(found, best, axis=1)], axis=1)
        best = _best(scores, top)  # equals stand in the order of their numbers, before and after
        rows, scores = np.take_along_axis(rows, best, axis=1), np.take_along_axis(scores, best, axis=1)
    return rows, scores


def _best(scores: Floats, top: int) -> NDArray[np.int64]:
    """Return the places of the largest scores of each row, largest first, of equals the first."""
    top = min(top, scores.shape[1])
    least = np.partition(scores, scores.shape[1] - top, axis=1)[:, scores.shape[1] - top]  # (rows,)
    places = np.zeros((len(scores), top), dtype=np.int64)
    for number, row in enumerate(scores):
        candidates = np.flatnonzero(row >= least[number])
        places[number] = candidates[np.argsort(-row[candidates], kind="stable")[:top]]
    return places


@dataclass(frozen=True)
class Judgements:
    """Which documents belong to which query.

    Attributes:
        relevant: the documents that belong to each query, at least one, each once.
        hidden: the document that is the query itself, which no search would show; -1: there is none.
    """

    relevant: Sequence[Sequence[int]]
    hidden: Sequence[int]


@dataclass(frozen=True)
class Ranking:
    """How a model ranks what belongs to one query.

    Attributes:
        ranks: int64, of each document that belongs, counted from 1; behind what is equal and does not.
        cosines: float32, of these documents.
        losses: float64, cross-entropy of each against all documents that do not belong.
        best: number of the best document.
    """

    ranks: NDArray[np.int64]
    cosines: Floats
    losses: NDArray[np.float64]
    best: int


def rank(queries: Floats, documents: Floats, judged: Judgements, temperature: float) -> list[Ranking]:
    """Return the ranking of each query by cosines.

    Args:
        queries: float32 ``(queries, hidden)``, of length 1.
        documents: float32 ``(documents, hidden)``, of length 1.
        judged: what belongs together.
        temperature: by which cosines are divided for the losses.
    """
    rankings = []
    block = max(1, _SCORES_AT_ONCE // len(documents))
    for start in range(0, len(queries), block):
        scores = queries[start : start + block] @ documents.T  # (block, documents)
        for row, number in zip(scores, range(start, len(queries)), strict=False):
            rankings.append(_ranking(row, list(judged.relevant[number]), judged.hidden[number], temperature))
    return rankings


def _ranking(cosines: Floats, relevant: list[int], hidden: int, temperature: float) -> Ranking:
    if hidden >= 0:
        cosines[hidden] = -np.inf
    own, best = cosines[relevant], int(cosines.argmax())
    cosines[relevant] = -np.inf
    ranks = np.array([np.count_nonzero(cosines >= cosine) for cosine in own], dtype=np.int64)
    ranks[np.argsort(-own, kind="stable")] += np.arange(1, len(own) + 1)
    scaled = own.astype(np.float64) / temperature
    losses = np.logaddexp(_log_sum_exp(cosines / temperature), scaled) - scaled
    return Ranking(ranks, own, losses, best)


def _log_sum_exp(values: Floats) -> float:
    most = float(values.max())
    if most == -np.inf:
        return most
    return most + float(np.log(np.exp(values.astype(np.float64) - most).sum()))


def query_metrics(ranks: NDArray[np.int64]) -> Mapping[str, float]:
    """Return the metrics of one query, by name.

    Args:
        ranks: of the documents that belong to it, counted from 1.
    """
    gains = 1.0 / np.log2(1.0 + np.arange(1, DEPTH + 1))
    found = ranks[ranks <= DEPTH]
    first = int(ranks.min())
    return {
        "ndcg_at_10": float(gains[found - 1].sum() / gains[: len(ranks)].sum()),
        "recall_at_1": float(np.mean(ranks <= 1)),
        "recall_at_10": len(found) / len(ranks),
        "mrr_at_10": 1.0 / first if first <= DEPTH else 0.0,
    }
