"""GLUE's files for the quality benchmark, read without bertsmith: the peer's eyes on the same rows."""

from __future__ import annotations

import csv
import gzip
import io
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ENDINGS = (".tsv", ".tsv.gz", ".part.tsv", ".part.tsv.gz")
_TWO = ("0", "1")
_ENTAILED = ("entailment", "not_entailment")


@dataclass(frozen=True)
class GlueTask:
    """A task as it was published.

    Attributes:
        directory: where its files are.
        columns: the text, the second text or ``None``, the label.
        labels: names in the order of their numbers; ``None``: values.
        main_metric: what the best epoch is chosen by.
        train_rows: rows of the stated subset, where all of them would take a core more than a quarter of an
            hour; 0: all.
        dev: names of the dev files, the one that chooses first.
        header: the columns' names where the file has none.
    """

    directory: str
    columns: tuple[str, str | None, str]
    labels: tuple[str, ...] | None
    main_metric: str = "accuracy"
    train_rows: int = 0
    dev: tuple[str, ...] = ("dev",)
    header: list[str] | None = None


TASKS = {
    "sst2": GlueTask("SST-2", ("sentence", None, "label"), _TWO, train_rows=5000),
    "mrpc": GlueTask("MRPC", ("#1 String", "#2 String", "Quality"), _TWO, "f1"),
    "stsb": GlueTask("STS-B", ("sentence1", "sentence2", "score"), None, "spearman"),
    "cola": GlueTask(
        "CoLA",
        ("sentence", None, "label"),
        _TWO,
        "matthews",
        header=["source", "label", "mark", "sentence"],
    ),
    "rte": GlueTask("RTE", ("sentence1", "sentence2", "label"), _ENTAILED),
    "wnli": GlueTask("WNLI", ("sentence1", "sentence2", "label"), _TWO),
    "qqp": GlueTask("QQP", ("question1", "question2", "is_duplicate"), _TWO, "f1", train_rows=4000),
    "mnli": GlueTask(
        "MNLI",
        ("sentence1", "sentence2", "gold_label"),
        ("contradiction", "entailment", "neutral"),
        train_rows=3000,
        dev=("dev_matched", "dev_mismatched"),
    ),
    "qnli": GlueTask("QNLI", ("question", "sentence", "label"), _ENTAILED, train_rows=3000),
}

Rows = list[tuple[str, str | None, Any]]


def path_of(glue: str | Path, task: str, split: str) -> Path | None:
    """Return the file of a split, packed or not, whole or a part; ``None`` when there is none."""
    paths = (Path(glue) / TASKS[task].directory / (split + ending) for ending in ENDINGS)
    return next((path for path in paths if path.is_file()), None)


def text_of(path: Path) -> str:
    """Return the text of a file, packed or not, without a byte order mark."""
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")


def read(task: str, split: str, glue: str | Path) -> Rows:
    """Return (text, second text, label number or value) of each row."""
    record = TASKS[task]
    path = path_of(glue, task, split)
    assert path is not None, f"{glue}: no {split} of {task}"
    first, second, gold = record.columns
    with io.StringIO(text_of(path), newline="\n") as file:
        reader = csv.DictReader(file, record.header, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [
            (
                row[first],
                row[second] if second else None,
                float(row[gold]) if record.labels is None else record.labels.index(row[gold]),
            )
            for row in reader
        ]


def write_limited(
    task: str, train: Path, glue: str | Path, number: int, seed: int, dev_number: int, folder: Path
) -> None:
    """Write the task's files into a folder, limited to rows that are drawn and kept in order.

    Args:
        task: its name.
        train: the file of training rows.
        glue: where the dev files are.
        number: training rows to keep, drawn by the seed; 0: all.
        seed: draws them.
        dev_number: rows to keep of each dev file, drawn by seed 0; 0: all.
        folder: gets the task's directory.
    """
    target = folder / TASKS[task].directory
    target.mkdir()
    _write(train, number, seed, task, target / "train.tsv")
    for split in TASKS[task].dev:
        path = path_of(glue, task, split)
        assert path is not None, f"{glue}: no {split} of {task}"
        _write(path, dev_number, 0, task, target / f"{split}.tsv")


def _write(path: Path, number: int, seed: int, task: str, target: Path) -> None:
    lines = io.StringIO(text_of(path), newline="\n").readlines()
    first = 0 if TASKS[task].header else 1
    if number and number < len(lines) - first:
        chosen = sorted(random.Random(seed).sample(range(first, len(lines)), number))
        lines = lines[:first] + [lines[index] for index in chosen]
    target.write_text("".join(lines), encoding="utf-8", newline="")
