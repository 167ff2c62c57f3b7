"""The settings of the verb ``convert``. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import tyro


@dataclass(frozen=True)
class ConvertConfig:
    """Turn a checkpoint of another tool into a model directory, with a report of what became of each weight.

    Attributes:
        input: a directory of Hugging Face's tools, or the name of a model on their hub (org/name); or a
            checkpoint of google-research/bert (TensorFlow 1): its directory, its prefix, or one of its files.
        out: the model directory to write, conversion-report.json in it.
        from_format: "hf", "tf1" or "auto": what lies there.
        architecture: the config.json or bert_config.json, where it does not lie beside the weights.
        vocab: the vocabulary, where it does not lie beside the weights; a file or a directory.
        labels: names of a classifier's labels in the order of its outputs, where the files have none.
        activation: "gelu" (erf), "gelu_tanh" or "relu" instead of what the files say. Their "gelu" is read as
            erf, as everywhere; google-research/bert itself computes the tanh form since 2019-02-07 (the
            functions differ by 0.0005 at most).
        allow_missing: draw missing weights of the encoder at random instead of stopping.
    """

    input: str
    out: str
    from_format: Annotated[str, tyro.conf.arg(name="from")] = "auto"
    architecture: str | None = None
    vocab: str | None = None
    labels: list[str] = field(default_factory=list)
    activation: str | None = None
    allow_missing: bool = False
