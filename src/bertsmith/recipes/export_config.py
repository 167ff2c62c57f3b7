"""The settings of the verb ``export``."""

from __future__ import annotations

from dataclasses import dataclass, field

FORMATS = {"onnx": ("onnx", "onnxruntime"), "hf": ("transformers",)}
"""What a model is exported to, and the packages that this needs."""


@dataclass(frozen=True)
class ExportConfig:
    """Export a model for other programs, and prove that it still answers the same.

    Outputs, and with --data the task's metric, are computed anew on what was written and stand in
    export-report.json. Exit code 1, and nothing is written, when a variant is worse than --max-loss allows.

    Attributes:
        model: a model directory.
        out: the directory to write.
        to: "onnx" (for ONNX Runtime, OpenVINO and others), or "hf" (a directory that transformers loads).
        variants: of onnx: "fp32" is always written; "int8" (ONNX Runtime, dynamic quantisation) and "bf16"
            (OpenVINO) besides it; they need --data.
        opset: of onnx: version of the operators, 11 to 23; default: 17.
        data: labelled rows in a form that finetune reads, to measure each variant by.
        task: default: the task stored in the model.
        split: of a directory: the split to measure by.
        max_loss: how much of the task's main metric a variant may lose, such as 0.01 of accuracy (default).
        batch_tokens: pieces a forward pass.
    """

    model: str
    out: str
    to: str = "onnx"
    variants: list[str] = field(default_factory=lambda: ["fp32"])
    opset: int | None = None
    data: str | None = None
    task: str | None = None
    split: str = "dev"
    max_loss: float | None = None
    batch_tokens: int = 4096
