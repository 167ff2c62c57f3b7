"""Speed of fine-tuning steps: ours beside transformers, taking turns.

The same as ``bertsmith bench finetune``:

    python benchmarks/finetune_speed.py [--task sst2|squad1|conll] [--data DATA] [--model MODEL] [--json]

Without --data the task's files are looked for in the folder of real data (BERTSMITH_DATA), without --model
the installed MiniLM-L6 is taken. What is measured, and how: ``bertsmith/bench/finetuning.py``.
"""

from __future__ import annotations

import sys

from bertsmith.cli import run
from local_data import data_directory, minilm_directory

PLACES = {
    "sst2": "glue/SST-2",
    "squad1": "squad/train-v1.1.rebuilt.json.gz",
    "conll": "conll2003",
}


def main() -> int:
    words = sys.argv[1:]
    task = words[words.index("--task") + 1] if "--task" in words[:-1] else "sst2"
    data = data_directory()
    if data is not None and "--data" not in words and task in PLACES:
        words += ["--data", str(data / PLACES[task])]
    if "--model" not in words:
        words += ["--model", minilm_directory()]
    return run(["bench", "finetune", *words])


if __name__ == "__main__":
    sys.exit(main())
