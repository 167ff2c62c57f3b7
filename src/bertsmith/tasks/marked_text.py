"""JSON lines of texts with entities as spans in characters.

Spans are objects with ``start``, ``end`` and ``label``, or lists of these three; or CLUENER's form, an object
of labels that hold the entities' spelling with pairs of the first and the last character. Characters are code
points. An empty list or object says that there is no entity.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.tasks.entities import Entity
from bertsmith.tasks.rows import Columns
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.tables import Table, open_table
from bertsmith.tasks.tagged_rows import TaggedRow, count_unspelled, words_of

TEXT_KEYS = ("text", "sentence", "content")
LABEL_KEYS = ("entities", "spans", "label", "labels")
_OBJECT_KEYS = (("start", "start_offset"), ("end", "end_offset"), ("label", "type"))


@dataclass(frozen=True)
class MarkedText:
    """A file of texts with spans.

    Attributes:
        rows: its texts.
        counts: ``rows``, ``words``, ``entities``, ``missing_rows`` (without text, or without spans in a file
            that has them), ``blank_lines``, ``unspelled_entities``: begin or end inside a word, or overlap
            another; training widens or leaves them out, scores keep them as they are.
        text_key: which key holds the text.
        label_key: which holds the spans; ``None``: none does.
    """

    rows: list[TaggedRow]
    counts: dict[str, int]
    text_key: str
    label_key: str | None


def read_marked_text(path: str, source: DataSource, labelled: bool = True) -> MarkedText:
    """Read a file of JSON lines, plain or ``.gz``.

    Args:
        path: the file.
        source: ``text`` and ``label``: keys as the user named them; else those stored with a model, where the
            file has them; else well-known ones. ``missing``: a row without text or spans: "error" or "skip".
        labelled: read the spans too; else a row without text comes back without words, saying what it lacks.

    Raises:
        InputError: a file or key is missing, a span is none or does not fit its text; the line is named.
    """
    table = open_table(path)
    stored = source.stored or Columns("text")
    text_key = _key(table, "--text", source.text, (stored.text, *TEXT_KEYS))
    label_keys = (stored.label, *LABEL_KEYS)
    label_key = _key(table, "--label", source.label, label_keys) if labelled else None
    if text_key is None:
        raise InputError(
            f"{path}: no key is known to be the text; name it with --text; keys: {', '.join(table.columns)}"
        )
    rows = list(_rows(table, text_key, label_key))
    lacking = [row for row in rows if row.missing]
    if labelled and lacking and source.missing == "error":
        named = ", ".join(f"line {row.line} ({' and '.join(row.missing)})" for row in lacking[:5])
        raise InputError(f"{path}: {len(lacking)} rows lack a value: {named}; mend them, or --missing skip")
    if labelled:
        rows = [row for row in rows if not row.missing]
    counts = {
        "rows": len(rows),
        "missing_rows": len(lacking),
        **table.counts,
        "words": sum(len(row.words) for row in rows),
        "entities": sum(len(row.entities or ()) for row in rows),
        "unspelled_entities": sum(map(count_unspelled, rows)),
    }
    return MarkedText(rows, counts, text_key, label_key)


def _key(table: Table, flag: str, named: str | None, known: tuple[str | None, ...]) -> str | None:
    if named is not None and named not in table.columns:
        raise InputError(f"{table.path}: no key {named!r} ({flag}); {nearest(named, list(table.columns))}")
    return named or next((key for key in known if key in table.columns), None)


def _rows(table: Table, text_key: str, label_key: str | None) -> Iterator[TaggedRow]:
    for document, (line, values) in enumerate(table.records):
        where = f"{table.path}, line {line}"
        text, spans = values.get(text_key), values.get(label_key) if label_key else None
        if text is not None and not isinstance(text, str):
            raise InputError(f"{where}: {text_key!r} is {json.dumps(text)[:40]}; a text has to be a string")
        lacking = [text_key] if not text else []
        if label_key is not None and spans is None:
            lacking.append(label_key)
        entities = None
        if text and spans is not None:
            entities = tuple(sorted(set(_entities(spans, text, where))))
        yield TaggedRow(text or "", words_of(text or ""), entities, line, document, tuple(lacking))


def _entities(spans: Any, text: str, where: str) -> Iterator[Entity]:
    if isinstance(spans, Mapping):
        yield from _cluener_entities(spans, text, where)
        return
    if not isinstance(spans, list):
        raise InputError(
            f"{where}: the spans are {json.dumps(spans, ensure_ascii=False)[:40]}; expected a list of "
            '{"start": 0, "end": 3, "label": "PER"} or [0, 3, "PER"]'
        )
    for span in spans:
        values: tuple[Any, ...] = ()
        spelling = None
        if isinstance(span, Mapping):
            values = tuple(
                next((span[name] for name in names if name in span), None) for names in _OBJECT_KEYS
            )
            spelling = span.get("text")
        elif isinstance(span, list):
            values = tuple(span)
        yield _entity(values, spelling, text, f"{where}: span {json.dumps(span, ensure_ascii=False)[:80]}")


def _cluener_entities(spans: Mapping[str, Any], text: str, where: str) -> Iterator[Entity]:
    """Yield the entities of CLUENER's form, whose pairs hold the last character, not the one behind it."""
    for label, spellings in spans.items():
        if not isinstance(spellings, Mapping) or not all(isinstance(v, list) for v in spellings.values()):
            raise InputError(
                f'{where}: label {label!r} holds no {{"spelling": [[first, last], …]}}; that is the form of '
                "an object of labels, else give a list of spans"
            )
        for spelling, pairs in spellings.items():
            for pair in pairs:
                is_pair = isinstance(pair, list) and len(pair) == 2 and type(pair[1]) is int
                values = (pair[0], pair[1] + 1, label) if is_pair else ()
                yield _entity(values, spelling, text, f"{where}: {label} {spelling!r} {json.dumps(pair)}")


def _entity(values: tuple[Any, ...], spelling: Any, text: str, where: str) -> Entity:
    if len(values) != 3 or type(values[0]) is not int or type(values[1]) is not int:
        raise InputError(f"{where}: expected first character, last (or the one behind it), and label")
    start, end, label = values
    if not isinstance(label, str) or not label:
        raise InputError(f"{where}: the label is {label!r}; expected a name")
    if not 0 <= start < end <= len(text):
        raise InputError(f"{where}: does not lie in the text of {len(text)} characters; mend the span")
    if spelling is not None and text[start:end] != spelling:
        raise InputError(f"{where}: the text has {text[start:end]!r} there; mend the span")
    return Entity(start, end, label)
