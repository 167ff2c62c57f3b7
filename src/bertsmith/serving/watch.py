"""Figures of a running server in Prometheus' format."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from bertsmith.serving.batcher import Batch

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Watch:
    """What is counted; one for each server.

    Attributes:
        requests: by endpoint and status.
        seconds: from the first byte to the last, by endpoint.
        truncated: rows that were cut, by model.
    """

    def __init__(self, models: Sequence[str], waiting: Callable[[], float]) -> None:
        """Make the figures.

        Args:
            models: names of the models.
            waiting: tells how many pieces wait.
        """
        registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self._registry = registry
        self.requests = Counter(
            "bertsmith_requests", "Requests answered.", ("endpoint", "status"), registry=registry
        )
        self.seconds = Histogram(
            "bertsmith_request_seconds",
            "Time of requests.",
            ("endpoint",),
            buckets=_SECONDS,
            registry=registry,
        )
        self.truncated = Counter(
            "bertsmith_truncated_rows", "Rows that were cut.", ("model",), registry=registry
        )
        self._rows = Histogram(
            "bertsmith_batch_rows", "Rows computed together.", ("model",), buckets=_ROWS, registry=registry
        )
        self._pieces = Counter("bertsmith_pieces", "Pieces computed.", ("model",), registry=registry)
        self._computing = Counter(
            "bertsmith_computing_seconds", "Time in models.", ("model",), registry=registry
        )
        queue = Gauge("bertsmith_waiting_pieces", "Pieces of texts that wait.", registry=registry)
        queue.set_function(waiting)
        for name in models:  # a figure of nothing is 0, not absent
            self.truncated.labels(name)
            self._rows.labels(name)
            self._pieces.labels(name)
            self._computing.labels(name)

    def note(self, batch: Batch) -> None:
        """Count a batch; its key begins with the model's name."""
        assert isinstance(batch.key, tuple)
        name = batch.key[0]
        self._rows.labels(name).observe(batch.rows)
        self._pieces.labels(name).inc(batch.pieces)
        self._computing.labels(name).inc(batch.seconds)

    def text(self) -> bytes:
        """Return all figures."""
        return generate_latest(self._registry)
