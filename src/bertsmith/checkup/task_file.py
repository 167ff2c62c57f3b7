"""The file of a task's rows as such: encoding, delimiter, quotes, broken rows. All of them, not the first."""

from __future__ import annotations

import codecs
import csv
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith.checkup.finding import Example, Finding, excerpt, judge, many
from bertsmith.tasks.tables import format_of, raw_lines

_WIDE = {codecs.BOM_UTF32_LE: "UTF-32", codecs.BOM_UTF16_LE: "UTF-16", codecs.BOM_UTF16_BE: "UTF-16"}
_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
_LONE_RETURN = re.compile(rb"\r(?!\n)")
_SAMPLED_LINES = 200
_STOPS = "finetune and evaluate stop at the first of them"


@dataclass(frozen=True)
class _Bad:
    """A broken row: its first line, from 1, and what is wrong with it."""

    line: int
    why: str


def file_findings(path: str, is_table: bool) -> list[Finding]:
    """Return what is wrong with a file, plain or gzipped.

    Args:
        path: the file.
        is_table: its name says CSV, TSV or JSON lines; else bytes alone are looked at.

    Raises:
        InputError: there is no such file, its gzip is damaged, or the name of a table says no format.
    """
    structures = {".csv": _of_csv, ".tsv": _of_tsv, ".jsonl": _of_json_lines}
    structure = structures.get(format_of(path)) if is_table else None
    raw = list(raw_lines(path))
    for mark, name in _WIDE.items():
        if raw and raw[0].startswith(mark):
            remedy = _converted(f"iconv -f {name} -t UTF-8", path)
            return judge(
                "wrong_encoding", 1.0, f"{path} is {name}", len(raw), "nothing of it is read", remedy
            )
    lines = [line.decode("utf-8", errors="replace") for line in raw]
    found = [*_of_encoding(path, raw, lines), *_of_line_ends(path, raw)]
    return [*found, *structure(path, lines)] if structure is not None and lines else found


def _converted(command: str, path: str) -> str:
    """Return a command line that sends a file, unpacked if it is packed, through a command into a new one."""
    suffix = Path(path.removesuffix(".gz")).suffix
    return f"{_unpacked(path)} | {command} > mended{suffix}"


def _unpacked(path: str) -> str:
    return f"gunzip -c {shlex.quote(path)}" if path.endswith(".gz") else f"cat {shlex.quote(path)}"


def _of_encoding(path: str, raw: Sequence[bytes], lines: Sequence[str]) -> list[Finding]:
    bad = [number for number, line in enumerate(raw, start=1) if not _decodes(line, "utf-8")]
    if not bad:
        return []
    # GB2312's two bytes are both above 0xA0, which accented letters between plain ones never are.
    is_chinese = all(_decodes(raw[number - 1], "gb2312") for number in bad)
    likely = "GB18030" if is_chinese else "WINDOWS-1252"
    return judge(
        "wrong_encoding",
        len(bad) / len(raw),
        f"{many(len(bad), 'line')} of {path} {'is' if len(bad) == 1 else 'are'} no UTF-8, likely {likely}",
        len(bad),
        _STOPS,
        _converted(f"iconv -f {likely} -t UTF-8", path),
        [Example(f"{path}:{number}", excerpt(lines[number - 1])) for number in bad[:2]],
    )


def _decodes(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _of_line_ends(path: str, raw: Sequence[bytes]) -> list[Finding]:
    alone = sum(len(_LONE_RETURN.findall(line)) for line in raw)
    return judge(
        "foreign_line_ends",
        alone / max(1, alone + sum(line.endswith(b"\n") for line in raw)),
        f"{many(alone, 'carriage return')} without a line feed in {path}",
        alone,
        "only a line feed ends a row: rows are glued together",
        _converted("tr '\\r' '\\n'", path) + " (where no line ends with both)",
    )


def _of_csv(path: str, lines: Sequence[str]) -> list[Finding]:
    if found := _of_delimiter(path, lines, ","):
        return found
    broken: list[_Bad] = []
    ragged: list[_Bad] = []
    width = rows = 0
    for line, fields, error in _csv_records(lines):
        width = width or len(fields)
        rows += 1
        if error:
            broken.append(_Bad(line, error))
        elif len(fields) != width and (fields or width == 1):
            ragged.append(_Bad(line, many(len(fields), "field")))
    remedy = (
        'put texts that hold a comma, a quote or a line break in quotes, and double the quotes inside: ""'
    )
    return [
        *judge(
            "broken_quotes",
            len(broken) / rows,
            f"{many(len(broken), 'row')} of {path} with quotes that do not close, or close too early",
            len(broken),
            _STOPS,
            remedy,
            _examples(path, broken, lines),
        ),
        *_of_ragged(path, ragged, rows, width, lines, remedy),
    ]


def _csv_records(lines: Sequence[str]) -> Iterator[tuple[int, list[str], str]]:
    """Yield first line, fields and error of each record."""
    csv.field_size_limit(2**31 - 1)
    reader = csv.reader(iter(lines), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            fields = next(reader, None)
        except csv.Error as error:
            yield line, [], str(error)
            continue
        if fields is None:
            return
        yield line, fields, ""


def _of_tsv(path: str, lines: Sequence[str]) -> list[Finding]:
    if found := _of_delimiter(path, lines, "\t"):
        return found
    split = [line.rstrip("\r\n").split("\t") for line in lines]
    width = len(split[0])
    ragged = [
        _Bad(number, many(len(fields), "field"))
        for number, fields in enumerate(split, start=1)
        if len(fields) != width and (fields != [""] or width == 1)
    ]
    quoted = [
        _Bad(number, "")
        for number, fields in enumerate(split, start=1)
        if any(len(field) > 1 and field[0] == field[-1] == '"' for field in fields)
    ]
    remedy = "replace tabs and line breaks inside texts by blanks, or save as .csv or .jsonl"
    return [
        *_of_ragged(path, ragged, len(split), width, lines, remedy),
        *judge(
            "quoted_fields",
            len(quoted) / len(split),
            f"{len(quoted):,} of {len(split):,} rows of {path} have a field within quotes, as in a CSV",
            len(quoted),
            "a TSV has no quoting: the quotes become part of texts and labels",
            _to_csv("\t", path),
            _examples(path, quoted, lines),
        ),
    ]


def _of_ragged(
    path: str, ragged: Sequence[_Bad], rows: int, width: int, lines: Sequence[str], remedy: str
) -> list[Finding]:
    return judge(
        "ragged_rows",
        len(ragged) / rows,
        f"{len(ragged):,} of {rows:,} rows of {path} do not have {many(width, 'field')} as the first one has",
        len(ragged),
        f"nobody knows which column a text belongs to: {_STOPS}",
        remedy,
        _examples(path, ragged, lines),
    )


def _of_delimiter(path: str, lines: Sequence[str], expected: str) -> list[Finding]:
    """Return a finding when the fields are parted by something else than the file's name says."""
    sample = [line for line in lines[:_SAMPLED_LINES] if line.strip()]
    if not sample or _agreement(sample, expected) > 0.5:
        return []
    best = max(_DELIMITERS, key=lambda delimiter: _agreement(sample, delimiter))
    if best == expected or _agreement(sample, best) < 0.9:
        return []
    return judge(
        "wrong_delimiter",
        1.0,
        f"the fields of {path} are parted by {_DELIMITERS[best]}, its name says {_DELIMITERS[expected]}",
        len(lines),
        "its columns are not found",
        _to_csv(best, path),
        [Example(f"{path}:1", excerpt(lines[0]))],
    )


def _agreement(lines: Sequence[str], delimiter: str) -> float:
    """Return the share of records with as many fields as the first, 0 if that has one only."""
    # A lone carriage return stops the reader; it is a finding of its own.
    plain = (line.rstrip("\r\n").replace("\r", " ") + "\n" for line in lines)
    records = [len(fields) for fields in csv.reader(plain, delimiter=delimiter) if fields]
    return records.count(records[0]) / len(records) if records and records[0] > 1 else 0.0


def _to_csv(delimiter: str, path: str) -> str:
    code = (
        f"import csv, sys; csv.writer(sys.stdout).writerows(csv.reader(sys.stdin, delimiter={delimiter!r}))"
    )
    return f'{_unpacked(path)} | python3 -c "{code}" > mended.csv'


def _of_json_lines(path: str, lines: Sequence[str]) -> list[Finding]:
    bad = [
        _Bad(number, why)
        for number, line in enumerate(lines, start=1)
        if line.strip() and (why := _no_object(line))
    ]
    code = "import json, sys; [print(json.dumps(row, ensure_ascii=False)) for row in json.load(sys.stdin)]"
    is_list = lines[0].lstrip().startswith("[")
    one_list = f'{_unpacked(path)} | python3 -c "{code}" > mended.jsonl (the file is one list)'
    return judge(
        "broken_json",
        len(bad) / len(lines),
        f"{len(bad):,} of {len(lines):,} lines of {path} hold no JSON object",
        len(bad),
        _STOPS,
        one_list if is_list else 'write one JSON object a line: {"text": ..., "label": ...}',
        _examples(path, bad, lines),
    )


def _no_object(line: str) -> str:
    """Return why a line is no JSON object; empty if it is one."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        return str(error).partition(":")[0]
    return "" if isinstance(value, dict) else type(value).__name__


def _examples(path: str, bad: Sequence[_Bad], lines: Sequence[str]) -> list[Example]:
    return [
        Example(f"{path}:{row.line}", (f"{row.why}: " if row.why else "") + excerpt(lines[row.line - 1]))
        for row in bad[:2]
    ]
