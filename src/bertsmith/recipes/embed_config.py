"""The settings of the verb embed. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass

MISSING_VECTORS = ("error", "nan")


@dataclass(frozen=True)
class EmbedConfig:
    """Write a vector for each text of a file: a float32 array that numpy.load reads.

    Attributes:
        model: a model directory.
        input: a .txt (one text a line), CSV, TSV or JSONL file, or - for text lines on standard input.
        out: the .npy file to write: one row a text, in the same order.
        pooling: "mean" or "max" over a text's pieces, or "cls"; default: as stored with the model, or mean.
        layers: "last", "second-to-last", "concat-last-4" or "embeddings", or a number: 0 is the embeddings'
            output, -1 the last layer's.
        normalize: scale each vector to length 1; default: as stored with the model, or not.
        text: column of the text; default: as in training, or found in the header.
        second_text: column of the second text of a pair.
        missing: a row without text: "error" stops, "nan" gives it a vector of nan and counts it.
        batch_tokens: pieces a forward pass.
        precision: "auto", "float32" or "bfloat16".
        quantize: "int8": products of 8-bit integers (docs/predictor.md says what is lost).
        threads: of the processor; default: as many as this process may use.
    """

    model: str
    input: str
    out: str
    pooling: str | None = None
    layers: str = "last"
    normalize: bool | None = None
    text: str | None = None
    second_text: str | None = None
    missing: str = "error"
    batch_tokens: int = 4096
    precision: str = "float32"
    quantize: str | None = None
    threads: int | None = None
