"""The verb ``serve``: load models, listen, answer until told to stop."""

from __future__ import annotations

import contextlib
import json
import logging
import resource
import signal
import socket
import time
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError
from bertsmith.serving.config import ServeConfig

_LOG = logging.getLogger(__name__)
_KEEP_ALIVE_SECONDS = 75
"""Longer than load balancers keep their connections (60 s is usual), so that they close them and not we."""


class JsonLines(logging.Formatter):
    """Log records as JSON, one a line; ``extra={"fields": ...}`` adds to it."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{moment}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json.dumps(line)


def serve(config: ServeConfig) -> dict[str, Any]:
    """Serve models until a signal says stop; requests under way are answered first.

    Returns:
        Where it listened, and how many requests were answered.

    Raises:
        InputError: a model, the token file or the address cannot be used, or a package is missing.
    """
    try:
        from bertsmith.serving.connection import server_of
        from bertsmith.serving.server import create_app
    except ModuleNotFoundError as error:
        raise InputError(f"serve needs the package {error.name}; pip install 'bertsmith[serve]'") from None
    from bertsmith.serving.served import load_models

    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines())
    logging.getLogger("bertsmith.serving").setLevel(logging.INFO)
    tokens = [] if config.token_file is None else read_tokens(Path(config.token_file))
    listener = bound(config.host, config.port)
    with listener:
        models = load_models(config)
        app = create_app(models, config, tokens)
        _allow_connections()
        host, port = listener.getsockname()[:2]
        url = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
        if not tokens and not _is_loopback(host):
            _LOG.warning("open", extra={"fields": {"url": url, "hint": "anybody may ask; give --token-file"}})
        server = server_of(app, _KEEP_ALIVE_SECONDS, config.stop_seconds)
        for number in (
            signal.SIGINT,
            signal.SIGTERM,
        ):  # the server raises the signal again when it has stopped
            signal.signal(number, lambda *_: None)
        listener.listen(server.config.backlog)  # from the next line on, whoever asks is answered
        _LOG.info("serving", extra={"fields": {"url": url, "models": [model.name for model in models]}})
        server.run(sockets=[listener])
    _LOG.info("stopped", extra={"fields": {"url": url}})
    return {"url": url, "requests": server.server_state.total_requests}


def _allow_connections() -> None:
    """Take as many open files as the process may have; each connection is one."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with contextlib.suppress(ValueError, OSError):  # "infinity" is more than some systems grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def read_tokens(path: Path) -> list[str]:
    """Return the tokens of a file, one a line; empty lines and those that begin with # do not count.

    Raises:
        InputError: it cannot be read, or holds none.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise InputError(f"--token-file {path}: no text in UTF-8; write one token a line") from None
    except OSError as error:
        raise InputError(f"--token-file {path}: {error.strerror}; give a file of tokens") from None
    tokens = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    if not tokens:
        raise InputError(f"--token-file {path}: holds no token; write one a line")
    for token in tokens:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise InputError(f"--token-file {path}: a token holds what a header cannot; take printable ASCII")
    return tokens


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that has the address, so that a wrong one is known before models are loaded."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with contextlib.ExitStack() as unless_it_works:
            listener = unless_it_works.enter_context(socket.socket(family, kind, protocol))
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            unless_it_works.pop_all()
    except OSError as error:
        raise InputError(f"cannot listen at {host} port {port}: {error.strerror}; choose another") from None
    return listener


def _is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"
