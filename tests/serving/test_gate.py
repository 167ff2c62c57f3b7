"""What the log says, what it never says, and faults of ours."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from bertsmith.predictor import Predictor
from bertsmith.serving.serve import JsonLines
from bertsmith.serving.served import ServedModel
from bertsmith.serving.service import Service
from tests.serving.running import Client, serving


def lines(caplog: pytest.LogCaptureFixture, event: str, *ids: str) -> list[dict[str, Any]]:
    """Return the lines of requests; the server of an earlier test may still write its last one."""
    format = JsonLines().format
    found = [json.loads(format(record)) for record in caplog.records]
    return [line for line in found if line["event"] == event and line["id"] in ids]


def test_each_request_is_a_line_without_its_words(
    models: list[ServedModel], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bertsmith.serving")
    with serving(models[:1]) as client:
        client.post("/v1/tokenize", {"texts": ["good secret", "bad " * 90]}, X_Request_Id="mine")
        client.post("/v1/fill", {"texts": "secret"}, X_Request_Id="refused")
    first, second = lines(caplog, "request", "mine", "refused")
    assert first.pop("time").endswith("Z")
    assert first.pop("seconds") > 0
    assert first == {
        "level": "info",
        "event": "request",
        "id": "mine",
        "method": "POST",
        "endpoint": "/v1/tokenize",
        "status": 200,
        "model": "pretrained",
        "rows": 2,
        "pieces": 4 + 64,
        "truncated": 1,
    }
    assert (second["endpoint"], second["status"]) == ("/v1/fill", 422)
    assert "secret" not in json.dumps([first, second])


def test_texts_are_logged_where_that_is_asked_for(
    models: list[ServedModel], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bertsmith.serving")
    with serving(models[:1], log_texts=True) as client:
        client.post("/v1/tokenize", {"texts": ["so", ["good", "bad"]]}, X_Request_Id="mine")
    (line,) = lines(caplog, "request", "mine")
    assert line["texts"] == ["so", ["good", "bad"]]


def broken(*words: Any) -> Any:
    raise RuntimeError("about the user's secret")


@pytest.mark.parametrize("place, name", [(Predictor, "tokenize"), (Service, "find")])
def test_a_fault_of_ours_is_told_by_its_id_and_the_server_goes_on(
    models: list[ServedModel],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    place: Any,
    name: str,
) -> None:
    with serving(models[:1]) as client:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, broken)
            found = client.post("/v1/tokenize", {"texts": ["so"]}, X_Request_Id="mine")
        assert (found.status, found.error["code"], found.error["type"]) == (500, "failed", "server_error")
        assert found.error["message"].endswith("under mine")
        assert client.post("/v1/tokenize", {"texts": ["so"]}).status == 200
    (line,) = lines(caplog, "failed", "mine")
    assert line["error"] == "RuntimeError"
    assert any("test_gate.py" in where for where in line["at"])
    assert "secret" not in json.dumps(line)


def test_figures_are_in_prometheus_format(client: Client) -> None:
    families = {
        family.name: family for family in text_string_to_metric_families(client.get("/metrics").body.decode())
    }
    assert families["bertsmith_requests"].type == "counter"
    assert families["bertsmith_request_seconds"].type == "histogram"
    assert families["bertsmith_waiting_pieces"].samples[0].value == 0
    assert "process_resident_memory_bytes" in families
