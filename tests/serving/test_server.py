"""Every endpoint answers what the predictor answers."""

from __future__ import annotations

import base64
import dataclasses
import gc
import logging
import sys
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from bertsmith import predictor
from bertsmith.serving.served import ServedModel
from tests.serving.conftest import HEADS
from tests.serving.running import Client, serving
from tests.test_predictor_kinds import KINDS, close


def asked_of(head: str) -> dict[str, Any]:
    items = KINDS[head][3]
    if head == "choice":
        return {"inputs": [{"context": context, "choices": choices} for context, choices in items]}
    if head == "spans":
        return {"inputs": [{"question": question, "passage": passage} for question, passage in items]}
    return {"texts": items}


def plain(answer: Any) -> Any:
    return [dataclasses.asdict(row) for row in answer]


@pytest.mark.parametrize("head", HEADS)
def test_each_verb_answers_as_the_predictor_does(
    client: Client, models: list[ServedModel], head: str
) -> None:
    verb, items = KINDS[head][0], KINDS[head][3]
    model = next(model for model in models if model.name == head)
    found = client.post(f"/v1/{verb}", asked_of(head) | {"model": head})
    assert found.status == 200, found.body
    expected = plain(getattr(model.predictor, verb)(items))
    assert found.json["model"] == head
    assert close(found.json["results"], expected)
    assert found.headers["bertsmith-truncated"] == str(sum(row["truncated"] for row in expected))
    assert found.json["usage"]["pieces"] >= 2 * len(items)


def test_fill_reads_masks_and_gives_as_many_candidates_as_asked(
    client: Client, models: list[ServedModel]
) -> None:
    texts = ["so [MASK]", "[MASK] good [MASK]", "so [MASK] " + "bad " * 80]
    found = client.post("/v1/fill", {"texts": texts, "top": 3}).json
    assert close(found["results"], plain(models[0].predictor.fill(texts, 3)))
    assert [len(row["masks"]) for row in found["results"]] == [1, 2, 1]
    assert found["usage"]["pieces"] == 4 + 5 + 64
    assert client.post("/v1/fill", {"texts": "so [MASK]"}).json["results"] == plain(
        models[0].predictor.fill(["so [MASK]"])
    )


def test_tokens_and_attention(client: Client, models: list[ServedModel]) -> None:
    texts = ["so good", ["bad", "so good"], "good " * 90]
    model = models[0].predictor
    found = client.post("/v1/tokenize", {"texts": texts, "model": "pretrained"})
    pairs: list[Any] = [tuple(text) if isinstance(text, list) else text for text in texts]
    expected = plain(model.tokenize(pairs))
    assert [row["ids"] for row in found.json["results"]] == [row["ids"] for row in expected]
    assert [row["truncated"] for row in found.json["results"]] == [False, False, True]
    whole = client.post("/v1/attention", {"texts": texts[:2], "model": "pretrained"}).json["results"]
    for row, answer in zip(whole, model.attention(pairs[:2]), strict=True):
        np.testing.assert_allclose(row["weights"], answer.weights, atol=1e-5)
        assert row["tokens"] == answer.tokens
        assert [tuple(place) for place in row["offsets"]] == answer.offsets
    asked = {"texts": "so [MASK]", "model": "pretrained", "layers": [1], "heads": [1, 0], "masks": True}
    part = client.post("/v1/attention", asked).json["results"][0]
    assert part["tokens"] == ["[CLS]", "so", "[MASK]", "[SEP]"]
    whole = {"texts": [["[MASK] " * 30, "so " * 31]], "model": "pretrained", "masks": True, "truncate": False}
    assert (
        client.post("/v1/tokenize", whole).json["usage"]["pieces"] == 64
    )  # as much as it takes, and no more
    expected_weights = model.attention(["so [MASK]"], masks=True)[0].weights[1][[1, 0]]
    np.testing.assert_allclose(part["weights"][0], expected_weights, atol=1e-5)


def test_pairs_are_ranked_by_the_model_that_reads_them_together(
    client: Client, models: list[ServedModel]
) -> None:
    texts = ["good", "bad bad", "so fine", "poor", "bad " * 40]
    model = next(model for model in models if model.name == "pairs")
    expected = plain(model.predictor.rerank("so good", texts))
    asked = {"query": "so good", "texts": texts, "model": "pairs"}
    assert close(client.post("/v1/rerank", asked).json["results"], expected)
    assert close(client.post("/v1/rerank", {**asked, "top": 2}).json["results"], expected[:2])


def test_similarity_ranking_and_embeddings_of_a_real_model(minilm: ServedModel) -> None:
    texts = ["A cat sits on the mat.", "The weather is fine.", "word " * 400, "中文", "A kitten is on a rug."]
    expected = minilm.predictor.embed(texts, normalize=True).vectors
    with serving([minilm]) as client:
        found = client.post("/v1/embeddings", {"input": texts, "model": "minilm", "user": "me"}).json
        assert [row["index"] for row in found["data"]] == [0, 1, 2, 3, 4]
        vectors = np.array([row["embedding"] for row in found["data"]])
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
        coded = client.post("/v1/embeddings", {"input": texts, "encoding_format": "base64"}).json["data"]
        for row, vector in zip(coded, expected, strict=True):
            decoded = np.frombuffer(base64.b64decode(row["embedding"]), "<f4")
            np.testing.assert_allclose(decoded, vector, atol=1e-5)
        short = client.post("/v1/embeddings", {"input": texts[0], "dimensions": 16}).json["data"]
        part = expected[0, :16] / np.linalg.norm(expected[0, :16])
        np.testing.assert_allclose(short[0]["embedding"], part, atol=1e-5)
        similar = client.post("/v1/similarity", {"texts": texts[:2], "others": texts[2:]}).json
        np.testing.assert_allclose(similar["values"], expected[:2] @ expected[2:].T, atol=1e-5)
        own = client.post("/v1/similarity", {"texts": texts}).json
        np.testing.assert_allclose(own["values"], expected @ expected.T, atol=1e-5)
        ranked = client.post("/v1/rerank", {"query": texts[0], "texts": texts[1:]}).json["results"]
        assert ranked[0]["index"] == 3
        assert ranked[0]["score"] == pytest.approx(float(expected[0] @ expected[4]), abs=1e-5)


def test_models_say_what_they_can(client: Client, models: list[ServedModel]) -> None:
    listed = client.get("/v1/models").json["data"]
    assert [entry["id"] for entry in listed] == [model.name for model in models]
    by_name = {entry["id"]: entry for entry in listed}
    assert by_name["pairs"]["pairs"] is True
    assert by_name["classification"]["pairs"] is None
    assert by_name["classification"]["labels"] == ["a", "b"]
    assert by_name["classification"]["verbs"][0] == "classify"
    assert by_name["pretrained"]["mask_token"] == "[MASK]"
    shape = by_name["tagging"]["architecture"]
    assert (shape["layers"], shape["heads"], shape["hidden_size"]) == (2, 2, 32)
    model = predictor.load(models[0].predictor.bundle.directory)._model
    counted = sum(weight.numel() for weight in model.parameters())
    assert by_name["pretrained"]["architecture"]["parameters"] == counted
    assert client.get("/v1/models/pairs").json == by_name["pairs"]
    assert client.get("/v1/models/none").status == 404


def test_a_request_without_a_name_goes_to_the_model_made_for_it(client: Client) -> None:
    for verb, name in (("classify", "classification"), ("fill", "pretrained"), ("tag", "tagging")):
        found = client.post(f"/v1/{verb}", {"texts": ["so [MASK]"]})
        assert (found.status, found.json["model"]) == (200, name)


def test_the_description_has_examples_that_work(client: Client) -> None:
    described = client.get("/openapi.json").json
    schemas = described["components"]["schemas"]
    for path, methods in described["paths"].items():
        if "post" not in methods:
            continue
        reference = methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
        for example in schemas[reference.rpartition("/")[2]]["examples"]:
            found = client.post(path, example)
            assert found.status == 200, (path, found.body)
            assert methods["post"]["responses"]["200"]["content"]["application/json"]["schema"]


def test_state_and_figures(client: Client) -> None:
    assert client.get("/healthz").json == {"status": "ok"}
    assert client.get("/readyz").json == {"status": "ready"}
    answered = 'bertsmith_requests_total{endpoint="/v1/multilabel",status="200"}'
    client.post("/v1/multilabel", {"texts": "so"})
    before = client.figure(answered)
    cut = client.figure('bertsmith_truncated_rows_total{model="multi-label"}')
    client.post("/v1/multilabel", {"texts": ["so", "bad " * 50]})
    assert client.figure(answered) == before + 1
    assert client.figure('bertsmith_truncated_rows_total{model="multi-label"}') == cut + 1
    assert client.figure('bertsmith_pieces_total{model="multi-label"}') >= 35
    assert client.figure("bertsmith_waiting_pieces") == 0


def test_answered_requests_leave_nothing_behind(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "bertsmith.serving")  # pytest would keep a line of the log each

    def held_after(requests: int) -> int:
        for number in range(requests):
            assert client.post("/v1/fill", {"texts": f"so {number} [MASK]"}).status == 200
        gc.collect()
        return sys.getallocatedblocks()

    held = [held_after(100) for _ in range(9)]
    # A leak of one object a request would be a hundred each time; caches fill up, slower each time.
    assert min(later - earlier for earlier, later in pairwise(held)) < 60
