"""Labelled rows of a task: repeated, contradicting, leaking into dev, lacking values, damaged, too long."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ftfy.badness import is_bad

from bertsmith.checkup.finding import Finding, judge, many
from bertsmith.checkup.places import examples_of_rows
from bertsmith.checkup.task_labels import all_names, label_findings, value_findings
from bertsmith.errors import InputError
from bertsmith.tasks.kind import Task
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.text.tokenizer import Tokenizer

ENOUGH_ROWS = 100
_MOST_NAMES = 500
_BINS = 8


@dataclass(frozen=True)
class CheckedRow:
    """What every row has in common, whatever its task.

    Attributes:
        texts: all texts of the row.
        label: its whole gold answer.
        names: of the labels in it, which others may have too.
        line: where it stands.
    """

    texts: tuple[str | None, ...]
    label: Any
    names: tuple[str, ...]
    line: int


def read_rows(task: Task, source: DataSource) -> tuple[RowSet[CheckedRow], RowSet[CheckedRow] | None]:
    """Read the train and dev rows of a task.

    Raises:
        InputError: a file or column is missing, a row is broken, or there are no train rows.
    """
    train = task.read(source, "train")
    if train is None:
        raise InputError(f"{source.data}: no train rows of {task.name}")
    dev = task.read(source, "dev")
    return _checked(task, train), None if dev is None else _checked(task, dev)


def _checked(task: Task, rows: RowSet[Any]) -> RowSet[CheckedRow]:
    look = {"tagging": _of_words, "spans": _of_question, "embedding": _of_question}.get(
        task.kind.name, _of_row
    )
    return RowSet([look(row) for row in rows.rows], rows.path, rows.columns, rows.partial, rows.counts)


def _of_row(row: Any) -> CheckedRow:
    names = row.label if isinstance(row.label, tuple) else (str(row.label),)
    return CheckedRow(row.texts, row.label, names, row.line)


def _of_words(row: Any) -> CheckedRow:
    entities = row.entities or ()
    return CheckedRow((row.text,), entities, tuple(entity.label for entity in entities), row.line)


def _of_question(row: Any) -> CheckedRow:
    return CheckedRow(row.texts, row.label, (), row.line)


def row_findings(task: Task, train: RowSet[CheckedRow], dev: RowSet[CheckedRow] | None) -> list[Finding]:
    """Return all findings but those on lengths.

    Args:
        task: says what the labels are.
        train: the rows to train on.
        dev: the rows to choose by; ``None``: there are none.
    """
    found = [*_of_missing(train), *_of_texts(train), *_of_repetition(train)]
    kind = task.kind.name
    if kind == "regression":
        found += value_findings(train, dev)
    else:
        found += [
            *label_findings(train, dev, balanced=kind not in ("tagging", "spans")),
            *_of_swallowed(train),
        ]
    if kind == "choice":
        found += _of_choices(train)
    return found if dev is None else [*found, *_of_leakage(train, dev)]


def _of_missing(train: RowSet[CheckedRow]) -> list[Finding]:
    missing = train.counts.get("missing_rows", 0)
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


def _of_texts(train: RowSet[CheckedRow]) -> list[Finding]:
    texts = {text for row in train.rows for text in row.texts if text and not text.isascii()}
    bad = {text for text in texts if is_bad(text)}
    lost = [row for row in train.rows if any("\ufffd" in text for text in row.texts if text)]
    odd = [row for row in train.rows if not bad.isdisjoint(row.texts)]
    cost = "words lose their letters and become other words"
    return [
        *judge(
            "replacement_characters",
            len(lost) / len(train.rows),
            f"{many(len(lost), 'train row')} with U+FFFD, where a letter was lost",
            len(lost),
            cost,
            "make the file again from its source, decoded rightly",
            examples_of_rows(train, lost),
        ),
        *judge(
            "mojibake",
            len(odd) / len(train.rows),
            f"{many(len(odd), 'train row')} that {'looks' if len(odd) == 1 else 'look'} wrongly decoded",
            len(odd),
            cost,
            f"ftfy {train.path} mends most of it, or decode the source rightly",
            examples_of_rows(train, odd),
        ),
    ]


def _of_repetition(train: RowSet[CheckedRow]) -> list[Finding]:
    first: dict[tuple[str | None, ...], CheckedRow] = {}
    labels: defaultdict[tuple[str | None, ...], set[Any]] = defaultdict(set)
    repeated: list[CheckedRow] = []
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
            examples_of_rows(train, repeated, [f"as line {first[row.texts].line}: " for row in repeated[:2]]),
        ),
        *judge(
            "contradicting_rows",
            len(differing) / total,
            f"{len(differing):,} of {total:,} train rows are contradicted by a row of the same texts",
            len(differing),
            "no model can be right on both: a limit of every score",
            "look at these rows and settle their labels",
            examples_of_rows(train, differing, [f"{', '.join(row.names)}: " for row in differing[:2]]),
        ),
    ]


def _of_swallowed(train: RowSet[CheckedRow]) -> list[Finding]:
    """Find texts with a line break at which another row of the file seems to end or begin."""
    names = all_names(train.rows)
    if not 0 < len(names) <= _MOST_NAMES:
        return []
    name = "|".join(re.escape(name) for name in names)
    end = re.compile(rf'[,\t]"?(?:{name})"?\r?\n|\n"?(?:{name})"?[,\t]')
    found = [
        row for row in train.rows if any(text and "\n" in text and end.search(text) for text in row.texts)
    ]
    return judge(
        "swallowed_rows",
        len(found) / len(train.rows),
        f"{many(len(found), 'train row')} with what looks like other rows of the file inside a text",
        len(found),
        "a quote that does not close where it should joins the rows up to the next quote: they are lost",
        'double the quotes inside texts (""), or save as .tsv or .jsonl',
        examples_of_rows(train, found),
    )


def _of_choices(train: RowSet[CheckedRow]) -> list[Finding]:
    repeated = [row for row in train.rows if len(set(row.texts[1:])) < len(row.texts[1:])]
    return judge(
        "repeated_choices",
        len(repeated) / len(train.rows),
        f"{many(len(repeated), 'train row')} with the same choice twice",
        len(repeated),
        "the model scores both alike: none can win",
        "change or take out one of them",
        examples_of_rows(train, repeated),
    )


def _of_leakage(train: RowSet[CheckedRow], dev: RowSet[CheckedRow]) -> list[Finding]:
    texts = {text for rows in (train, dev) for row in rows.rows for text in row.texts if text}
    bare = {text: _bare(text) for text in texts}

    def key(row: CheckedRow) -> tuple[str, ...]:
        return tuple(bare.get(text, "") for text in row.texts if text is not None)

    known = {key(row): row for row in reversed(train.rows)}
    leaked = [row for row in dev.rows if key(row) in known]
    exact = {row.texts for row in train.rows}
    same = sum(row.texts in exact for row in leaked)
    return judge(
        "dev_in_train",
        len(leaked) / len(dev.rows),
        f"{len(leaked):,} of {len(dev.rows):,} dev rows have the texts of a train row ({same:,} exactly, the "
        "others but for case, blanks and marks)",
        len(leaked),
        "the dev score is better than on new rows, and the wrong epoch and settings are chosen",
        "delete them from the train file",
        examples_of_rows(dev, leaked, [f"as {train.path}:{known[key(row)].line}: " for row in leaked[:2]]),
    )


def _bare(text: str) -> str:
    """Return the letters and digits of a text, small; a text without any as it is."""
    return " ".join(re.findall(r"\w+", unicodedata.normalize("NFKC", text).casefold())) or text


def piece_counts(task: Task, rows: RowSet[CheckedRow], tokenizer: Tokenizer) -> list[int]:
    """Return the pieces of each row's longest input, special tokens counted.

    The first text is read with each of the others, or, to be embedded, each by itself.
    """
    texts = list(dict.fromkeys(text for row in rows.rows for text in row.texts if text is not None))
    pieces = dict(zip(texts, map(len, tokenizer.encode_batch(texts)), strict=True))
    between, is_alone = len(tokenizer.between_ids), task.kind.name == "embedding"
    counts = []
    for row in rows.rows:
        first, *others = (pieces[text] for text in row.texts if text is not None)
        if is_alone:
            first, others = max(first, *others), []
        counts.append(first + 2 + (between + max(others) if others else 0))
    return counts


def length_findings(rows: RowSet[CheckedRow], counts: Sequence[int], seq_len: int) -> list[Finding]:
    """Return a finding on the rows beyond the limit."""
    cut = [row for row, length in zip(rows.rows, counts, strict=True) if length > seq_len]
    return judge(
        "long_rows",
        len(cut) / len(counts),
        f"{len(cut):,} of {len(counts):,} train rows are longer than {seq_len} pieces (the longest "
        f"{max(counts):,})",
        len(cut),
        "what is beyond the limit is cut off and not read",
        f"finetune --seq-len {min(512, max(counts))} (slower), or --truncation windows (reads all), "
        "head+tail, or head where the end matters",
        examples_of_rows(rows, cut),
    )


def length_facts(counts: Sequence[int], seq_len: int) -> dict[str, Any]:
    """Return how long rows are: quantiles, and how many are how long, the limit being the end of a bin."""
    ends = [seq_len * part // _BINS for part in range(1, _BINS + 1)]
    longest = max(counts)
    while ends[-1] < longest:
        ends.append(ends[-1] * 2)
    places = np.searchsorted(ends, counts)  # (rows,)
    numbers = np.bincount(places, minlength=len(ends)).tolist()
    shares = np.quantile(counts, [0.5, 0.9, 0.99], method="higher").tolist()
    return {
        "limit": seq_len,
        "median": shares[0],
        "nine_in_ten_up_to": shares[1],
        "99_in_100_up_to": shares[2],
        "longest": longest,
        "histogram": [{"up_to": end, "rows": number} for end, number in zip(ends, numbers, strict=True)],
    }
