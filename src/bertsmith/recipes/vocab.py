"""The verb ``vocab``: raw text to a WordPiece vocabulary."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError
from bertsmith.progress import StageProgress
from bertsmith.recipes.config import VocabConfig
from bertsmith.runlog import write_config
from bertsmith.text.corpus import CorpusCounts, CorpusReader
from bertsmith.text.corpus_files import list_files
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import train_vocabulary

_LOG = logging.getLogger(__name__)
_SAMPLE_LINES = 2000
_SAMPLE_EVERY = 101
_UNKNOWN_SHARE_WORTH_A_WARNING = 0.01


def vocab(config: VocabConfig) -> dict[str, Any]:
    """Train a vocabulary and write it with tokenizer.json and tokenizer_config.json beside it.

    The resolved settings go into NAME.config.yaml, NAME being that of the vocabulary.

    Returns:
        The summary: files, sizes, counts of the corpus, the share of pieces of a sample that are [UNK].

    Raises:
        InputError: the settings or the corpus are wrong.
    """
    started = time.monotonic()
    out = Path(config.out)
    if out.suffix != ".txt" or out.is_dir():
        raise InputError(f"out is {config.out}; it has to name a file that ends in .txt, such as vocab.txt")
    settings = replace(config.tokenizer, lowercase=False) if config.cased else config.tokenizer
    counts = CorpusCounts()
    sample: list[str] = []
    pieces = train_vocabulary(
        _lines(config, counts, sample), config.size, settings, config.min_frequency, config.limit_alphabet
    )
    counts.log_warnings()
    tokenizer = Tokenizer(pieces, settings)
    tokenizer.save(out.parent, out.name)
    write_config(out.parent, config, f"{out.stem}.config.yaml")
    unknown_share, pieces_per_word = _quality(tokenizer, sample)
    if unknown_share > _UNKNOWN_SHARE_WORTH_A_WARNING:
        _LOG.warning(
            "vocab: %.1f %% of the pieces of a sample are [UNK]; raise limit_alphabet (now %s) and size",
            *(100 * unknown_share, config.limit_alphabet or "automatic"),
        )
    return {
        "vocab": str(out),
        "size": tokenizer.vocab_size,
        "size_wanted": config.size,
        "cased": not settings.lowercase,
        "characters": counts.characters,
        "unknown_share": round(unknown_share, 6),
        "pieces_per_word": round(pieces_per_word, 4),
        "sample_lines": len(sample),
        "identity": tokenizer.identity(),
        "corpus": counts.to_dict(),
        "seconds": round(time.monotonic() - started, 1),
    }


def _lines(config: VocabConfig, counts: CorpusCounts, sample: list[str]) -> Iterator[str]:
    """Yield the lines of the corpus; keep every hundredth or so, up to a number, as the sample."""
    read = 0
    reader = CorpusReader(list_files(config.corpus), config.text, counts)
    with StageProgress("vocab: read", "characters") as progress:
        for document in reader.documents():
            for line in document:
                if read % _SAMPLE_EVERY == 0 and len(sample) < _SAMPLE_LINES:
                    sample.append(line)
                read += 1
                yield line
            progress.add(sum(map(len, document)), reader.fraction())


def _quality(tokenizer: Tokenizer, sample: list[str]) -> tuple[float, float]:
    """Return the share of [UNK] among the pieces, and pieces a white-space separated word."""
    encoded = tokenizer.encode_batch(sample)
    pieces = sum(map(len, encoded))
    unknown = sum(ids.count(tokenizer.unk_id) for ids in encoded)
    words = sum(len(line.split()) for line in sample)
    return unknown / max(pieces, 1), pieces / max(words, 1)
