"""Speed and memory of data preparation: ``bertsmith prepare`` beside a ``datasets.map`` pipeline, in turns.

    python benchmarks/prepare_speed.py [--corpus PATH ...] [--megabytes N] [--repeats N] [--json]

Both make NSP instances of 128 pieces from the same files with two processes, and both split sentences with
the same function. The peer is what one writes with Hugging Face's libraries: documents go through
``datasets.map(num_proc=2)`` twice, once to be split and tokenized by transformers' fast tokenizer, once to be
paired by the original's algorithm, written out in Python. Its random documents come from the same batch of a
thousand documents, not from the whole corpus, which is faster. Each run is a process of its own, start
included; the figures are medians. Memory is the peak over all processes of a run: resident, and without the
pages of mapped files.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from measure import OURS, note, report, show, together

SEQ_LEN = 128
PROCESSES = 2
SHORT_SHARE = 0.1
PEER = "datasets.map + transformers"
ENCODERS = ("nanotoken", "tokenizers")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--corpus", nargs="+", help="files or folders; default: books and wiki of the test data"
    )
    parser.add_argument("--vocab", help="a vocab.txt; default: BERT's uncased one of the test data")
    parser.add_argument("--megabytes", type=float, default=0, help="text to take of each file; 0: all")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--peer", nargs=3, metavar=("CORPUS", "VOCAB", "OUT"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.peer:
        run_peer(*arguments.peer)
        return
    with tempfile.TemporaryDirectory() as folder:
        results = compare(arguments, Path(folder))
    if arguments.json:
        print(json.dumps(together(results)))
    else:
        for result in results.values():
            show(result)


def compare(arguments: argparse.Namespace, folder: Path) -> dict[str, dict[str, Any]]:
    corpus, vocab = folder / "corpus", folder / "vocab"
    text_bytes = copy_corpus(arguments.corpus or default_corpus(), corpus, arguments.megabytes)
    copy_vocabulary(arguments.vocab, vocab)
    runs: dict[str, list[Run]] = {name: [] for name in (*ENCODERS, PEER)}
    for repeat in range(arguments.repeats):
        for name, found in runs.items():
            out = folder / f"out-{repeat}-{len(found)}-{name.split('.')[0]}"
            found.append(Run.of(command(name, corpus, vocab, out)))
            note(f"{name}: {found[-1]}")
    speeds = {
        name: text_bytes / 1e6 / statistics.median(run.seconds for run in found)
        for name, found in runs.items()
    }
    results = {}
    for encoder in ENCODERS:
        result = report(
            f"preparing {text_bytes / 1e6:.0f} MB of text, {PROCESSES} processes, encoder {encoder}",
            {OURS: speeds[encoder], PEER: speeds[PEER]},
            "MB/s",
            **{f"{key}_of_{name}": value for key, name, value in memory_of(runs, encoder)},
            seconds={name: [round(run.seconds, 1) for run in runs[name]] for name in (encoder, PEER)},
        )
        result["versions"] |= {name: version(name) for name in ("datasets", "nanotoken", "tokenizers")}
        results[encoder] = result
    return results


def memory_of(runs: dict[str, list[Run]], encoder: str) -> Iterator[tuple[str, str, int]]:
    for side, name in (("ours", encoder), ("the_peer", PEER)):
        yield "peak_resident_mib", side, max(run.resident_mib for run in runs[name])
        yield "peak_own_mib", side, max(run.own_mib for run in runs[name])


class Run:
    """One run of a command: its time, and its memory over all processes."""

    def __init__(self, seconds: float, resident_mib: int, own_mib: int) -> None:
        self.seconds = seconds
        self.resident_mib = resident_mib
        self.own_mib = own_mib

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s, {self.resident_mib} MiB resident, {self.own_mib} MiB its own"

    @classmethod
    def of(cls, words: Sequence[str]) -> Run:
        """Run a command; stop the program when it fails."""
        begun = time.perf_counter()
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        peaks = [0, 0]
        watcher = threading.Thread(target=watch, args=(psutil.Process(process.pid), peaks), daemon=True)
        watcher.start()
        _, errors = process.communicate()
        seconds = time.perf_counter() - begun
        if process.returncode != 0:
            sys.exit(f"{' '.join(words)} failed: {errors.decode()[-2000:]}")
        watcher.join()
        return cls(seconds, *(round(peak / (1 << 20)) for peak in peaks))


def watch(process: psutil.Process, peaks: list[int]) -> None:
    """Note the highest sums of resident and of own memory over a process and its children."""
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        resident = own = 0
        for member in (process, *children_of(process)):
            try:
                memory = member.memory_info()
            except psutil.NoSuchProcess:
                continue
            resident += memory.rss
            own += memory.rss - memory.shared
        peaks[:] = max(peaks[0], resident), max(peaks[1], own)
        time.sleep(0.1)


def children_of(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def command(name: str, corpus: Path, vocab: Path, out: Path) -> list[str]:
    if name == PEER:
        return [sys.executable, __file__, "--peer", str(corpus), str(vocab), str(out)]
    words = [sys.executable, "-m", "bertsmith", "prepare", "--corpus", str(corpus), "--vocab", str(vocab)]
    words += ["--out", str(out), "--seq-len", str(SEQ_LEN), "--workers", str(PROCESSES), "--encoder", name]
    return words


def default_corpus() -> list[str]:
    root = Path(__file__).resolve().parent.parent / os.environ.get("BERTSMITH_DATA", "../shared/data")
    folders = [root.resolve() / "corpus" / name for name in ("books-en", "wiki-en")]
    if not all(folder.is_dir() for folder in folders):
        sys.exit("name a corpus with --corpus, or set BERTSMITH_DATA")
    return [str(path) for folder in folders for path in sorted(folder.glob("train-*.txt.gz"))]


def copy_corpus(paths: Sequence[str], target: Path, megabytes: float) -> int:
    """Copy the text as it is packed, or the beginning of each file; return the bytes of all, unpacked."""
    from bertsmith.text.corpus_files import list_files

    target.mkdir()
    total = 0
    for number, path in enumerate(list_files(paths)):
        assert isinstance(path, Path)
        packed = path.read_bytes()
        text = gzip.decompress(packed) if path.suffix == ".gz" else packed
        if megabytes:
            text = text[: text.rfind(b"\n\n", 0, int(megabytes * 1e6)) + 2]
            packed = gzip.compress(text, 1)
        name = f"{number:04d}.txt" + (".gz" if megabytes or path.suffix == ".gz" else "")
        (target / name).write_bytes(packed)
        total += len(text)
    return total


def copy_vocabulary(named: str | None, target: Path) -> None:
    target.mkdir()
    root = Path(__file__).resolve().parent.parent / os.environ.get("BERTSMITH_DATA", "../shared/data")
    path = Path(named) if named else root.resolve() / "vocab" / "bert-base-uncased-vocab.txt.gz"
    content = path.read_bytes()
    (target / "vocab.txt").write_bytes(gzip.decompress(content) if path.suffix == ".gz" else content)
    (target / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True}))


# --- the peer ---------------------------------------------------------------------------------------------


def run_peer(corpus: str, vocab: str, out: str) -> None:
    """Prepare the corpus with Hugging Face's libraries."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processes share the processors already
    import datasets
    import transformers

    from bertsmith.text.sentences import split_sentences

    datasets.disable_progress_bars()
    tokenizer = transformers.BertTokenizerFast(str(Path(vocab) / "vocab.txt"))
    cls, sep = tokenizer.cls_token_id, tokenizer.sep_token_id

    def encode(batch: dict[str, list[list[str]]]) -> dict[str, list[list[list[int]]]]:
        split = [[s for line in lines for s in split_sentences(line)] for lines in batch["lines"]]
        flat = [sentence for sentences in split for sentence in sentences]
        ids = iter(tokenizer(flat, add_special_tokens=False)["input_ids"] if flat else [])
        return {"sentences": [[row for _ in sentences if (row := next(ids))] for sentences in split]}

    def pair(batch: dict[str, list[list[list[int]]]], places: list[int]) -> dict[str, list[Any]]:
        documents = [sentences for sentences in batch["sentences"] if sentences]
        draw = random.Random(places[0])
        rows: dict[str, list[Any]] = {"input_ids": [], "token_type_ids": [], "next_sentence_label": []}
        for place in range(len(documents)):
            for first, second, label in pairs_of(documents, place, draw):
                rows["input_ids"].append([cls, *first, sep, *second, sep])
                rows["token_type_ids"].append([0] * (len(first) + 2) + [1] * (len(second) + 1))
                rows["next_sentence_label"].append(label)
        return rows

    files = sorted(str(path) for path in Path(corpus).iterdir())
    cache = f"{out}-cache"
    texts = datasets.Dataset.from_generator(
        read_documents, gen_kwargs={"files": files}, num_proc=PROCESSES, cache_dir=cache
    )
    encoded = texts.map(encode, batched=True, num_proc=PROCESSES, remove_columns=["lines"])
    paired = encoded.map(
        pair, batched=True, with_indices=True, num_proc=PROCESSES, remove_columns=["sentences"]
    )
    paired.save_to_disk(out)


def read_documents(files: list[str]) -> Iterator[dict[str, list[str]]]:
    for path in files:
        lines: list[str] = []
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            for line in map(str.strip, file):
                if line:
                    lines.append(line)
                elif lines:
                    yield {"lines": lines}
                    lines = []
        if lines:
            yield {"lines": lines}


def pairs_of(
    documents: list[list[list[int]]], place: int, draw: random.Random
) -> Iterator[tuple[list[int], list[int], int]]:
    """Yield (first text, second text, whether it is random) of one document.

    Source: create_pretraining_data.py, create_instances_from_document, without its masks.
    """
    sentences, longest = documents[place], SEQ_LEN - 3
    target = draw.randint(2, longest) if draw.random() < SHORT_SHARE else longest
    chunk: list[list[int]] = []
    length = at = 0
    while at < len(sentences):
        chunk.append(sentences[at])
        length += len(sentences[at])
        if at == len(sentences) - 1 or length >= target:
            cut = draw.randint(1, len(chunk) - 1) if len(chunk) >= 2 else 1
            first = [piece for sentence in chunk[:cut] for piece in sentence]
            second: list[int] = []
            is_random = len(chunk) == 1 or draw.random() < 0.5
            if is_random:
                other = documents[other_place(len(documents), place, draw)]
                for sentence in other[draw.randint(0, len(other) - 1) :]:
                    second.extend(sentence)
                    if len(second) >= target - len(first):
                        break
                at -= len(chunk) - cut
            else:
                second = [piece for sentence in chunk[cut:] for piece in sentence]
            cut_to_fit(first, second, longest, draw)
            yield first, second, int(is_random)
            chunk, length = [], 0
        at += 1


def other_place(number: int, place: int, draw: random.Random) -> int:
    for _ in range(10):
        found = draw.randint(0, number - 1)
        if found != place:
            break
    return found


def cut_to_fit(first: list[int], second: list[int], longest: int, draw: random.Random) -> None:
    while len(first) + len(second) > longest:
        longer = first if len(first) > len(second) else second
        if draw.random() < 0.5:
            del longer[0]
        else:
            longer.pop()


if __name__ == "__main__":
    main()
