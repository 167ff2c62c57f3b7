"""The settings of ``serve``. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass

from bertsmith.errors import InputError


@dataclass(frozen=True)
class ServeConfig:
    """Answer over HTTP for one or more models, with a page to try them.

    Attributes:
        model: model directories; NAME=DIR gives one a name, else it is the directory's (the run's, if that is
            "model").
        host: address to listen at; only this machine's programs reach 127.0.0.1.
        port: to listen at; 0: any free one.
        token_file: a file of bearer tokens, one a line; requests without one of them are refused.
        precision: "auto", "float32" or "bfloat16".
        quantize: "int8": products of 8-bit integers, on a processor; with precision float32.
        threads: for the models; 0: as many as the process may use.
        batch_tokens: pieces of a forward pass; texts of several requests share one.
        batch_wait_ms: how long an idle model waits for more texts, in milliseconds.
        queue_tokens: pieces that may wait; beyond that requests are told to come again (429).
        timeout_seconds: for a request to arrive, and for its answer.
        stop_seconds: for requests under way when the server is stopped.
        max_requests: requests under way at the same time; more are told to come again (429).
        max_body_bytes: of a request.
        max_texts: of a request.
        max_text_chars: of a text; what is longer is refused, however it would be cut.
        log_texts: write the texts into the log, too.
    """

    model: list[str]
    host: str = "127.0.0.1"
    port: int = 8000
    token_file: str | None = None
    precision: str = "float32"
    quantize: str | None = None
    threads: int = 0
    batch_tokens: int = 2048
    batch_wait_ms: float = 2.0
    queue_tokens: int = 262_144
    timeout_seconds: float = 60.0
    stop_seconds: int = 30
    max_requests: int = 512
    max_body_bytes: int = 8 << 20
    max_texts: int = 2048
    max_text_chars: int = 100_000
    log_texts: bool = False

    def __post_init__(self) -> None:
        least = {
            "port": 0,
            "threads": 0,
            "batch_tokens": 1,
            "batch_wait_ms": 0,
            "queue_tokens": 1,
            "stop_seconds": 0,
            "max_requests": 1,
            "max_body_bytes": 1,
            "max_texts": 1,
            "max_text_chars": 1,
        }
        for name, bound in least.items():
            value = getattr(self, name)
            if not isinstance(value, str) and value < bound:
                raise InputError(f"{name} is {value}; it has to be at least {bound}")
        if self.port > 65535:
            raise InputError(f"port is {self.port}; it has to be at most 65535")
        if not 0 < self.timeout_seconds < float("inf"):
            raise InputError(f"timeout_seconds is {self.timeout_seconds}; it has to be above 0")
