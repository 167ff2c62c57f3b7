"""The README.md of an exported model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bertsmith.recipes.model_card import card, code, table

_USES = {
    "onnx": (
        "from tokenizers import Tokenizer",
        "import numpy, onnxruntime",
        "",
        'encoded = Tokenizer.from_file("tokenizer.json").encode("a text")',
        'inputs = {"input_ids": encoded.ids, "attention_mask": encoded.attention_mask,',
        '          "token_type_ids": encoded.type_ids}',
        'session = onnxruntime.InferenceSession("onnx/model.onnx")',
        "names = [value.name for value in session.get_inputs()]",
        "outputs = session.run(None, {name: numpy.array([inputs[name]]) for name in names})",
    ),
    "hf": (
        "from transformers import AutoModel, AutoTokenizer",
        "",
        'tokenizer, model = AutoTokenizer.from_pretrained("."), AutoModel.from_pretrained(".")',
        'outputs = model(**tokenizer("a text", return_tensors="pt"))',
    ),
}


def export_card(report: Mapping[str, Any]) -> str:
    """Return the card of an export.

    Args:
        report: what export-report.json holds.
    """
    metric = report.get("metric")
    headings = ["variant", "file", "MB", "computed by", "largest difference", *([metric] if metric else [])]
    lines = []
    for name, found in report["variants"].items():
        line = [name, found["file"], found["megabytes"], found["computed_by"], found["largest_difference"]]
        lines.append([*line, *([found["metrics"][metric]] if metric else [])])
    if metric:
        lines.append(["the model itself", None, None, "Bertsmith", 0.0, report["ours"][metric]])
        measured = f"Measured on {report['examples']} rows of the task {report['task']}."
    else:
        measured = "Measured on random rows of different lengths."
    parts = [table(headings, lines), measured, code("python", *_USES[report["to"]])]
    return card("An exported BERT", {"tags": ["bert", "bertsmith", report["to"]]}, parts)
