"""Labelled rows of a task: repeated, contradicting, leaking into dev, lacking values, lopsided, too long."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from bertsmith.checkup.finding import Example, Finding, excerpt, judge, percent
from bertsmith.errors import InputError
from bertsmith.tasks.classification import CLASSIFICATION
from bertsmith.tasks.kind import Task
from bertsmith.tasks.rows import Row
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.text.tokenizer import Tokenizer

ENOUGH_ROWS = 100


def read_rows(task: Task, data: str, dev: str | None) -> tuple[RowSet[Row], RowSet[Row] | None]:
    """Read the train and dev rows of a task; rows that lack a value are left out and counted.

    Raises:
        InputError: a file or column is missing, a row is broken, or there are no train rows.
    """
    source = DataSource(data, dev=dev, missing="skip")
    train = task.read(source, "train")
    if train is None:
        raise InputError(f"{data}: no train rows of {task.name}")
    return train, task.read(source, "dev")


def row_findings(
    task: Task, train: RowSet[Row], dev: RowSet[Row] | None, tokenizer: Tokenizer | None, seq_len: int
) -> list[Finding]:
    """Return all findings.

    Args:
        task: says what the labels are.
        train: the rows to train on.
        dev: the rows to choose by; ``None``: there are none.
        tokenizer: for the lengths; ``None``: they are not looked at.
        seq_len: the limit of a row, in pieces.
    """
    found = [*_of_missing(train), *_of_repetition(train)]
    if task.kind == CLASSIFICATION:
        found += _of_labels(train, dev)
    if dev is not None:
        found += _of_leakage(train, dev)
    if tokenizer is not None:
        found += _of_lengths(train, tokenizer, seq_len)
    return found


def _of_missing(train: RowSet[Row]) -> list[Finding]:
    missing = train.counts["missing_rows"]
    total = len(train.rows) + missing
    return [
        *judge(
            "missing_values",
            missing / total,
            f"{missing:,} of {total:,} train rows lack a text or a label",
            missing,
            "finetune stops at the first of them, so that none is lost without a word",
            "mend the rows, or finetune --missing skip",
        ),
        *judge(
            "few_rows",
            max(0.0, 1.0 - len(train.rows) / ENOUGH_ROWS),
            f"there are {len(train.rows):,} train rows",
            len(train.rows),
            "the result depends on chance more than on the data",
            "label more rows; finetune --seeds 5 shows how much chance there is",
        ),
    ]


def _of_repetition(train: RowSet[Row]) -> list[Finding]:
    first: dict[tuple[str, str | None], Row] = {}
    labels: defaultdict[tuple[str, str | None], set[str | None]] = defaultdict(set)
    repeated: list[Row] = []
    for row in train.rows:
        labels[row.texts].add(row.label)
        if row.texts in first:
            repeated.append(row)
        else:
            first[row.texts] = row
    total = len(train.rows)
    differing = [row for row in train.rows if len(labels[row.texts]) > 1]
    return [
        *judge(
            "repeated_rows",
            len(repeated) / total,
            f"{len(repeated):,} of {total:,} train rows have the texts of an earlier row",
            len(repeated),
            "they count double in training, and in dev too when dev is cut from these rows",
            "keep one of each",
            _examples(train, repeated, [f"as line {first[row.texts].line}: " for row in repeated[:2]]),
        ),
        *judge(
            "contradicting_rows",
            len(differing) / total,
            f"{len(differing):,} of {total:,} train rows are contradicted by a row of the same texts",
            len(differing),
            "no model can be right on both: a limit of every score",
            "look at these rows and settle their labels",
            _examples(train, differing, [f"{row.label}: " for row in differing[:2]]),
        ),
    ]


def _of_labels(train: RowSet[Row], dev: RowSet[Row] | None) -> list[Finding]:
    counts = Counter(row.label for row in train.rows)
    (label, number), *_ = counts.most_common(1)
    share = number / len(train.rows)
    unknown = [row for row in dev.rows if row.label not in counts] if dev is not None else []
    return [
        *judge(
            "lopsided_labels",
            share,
            f"{percent(share)} of the train rows have the label {label!r} (of {len(counts)} labels)",
            number,
            f"always answering {label!r} is right in {percent(share)}: accuracy says little",
            "collect more of the rare labels, and look at macro_f1 or matthews",
        ),
        *judge(
            "unknown_labels",
            len(unknown) / len(dev.rows) if dev is not None else 0.0,
            f"{len(unknown):,} dev rows have a label that no train row has",
            len(unknown),
            "finetune stops at them",
            "mend the labels: often they are only spelled differently",
            _examples(dev, unknown, [f"{row.label!r}: " for row in unknown[:2]]) if dev is not None else (),
        ),
    ]


def _of_leakage(train: RowSet[Row], dev: RowSet[Row]) -> list[Finding]:
    known = {row.texts: row for row in reversed(train.rows)}
    leaked = [row for row in dev.rows if row.texts in known]
    share = len(leaked) / len(dev.rows)
    return judge(
        "dev_in_train",
        share,
        f"{len(leaked):,} of {len(dev.rows):,} dev rows have the texts of a train row",
        len(leaked),
        "the dev score is better than on new rows, and the wrong epoch and settings are chosen",
        "delete them from the train file",
        _examples(dev, leaked, [f"as {train.path}:{known[row.texts].line}: " for row in leaked[:2]]),
    )


def _of_lengths(train: RowSet[Row], tokenizer: Tokenizer, seq_len: int) -> list[Finding]:
    pieces = [
        sum(len(tokenizer.encode(text)) + 1 for text in row.texts if text is not None) + 1
        for row in train.rows
    ]  # a [SEP] after each text, a [CLS] before all
    cut = [row for row, length in zip(train.rows, pieces, strict=True) if length > seq_len]
    share = len(cut) / len(train.rows)
    return judge(
        "long_rows",
        share,
        f"{len(cut):,} of {len(train.rows):,} train rows are longer than {seq_len} pieces (the longest "
        f"{max(pieces):,})",
        len(cut),
        "what is beyond the limit is cut off and not read",
        f"finetune --seq-len {min(512, max(pieces))} (slower), or --truncation head if the end matters",
        _examples(train, cut),
    )


def _examples(rows: RowSet[Row], chosen: Sequence[Row], notes: Sequence[str] = ("", "")) -> list[Example]:
    return [
        Example(f"{rows.path}:{row.line}", note + excerpt(" / ".join(text for text in row.texts if text)))
        for row, note in zip(chosen, notes, strict=False)
    ]
