"""Answers as JSON: arrays and dataclasses as they are, and what UTF-8 cannot hold."""

from __future__ import annotations

import json

import numpy as np

from bertsmith.answers import Classification
from bertsmith.serving.json_answer import JsonAnswer, error_answer
from bertsmith.serving.refusal import Refusal


def test_values_come_back_as_they_were() -> None:
    values = np.array([[0.1, -2.5e-9], [3.0, 1 / 3]], dtype=np.float32)
    content = {"values": values, "row": Classification("中", 0.5, {"中": 0.5}, False)}
    found = json.loads(bytes(JsonAnswer(content).body))
    np.testing.assert_array_equal(np.array(found["values"], dtype=np.float32), values)
    assert found["row"] == {
        "label": "中",
        "probability": 0.5,
        "probabilities": {"中": 0.5},
        "truncated": False,
    }


def test_half_a_surrogate_pair_in_a_label_is_escaped() -> None:
    row = Classification("\ud800", 1.0, {"\ud800": 1.0}, False)
    body = bytes(JsonAnswer({"rows": [row], "values": np.ones(2, dtype=np.float32)}).body)
    assert json.loads(body) == {"rows": [vars(row)], "values": [1.0, 1.0]}
    refusal = Refusal(404, "unknown_model", "unknown model '\ud800'\n  of two lines")
    error = json.loads(bytes(error_answer(refusal).body))["error"]
    assert error["message"] == r"unknown model '\ud800' of two lines"


def test_headers_say_when_to_come_again_and_how_to_ask() -> None:
    assert error_answer(Refusal(429, "busy", "full", retry_seconds=3)).headers["retry-after"] == "3"
    assert "retry-after" not in error_answer(Refusal(422, "cannot", "no")).headers
    assert error_answer(Refusal(401, "invalid_token", "no")).headers["www-authenticate"] == "Bearer"
    assert (
        json.loads(bytes(error_answer(Refusal(503, "stopping", "no")).body))["error"]["type"]
        == "server_error"
    )
