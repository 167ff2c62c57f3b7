"""Answers as JSON."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
import orjson
from starlette.responses import Response

from bertsmith.serving.refusal import Refusal


class JsonAnswer(Response):
    """An answer of dataclasses, arrays and JSON types."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the bytes."""
        try:
            return orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
        except orjson.JSONEncodeError:  # a label with half a surrogate pair, which UTF-8 cannot hold
            return json.dumps(content, default=_plain).encode("ascii")


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return vars(value)
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is no JSON")


def error_answer(refusal: Refusal) -> JsonAnswer:
    """Return the answer that says why there is none."""
    headers = {"Retry-After": str(refusal.retry_seconds)} if refusal.retry_seconds else {}
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JsonAnswer(refusal.content, refusal.status, headers)
