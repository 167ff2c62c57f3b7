"""What is refused, with status, code and one line that says what to do; the same in every endpoint."""

from __future__ import annotations

import http.client
import json
import re
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from bertsmith.serving import schemas
from bertsmith.serving.served import ServedModel
from tests.serving.running import Client, serving

HEAD = "POST /v1/tokenize HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
LONG = "good " * 5000
WRONG: list[tuple[str, Any, int, str, str]] = [
    ("classify", b"{", 400, "invalid_json", "no JSON: .* at character 1"),
    ("classify", b"\xff\xfe\xfd", 400, "invalid_json", "no JSON in UTF-8"),
    ("classify", b"[" * 200_000, 400, "invalid_json", "nested too deep"),
    ("classify", b"", 422, "invalid_request", "no JSON object"),
    ("classify", b"[]", 422, "invalid_request", "no JSON object"),
    ("classify", {"text": "so"}, 422, "invalid_request", "text: there is no such field"),
    ("classify", b'{"texts": "so", "top": ' + b"9" * 5000 + b"}", 400, "invalid_json", "thousands of digits"),
    ("classify", b'{"\\ud800": 1}', 422, "invalid_request", r"\\ud800: there is no such field"),
    ("classify", {}, 422, "invalid_request", "texts: is missing"),
    ("classify", {"texts": []}, 422, "invalid_request", "texts: an empty list; give at least one"),
    ("classify", {"texts": None}, 422, "invalid_request", "texts: null; expected a list"),
    ("classify", {"texts": {"a": 1}}, 422, "invalid_request", "texts: an object; expected a list"),
    ("classify", {"texts": ["so", 7]}, 422, "invalid_request", "texts: number 1 is a number"),
    ("classify", {"texts": [["so", "so", "so"]]}, 422, "invalid_request", "number 0 is a list of 3"),
    ("classify", {"texts": "\ud83d"}, 422, "invalid_request", "half a surrogate pair at character 0"),
    ("classify", {"texts": ["so"], "truncate": "no"}, 422, "invalid_request", "truncate: .* boolean"),
    ("classify", {"texts": ["so"], "model": "clasification"}, 404, "unknown_model", "did you mean 'classif"),
    ("classify", {"texts": ["so"], "model": "tagging"}, 422, "cannot", "cannot classify; it can tag, embed"),
    ("classify", {"texts": ["so"] * 2049}, 422, "too_many_texts", "texts: 2049 of them, more than 2048"),
    ("classify", {"texts": ["so", "a" * 100_001]}, 422, "text_too_long", "number 1 has 100001 characters"),
    (
        "classify",
        {"texts": ["so", ["a", "b"]], "model": "pairs"},
        422,
        "invalid_request",
        "number 0 .* pairs",
    ),
    ("fill", {"texts": ["so [MASK]", "so"]}, 422, "invalid_request", r"number 1 has no \[MASK\]"),
    ("fill", {"texts": [LONG + "[MASK]"]}, 422, "invalid_request", r"\[MASK\] beyond the model's 64 pieces"),
    ("fill", {"texts": "[MASK]", "top": 0}, 422, "invalid_request", "top: .* greater than or equal to 1"),
    ("fill", {"texts": "[MASK]", "top": 999}, 422, "invalid_request", "top is 999"),
    ("tag", {"texts": ["so", []]}, 422, "invalid_request", "number 1 is an empty list of words"),
    ("answer", {"inputs": []}, 422, "invalid_request", "inputs: an empty list"),
    ("answer", {"inputs": [{"question": "so"}]}, 422, "invalid_request", r"inputs.0.passage: is missing"),
    (
        "answer",
        {"inputs": [{"question": "so", "text": "so"}]},
        422,
        "invalid_request",
        r"inputs.0.text: there",
    ),
    ("choose", {"inputs": [{"context": "so", "choices": ["a"]}]}, 422, "invalid_request", "two or more"),
    (
        "choose",
        {"inputs": [{"context": "so", "choices": ["a"] * 1025}] * 2},
        422,
        "too_many_texts",
        "inputs: 2050 choices in all, more than 2048",
    ),
    ("rerank", {"query": 3, "texts": ["so"]}, 422, "invalid_request", "query: .*a number; expected a text"),
    (
        "rerank",
        {"query": "so", "texts": ["a"], "label": "c", "model": "pairs"},
        422,
        "invalid_request",
        "'c'",
    ),
    ("similarity", {"texts": ["so"], "pooling": "sum"}, 422, "invalid_request", "pooling: "),
    (
        "attention",
        {"texts": ["so"], "layers": [2]},
        422,
        "invalid_request",
        "layers: 2 does not exist; .* 0 to 1",
    ),
    ("attention", {"texts": ["so"], "heads": [0, 0]}, 422, "invalid_request", "heads: expected different"),
    ("attention", {"texts": ["good " * 90] * 1000}, 422, "too_many_weights", "more than 4000000"),
    ("embeddings", {"input": [[1, 2]]}, 422, "invalid_request", "token ids are of another vocabulary"),
    ("embeddings", {"input": "so", "dimensions": 33}, 422, "invalid_request", "has 32"),
    ("embeddings", {"input": "so", "encoding_format": "hex"}, 422, "invalid_request", "encoding_format: "),
]


@pytest.mark.parametrize("verb, body, status, code, message", WRONG)
def test_what_is_wrong_is_said_in_one_line(
    client: Client, verb: str, body: Any, status: int, code: str, message: str
) -> None:
    found = client.post(f"/v1/{verb}", body)
    assert (found.status, found.error["code"]) == (status, code), found.body
    assert set(found.error) == {"message", "type", "code", "param"}
    assert re.search(message, found.error["message"]), found.error["message"]
    assert "\n" not in found.error["message"]


def test_the_first_of_many_faults_is_told_and_the_others_are_not_looked_for() -> None:
    many = {f"a{number}": 1 for number in range(100)}
    for schema, body in (
        (schemas.TokenizeRequest, many),
        (schemas.AnswerRequest, {"inputs": [many] * 100}),
        (schemas.AttentionRequest, {"texts": "so", "layers": ["a"] * 100}),
    ):
        with pytest.raises(ValidationError) as raised:
            schema.model_validate(body)
        assert raised.value.error_count() == 1


def test_what_a_message_quotes_is_cut(client: Client) -> None:
    for body in ({"texts": "so", "model": "classification" * 10_000}, {"texts": "so", "x" * 100_000: 1}):
        message = client.post("/v1/classify", body).error["message"]
        assert len(message) <= 1000
        assert message.endswith("…")


def test_no_place_on_the_servers_disk_is_told(client: Client) -> None:
    asked = {"query": "so", "texts": ["a"], "label": "c", "model": "pairs"}
    message = client.post("/v1/rerank", asked).error["message"]
    assert "model pairs" in message
    assert "/" not in message


def test_paths_methods_and_kinds_of_content(client: Client) -> None:
    assert client.get("/v1/none").error["code"] == "not_found"
    assert client.post("/v2/classify", {}).error["code"] == "not_found"
    wrong = client.get("/v1/classify")
    assert (wrong.status, wrong.error["code"]) == (405, "method_not_allowed")
    assert wrong.headers["allow"] == "POST"
    for path in ("/", "/healthz", "/v1/models", "/metrics", "/page/index.html", "/v1/none", "/v1/classify"):
        head, whole = client.ask("HEAD", path), client.get(path)
        assert (head.status, head.body) == (whole.status, b"")
        assert head.headers["content-type"] == whole.headers["content-type"]
    assert client.post("/v1/classify/", {"texts": "so"}).error["code"] == "not_found"
    form = client.ask("POST", "/v1/classify", "texts=so", Content_Type="application/x-www-form-urlencoded")
    assert (form.status, form.error["code"]) == (415, "not_json")
    assert (
        client.post("/v1/classify", {"texts": "so"}, Content_Type="application/json; charset=utf-8").status
        == 200
    )


def test_request_ids_are_kept_if_they_are_such(client: Client) -> None:
    assert client.get("/healthz", X_Request_Id="abc-1").headers["x-request-id"] == "abc-1"
    drawn = client.get("/healthz", X_Request_Id="a b\tc").headers["x-request-id"]
    assert len(drawn) == 32


@pytest.mark.parametrize(
    "verb, body, field",
    [
        ("classify", {"texts": [LONG]}, "texts"),
        ("classify", {"texts": ["so", LONG, "so"]}, "texts"),
        ("fill", {"texts": ["[MASK] " + LONG]}, "texts"),
        ("choose", {"inputs": [{"context": "so", "choices": ["so", LONG]}]}, "inputs"),
        ("answer", {"inputs": [{"question": "so " * 30, "passage": "good"}]}, "inputs"),
        ("embeddings", {"input": [LONG]}, "input"),
        ("similarity", {"texts": "so", "others": ["so", LONG]}, "others"),
        ("tokenize", {"texts": [LONG]}, "texts"),
    ],
)
def test_c057_a_long_text_is_cut_and_says_so_or_is_refused_alone_and_in_a_list(
    client: Client, verb: str, body: dict[str, Any], field: str
) -> None:
    cut = client.post(f"/v1/{verb}", body)
    assert (cut.status, cut.headers["bertsmith-truncated"]) == (200, "1")
    refused = client.post(f"/v1/{verb}", {**body, "truncate": False})
    assert (refused.status, refused.error["code"]) == (422, "text_too_long")
    assert refused.error["param"] == field
    assert any(number in refused.error["message"] for number in ("32", "64", "8"))


def test_c057_a_body_beyond_the_limit_is_refused_before_it_is_read(client: Client) -> None:
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(HEAD.format(50_000_000).encode() + b"[" * 1000)
        status = connection.makefile("rb").readline()
    assert b" 413 " in status
    assert time.monotonic() - started < 2
    started = time.monotonic()
    whole = client.post("/v1/classify", b"a" * 50_000_000)  # a client that sends all before it reads
    assert (whole.status, whole.error["code"]) == (413, "body_too_large")
    assert whole.error["message"].startswith("the body has 50000000 bytes, more than 8388608")
    assert time.monotonic() - started < 2


def test_a_body_of_unknown_length_is_counted_while_it_comes(models: list[ServedModel]) -> None:
    with serving(models[:1], max_body_bytes=1000) as client:
        connection = http.client.HTTPConnection("127.0.0.1", client.port, timeout=10)
        chunks = (b"a" * 100 for _ in range(100))
        connection.request(
            "POST", "/v1/fill", chunks, {"Content-Type": "application/json"}, encode_chunked=True
        )
        answer = connection.getresponse()
        assert answer.status == 413
        assert json.loads(answer.read())["error"]["code"] == "body_too_large"
        connection.close()


def test_a_body_that_does_not_arrive_is_given_up(models: list[ServedModel]) -> None:
    with serving(models[:1], timeout_seconds=0.2) as client:
        with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
            connection.sendall(HEAD.format(9).encode() + b"{")
            assert b" 408 " in connection.makefile("rb").readline()
        assert client.get("/healthz").status == 200


def test_c057_many_short_texts_are_refused_with_the_limit_or_all_answered_in_order(
    client: Client, models: list[ServedModel]
) -> None:
    texts = ["so good"] * 10_000
    refused = client.post("/v1/tokenize", {"texts": texts})
    assert (refused.status, refused.error["code"]) == (422, "too_many_texts")
    with serving(models[:1], max_texts=10_000) as larger:
        words = [f"word{'abcdefghijklmnop'[number % 16]}" for number in range(10_000)]
        found = larger.post("/v1/tokenize", {"texts": words}).json["results"]
        assert [row["tokens"][1] for row in found] == words


def test_what_takes_too_long_is_dropped(models: list[ServedModel]) -> None:
    with serving(models[:1], timeout_seconds=0.3, queue_tokens=1_000_000, batch_tokens=128) as client:
        found = client.post("/v1/embeddings", {"input": ["good " * 50] * 2000})
        assert (found.status, found.error["code"]) == (504, "timeout")
        assert client.post("/v1/embeddings", {"input": "so"}).status == 200
        assert client.figure('bertsmith_pieces_total{model="pretrained"}') < 2000 * 52


def test_tokens_are_asked_for_where_there_are_some(models: list[ServedModel]) -> None:
    with serving(models[:1], tokens=["secret", "other"]) as client:
        for path in ("/healthz", "/readyz"):
            assert client.get(path).status == 200
        for given in (
            {},
            {"Authorization": "Bearer secre"},
            {"Authorization": "Basic secret"},
            {"Authorization": "x"},
        ):
            for method, path in (("GET", "/v1/models"), ("GET", "/metrics"), ("POST", "/v1/tokenize")):
                found = client.ask(method, path, None, **given)
                assert (found.status, found.error["code"]) == (401, "invalid_token")
                assert found.headers["www-authenticate"] == "Bearer"
        for token in ("secret", "other"):
            found = client.post("/v1/tokenize", {"texts": "so"}, Authorization=f"Bearer {token}")
            assert found.status == 200


@pytest.fixture
def crowded(models: list[ServedModel]) -> Iterator[Client]:
    with serving(models[:1], max_requests=2, timeout_seconds=5) as client:
        yield client


def test_too_many_requests_at_once_are_told_to_come_again(crowded: Client) -> None:
    held = [socket.create_connection(("127.0.0.1", crowded.port)) for _ in range(2)]
    for connection in held:
        connection.sendall(HEAD.format(9).encode())
    time.sleep(0.3)
    refused = crowded.post("/v1/tokenize", {"texts": "so"})
    assert (refused.status, refused.error["code"], refused.headers["retry-after"]) == (429, "busy", "1")
    assert crowded.get("/healthz").status == 200
    for connection in held:
        connection.close()
    time.sleep(0.3)
    assert crowded.post("/v1/tokenize", {"texts": "so"}).status == 200
