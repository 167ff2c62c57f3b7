"""Bertsmith: raw text to a BERT you can trust and serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from bertsmith.predictor import Predictor

__all__ = ["__version__", "load"]


def load(
    path: str | Path,
    precision: str = "float32",
    batch_tokens: int = 4096,
    threads: int | None = None,
    quantize: str | None = None,
) -> Predictor:
    """Load a model directory for prediction; see ``bertsmith.predictor.load``."""
    from bertsmith import predictor  # PyTorch is imported when it is needed, not with the package

    return predictor.load(path, precision, batch_tokens, threads, quantize)


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("bertsmith")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
