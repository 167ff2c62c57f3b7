"""The kind of embeddings: losses by hand and by sentence-transformers, metrics, what is no negative."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch.nn import functional

from bertsmith.errors import InputError
from bertsmith.model.bert import BertForEmbedding
from bertsmith.tasks.embedding import EMBEDDING, EmbeddingSplit, measured_by
from bertsmith.tasks.embedding_objectives import ContrastiveObjective, CosineObjective
from bertsmith.tasks.embedding_rows import EmbeddingRow, EmbeddingRowSet
from bertsmith.tasks.inference import inference_settings
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.retrieval import query_metrics
from bertsmith.tasks.task import TASKS, settings_of
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from tests.recipes.tiny import SHAPE, VOCABULARY

TOKENIZER = Tokenizer(VOCABULARY, TokenizerConfig())
PAIRS = [
    EmbeddingRow("worda wordb", "good fine", ("bad", "poor so"), None, 1),
    EmbeddingRow("wordc", "wordd worde wordf", (), None, 2),
    EmbeddingRow("worda wordb", "so so wordg", (), None, 3),
    EmbeddingRow("wordh", "good fine", ("wordi",), None, 4),
    EmbeddingRow("wordj", "wordc", (), None, 5),
]
SCORED = [
    EmbeddingRow("good", "fine wordc", (), 4.0, 1),
    EmbeddingRow("so", "bad", (), 1.0, 2),
    EmbeddingRow("wordd worde", "good", (), 2.5, 3),
]
INFERENCE = inference_settings("float32", 30)


def split(rows: list[EmbeddingRow], **settings: Any) -> EmbeddingSplit:
    encoding = Encoding(TOKENIZER, 32, "tail", settings)
    found = EMBEDDING.encode(TASKS["embed"], EmbeddingRowSet(rows, "a.jsonl"), None, encoding)
    assert isinstance(found, EmbeddingSplit)
    return found


def model() -> BertForEmbedding:
    torch.manual_seed(0)
    return BertForEmbedding(replace(SHAPE, initializer_std=0.3)).eval()


def vectors_of(net: BertForEmbedding, texts: list[str], pooling: str = "mean") -> torch.Tensor:
    """Vectors of length 1, each text by itself, pooled by hand."""
    found = []
    for text in texts:
        (row,) = split([EmbeddingRow(text, text, (), None, 1)]).encoded
        tokens = split([EmbeddingRow(text, text, (), None, 1)]).batch([0]).tokens
        assert tokens.layout.batch == 1
        assert len(row.ids) == tokens.input_ids.shape[0]
        hidden = net(tokens)
        pooled = {"mean": hidden.mean(dim=0), "max": hidden.amax(dim=0), "cls": hidden[0]}[pooling]
        found.append(pooled / pooled.norm())
    return torch.stack(found)


@pytest.mark.parametrize("pooling", ["mean", "max", "cls"])
def test_the_contrastive_loss_is_a_softmax_over_what_does_not_belong(pooling: str) -> None:
    net, units = model(), [3, 0, 4, 1]
    loss, monitors = ContrastiveObjective(pooling, 0.1).sums(net, split(PAIRS).batch(units))
    candidates = {
        3: ["good fine", "wordi", "bad", "poor so", "wordd worde wordf", "wordc"],
        0: ["good fine", "wordi", "bad", "poor so", "wordd worde wordf", "wordc"],  # row 3's own is row 1's
        4: ["wordc", "good fine", "wordi", "bad", "poor so", "wordd worde wordf"],
        1: ["wordd worde wordf", "good fine", "wordi", "bad", "poor so"],  # not "wordc", which it is itself
    }
    expected, right = 0.0, 0
    for unit in units:
        anchor, others = (
            vectors_of(net, [PAIRS[unit].anchor], pooling),
            vectors_of(net, candidates[unit], pooling),
        )
        scores = (anchor @ others.T / 0.1)[0]
        expected += functional.cross_entropy(scores, torch.tensor(0)).item()
        right += int(scores.argmax() == 0)
    assert loss["loss"].item() == pytest.approx(expected, abs=1e-4)
    assert int(monitors["accuracy"]) == right
    assert ContrastiveObjective(pooling, 0.1).counts(split(PAIRS).batch(units)) == {"loss": 4, "accuracy": 4}


def test_what_belongs_to_an_anchor_by_another_row_is_no_negative() -> None:
    batch = split(PAIRS).batch([0, 1, 2])
    assert batch.seconds.shape == (5,)  # three of their own, two negatives
    excluded = batch.excluded.tolist()
    assert excluded == [
        [False, False, True, False, False],
        [False] * 5,
        [True, False, False, False, False],
    ]
    assert batch.tokens.layout.batch == 7  # "worda wordb" is computed once


def test_the_loss_and_its_gradient_are_those_of_sentence_transformers() -> None:
    losses = pytest.importorskip("sentence_transformers.sentence_transformer.losses")
    rows = [
        EmbeddingRow("worda wordb", "good fine", ("bad",), None, 1),
        EmbeddingRow("wordc", "wordd worde", ("poor so",), None, 2),
        EmbeddingRow("wordh so", "wordi", ("wordj wordk",), None, 3),
    ]
    net, texts = model(), split(rows)
    ours = ContrastiveObjective("mean", 0.05).sums(net, texts.batch([0, 1, 2]))[0]["loss"] / 3
    parameters = list(net.parameters())
    gradients = torch.autograd.grad(ours, parameters, allow_unused=True)
    theirs = losses.MultipleNegativesRankingLoss(model=torch.nn.Identity(), scale=20.0)
    columns = [vectors_of(net, [row.texts[place] for row in rows]) for place in range(3)]
    peer = theirs.compute_loss_from_embeddings(columns, labels=None)
    assert ours.item() == pytest.approx(peer.item(), abs=1e-5)
    for mine, other in zip(gradients, torch.autograd.grad(peer, parameters, allow_unused=True), strict=True):
        assert (mine is None) == (other is None)
        assert mine is None or mine == pytest.approx(other, abs=1e-4)


def test_scores_are_cosines_on_the_scale_of_the_training_rows() -> None:
    net = model()
    train, dev = EMBEDDING.fit(TASKS["embed"], split(SCORED), split(SCORED[:2]))
    assert isinstance(train, EmbeddingSplit)
    assert train.cosines_meant() == pytest.approx([1.0, 0.0, 0.5])
    pairs = [vectors_of(net, [row.anchor, row.positive]) for row in SCORED]
    cosines = [(pair[0] @ pair[1]).item() for pair in pairs]
    loss, _ = CosineObjective("mean").sums(net, train.batch([2, 0, 1]))
    expected = sum((cosine - aim) ** 2 for cosine, aim in zip(cosines, [1.0, 0.0, 0.5], strict=True))
    assert loss["loss"].item() == pytest.approx(expected, abs=1e-5)
    task = measured_by(TASKS["embed"], train.rows)
    assert task.main_metric == "spearman"
    outputs = EMBEDDING.outputs(net, train, INFERENCE)
    found = EMBEDDING.score(task, train, outputs, {})
    assert found.metrics["spearman"] == pytest.approx(spearmanr(cosines, [4.0, 1.0, 2.5])[0])
    assert found.loss == pytest.approx(expected / 3, abs=1e-5)
    answers = EMBEDDING.answers(train, outputs, None, {})
    assert [answer["cosine"] for answer in answers] == pytest.approx(cosines, abs=1e-5)
    assert [answer["meant"] for answer in answers] == pytest.approx([1.0, 0.0, 0.5])
    narrow = EMBEDDING.answers(train, outputs, None, {"score_range": [0.0, 5.0]})
    assert [answer["meant"] for answer in narrow] == pytest.approx([0.8, 0.2, 0.5])
    # A dev split of a narrower range is measured by that of training, and so is a file years later.
    tuned = EMBEDDING.tune(task, dev, outputs)
    assert tuned == {"score_range": [1.0, 4.0]}
    two = EMBEDDING.outputs(net, dev, INFERENCE)
    alone = EMBEDDING.score(task, split(SCORED[:2]), two, tuned)
    assert alone.loss == EMBEDDING.score(task, dev, two, {}).loss


def test_scores_that_could_be_cosines_are_taken_as_they_are() -> None:
    rows = [replace(row, score=score) for row, score in zip(SCORED, (-0.5, 0.2, 0.4), strict=True)]
    assert split(rows).cosines_meant().tolist() == [-0.5, 0.2, 0.4]


def test_dev_rows_are_queries_among_all_texts_that_belong_to_some() -> None:
    net, texts = model(), split(PAIRS)
    task = measured_by(TASKS["embed"], texts.rows)
    outputs = EMBEDDING.outputs(net, texts, INFERENCE)
    found = EMBEDDING.score(task, texts, outputs, {})
    documents = ["good fine", "bad", "poor so", "wordd worde wordf", "so so wordg", "wordi", "wordc"]
    assert found.details == {"queries": 4, "documents": 7}
    judged = {
        "worda wordb": {"good fine", "so so wordg"},
        "wordc": {"wordd worde wordf"},
        "wordh": {"good fine"},
        "wordj": {"wordc"},
    }
    values, best = [], {}
    for query, own in judged.items():
        cosines = (vectors_of(net, [query]) @ vectors_of(net, documents).T)[0].tolist()
        order = sorted(
            (-cosine, text) for cosine, text in zip(cosines, documents, strict=True) if text != query
        )
        ranks = [rank for rank, (_, text) in enumerate(order, start=1) if text in own]
        values.append(query_metrics(np.array(ranks)))
        best[query] = order[0][1]
    for name, value in found.metrics.items():
        assert value == pytest.approx(np.mean([one[name] for one in values]))
    answers = EMBEDDING.answers(texts, outputs, None, {})
    assert [answer["query"] for answer in answers] == [0, 1, 0, 2, 3]
    assert [answer["best"] for answer in answers] == [best[row.anchor] for row in PAIRS]
    gold = texts.gold_objects
    for name in task.metrics:
        sample = EMBEDDING.sample(name, gold, answers, None)
        assert sample is not None
        assert len(sample.predicted) == 4
        assert float(sample.metric(sample.gold, sample.predicted)) == pytest.approx(found.metrics[name])


def test_metrics_are_those_of_sentence_transformers_evaluator() -> None:
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    net, texts = model(), split(PAIRS[:4])

    class Encoder:
        similarity_fn_name = "cosine"

        def encode_query(self, found: list[str], **_: Any) -> torch.Tensor:
            return vectors_of(net, list(found)).detach()

        encode_document = encode_query

    documents = {text: text for row in PAIRS[:4] for text in row.texts[1:]}
    relevant: dict[str, set[str]] = {}
    for row in PAIRS[:4]:
        relevant.setdefault(row.anchor, set()).add(row.positive)
    evaluator = evaluation.InformationRetrievalEvaluator(
        {query: query for query in relevant}, documents, relevant, show_progress_bar=False, write_csv=False,
        score_functions={"cosine": lambda a, b: a @ b.T},
    )  # fmt: skip
    theirs = evaluator.compute_metrices(Encoder())["cosine"]
    ours = EMBEDDING.score(TASKS["embed"], texts, EMBEDDING.outputs(net, texts, INFERENCE), {}).metrics
    assert ours["ndcg_at_10"] == pytest.approx(theirs["ndcg@k"][10])
    assert ours["recall_at_1"] == pytest.approx(theirs["recall@k"][1])
    assert ours["recall_at_10"] == pytest.approx(theirs["recall@k"][10])
    assert ours["mrr_at_10"] == pytest.approx(theirs["mrr@k"][10])


def test_one_vector_for_all_texts_is_called_constant() -> None:
    for rows in (PAIRS, SCORED):
        texts = split(rows)
        task = measured_by(TASKS["embed"], texts.rows)
        same = np.ones((len(texts.encoded), 4), dtype=np.float32)
        assert EMBEDDING.score(task, texts, same, {}).constant
        outputs = EMBEDDING.outputs(model(), texts, INFERENCE)
        assert not EMBEDDING.score(task, texts, outputs, {}).constant


def test_what_would_be_ignored_or_teaches_nothing_is_refused() -> None:
    task = TASKS["embed"]
    scored = split(SCORED, temperature=0.1)
    with pytest.raises(InputError, match="temperature would be ignored"):
        EMBEDDING.fit(task, scored, scored)
    pairs = split(PAIRS, temperature=0.1)
    assert EMBEDDING.fit(task, pairs, scored) == (pairs, scored)
    same = split([replace(row, positive="good", negatives=()) for row in PAIRS])
    with pytest.raises(InputError, match="same text belongs to every anchor"):
        EMBEDDING.fit(task, same, same)
    constant = split([replace(row, score=2.0) for row in SCORED])
    with pytest.raises(InputError, match=r"every row has the score 2\.0"):
        EMBEDDING.fit(task, constant, constant)
    with pytest.raises(InputError, match="pooling is 'sum'; take one of mean, max, cls"):
        split(PAIRS, pooling="sum")
    for value in (0, -1.0, float("nan"), float("inf"), True):
        with pytest.raises(InputError, match="temperature is"):
            split(PAIRS, temperature=value)


def test_pooling_comes_from_the_model_that_training_begins_with() -> None:
    task, nothing = TASKS["embed"], {"pooling": None, "normalize": None, "temperature": None}
    begun = {"head": "embedding", "settings": {"pooling": "cls", "normalize": False, "temperature": 0.2}}
    assert settings_of(task, nothing, begun) == {"pooling": "cls", "normalize": False, "temperature": None}
    assert settings_of(task, nothing | {"pooling": "max"}, begun)["pooling"] == "max"
    assert settings_of(task, nothing, {"head": "classification", "settings": {"pooling": "cls"}}) == {
        "pooling": "mean",
        "normalize": True,
        "temperature": None,
    }


def test_a_row_is_cut_if_one_of_its_texts_is_and_error_names_its_line() -> None:
    rows = [PAIRS[1], replace(PAIRS[0], negatives=("so " * 40,), line=9)]
    assert split(rows).truncated == [False, True]
    with pytest.raises(InputError, match=r"a\.jsonl, line 9: has 42 pieces, more than seq-len 16"):
        EMBEDDING.encode(
            TASKS["embed"], EmbeddingRowSet(rows, "a.jsonl"), None, Encoding(TOKENIZER, 16, "error")
        )
