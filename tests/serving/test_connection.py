"""Clients that send or read nothing, or a byte at a time."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import time
from collections.abc import Iterator

import pytest

from bertsmith.serving.served import ServedModel
from tests.serving.running import Client, serving

HEAD = (
    "POST /v1/similarity HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
)
TEXTS = 1000


@pytest.fixture(scope="module")
def hasty(models: list[ServedModel]) -> Iterator[Client]:
    """A client of a server that waits a second for whoever does nothing."""
    with serving(models[:1], keep_alive=1) as client:
        yield client


@contextlib.contextmanager
def connected(client: Client) -> Iterator[socket.socket]:
    """Connect, with room for little that is not read yet."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", client.port))
        yield connection


def test_a_connection_without_a_whole_head_is_closed(hasty: Client) -> None:
    whole, half = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /healthz HTTP/1.1\r\nX: "
    with contextlib.ExitStack() as opened:
        kinds = {sent: opened.enter_context(connected(hasty)) for sent in (b"", half, whole, whole + half)}
        for sent, connection in kinds.items():
            connection.sendall(sent)
        trickling = [kinds[half], kinds[whole + half]]
        with contextlib.suppress(ConnectionError):  # closed while bytes come
            while True:
                time.sleep(0.1)
                for connection in trickling:
                    connection.sendall(b"a")
        for sent, connection in kinds.items():
            received = b""
            with contextlib.suppress(ConnectionError):
                while chunk := connection.recv(1000):
                    received += chunk
            assert (b"200 OK" in received) == sent.startswith(whole)


def test_an_answer_that_nobody_takes_is_given_up_and_one_taken_slowly_is_not(hasty: Client) -> None:
    body = json.dumps({"texts": ["so good"] * TEXTS}).encode()
    asked = HEAD.format(len(body)).encode() + body
    with connected(hasty) as idle, connected(hasty) as slow:
        for connection in (idle, slow):
            connection.sendall(asked)
        head = slow.recv(1000)
        length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        left = length - len(head.partition(b"\r\n\r\n")[2])
        assert left > 8_000_000  # more than the system keeps
        pause_at = left
        while left:
            if left <= pause_at:
                time.sleep(0.4)
                pause_at = left - length // 6
            chunk = slow.recv(1 << 20)
            assert chunk, "cut off"
            left -= len(chunk)
        taken = 0
        with contextlib.suppress(ConnectionError):
            while chunk := idle.recv(1 << 20):
                taken += len(chunk)
        assert taken < length
    assert hasty.get("/healthz").status == 200
