"""A server on a thread of the tests' process, and a client."""

from __future__ import annotations

import contextlib
import faulthandler
import http.client
import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bertsmith.serving.config import ServeConfig
from bertsmith.serving.connection import server_of
from bertsmith.serving.serve import bound
from bertsmith.serving.served import ServedModel
from bertsmith.serving.server import create_app


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> Any:
        return self.json["error"]


@dataclass(frozen=True)
class Client:
    """Asks a server, each time by a connection of its own."""

    port: int
    headers: Mapping[str, str] = field(default_factory=dict)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Answer:
        """Send a body as it is, or an object as JSON."""
        data = body if body is None or isinstance(body, (bytes, str)) else json.dumps(body)
        sent = {"Content-Type": "application/json"} if data is not None else {}
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, data, {**sent, **self.headers, **named})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def post(self, path: str, body: Any, **headers: str) -> Answer:
        return self.ask("POST", path, body, **headers)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def figure(self, line: str) -> float:
        """Return the value of a line of /metrics."""
        found = [
            text for text in self.get("/metrics").body.decode().splitlines() if text.startswith(line + " ")
        ]
        assert len(found) == 1, line
        return float(found[0].split()[-1])


@contextlib.contextmanager
def serving(
    models: Sequence[ServedModel], tokens: Sequence[str] = (), keep_alive: int = 75, **settings: Any
) -> Iterator[Client]:
    """Serve models until the block ends."""
    config = ServeConfig(model=[], port=0, **settings)
    app = create_app(models, config, tokens)
    with bound(config.host, config.port) as listener:
        server = server_of(app, keep_alive, 5)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                assert thread.is_alive()
                time.sleep(0.01)
            yield Client(listener.getsockname()[1])
        finally:
            server.should_exit = True
            thread.join(60)
            if thread.is_alive():
                faulthandler.dump_traceback(sys.__stderr__)
                raise AssertionError("the server does not end; where its threads stand was written to stderr")
