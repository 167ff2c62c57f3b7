"""The verb ``vocab``: raw text to a vocabulary, or a model's vocabulary and text to a longer one."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError
from bertsmith.progress import StageProgress
from bertsmith.recipes.config import VocabConfig
from bertsmith.runlog import write_config
from bertsmith.text import bpe
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.corpus import CorpusCounts, CorpusReader
from bertsmith.text.corpus_files import list_files
from bertsmith.text.extension import extended_vocabulary
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.vocabulary import train_bpe, train_vocabulary

_LOG = logging.getLogger(__name__)
_ALGORITHMS = ("wordpiece", "bpe")
_SAMPLE_LINES = 2000
_SAMPLE_EVERY = 101
_UNKNOWN_SHARE_WORTH_A_WARNING = 0.01


def vocab(config: VocabConfig) -> dict[str, Any]:
    """Train a vocabulary and write it with tokenizer.json and tokenizer_config.json beside it.

    The resolved settings go into NAME.config.yaml, NAME being that of the vocabulary.

    Returns:
        The summary: files, sizes, counts of the corpus, the share of pieces of a sample that are [UNK],
        pieces a word (of an extended vocabulary: also before).

    Raises:
        InputError: the settings or the corpus are wrong.
    """
    started = time.monotonic()
    out = Path(config.out)
    _check(config, out)
    extended = None if config.extend is None else Tokenizer.load(config.extend)
    counts = CorpusCounts()
    sample: list[str] = []
    tokenizer = _trained(config, _lines(config, counts, sample), extended)
    counts.log_warnings()
    tokenizer.save(out.parent, out.name)
    write_config(out.parent, config, f"{out.stem}.config.yaml")
    unknown_share, pieces_per_word = _quality(tokenizer, sample)
    if unknown_share > _UNKNOWN_SHARE_WORTH_A_WARNING:
        _LOG.warning(
            "vocab: %.1f %% of the pieces of a sample are [UNK]; raise limit_alphabet (now %s) and size",
            *(100 * unknown_share, config.limit_alphabet or "automatic"),
        )
    before = {} if extended is None else {"pieces_per_word_before": round(_quality(extended, sample)[1], 4)}
    return {
        "vocab": str(out),
        "algorithm": tokenizer.algorithm,
        "size": tokenizer.vocab_size,
        "size_wanted": config.size,
        "cased": not (isinstance(tokenizer.config, TokenizerConfig) and tokenizer.config.lowercase),
        "characters": counts.characters,
        "unknown_share": round(unknown_share, 6),
        "pieces_per_word": round(pieces_per_word, 4),
        **before,
        "sample_lines": len(sample),
        "identity": tokenizer.identity(),
        "corpus": counts.to_dict(),
        "seconds": round(time.monotonic() - started, 1),
    }


def _trained(config: VocabConfig, lines: Iterable[str], extended: Tokenizer | None) -> Tokenizer:
    """Return the tokenizer that the settings ask for."""
    if extended is not None:
        pieces = extended_vocabulary(lines, extended, config.size, config.min_frequency)
        tokenizer = Tokenizer(pieces, extended.config)
        tokenizer.max_length = extended.max_length
        return tokenizer
    if config.algorithm == "bpe":
        return Tokenizer(*train_bpe(lines, config.size, config.min_frequency))
    settings = replace(config.tokenizer, lowercase=False) if config.cased else config.tokenizer
    pieces = train_vocabulary(lines, config.size, settings, config.min_frequency, config.limit_alphabet)
    return Tokenizer(pieces, settings)


def _check(config: VocabConfig, out: Path) -> None:
    """Refuse wrong settings before any work, and those that nothing would read."""
    if config.algorithm not in _ALGORITHMS:
        raise InputError(f"algorithm {config.algorithm!r} is unknown; take {' or '.join(_ALGORITHMS)}")
    if config.algorithm == "bpe" and out.name != bpe.VOCABULARY_FILE:
        raise InputError(
            f"out is {config.out}; of a bpe vocabulary it has to be named {bpe.VOCABULARY_FILE} "
            f"({bpe.MERGES_FILE} goes beside it)"
        )
    if config.algorithm == "wordpiece" and (out.suffix != ".txt" or out.is_dir()):
        raise InputError(f"out is {config.out}; it has to name a file that ends in .txt, such as vocab.txt")
    _check_neighbours(config, out)
    unread = {"tokenizer", "limit_alphabet"} if config.algorithm == "bpe" else set()
    if config.extend is not None:
        unread |= {"tokenizer", "limit_alphabet", "cased", "algorithm"}
    for name in sorted(unread):
        default = TokenizerConfig() if name == "tokenizer" else getattr(VocabConfig, name)
        if getattr(config, name) != default:
            reader = "an extended vocabulary keeps the model's" if config.extend else "bpe has no use for it"
            raise InputError(f"{name.replace('_', '-')} is set, but {reader}; leave it out")


def _check_neighbours(config: VocabConfig, out: Path) -> None:
    """Refuse a directory whose files would no longer fit one another.

    That is one with a model, and one with a vocabulary of the other kind: tokenizer.json belongs to one.
    """
    if (out.parent / "config.json").is_file():
        raise InputError(
            f"{out.parent} holds a model, which another vocabulary would break; write to another directory"
        )
    other = out.parent / ("vocab.txt" if config.algorithm == "bpe" else bpe.VOCABULARY_FILE)
    if other.is_file():
        raise InputError(
            f"{other} is of another kind of vocabulary; write to another directory, or remove it"
        )


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
