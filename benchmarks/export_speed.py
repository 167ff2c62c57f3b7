"""Speed and accuracy of exported models beside ours: SST-2's dev sentences, all sides taking turns.

    python benchmarks/export_speed.py [--model MODEL] [--data SST-2] [--repeats 5] [--json]

Without --model MiniLM-L6 is fine-tuned first, on 8,000 sentences for an epoch. Every side computes the same
sentences in the same batches of similar length, with as many threads. What a side takes as its input (rows
end to end, or rectangles) is made within the time.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bertsmith.bench.turns import OURS, Contender, interleave, lines_of, report, together, versions
from bertsmith.bundle import load_bundle
from bertsmith.device import computes_bfloat16, limit_threads
from bertsmith.interop.exported import computed_by
from bertsmith.interop.variants import VARIANTS
from bertsmith.recipes.config import EvaluateConfig, FinetuneConfig
from bertsmith.recipes.export import export
from bertsmith.recipes.export_config import ExportConfig
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.labelled import LabelledSplit, read_labelled
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.task import stored_model
from local_data import glue_directory, minilm_directory

CPU = torch.device("cpu")
OURS_IN = {"float32": torch.float32} | ({"bfloat16": torch.bfloat16} if computes_bfloat16(CPU) else {})
"""bfloat16 where the processor computes in it: elsewhere it is many times slower."""


def fine_tuned(data: str, folder: Path) -> str:
    """Return a model for the task: MiniLM after an epoch of 8,000 rows."""
    config = FinetuneConfig("sst2", minilm_directory(), data, str(folder / "run"), epochs=1, limit_rows=8000)
    finetune(config)
    return str(folder / "run" / "model")


def answered(model: nn.Module, rows: LabelledSplit, inference: Inference, repeat: int) -> int:
    """Compute all rows; return how many."""
    rows.task.kind.outputs(model, rows.split, inference)
    return len(rows.split.rows.rows)


def measure(model_path: str, data: str, folder: Path, repeats: int) -> dict[str, Any]:
    """Export the model, and measure speed and accuracy of every side."""
    exported = export(
        ExportConfig(model_path, str(folder / "export"), variants=["int8", "bf16"], data=data, max_loss=1.0)
    )
    bundle = load_bundle(model_path)
    model = stored_model(bundle)
    rows = read_labelled(EvaluateConfig(model_path, data), bundle)
    sides: dict[str, tuple[nn.Module, torch.dtype]] = {
        f"{OURS} {name}": (model, dtype) for name, dtype in OURS_IN.items()
    }
    for name, found in exported["variants"].items():
        run = VARIANTS[name].run(folder / "export" / found["file"])
        sides[f"{VARIANTS[name].program} {name}"] = (computed_by(run, model), torch.float32)
    contenders = {
        name: Contender(partial(answered, side, rows, Inference(CPU, dtype)))
        for name, (side, dtype) in sides.items()
    }
    speeds = interleave(contenders, repeats)
    peers = {name: speed for name, speed in speeds.items() if not name.startswith(OURS)}
    metric = exported["metric"]
    figures = {}
    for name, dtype in OURS_IN.items():
        outputs = rows.task.kind.outputs(model, rows.split, Inference(CPU, dtype))
        score = rows.task.kind.score(rows.task, rows.split, outputs, rows.tuned)
        figures[f"{OURS} {name}"] = score.metrics[metric]
    figures |= {
        f"{VARIANTS[name].program} {name}": found["metrics"][metric]
        for name, found in exported["variants"].items()
    }
    results = {
        name: report(
            f"{name}, {exported['examples']} sentences",
            {OURS: speeds[f"{OURS} {name}"], **peers},
            "sentences/s",
            **{metric: figures},
        )
        for name in OURS_IN
    }
    return {**together(results), "versions": versions("onnx", "onnxruntime", "openvino")}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Speed and accuracy of exported models beside ours.")
    parser.add_argument("--model", help="a model fine-tuned on SST-2; default: MiniLM is fine-tuned")
    parser.add_argument("--data", help="SST-2's directory; default: in the folder of real data")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args(arguments)
    glue = glue_directory()
    data = given.data or (None if glue is None else str(glue / "SST-2"))
    if data is None:
        sys.exit("name SST-2's directory with --data")
    limit_threads()
    with tempfile.TemporaryDirectory() as name:
        model = given.model or fine_tuned(data, Path(name))
        result = measure(model, data, Path(name), given.repeats)
    if given.json:
        print(json.dumps(result))
    else:
        print("\n".join(line for part in result["details"].values() for line in lines_of(part)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
