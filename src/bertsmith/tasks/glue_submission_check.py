"""What is wrong with a GLUE submission, ours or anyone's: every problem, with its file and line."""

from __future__ import annotations

import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bertsmith.config import nearest
from bertsmith.errors import InputError
from bertsmith.tasks.glue_submission import HEADER, HIGHEST, LOWEST, SUBMISSION, SubmissionFile

_BOM = b"\xef\xbb\xbf"
_LARGEST_BYTES = 64 << 20  # the longest file, QQP.tsv, has 4 MB
_WHOLE = re.compile(r"[0-9]{1,18}")
_VALUE = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_ENCRYPTED = 0x1
_UNREADABLE = (zipfile.BadZipFile, NotImplementedError, EOFError, OSError, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Problem:
    """One kind of fault in one file.

    Attributes:
        file: the file within the zip.
        text: what is wrong at the first place, what is right.
        line: of the first place, from 1; ``None`` where the file as a whole is meant.
        count: how many lines have it.
    """

    file: str
    text: str
    line: int | None = None
    count: int = 1

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}, line {self.line}"
        more = "" if self.count == 1 else f" ({self.count - 1:,} more of this kind)"
        return f"{place}: {self.text}{more}"


def check_submission(path: Path) -> list[Problem]:
    """Return every problem of a zip; an empty list means that the leaderboard can score it.

    Raises:
        InputError: there is no such file, or it is no zip.
    """
    if not path.is_file():
        raise InputError(f"{path}: no such file; give the zip of a submission")
    try:
        archive = zipfile.ZipFile(path)
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
        raise InputError(f"{path}: no zip file ({error}); pack the eleven .tsv files into one") from None
    with archive:
        return list(_problems(archive))


def _problems(archive: zipfile.ZipFile) -> Iterator[Problem]:
    names = [info.filename for info in archive.infolist()]
    wanted = {file.name: file for file in SUBMISSION}
    for name in dict.fromkeys(names):
        if name not in wanted:
            yield Problem(name, _stranger(name, list(wanted)))
        elif names.count(name) > 1:
            yield Problem(name, f"is {names.count(name)} times in the zip; keep one")
    for name, file in wanted.items():
        if name not in names:
            yield Problem(name, f"is missing; expected a file of {file.rows:,} rows")
        else:
            yield from _problems_of_file(archive, file)


def _stranger(name: str, wanted: list[str]) -> str:
    bare = name.rsplit("/", 1)[-1]
    if bare in wanted:
        return f"is in a folder; put {bare} at the top of the zip"
    hint = "" if name.endswith("/") or bare.startswith(".") else f"; {nearest(bare, wanted)}"
    return f"does not belong to a submission; leave it out{hint}"


def _problems_of_file(archive: zipfile.ZipFile, file: SubmissionFile) -> Iterator[Problem]:
    info = archive.getinfo(file.name)
    if info.flag_bits & _ENCRYPTED:
        yield Problem(file.name, "is encrypted; pack it without a password")
    elif info.file_size > _LARGEST_BYTES:
        yield Problem(file.name, f"has {info.file_size:,} bytes; {file.rows:,} rows need far fewer")
    else:
        try:
            content = archive.read(info)
        except _UNREADABLE as error:
            yield Problem(file.name, f"cannot be read ({error}); pack it again")
        else:
            yield from _gathered(file.name, _faults(file, content))


def _gathered(name: str, faults: Iterator[tuple[int | None, str, str]]) -> Iterator[Problem]:
    """Yield one problem a kind, with the place of the first and the number of all."""
    found: dict[str, Problem] = {}
    for line, kind, text in faults:
        before = found.get(kind)
        found[kind] = replace(before, count=before.count + 1) if before else Problem(name, text, line)
    yield from found.values()


def _faults(file: SubmissionFile, content: bytes) -> Iterator[tuple[int | None, str, str]]:
    """Yield (line, kind, what is wrong) of one file."""
    if content.startswith(_BOM):
        yield 1, "bom", "begins with a byte order mark; write UTF-8 without it"
    lines = content.removeprefix(_BOM).split(b"\n")
    if not lines[-1]:
        lines.pop()  # the last line's end, not a line
    header = lines[0].removesuffix(b"\r") if lines else b""
    if header != HEADER.encode():
        shown = header[:40].decode("utf-8", "replace")
        yield 1, "header", f"the header is {shown!r}; expected {HEADER!r}, with a tab between"
    has_header = not header[:1].isdigit()  # without one the first line is a row like the others
    yield from _faults_of_rows(file, lines, start=1 if has_header else 0)


def _faults_of_rows(
    file: SubmissionFile, lines: list[bytes], start: int
) -> Iterator[tuple[int | None, str, str]]:
    indices = _Indices(file.rows)
    rows = 0
    for number, line in enumerate(lines[start:], start=start + 1):
        if line.endswith(b"\r"):
            yield number, "return", "the line ends with CR LF; end lines with LF"
        text, damage = _decoded(line.removesuffix(b"\r"))
        if damage:
            yield number, "encoding", damage
        if not text.strip():
            yield number, "blank", "the line is blank; leave it out"
            continue
        fields = text.split("\t")
        if len(fields) != 2:
            yield number, "fields", f"{len(fields)} fields; expected an index, a tab, a prediction"
        yield from ((number, *fault) for fault in indices.faults(fields[0]))
        rows += 1
        if len(fields) > 1:
            yield from ((number, *fault) for fault in _faults_of_prediction(file, fields[1]))
    if rows != file.rows:
        yield None, "rows", f"has {rows:,} rows; expected {file.rows:,}"
    yield from ((None, *fault) for fault in indices.gaps())


def _decoded(line: bytes) -> tuple[str, str | None]:
    try:
        return line.decode("utf-8"), None
    except UnicodeDecodeError:
        return line.decode("utf-8", "replace"), "is not UTF-8; write it in UTF-8"


class _Indices:
    """The indices of a file so far."""

    def __init__(self, rows: int) -> None:
        self._seen = bytearray(rows)
        self._highest = -1

    def faults(self, field: str) -> Iterator[tuple[str, str]]:
        """Yield what is wrong with the next row's index."""
        last = len(self._seen) - 1
        field, quoted = _unquoted(field)
        if quoted:
            yield "quoted index", f"the index {quoted} is quoted; write it without quotes"
        index = int(field) if _WHOLE.fullmatch(field) else None
        if index is None:
            yield "index", f"{_short(field)} is no index; expected a whole number from 0 to {last}"
        elif index > last:
            yield "beyond", f"index {index} is out of range; expected 0 to {last}"
        elif self._seen[index]:
            yield "repeated", f"index {index} was there before; each has to occur once"
        else:
            self._seen[index] = 1
            if index < self._highest:
                yield "order", f"index {index} stands behind {self._highest}; keep the order of the test rows"
            self._highest = max(index, self._highest)

    def gaps(self) -> Iterator[tuple[str, str]]:
        """Yield which indices are missing, after the last row."""
        if number := self._seen.count(0):
            more = f" and {number - 1:,} others are" if number > 1 else " is"
            first, last = self._seen.index(0), len(self._seen) - 1
            yield "gap", f"index {first}{more} missing; expected 0 to {last} without a gap"


def _faults_of_prediction(file: SubmissionFile, field: str) -> Iterator[tuple[str, str]]:
    field, quoted = _unquoted(field)
    if quoted:
        yield "quoted", f"the prediction {quoted} is quoted; write it without quotes"
    if file.labels is not None:
        if field not in file.labels:
            yield "label", f"label {_short(field)} is unknown; expected {' or '.join(file.labels)}"
    elif not _VALUE.fullmatch(field):
        yield "value", f"{_short(field)} is no value; expected a number from {LOWEST:g} to {HIGHEST:g}"
    elif not LOWEST <= float(field) <= HIGHEST:
        yield "range", f"{_short(field)} is out of range; clip values to {LOWEST:g}..{HIGHEST:g}"


def _unquoted(field: str) -> tuple[str, str | None]:
    """Return the field without quotes around it, and the field as it was if there were any."""
    bare = field.strip("\"'")
    return (bare, _short(field)) if bare != field else (field, None)


def _short(field: str) -> str:
    return repr(field if len(field) <= 40 else f"{field[:40]}…")
