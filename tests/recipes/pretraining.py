"""A small corpus with its vocabulary, prepared; runs in this process and in others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.data.shards import Instances, Rows, ShardWriter, id_dtype
from bertsmith.model.config import BertConfig
from bertsmith.recipes.config import PrepareConfig
from bertsmith.recipes.prepare import prepare
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.text.config import CorpusConfig
from bertsmith.training.config import OptimizerConfig

WORDS = [f"{first}{second}" for first in "bdfgklmnprst" for second in ("a", "en", "il", "or", "u")]
SHAPE = BertConfig(hidden_size=32, num_layers=2, num_heads=2, intermediate_size=64, max_positions=64)
# What no two runs share: the time.
TIMES = {"tokens_per_second", "seconds"}


def prepared(
    folder: Path, pairing: str = "nsp", documents: int = 60, heldout: float = 0.1, seq_len: int = 32
) -> Path:
    """Write a corpus of made-up sentences and prepare it."""
    draw = np.random.default_rng(4)
    texts = [
        "\n".join(" ".join(draw.choice(WORDS, size=draw.integers(3, 8))) + " ." for _ in range(6))
        for _ in range(documents)
    ]
    (folder / "corpus.txt").write_text("\n\n".join(texts) + "\n")
    (folder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]) + "\n"
    )
    prepare(
        PrepareConfig(
            corpus=[str(folder / "corpus.txt")],
            vocab=str(folder / "vocab.txt"),
            out=str(folder / f"data-{pairing}-{seq_len}"),
            pairing=pairing,
            seq_len=seq_len,
            heldout=heldout,
            workers=1,
            text=CorpusConfig(sentences="line", prose_only=False),
        )
    )
    return folder / f"data-{pairing}-{seq_len}"


def prepared_of_two_sources(folder: Path) -> Path:
    """Prepare a corpus of which one source repeats a sentence and the other draws words at random."""
    draw = np.random.default_rng(4)
    texts = {
        "litany": lambda: " ".join(WORDS[:6]) + " .",
        "noise": lambda: " ".join(draw.choice(WORDS, size=6)) + " .",
    }
    for name, sentence in texts.items():
        (folder / name).mkdir()
        documents = ["\n".join(sentence() for _ in range(4)) for _ in range(60)]
        (folder / name / "a.txt").write_text("\n\n".join(documents) + "\n")
    (folder / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]) + "\n"
    )
    prepare(
        PrepareConfig(
            corpus=[str(folder / name) for name in texts],
            vocab=str(folder / "vocab.txt"),
            out=str(folder / "data"),
            seq_len=32,
            heldout=0.3,
            workers=1,
            text=CorpusConfig(sentences="line", prose_only=False),
        )
    )
    return folder / "data"


def keep_instances(data: Path, number: int) -> None:
    """Leave only the first instances of the train split."""
    instances = Instances.open(data, "train")
    assert len(instances) >= number
    kept = [instances.example(index) for index in range(number)]
    del instances
    for path in (data / "train").iterdir():
        path.unlink()
    (data / "train").rmdir()
    manifest = json.loads((data / "manifest.json").read_text())
    writer = ShardWriter(data / "train", id_dtype(100))
    writer.append(
        Rows(
            np.concatenate([example.ids for example in kept]).astype(np.uint16),
            np.cumsum([0, *(len(example.ids) for example in kept)], dtype=np.int64),
            np.array([example.second_start for example in kept], dtype=np.int32),
            np.array([example.nsp_label for example in kept], dtype=np.int8),
            np.zeros(number, dtype=np.uint16),
        )
    )
    manifest["splits"]["train"]["shards"] = writer.close()
    (data / "manifest.json").write_text(json.dumps(manifest))


def settings(data: Path, out: Path, **changes: Any) -> PretrainConfig:
    """Return the settings of a run of a second."""
    defaults: dict[str, Any] = {
        "steps": 12,
        "batch_size": 8,
        "precision": "float32",
        "evaluate_examples": 16,
        "log_steps": 1,
        "architecture": SHAPE,
        "optimizer": OptimizerConfig(learning_rate=1e-3),
    }
    return PretrainConfig(data=str(data), out=str(out), **(defaults | changes))


def events(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def timeless(run: Path) -> list[dict[str, Any]]:
    """Return the log without what depends on the clock."""
    return [{name: value for name, value in event.items() if name not in TIMES} for event in events(run)]


def weights(run: Path) -> bytes:
    return (run / "model" / "model.safetensors").read_bytes()


def start(code: str, *arguments: str) -> subprocess.Popen[str]:
    """Start a Python process with as many threads as this one uses."""
    import torch

    environment = os.environ | {"OMP_NUM_THREADS": str(torch.get_num_threads())}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
