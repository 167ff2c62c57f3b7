"""Speed of pretraining steps: ours beside transformers, taking turns.

The same as ``bertsmith bench pretrain``:

    python benchmarks/pretrain_speed.py [--data DATA] [--shapes mini base] [--repeats N] [--json]

What is measured, and how: ``bertsmith/bench/pretraining.py``.
"""

from __future__ import annotations

import sys

from bertsmith.cli import run

if __name__ == "__main__":
    sys.exit(run(["bench", "pretrain", *sys.argv[1:]]))
