"""Why a request gets no answer, as one line."""

from __future__ import annotations

from typing import Any

from bertsmith.errors import InputError

_MOST_CHARACTERS = 1000
"""Of a message: what it quotes may be as long as a request."""


class Refusal(InputError):
    """A request that is not answered.

    Attributes:
        status: of the HTTP answer.
        code: what it is, for programs.
        param: the field of the request that is wrong.
        retry_seconds: when to come again; 0: never.
    """

    def __init__(
        self, status: int, code: str, message: str, param: str | None = None, retry_seconds: int = 0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_seconds = retry_seconds

    @property
    def content(self) -> dict[str, Any]:
        """The answer's JSON object, in OpenAI's shape; half surrogate pairs are spelt out."""
        kind = "server_error" if self.status >= 500 else "invalid_request_error"
        message = str(self)
        if len(message) > _MOST_CHARACTERS:
            message = f"{message[: _MOST_CHARACTERS - 1]}…"
        message = " ".join(message.split()).encode("utf-8", "backslashreplace").decode()
        return {"error": {"message": message, "type": kind, "code": self.code, "param": self.param}}
