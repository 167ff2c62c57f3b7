"""Corpora, settings and comparisons for the tests of prepare."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.files import sha256_of
from bertsmith.recipes.config import PrepareConfig
from bertsmith.text.config import CorpusConfig

SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PLAIN = CorpusConfig(sentences="line", prose_only=False)


def write_vocab(path: Path, words: list[str]) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*SPECIALS, *words]) + "\n")
    path.with_name("tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    return path


def settings(tmp_path: Path, content: str, vocab: Path, **changes: Any) -> PrepareConfig:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text(content)
    base = PrepareConfig([str(corpus)], str(vocab), str(tmp_path / "data"), workers=1, text=PLAIN)
    return replace(base, **changes)


def contents(data: Path) -> dict[str, str]:
    return {str(path.relative_to(data)): sha256_of(path) for path in data.rglob("*") if path.is_file()}


def real_settings(shared_data: Path, folder: Path) -> PrepareConfig:
    """Return settings for the starter corpus: 197 documents, the uncased vocabulary of BERT."""
    packed = shared_data / "vocab" / "bert-base-uncased-vocab.txt.gz"
    (folder / "vocab.txt").write_bytes(gzip.decompress(packed.read_bytes()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))
    corpus = shared_data / "corpus" / "starter-en.txt.gz"
    return PrepareConfig(
        [str(corpus)], str(folder / "vocab.txt"), str(folder / "data"), workers=1, heldout=0.05
    )
