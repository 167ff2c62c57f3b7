"""The verb ``doctor``: what is wrong with a corpus, prepared data or rows, what it costs, how to mend it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from bertsmith.checkup.contamination import read_evaluation_rows
from bertsmith.checkup.finding import Finding, worst_first
from bertsmith.checkup.prepared import PreparedData
from bertsmith.checkup.show import show_findings
from bertsmith.checkup.survey import CorpusSurvey
from bertsmith.checkup.task_file import file_findings
from bertsmith.checkup.task_rows import length_facts, length_findings, piece_counts, read_rows, row_findings
from bertsmith.data.config import PAIRINGS
from bertsmith.errors import InputError
from bertsmith.progress import StageProgress
from bertsmith.recipes.config import DoctorConfig
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import find_task
from bertsmith.text.corpus_files import list_files
from bertsmith.text.tokenizer import Tokenizer


def doctor(config: DoctorConfig) -> dict[str, Any]:
    """Look at a corpus, at prepared data, or at the rows of a task.

    Returns:
        The findings, worst first, with the counts of each level and what was read; ``failed`` when there is
        an error: training (or the evaluation) would be wasted.

    Raises:
        InputError: the settings do not fit together, or the data cannot be read.
    """
    _check(config)
    started = time.monotonic()
    look = _of_corpus if config.corpus else _of_data if config.task is None else _of_rows
    facts, findings = look(config)
    return _summary(facts, findings, time.monotonic() - started)


def show(summary: dict[str, Any]) -> None:
    """Print a summary for people on standard output."""
    show_findings(summary, Console())


def _of_corpus(config: DoctorConfig) -> tuple[dict[str, Any], list[Finding]]:
    tokenizer = None if config.vocab is None else Tokenizer.load(config.vocab)
    rows = read_evaluation_rows(config.against)
    survey = CorpusSurvey(list_files(config.corpus), config.text, rows, config.ngram_words)
    with StageProgress("doctor: read", "characters") as progress:
        survey.read(progress.add)
    counts = survey.counts
    if counts.lines == 0:
        raise InputError(f"the corpus holds no text: {counts.files} files read, every line is empty")
    read = f"{counts.documents:,} documents, {counts.lines:,} lines, {survey.words:,} words"
    if rows:
        read += f"; {survey.compared_rows:,} of {len(rows):,} evaluation rows compared"
    facts = {
        "read": read,
        "corpus": counts.to_dict(),
        "words": survey.words,
    }
    return facts, survey.findings(tokenizer, config.pairing)


def _of_data(config: DoctorConfig) -> tuple[dict[str, Any], list[Finding]]:
    assert config.data is not None
    data = PreparedData(config.data)
    with StageProgress("doctor: read", "pieces") as progress:
        data.read(progress.add)
    splits = {
        name: {key: value for key, value in split.items() if key != "shards"}
        for name, split in data.manifest["splits"].items()
    }
    return {"read": f"{len(data):,} instances", "splits": splits}, data.findings()


def _of_rows(config: DoctorConfig) -> tuple[dict[str, Any], list[Finding]]:
    assert config.data is not None
    assert config.task is not None
    task = find_task(config.task)
    tokenizer = None if config.vocab is None else Tokenizer.load(config.vocab)
    files = [path for path in (config.data, config.dev) if path is not None and Path(path).is_file()]
    is_table = task.kind.name not in ("tagging", "spans")  # these read files of other forms, too
    findings = [finding for path in files for finding in file_findings(path, is_table)]
    if any(finding.level == "error" for finding in findings):
        read = f"only the lines of {' and '.join(files)}: the rows cannot be read until they are mended"
        return {"read": read, "task": task.name, "rows": None, "lengths": None}, findings
    source = DataSource(
        config.data,
        config.dev,
        config.text_column,
        config.second_text_column,
        config.label_column,
        missing="skip",
        label_separator=config.label_separator,
    )
    train, dev = read_rows(task, source)
    findings += row_findings(task, train, dev)
    lengths = None
    if tokenizer is not None:
        counts = piece_counts(task, train, tokenizer)
        if is_table:  # of the others nothing is cut
            findings += length_findings(train, counts, config.seq_len)
        lengths = length_facts(counts, config.seq_len)
    read = f"{len(train.rows):,} train rows, {len(dev.rows) if dev else 0:,} dev rows"
    rows = {"train": train.counts, "dev": None if dev is None else dev.counts}
    return {"read": read, "task": task.name, "rows": rows, "lengths": lengths}, findings


def _summary(facts: dict[str, Any], findings: Sequence[Finding], seconds: float) -> dict[str, Any]:
    ordered = worst_first(findings)
    levels = [finding.level for finding in ordered]
    return {
        "failed": "error" in levels,
        "errors": levels.count("error"),
        "warnings": levels.count("warning"),
        "notes": levels.count("note"),
        "findings": [finding.to_dict() for finding in ordered],
        **facts,
        "seconds": round(seconds, 1),
    }


_COLUMNS = ("text_column", "second_text_column", "label_column", "label_separator")
_READ_BY: dict[str, set[str]] = {
    "corpus": {"vocab", "against", "ngram_words", "pairing", "text"},
    "prepared data": set(),
    "task rows": {"dev", "seq_len", "vocab", *_COLUMNS},
}
"""The settings that each kind of data reads, besides the data itself."""


def _check(config: DoctorConfig) -> None:
    """Refuse settings that contradict each other or would be ignored."""
    if bool(config.corpus) == (config.data is not None):
        raise InputError("give either --corpus (raw text) or --data (prepared data, or rows with --task)")
    if config.pairing not in PAIRINGS:
        raise InputError(f"pairing {config.pairing!r} is unknown; take one of {', '.join(PAIRINGS)}")
    if config.task is not None and config.corpus:
        raise InputError(f"--task {config.task} would be ignored: a corpus has no task; leave it out")
    kind = "corpus" if config.corpus else "prepared data" if config.task is None else "task rows"
    default = DoctorConfig()
    for name in sorted(set().union(*_READ_BY.values()) - _READ_BY[kind]):
        if getattr(config, name) != getattr(default, name):
            raise InputError(f"--{name.replace('_', '-')} would be ignored for {kind}; leave it out")
    if kind == "task rows" and config.vocab is None and config.seq_len != default.seq_len:
        raise InputError("--seq-len would be ignored without --vocab, which counts the pieces; give both")
    if kind == "corpus" and not config.against and config.ngram_words != default.ngram_words:
        raise InputError("--ngram-words would be ignored without --against, the rows to compare; give both")
