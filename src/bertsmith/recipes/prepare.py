"""The verb ``prepare``: raw text to pretraining instances on disk, with a manifest that ties them."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bertsmith.data.build import PairCounts, PairingJob, pair_documents, pair_tasks
from bertsmith.data.build_directory import BuildDirectory, locked_build
from bertsmith.data.encoded import encode_files
from bertsmith.data.flat import EncodedCounts, join, read_counts
from bertsmith.data.pairing import minimum_documents
from bertsmith.data.shards import ShardWriter, id_dtype
from bertsmith.errors import InputError
from bertsmith.files import write_json
from bertsmith.memory import PeakMemory
from bertsmith.progress import StageProgress
from bertsmith.recipes.config import PrepareConfig
from bertsmith.recipes.prepare_build import Preparation
from bertsmith.remote import is_url, upload
from bertsmith.text.corpus_files import total_bytes

_LOG = logging.getLogger(__name__)
_UNBALANCED_SHARE = 0.75
_FEWEST_MOST_WORKERS = 16
_MANIFEST = "manifest.json"


def prepare(config: PrepareConfig) -> dict[str, Any]:
    """Write instances, manifest and tokenizer into ``config.out``.

    The directory appears when everything is written, or not at all. What a run that was stopped or killed has
    done lies beside it; with ``config.resume`` the next run goes on from what is whole, with the same result.

    Returns:
        The summary: the counts of the corpus and of each split, seconds, speed, peak memory.

    Raises:
        InputError: the settings, the vocabulary or the corpus are wrong, or an unfinished build has others.
    """
    started = time.monotonic()
    workers = _num_workers(config.workers)
    work = Preparation.of(config)
    with (
        _terminated_like_interrupted(),
        PeakMemory() as memory,
        locked_build(work.out, work.plan(), config.resume) as build,
    ):
        work.check_pipes(build)
        encoded = _encode(work, build, workers)
        _check_documents(encoded, config)
        jobs = work.pairing_jobs(build)
        if config.heldout > 0 and len(jobs["heldout"].chosen) == 0:
            _LOG.warning(
                "prepare: a share of %g of %d documents would leave too few on one side; none is held out",
                *(config.heldout, encoded.documents),
            )
        splits = {split: _pair_split(work, build, split, job, workers) for split, job in jobs.items()}
        work.tokenizer.save(build.data)
        write_json(build.data / _MANIFEST, work.manifest(build, encoded.to_dict(), splits))
        if is_url(config.out):
            upload(build.data, config.out, last=_MANIFEST)
            build.remove()
        else:
            build.finish(work.out)
    encoded.corpus.log_warnings()
    seconds = time.monotonic() - started
    summary = {name: {key: split[key] for key in split if key != "shards"} for name, split in splits.items()}
    return {
        "out": config.out,
        **summary,
        "corpus": encoded.to_dict(),
        "encoder": work.encoder,
        "workers": workers,
        "seconds": round(seconds, 1),
        "million_characters_per_second": round(encoded.corpus.characters / 1e6 / seconds, 2),
        "peak_memory_mib": memory.mebibytes,
    }


def _encode(work: Preparation, build: BuildDirectory, workers: int) -> EncodedCounts:
    """Encode what is not encoded yet; return the counts of all."""
    if not build.flat.is_dir():
        files = [file.path for file in work.files]
        corpus_bytes = total_bytes(files)
        with StageProgress("prepare: encode", "characters") as progress:
            encode_files(
                list(enumerate(files)),
                work.encoding_job(),
                build.encoded,
                workers,
                lambda characters, read: progress.add(
                    characters, read / corpus_bytes if corpus_bytes else None
                ),
            )
        join(build.encoded, work.file_sources, build.flat)
    return read_counts(build.flat)


def _pair_split(
    work: Preparation, build: BuildDirectory, split: str, job: PairingJob, workers: int
) -> dict[str, Any]:
    """Pair the documents of a split and write the shards that are missing; return its manifest entry."""
    config = work.config
    counts = PairCounts.of(len(job.chosen), config.seq_len, len(work.source_names))
    tasks = pair_tasks(job.open(), job.config)
    writer = ShardWriter(
        build.data / split, id_dtype(job.vocab_size), work.shard_pieces(), build.journal(split)
    )
    for rows in writer.whole_rows():
        counts.add(rows)
    first = writer.next_batch
    with StageProgress(f"prepare: pair {split}", "pieces") as progress:
        for number, rows in enumerate(pair_documents(job, tasks[first:], workers), start=first + 1):
            counts.add(writer.append(rows))
            progress.add(len(rows.ids), number / len(tasks))
    if split == "train":
        _check_pairs(counts, config)
    return {**counts.to_dict(config.pairing, work.source_names), "shards": writer.close()}


def _check_documents(encoded: EncodedCounts, config: PrepareConfig) -> None:
    """Refuse a corpus that cannot be paired, saying why."""
    counts = encoded.corpus
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


def _num_workers(wanted: int) -> int:
    """Return the number of processes.

    Raises:
        InputError: it is negative, or far more than the machine has processors.
    """
    if wanted < 0:
        raise InputError(f"workers is {wanted}; it has to be 0 (all processors) or more")
    processors = os.cpu_count() or 1
    most = max(_FEWEST_MOST_WORKERS, 4 * processors)
    if wanted > most:
        raise InputError(
            f"workers is {wanted}, but this machine has {processors} processors; more than {most} would only "
            "cost memory: leave it out (all processors)"
        )
    if wanted:
        return wanted
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
