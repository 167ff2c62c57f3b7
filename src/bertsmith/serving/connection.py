"""The HTTP server; and a client's connection, which is given up when nothing moves on it."""

from __future__ import annotations

import asyncio

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol


class Connection(H11Protocol):
    """uvicorn's connection, with a clock that also runs before the first request and during its head.

    uvicorn's own starts after an answer and stops at the first byte of the next request. This one goes on
    until a request's head is whole; after ``timeout_keep_alive`` seconds the connection is closed. The body
    has a limit of its own in the gate. As long may pass while the client takes no part of an answer.
    """

    _not_taken = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the clock."""
        super().connection_made(transport)
        self._start_clock()

    def data_received(self, data: bytes) -> None:
        """Read on; ``handle_events`` stops the clock when a request is there."""
        self.conn.receive_data(data)
        self.handle_events()

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless the client still takes its answer."""
        left = self.transport.get_write_buffer_size()
        if not left:
            super().timeout_keep_alive_handler()
        elif left == self._not_taken:
            self.transport.abort()
        else:
            self._not_taken = left
            self._start_clock()

    def _start_clock(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(
            self.timeout_keep_alive, self.timeout_keep_alive_handler
        )


def server_of(app: FastAPI, keep_alive: int, stop_seconds: int) -> uvicorn.Server:
    """Return what answers HTTP for the application.

    Args:
        app: the application.
        keep_alive: seconds that an idle connection stays.
        stop_seconds: that running requests have when it is to stop.
    """
    return uvicorn.Server(
        uvicorn.Config(
            app,
            http=Connection,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=keep_alive,
            timeout_graceful_shutdown=stop_seconds,
        )
    )
