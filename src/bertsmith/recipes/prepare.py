"""The verb ``prepare``: raw text to pretraining instances on disk, with a manifest that ties them."""

from __future__ import annotations

import logging
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.config import to_dict
from bertsmith.data.build import (
    EncodedCounts,
    PairCounts,
    choose_heldout,
    encode_documents,
    open_documents,
    pair_documents,
    pair_tasks,
)
from bertsmith.data.pairing import minimum_documents
from bertsmith.data.shards import FORMAT, FORMAT_VERSION, MOST_SOURCES, ShardWriter, id_dtype
from bertsmith.errors import InputError
from bertsmith.files import atomic_directory, sha256_of, write_json
from bertsmith.progress import StageProgress
from bertsmith.randomness import seed_of
from bertsmith.recipes.config import PrepareConfig
from bertsmith.text.corpus import CorpusCounts, CorpusReader
from bertsmith.text.corpus_files import CorpusFile, list_sources
from bertsmith.text.streams import STANDARD_INPUT
from bertsmith.text.tokenizer import Tokenizer

_LOG = logging.getLogger(__name__)
_UNBALANCED_SHARE = 0.75


def prepare(config: PrepareConfig) -> dict[str, Any]:
    """Write instances, manifest and tokenizer into ``config.out``.

    The directory appears when everything is written, or not at all.

    Returns:
        The summary: the counts of the corpus and of each split, seconds, speed.

    Raises:
        InputError: the settings, the vocabulary or the corpus are wrong.
    """
    started = time.monotonic()
    out = Path(config.out)
    _check_settings(config, out)
    tokenizer = Tokenizer.load(config.vocab)
    files = list_sources(config.corpus)
    sources = _source_names(files)
    workers = config.workers or _processors()
    counts = CorpusCounts()
    with _terminated_like_interrupted(), atomic_directory(out) as directory:
        work = directory / "work"
        work.mkdir()
        reader = CorpusReader([file.path for file in files], config.text, counts)
        numbers = [sources.index(file.source) for file in files]
        with StageProgress("prepare: encode", "characters") as progress:
            encoded = encode_documents(
                ((numbers[reader.place], document) for document in reader.documents()),
                tokenizer,
                config.text,
                work,
                workers,
                lambda characters: progress.add(characters, reader.fraction()),
            )
        counts.sentences = encoded.sentences
        _check_documents(encoded, counts, config)
        train, heldout = choose_heldout(encoded.documents, config.heldout, config.pairing, config.seed)
        if config.heldout > 0 and len(heldout) == 0:
            _LOG.warning(
                "prepare: a share of %g of %d documents would leave too few on one side; none is held out",
                *(config.heldout, encoded.documents),
            )
        splits = {
            split: _pair_split(config, directory, split, chosen, tokenizer, workers, sources)
            for split, chosen in (("train", train), ("heldout", heldout))
        }
        shutil.rmtree(work)
        tokenizer.save(directory)
        corpus = {
            **counts.to_dict(),
            "documents_without_pieces": encoded.empty_documents,
            "pieces": encoded.pieces,
        }
        write_json(directory / "manifest.json", _manifest(config, files, tokenizer, corpus, splits))
    counts.log_warnings()
    seconds = time.monotonic() - started
    summary = {name: {key: split[key] for key in split if key != "shards"} for name, split in splits.items()}
    return {
        "out": str(out),
        **summary,
        "corpus": corpus,
        "workers": workers,
        "seconds": round(seconds, 1),
        "million_characters_per_second": round(counts.characters / 1e6 / seconds, 2),
    }


def _pair_split(
    config: PrepareConfig,
    directory: Path,
    split: str,
    chosen: NDArray[np.int64],
    tokenizer: Tokenizer,
    workers: int,
    sources: list[str],
) -> dict[str, Any]:
    """Pair the documents of a split and write its shards; return its entry in the manifest."""
    work = directory / "work"
    pairing, seed = config.pairing_config, config.seed
    if split == "heldout":
        pairing, seed = replace(pairing, passes=1), seed_of(seed, "heldout-pairing")
    pairs = PairCounts.of(len(chosen), config.seq_len, len(sources))
    writer = ShardWriter(directory / split, id_dtype(tokenizer.vocab_size))
    num_tasks = len(pair_tasks(open_documents(work, tokenizer.vocab_size).choose(chosen), pairing))
    results = pair_documents(work, chosen, pairing, seed, tokenizer, workers)
    with StageProgress(f"prepare: pair {split}", "pieces") as progress:
        for number, rows in enumerate(results, start=1):
            writer.append(rows)
            pairs.add(rows)
            progress.add(len(rows.ids), number / num_tasks)
    if split == "train":
        _check_pairs(pairs, config)
    return {**pairs.to_dict(config.pairing, sources), "shards": writer.close()}


def _source_names(files: list[CorpusFile]) -> list[str]:
    """Return the sources of a corpus, each once, in the order of the files."""
    names = list(dict.fromkeys(file.source for file in files))
    if len(names) > MOST_SOURCES:
        raise InputError(
            f"the corpus has {len(names)} sources, at most {MOST_SOURCES} are possible: name them, "
            "--corpus NAME=PATH"
        )
    return names


def _check_settings(config: PrepareConfig, out: Path) -> None:
    """Refuse wrong settings before any work."""
    if not 0.0 <= config.heldout < 1.0:
        raise InputError(f"heldout is {config.heldout}; it has to be at least 0 and below 1")
    if config.workers < 0:
        raise InputError(f"workers is {config.workers}; it has to be 0 (all processors) or more")
    _ = config.pairing_config  # checks itself
    if out.name in ("", ".."):
        raise InputError(
            f"out is {config.out!r}; it has to name a new directory, which appears when it is whole"
        )
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"out {out} exists already; remove it or name another directory")


def _check_documents(encoded: EncodedCounts, counts: CorpusCounts, config: PrepareConfig) -> None:
    """Refuse a corpus that cannot be paired, saying why."""
    if counts.lines == 0:
        raise InputError(f"the corpus holds no text: {counts.files} files read, every line is empty")
    if counts.documents == 0:
        reasons = ", ".join(f"{reason} {number}" for reason, number in sorted(counts.dropped_lines.items()))
        raise InputError(
            f"the prose filter dropped every line of the corpus ({reasons}); set text.prose_only to false to "
            "keep them"
        )
    if encoded.documents == 0:
        raise InputError(f"the {counts.documents} documents of the corpus hold no visible text")
    if encoded.documents < minimum_documents(config.pairing):
        raise InputError(
            "NSP needs at least two documents, the corpus holds one: separate documents by blank lines (or "
            "set text.documents to line), or choose --pairing sop, full-sentences or doc-sentences"
        )


def _check_pairs(pairs: PairCounts, config: PrepareConfig) -> None:
    """Refuse data without instances; warn of pairs that teach nothing."""
    if pairs.instances == 0:
        raise InputError(
            f"pairing {config.pairing} made no instances of {pairs.documents} documents: each has one "
            "sentence; give longer documents or choose --pairing doc-sentences"
        )
    most = max(_UNBALANCED_SHARE, config.random_next_prob + 0.1)
    if config.pairing == "nsp" and pairs.random_share > most:
        _LOG.warning(
            "prepare: %.0f %% of the pairs are random, because most documents are short (a document of one "
            "sentence has no next one); next sentence prediction learns little from them",
            100 * pairs.random_share,
        )


def _manifest(
    config: PrepareConfig,
    files: list[CorpusFile],
    tokenizer: Tokenizer,
    corpus: dict[str, Any],
    splits: dict[str, Any],
) -> dict[str, Any]:
    """Return what ties the data to its inputs; nothing in it depends on the machine or on the time."""
    settings = to_dict(config)
    for name in ("corpus", "out", "workers"):
        del settings[name]
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "bertsmith_version": version("bertsmith"),
        "inputs": [_input(file) for file in files],
        "sources": _source_names(files),
        "vocabulary": {"size": tokenizer.vocab_size, "identity": tokenizer.identity()},
        "settings": settings,
        "corpus": corpus,
        "splits": splits,
    }


def _input(file: CorpusFile) -> dict[str, Any]:
    path, entry = file.path, {"file": str(file.path), "source": file.source}
    if str(path) == STANDARD_INPUT or not path.is_file():  # a pipe: what was read cannot be read again
        return {**entry, "bytes": None, "sha256": None}
    return {**entry, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def _processors() -> int:
    from bertsmith.device import cpu_threads  # imports torch: not worth it when the number is given

    return cpu_threads()


@contextmanager
def _terminated_like_interrupted() -> Iterator[None]:
    """Let SIGTERM end the block as Ctrl-C does, so that it cleans up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
