"""Speed and memory of data preparation beside a ``datasets.map`` pipeline, taking turns.

The same as ``bertsmith bench prepare``:

    python benchmarks/prepare_speed.py [--corpus PATH ...] [--vocab FILE] [--megabytes N] [--repeats N]

Without --corpus the books and wiki of the test data are taken (BERTSMITH_DATA), without --vocab BERT's
uncased vocabulary from there. What is measured, and how: ``bertsmith/bench/preparing.py``.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path

from bertsmith.cli import run
from local_data import data_directory


def main() -> int:
    words = sys.argv[1:]
    data = data_directory()
    with tempfile.TemporaryDirectory() as folder:
        if data is not None and "--corpus" not in words:
            parts = [data / "corpus" / name for name in ("books-en", "wiki-en")]
            words += [
                "--corpus",
                *(str(path) for part in parts for path in sorted(part.glob("train-*.txt.gz"))),
            ]
        if data is not None and "--vocab" not in words:
            packed = data / "vocab" / "bert-base-uncased-vocab.txt.gz"
            Path(folder, "vocab.txt").write_bytes(gzip.decompress(packed.read_bytes()))
            Path(folder, "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
            words += ["--vocab", folder]
        return run(["bench", "prepare", *words])


if __name__ == "__main__":
    sys.exit(main())
