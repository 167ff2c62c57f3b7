"""Exact search and the metrics of rankings, against plain sorting and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import ndcg_score

from bertsmith.tasks import retrieval
from bertsmith.tasks.retrieval import Judgements, nearest, query_metrics, rank
from bertsmith.tasks.vectors import normalized


def vectors(number: int, width: int = 8, seed: int = 0) -> retrieval.Floats:
    return normalized(np.random.default_rng(seed).standard_normal((number, width)).astype(np.float32))


@pytest.mark.parametrize("top", [1, 7, 40, 100])
@pytest.mark.parametrize("at_once", [1, 60, 1 << 20])
def test_the_nearest_are_those_of_a_full_sort(
    top: int, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "_SCORES_AT_ONCE", at_once)
    queries, documents = vectors(5), vectors(40, seed=1)
    rows, scores = nearest(queries, documents, top)
    exact = queries.astype(np.float64) @ documents.T.astype(np.float64)
    expected = np.argsort(-exact, axis=1)[:, :top]
    assert rows.tolist() == expected.tolist()
    assert scores == pytest.approx(np.take_along_axis(exact, expected, axis=1), abs=1e-6)


@pytest.mark.parametrize("at_once", [1, 12, 1 << 20])
def test_of_equal_documents_the_first_comes_first(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "_SCORES_AT_ONCE", at_once)
    documents = np.array([[0, 1], [1, 0], [1, 0], [0, 1], [1, 0], [1, 0]], dtype=np.float32)
    rows, scores = nearest(np.array([[1, 0], [0, 1]], dtype=np.float32), documents, 3)
    assert rows.tolist() == [[1, 2, 4], [0, 3, 1]]
    assert scores.tolist() == [[1, 1, 1], [1, 1, 0]]


@pytest.mark.parametrize("at_once", [30, 1 << 20])
def test_metrics_of_rankings_are_scikit_learns(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "_SCORES_AT_ONCE", at_once)
    queries, documents = vectors(12), vectors(30, seed=1)
    draw = np.random.default_rng(2)
    relevant = [draw.choice(30, size=size, replace=False).tolist() for size in draw.integers(1, 15, 12)]
    found = rank(queries, documents, Judgements(relevant, [-1] * 12), 0.05)
    for query, own, ranking in zip(queries, relevant, found, strict=True):
        cosines = documents.astype(np.float64) @ query.astype(np.float64)
        gold = np.isin(np.arange(30), own).astype(int)
        order = np.argsort(-cosines)
        values = query_metrics(ranking.ranks)
        assert values["ndcg_at_10"] == pytest.approx(ndcg_score([gold], [cosines], k=10))
        assert values["recall_at_1"] == gold[order[0]] / len(own)
        assert values["recall_at_10"] == pytest.approx(gold[order[:10]].sum() / len(own))
        first = int(np.flatnonzero(gold[order])[0]) + 1
        assert values["mrr_at_10"] == (1 / first if first <= 10 else 0.0)
        assert ranking.best == order[0]
        assert ranking.cosines == pytest.approx(cosines[own], abs=1e-6)
        others = np.exp(cosines[gold == 0] / 0.05).sum()
        shares = np.exp(cosines[own] / 0.05)
        assert ranking.losses == pytest.approx(-np.log(shares / (shares + others)), rel=1e-4, abs=1e-6)


def test_a_query_does_not_find_itself_and_equals_count_against_it() -> None:
    documents = np.array([[1, 0], [0, 1], [1, 0], [1, 0]], dtype=np.float32)
    queries = np.array([[1, 0]] * 2, dtype=np.float32)
    shown, hidden = rank(queries, documents, Judgements([[2], [2]], [-1, 0]), 1.0)
    assert (shown.ranks.tolist(), hidden.ranks.tolist()) == ([3], [2])
    (alike,) = rank(queries[:1], documents, Judgements([[0, 2]], [-1]), 1.0)
    assert alike.ranks.tolist() == [2, 3]  # both belong: they do not stand in each other's way


def test_a_model_that_gives_all_texts_one_vector_finds_nothing() -> None:
    same = np.ones((20, 3), dtype=np.float32)
    found = rank(same[:5], same, Judgements([[number] for number in range(5)], [-1] * 5), 0.05)
    assert {ranking.ranks[0] for ranking in found} == {20}
