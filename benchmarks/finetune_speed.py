"""Speed of fine-tuning steps: ours beside transformers, taking turns.

The same as ``bertsmith bench finetune``:

    python benchmarks/finetune_speed.py [--data GLUE/SST-2] [--model MODEL] [--repeats N] [--json]

Without --data SST-2 is looked for in the folder of real data (BERTSMITH_DATA), without --model the installed
MiniLM-L6 is taken. What is measured, and how: ``bertsmith/bench/finetuning.py``.
"""

from __future__ import annotations

import sys

from bertsmith.cli import run
from local_data import glue_directory, minilm_directory


def main() -> int:
    words = sys.argv[1:]
    glue = glue_directory()
    if glue is not None and "--data" not in words:
        words += ["--data", str(glue / "SST-2")]
    if "--model" not in words:
        words += ["--model", minilm_directory()]
    return run(["bench", "finetune", *words])


if __name__ == "__main__":
    sys.exit(main())
