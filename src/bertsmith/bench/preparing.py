"""Speed and memory of data preparation: ``prepare`` beside a ``datasets.map`` pipeline, in turns.

Both make NSP instances of 128 pieces from the same files with two processes, and both split sentences with
the same function. The peer (``preparing_peer.py``) is what one writes with Hugging Face's libraries. Each run
is a process of its own, start included; the figures are medians. Memory is the peak over all processes of a
run: resident, and without the pages of mapped files.
"""

from __future__ import annotations

import gzip
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from bertsmith.bench.turns import OURS, peer_is_installed, report, versions
from bertsmith.errors import InputError, RunError
from bertsmith.text.corpus_files import list_files
from bertsmith.text.tokenizer import Tokenizer

SEQ_LEN = 128
PROCESSES = 2
REPEATS = 3
PEER = "datasets.map + transformers"
ENCODERS = ("nanotoken", "tokenizers")


def compare(corpus: Sequence[str], vocab: str, megabytes: float, repeats: int) -> dict[str, dict[str, Any]]:
    """Measure preparation with each encoder that is installed.

    Args:
        corpus: .txt files, plain or .gz, or folders of them.
        vocab: a vocab.txt, or a directory that holds one.
        megabytes: of text to take of each file, whole documents; 0: all.
        repeats: runs of each side; 0: three.

    Returns:
        The result objects of ``report``, by encoder.

    Raises:
        InputError: a file is of another kind, or the vocabulary cannot be read.
        RunError: a side fails.
    """
    encoders = [name for name in ENCODERS if peer_is_installed(name)]
    names = (
        [*encoders, PEER] if peer_is_installed("datasets") and peer_is_installed("transformers") else encoders
    )
    with tempfile.TemporaryDirectory() as folder:
        texts, pieces = Path(folder, "corpus"), Path(folder, "vocab")
        text_bytes = _copy_corpus(corpus, texts, megabytes)
        Tokenizer.load(vocab).save(pieces)
        runs: dict[str, list[Run]] = {name: [] for name in names}
        for repeat in range(repeats or REPEATS):
            for place, (name, found) in enumerate(runs.items()):
                found.append(Run.of(_command(name, texts, pieces, Path(folder, f"out-{repeat}-{place}"))))
    return {encoder: _result(encoder, runs, text_bytes) for encoder in encoders}


def _result(encoder: str, runs: dict[str, list[Run]], text_bytes: int) -> dict[str, Any]:
    sides = {OURS: encoder, PEER: PEER} if PEER in runs else {OURS: encoder}
    result = report(
        f"preparing {text_bytes / 1e6:.0f} MB of text, {PROCESSES} processes, encoder {encoder}",
        {
            side: text_bytes / 1e6 / statistics.median(run.seconds for run in runs[name])
            for side, name in sides.items()
        },
        "MB/s",
        seconds={side: [round(run.seconds, 1) for run in runs[name]] for side, name in sides.items()},
        peak_resident_mib={side: max(run.resident_mib for run in runs[name]) for side, name in sides.items()},
        peak_own_mib={side: max(run.own_mib for run in runs[name]) for side, name in sides.items()},
    )
    result["versions"] |= versions("datasets", *ENCODERS)
    return result


@dataclass(frozen=True)
class Run:
    """One run of a command: its time, and its memory over all processes.

    Attributes:
        seconds: from its start to its end.
        resident_mib: the peak.
        own_mib: the peak without the pages of mapped files.
    """

    seconds: float
    resident_mib: int
    own_mib: int

    @classmethod
    def of(cls, words: Sequence[str]) -> Run:
        """Run a command.

        Raises:
            RunError: it fails.
        """
        begun = time.perf_counter()
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        peaks = [0, 0]
        watcher = threading.Thread(target=_watch, args=(psutil.Process(process.pid), peaks), daemon=True)
        watcher.start()
        _, errors = process.communicate()
        seconds = time.perf_counter() - begun
        if process.returncode != 0:
            raise RunError(f"{' '.join(words)} failed: {errors.decode()[-2000:].strip()}")
        watcher.join()
        return cls(seconds, *(round(peak / (1 << 20)) for peak in peaks))


def _watch(process: psutil.Process, peaks: list[int]) -> None:
    """Note the highest sums of resident and of own memory over a process and its children."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        resident = own = 0
        for member in (process, *_children_of(process)):
            try:
                memory = member.memory_info()
            except psutil.NoSuchProcess:
                continue
            resident += memory.rss
            own += memory.rss - memory.shared
        peaks[:] = max(peaks[0], resident), max(peaks[1], own)
        time.sleep(0.1)


def _children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return list(process.children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _command(name: str, corpus: Path, vocab: Path, out: Path) -> list[str]:
    if name == PEER:
        return [sys.executable, "-m", "bertsmith.bench.preparing_peer", str(corpus), str(vocab), str(out)]
    words = [sys.executable, "-m", "bertsmith", "prepare", "--corpus", str(corpus), "--vocab", str(vocab)]
    words += ["--out", str(out), "--seq-len", str(SEQ_LEN), "--workers", str(PROCESSES), "--encoder", name]
    return words


def _copy_corpus(paths: Sequence[str], target: Path, megabytes: float) -> int:
    """Copy the text as it is packed, or the beginning of each file; return the bytes of all, unpacked."""
    target.mkdir()
    total = 0
    for number, path in enumerate(list_files(paths)):
        if not isinstance(path, Path) or not path.name.endswith((".txt", ".txt.gz")):
            raise InputError(f"{path}: the benchmark takes local .txt files, plain or .gz")
        packed = path.read_bytes()
        text = gzip.decompress(packed) if path.suffix == ".gz" else packed
        if megabytes and len(text) > megabytes * 1e6:
            text = text[: text.rfind(b"\n\n", 0, int(megabytes * 1e6)) + 2]
            packed = gzip.compress(text, 1) if path.suffix == ".gz" else text
        (target / f"{number:04d}{'.txt.gz' if path.suffix == '.gz' else '.txt'}").write_bytes(packed)
        total += len(text)
    return total
