"""Labels of a task's rows: lopsided, rare, unknown in dev, misspelled; values that are no numbers."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from bertsmith.checkup.finding import Finding, judge, many, percent
from bertsmith.checkup.places import examples_of_rows
from bertsmith.tasks.source import RowSet

ENOUGH_OF_A_LABEL = 8
_SHORTEST_MISSPELLED = 4
_LONG_NAME = 8
_RARE = 0.1


def label_findings(train: RowSet[Any], dev: RowSet[Any] | None, balanced: bool = True) -> list[Finding]:
    """Return what is wrong with names of labels.

    Args:
        train: the rows to train on.
        dev: the rows to choose by.
        balanced: the same label for every row would be a guess.
    """
    counts = Counter(name for row in train.rows for name in row.names)
    found = [*(_of_balance(train, counts) if balanced else ()), *_of_rarity(counts)]
    everything = counts.copy()
    if dev is not None:
        found += _of_unknown(dev, counts)
        everything.update(name for row in dev.rows for name in row.names)
    return [*found, *_of_spelling(everything)]


def _of_balance(train: RowSet[Any], counts: Counter[str]) -> list[Finding]:
    if not counts:
        return []
    (name, number), *_ = counts.most_common(1)
    share = number / len(train.rows)
    return judge(
        "lopsided_labels",
        share,
        f"{percent(share)} of the train rows have the label {name!r} (of {many(len(counts), 'label')})",
        number,
        f"always answering {name!r} is right in {percent(share)}: accuracy says little",
        "collect more of the rare ones, finetune --class-weights balanced, and look at macro_f1 or matthews",
    )


def _of_rarity(counts: Counter[str]) -> list[Finding]:
    rare = [(name, number) for name, number in counts.items() if number < ENOUGH_OF_A_LABEL]
    shown = ", ".join(f"{name!r} ({number})" for name, number in sorted(rare, key=lambda pair: pair[1])[:5])
    return judge(
        "rare_labels",
        len(rare) / max(1, len(counts)),
        f"{len(rare):,} of {many(len(counts), 'label')} have under {ENOUGH_OF_A_LABEL} train rows: {shown}",
        len(rare),
        "they are hardly learnt, and dev cannot tell how well",
        "label more rows of them, or join them with labels they belong to",
    )


def _of_unknown(dev: RowSet[Any], counts: Counter[str]) -> list[Finding]:
    unknown = [row for row in dev.rows if any(name not in counts for name in row.names)]
    notes = [f"{next(name for name in row.names if name not in counts)!r}: " for row in unknown[:2]]
    return judge(
        "unknown_labels",
        len(unknown) / len(dev.rows),
        f"{many(len(unknown), 'dev row')} with a label that no train row has",
        len(unknown),
        "finetune stops at them",
        "mend the labels: often they are only spelled differently",
        examples_of_rows(dev, unknown, notes),
    )


def _of_spelling(counts: Counter[str]) -> list[Finding]:
    pairs = misspelled(counts)
    shown = ", ".join(
        f"{rare!r} ({counts[rare]:,}) like {frequent!r} ({counts[frequent]:,})"
        for rare, frequent in pairs[:5]
    )
    return judge(
        "label_typos",
        len(pairs) / max(1, len(counts)),
        f"{many(len(pairs), 'label')} may be another one misspelled: {shown}",
        len(pairs),
        "each spelling is a label of its own: rows are lost to the right one, and scores count them as wrong",
        "write them alike, if they mean the same",
    )


def misspelled(counts: Counter[str]) -> list[tuple[str, str]]:
    """Return pairs of a rarer label and a more frequent one that it may be a misspelling of.

    Alike are names that differ in case, blanks or marks alone, and a rare name within one edit (two from
    eight letters on) of one that is ten times as frequent; names that differ in a number never are.
    """
    names = [name for name, _ in counts.most_common()]
    bare = {name: _bare(name) for name in names}
    pairs = []
    for place, rare in enumerate(names):
        for frequent in names[:place]:
            if bare[rare] == bare[frequent] != "" or (
                counts[rare] <= _RARE * counts[frequent] and _near(bare[rare], bare[frequent])
            ):
                pairs.append((rare, frequent))
                break
    return pairs


def _bare(name: str) -> str:
    letters = unicodedata.normalize("NFKC", name).casefold()
    return "".join(letter for letter in letters if letter.isalnum())


def _near(first: str, second: str) -> bool:
    shorter = min(len(first), len(second))
    edits = 2 if shorter >= _LONG_NAME else 1
    if shorter < _SHORTEST_MISSPELLED or abs(len(first) - len(second)) > edits:
        return False
    if re.findall(r"\d+", first) != re.findall(r"\d+", second):
        return False
    return edit_distance(first, second) <= edits


def edit_distance(first: str, second: str) -> int:
    """Return how many letters have to be put in, taken out, changed or swapped with their neighbour."""
    before: list[int] = []
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, start=1):
        last, before, row = before, row, [i]
        for j, b in enumerate(second, start=1):
            cost = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (a != b))
            if i > 1 and j > 1 and a == second[j - 2] and first[i - 2] == b:
                cost = min(cost, last[j - 2] + 1)
            row.append(cost)
    return row[-1]


def value_findings(train: RowSet[Any], dev: RowSet[Any] | None) -> list[Finding]:
    """Return what is wrong with the values of a regression."""
    found = []
    for rows in (train, dev) if dev is not None else (train,):
        bad = [row for row in rows.rows if not _is_number(row.label)]
        found += judge(
            "no_numbers",
            len(bad) / len(rows.rows),
            f"{len(bad):,} of {len(rows.rows):,} values of {rows.path} are no finite numbers",
            len(bad),
            "finetune and evaluate stop at the first of them",
            "write numbers with a point: 0.5; for names of labels take --task classify",
            examples_of_rows(rows, bad, [f"{row.label!r}: " for row in bad[:2]]),
        )
    return found


def _is_number(label: str | None) -> bool:
    try:
        return math.isfinite(float(str(label)))
    except ValueError:
        return False


def all_names(rows: Iterable[Any]) -> Sequence[str]:
    """Return every label's name once, the longest first."""
    return sorted({name for row in rows for name in row.names}, key=lambda name: (-len(name), name))
