"""What every request passes before and after it is answered: token, limits, request id, log, figures.

A body is read here, whole and no further than its limit, so that nothing behind the gate waits for a client.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import logging
import re
import time
import uuid
from collections.abc import Sequence
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from bertsmith.serving.batcher import places
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.json_answer import error_answer
from bertsmith.serving.refusal import Refusal
from bertsmith.serving.service import ClientLeftError
from bertsmith.serving.watch import Watch

_LOG = logging.getLogger(__name__)
_OPEN = ("/", "/healthz", "/readyz", "/favicon.ico")
_REQUEST_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_LINGER_SECONDS = 5.0
CLIENT_LEFT = 499
"""Status in log and figures of a request whose client left; nobody reads it."""


class Gate:
    """Lets requests through to an app."""

    def __init__(self, app: ASGIApp, settings: ServeConfig, tokens: Sequence[str], watch: Watch) -> None:
        """Make a gate.

        Args:
            app: answers what is let through.
            settings: limits.
            tokens: bearer tokens; none: everybody may ask.
            watch: counts requests.
        """
        self._app = app
        self._settings = settings
        self._tokens = [_digest(token) for token in tokens]
        self._watch = watch
        self._under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.monotonic()
        exchange = _Exchange(scope, receive, send)
        self._under_way += 1
        try:
            await self._answer(exchange)
        except ClientLeftError:
            exchange.status = CLIENT_LEFT
        finally:
            self._under_way -= 1
            if not exchange.status:  # cancelled: the server is stopped
                exchange.status = 503
            self._note(exchange, time.monotonic() - started)

    async def _answer(self, exchange: _Exchange) -> None:
        try:
            self._require_permission(exchange)
            if exchange.scope["method"] == "POST" and exchange.scope["path"].startswith("/v1/"):
                self._require_readable(exchange)
                await exchange.read_body(self._settings.max_body_bytes, self._settings.timeout_seconds)
        except Refusal as refusal:
            await exchange.refuse(refusal)
            return
        try:
            await self._app(exchange.scope, exchange.receive, exchange.send)
        except ClientLeftError:
            raise
        except Exception as error:
            fields = {"id": exchange.id, "error": type(error).__name__, "at": places(error)}
            _LOG.error("failed", extra={"fields": fields})
            if not exchange.status:
                message = f"a fault of the server; its log has more under {exchange.id}"
                await exchange.refuse(Refusal(500, "failed", message))

    def _require_permission(self, exchange: _Exchange) -> None:
        path = exchange.scope["path"]
        if not self._tokens or path in _OPEN or path.startswith("/page/"):
            return
        kind, _, token = exchange.headers.get("authorization", "").partition(" ")
        given = _digest(token.strip())
        # Every token is compared in constant time, so that the time tells nothing about any.
        right = [hmac.compare_digest(given, known) for known in self._tokens]
        if kind.lower() != "bearer" or not any(right):
            raise Refusal(401, "invalid_token", "send a token of this server: Authorization: Bearer TOKEN")

    def _require_readable(self, exchange: _Exchange) -> None:
        if self._under_way > self._settings.max_requests:
            message = f"{self._settings.max_requests} requests are under way; ask again in 1 s"
            raise Refusal(429, "busy", message, retry_seconds=1)
        kind = exchange.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise Refusal(415, "not_json", f"Content-Type is {kind or 'missing'}; send application/json")
        length = exchange.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and int(length) > self._settings.max_body_bytes:
            raise _too_large(length, self._settings.max_body_bytes)

    def _note(self, exchange: _Exchange, seconds: float) -> None:
        route = exchange.scope.get("route")
        endpoint = getattr(route, "path", "other")
        self._watch.requests.labels(endpoint, str(exchange.status)).inc()
        self._watch.seconds.labels(endpoint).observe(seconds)
        fields = {
            "id": exchange.id,
            "method": exchange.method,
            "endpoint": endpoint,
            "status": exchange.status,
            "seconds": round(seconds, 4),
            **exchange.scope["state"]["served"],
        }
        _LOG.info("request", extra={"fields": fields})


class _Exchange:
    """One request and its answer.

    Attributes:
        scope: of ASGI; ``state.served`` takes what the log is to say about the answer.
        id: of the request.
        headers: of the request.
        method: of the request.
        status: of the answer; 0 until it begins.
    """

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers = Headers(scope=scope)
        given = self.headers.get("x-request-id", "")
        self.id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        served: dict[str, Any] = {}
        self.method: str = scope["method"]
        # What answers GET answers HEAD, too; the server leaves the body out.
        method = "GET" if self.method == "HEAD" else self.method
        state = {**scope.get("state", {}), "served": served, "id": self.id}
        self.scope = {**scope, "method": method, "state": state}
        self.status = 0
        self._receive = receive
        self._send = send
        self._body: bytes | None = None
        self._arrived = False

    async def read_body(self, most_bytes: int, seconds: float) -> None:
        """Read the whole body.

        Raises:
            Refusal: it is too large or too slow.
            ClientLeftError: the client left.
        """
        try:
            self._body = await asyncio.wait_for(self._read(most_bytes), seconds)
        except asyncio.TimeoutError:
            raise Refusal(
                408, "slow_body", f"the body did not arrive in {seconds:g} s; send it again"
            ) from None

    async def _read(self, most_bytes: int) -> bytes:
        body = bytearray()
        while not self._arrived:
            body += await self._chunk()
            if len(body) > most_bytes:
                raise _too_large(f"at least {len(body)}", most_bytes)
        return bytes(body)

    async def _chunk(self) -> bytes:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        self._arrived = not message.get("more_body", False)
        chunk: bytes = message.get("body", b"")
        return chunk

    async def receive(self) -> Message:
        """Return the body that was read, and then what else comes."""
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message)["X-Request-Id"] = self.id
        await self._send(message)

    async def refuse(self, refusal: Refusal) -> None:
        """Say why there is no answer.

        A client that still sends its body would meet a closed connection before it reads the answer, so for
        some seconds what comes is thrown away.
        """
        answer = error_answer(refusal)
        headers = MutableHeaders(raw=answer.raw_headers)
        if not self._arrived and self.scope["method"] == "POST":
            headers["Connection"] = "close"
        await self.send({"type": "http.response.start", "status": answer.status_code, "headers": headers.raw})
        await self.send({"type": "http.response.body", "body": answer.body, "more_body": True})
        with contextlib.suppress(asyncio.TimeoutError, ClientLeftError):
            await asyncio.wait_for(self._discard(), _LINGER_SECONDS)
        await self.send({"type": "http.response.body", "body": b""})

    async def _discard(self) -> None:
        while not self._arrived:
            await self._chunk()


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


def _too_large(length: str, most_bytes: int) -> Refusal:
    message = f"the body has {length} bytes, more than {most_bytes}; send fewer or shorter texts"
    return Refusal(413, "body_too_large", message)
