"""Reading raw text: files and standard input become documents, streaming, with everything odd counted.

The end of a line is LF or CR LF, nothing else. The other characters that some programs take for line ends (a
lone CR, vertical tab, form feed, U+001C to U+001E, U+0085, U+2028, U+2029) become a space, so the text after
them is kept. NUL, U+FFFD and U+FEFF are removed from the text.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError
from bertsmith.remote import Location
from bertsmith.text.config import CorpusConfig
from bertsmith.text.corpus_files import list_files, total_bytes
from bertsmith.text.prose import fault_of_line
from bertsmith.text.streams import TextBlock, TextFile, is_json_lines

OnLine = Callable[[Location, int, str], None]
"""Is told of each line after it was cleaned and counted: its file, its number from 1 and the clean text."""

_LOG = logging.getLogger(__name__)
_REMOVED = re.compile("[\x00\ufffd\ufeff\ud800-\udfff]")
_FOREIGN_LINE_ENDS = re.compile("[\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029]")
_ODD_CHARACTERS = "\x00\ufffd\ufeff\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""Those of the two patterns that UTF-8 can hold; a text without them needs no cleaning line by line."""
_MOST_LINE_HASHES = 4_000_000
"""Distinct lines remembered to find repeated ones; about 100 bytes each."""
_REPEATED_SHARE_WORTH_A_WARNING = 0.1


@dataclass
class CorpusCounts:
    """What was read, and what was odd about it.

    Attributes:
        files: files read, standard input included.
        documents: documents with at least one line left.
        empty_documents: documents that held nothing, or nothing that the prose filter kept.
        lines: non-empty lines read, dropped ones included.
        characters: characters of the lines that were kept.
        sentences: sentences of the documents; whoever splits them counts them.
        invalid_utf8_lines: lines with bytes that are no UTF-8; the bytes were removed.
        nul_characters: NUL characters removed.
        replacement_characters: U+FFFD removed that were in the file already.
        surrogate_characters: halves of surrogate pairs removed (JSON escapes can make them).
        foreign_line_ends: characters replaced by a space that some programs take for line ends.
        bom_files: files that start with a byte order mark.
        crlf_files: files with lines that end in CR LF.
        dropped_lines: lines dropped by the prose filter, by reason.
        repeated_lines: kept lines that are equal to an earlier one (a lower bound beyond four million
            distinct lines).
        line_hashes: of the distinct lines; not part of ``to_dict``.
    """

    files: int = 0
    documents: int = 0
    empty_documents: int = 0
    lines: int = 0
    characters: int = 0
    sentences: int = 0
    invalid_utf8_lines: int = 0
    nul_characters: int = 0
    replacement_characters: int = 0
    surrogate_characters: int = 0
    foreign_line_ends: int = 0
    bom_files: int = 0
    crlf_files: int = 0
    dropped_lines: dict[str, int] = field(default_factory=dict)
    repeated_lines: int = 0
    line_hashes: set[int] = field(default_factory=set, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON types."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "line_hashes"}
        values["dropped_lines"] = dict(sorted(self.dropped_lines.items()))
        values["repeated_lines_share"] = round(self.repeated_share, 6)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> CorpusCounts:
        """Return the counts that ``to_dict`` was made of, without the hashes of lines."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})

    @property
    def repeated_share(self) -> float:
        """Share of the kept lines that are equal to an earlier one, 0 to 1."""
        kept = self.lines - sum(self.dropped_lines.values())
        return self.repeated_lines / kept if kept else 0.0

    def add(self, other: CorpusCounts) -> None:
        """Add the counts of another part of the corpus; lines that both parts hold count as repeated."""
        for item in fields(self):
            if item.name not in ("dropped_lines", "line_hashes"):
                setattr(self, item.name, getattr(self, item.name) + getattr(other, item.name))
        for reason, number in other.dropped_lines.items():
            self.dropped_lines[reason] = self.dropped_lines.get(reason, 0) + number
        self.repeated_lines += len(self.line_hashes & other.line_hashes)
        room = _MOST_LINE_HASHES - len(self.line_hashes)
        if len(other.line_hashes) <= room:
            self.line_hashes |= other.line_hashes
        else:
            self.line_hashes.update(sorted(other.line_hashes - self.line_hashes)[: max(room, 0)])

    def warnings(self) -> list[str]:
        """Return what a user should know about the corpus, one line each."""
        found = []
        if self.invalid_utf8_lines:
            lines = "1 line" if self.invalid_utf8_lines == 1 else f"{self.invalid_utf8_lines} lines"
            found.append(f"{lines} with invalid UTF-8: the bad bytes were removed")
        if self.nul_characters:
            found.append(f"{self.nul_characters} NUL characters were removed")
        if self.surrogate_characters:
            found.append(f"{self.surrogate_characters} lone surrogates were removed")
        if self.foreign_line_ends:
            found.append(
                f"{self.foreign_line_ends} characters such as a lone CR or U+2028 were read as spaces: "
                "only LF and CR LF end a line"
            )
        if self.repeated_share >= _REPEATED_SHARE_WORTH_A_WARNING:
            found.append(
                f"{self.repeated_share:.0%} of the lines repeat an earlier line "
                f"({self.repeated_lines} lines): a model learns them by heart; remove duplicates"
            )
        return found

    def log_warnings(self) -> None:
        """Log what a user should know about the corpus."""
        for line in self.warnings():
            _LOG.warning("corpus: %s", line)


def read_documents(
    paths: Sequence[str | Path], config: CorpusConfig, counts: CorpusCounts, on_line: OnLine | None = None
) -> Iterator[list[str]]:
    """Yield the documents of a corpus, one after another, each as its non-empty lines.

    Memory is that of the largest document, and of the hashes of distinct lines (see ``CorpusCounts``).

    Args:
        paths: files, directories or ``-``; see ``corpus_files.list_sources``.
        config: how the text is read.
        counts: is added to while reading.
        on_line: is told of every line of the files, empty ones included, before its document is yielded.

    Yields:
        A document: its lines (paragraphs), clean and without surrounding white space; never empty.

    Raises:
        InputError: a file is broken, or a line of a .jsonl has no text; names the file and the line.
    """
    return CorpusReader(list_files([str(path) for path in paths]), config, counts, on_line).documents()


class CorpusReader:
    """Reads the documents of files, and knows how far it is by the bytes that were read."""

    def __init__(
        self,
        files: Sequence[Location],
        config: CorpusConfig,
        counts: CorpusCounts,
        on_line: OnLine | None = None,
    ) -> None:
        """Make a reader.

        Args:
            files: what ``list_files`` returned.
            config: how the text is read.
            counts: is added to while reading.
            on_line: is told of every line; see ``read_documents``.
        """
        self._bytes = total_bytes(files)
        self._files = files
        self._config = config
        self._counts = counts
        self._on_line = on_line
        self._read = 0

    def documents(self) -> Iterator[list[str]]:
        """Yield the documents; see ``read_documents``."""
        read = 0
        for path in self._files:
            file = TextFile(path, self._config.documents == "line")
            crlf_files = self._counts.crlf_files
            for block in file.blocks():
                self._read = read + file.num_bytes
                yield from block_documents(block, self._config, self._counts, self._on_line)
            read += file.num_bytes
            self._counts.files += 1
            self._counts.crlf_files = min(self._counts.crlf_files, crlf_files + 1)

    def fraction(self) -> float | None:
        """Return the share of the corpus that was read; ``None``: unknown."""
        return self._read / self._bytes if self._bytes else None


def block_documents(
    block: TextBlock, config: CorpusConfig, counts: CorpusCounts, on_line: OnLine | None = None
) -> Iterator[list[str]]:
    """Yield the documents of a block of text; see ``read_documents``.

    Args:
        block: whole documents of a file.
        config: how the text is read.
        counts: is added to, all but ``files``; ``crlf_files`` by one for a block with such lines.
        on_line: is told of every line; see ``read_documents``.
    """
    read = _json_documents if is_json_lines(block.path) else _text_documents
    for lines in read(block, config, counts, on_line):
        document = _kept_lines(lines, config, counts)
        if document:
            counts.documents += 1
            yield document
        else:
            counts.empty_documents += 1


def _text_documents(
    block: TextBlock, config: CorpusConfig, counts: CorpusCounts, on_line: OnLine | None
) -> Iterator[list[str]]:
    document: list[str] = []
    for _, line in _clean_lines(block, config, counts, on_line):
        if line and config.documents == "blank-line":
            document.append(line)
        elif line:
            yield [line]
        elif document:
            yield document
            document = []
    if document:
        yield document


def _json_documents(
    block: TextBlock, config: CorpusConfig, counts: CorpusCounts, on_line: OnLine | None
) -> Iterator[list[str]]:
    for number, line in _clean_lines(block, config, counts, on_line):
        if not line:
            continue
        where = f"corpus {block.path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{where}: not JSON ({error}); each line has to be one JSON object") from None
        text = record.get(config.text_field) if isinstance(record, dict) else None
        if not isinstance(text, str):
            raise InputError(
                f"{where}: no text in the field {config.text_field!r}; each line has to be a JSON object "
                "with it (the setting text_field names another field)"
            )
        lines = (_clean(part.removesuffix("\r"), counts) for part in text.split("\n"))
        yield [part for part in lines if part]


def _clean_lines(
    block: TextBlock, config: CorpusConfig, counts: CorpusCounts, on_line: OnLine | None
) -> Iterator[tuple[int, str]]:
    """Yield (line number, clean line) of a block, empty lines included."""
    text = _plain_text(block.data)
    lines: Iterator[str]
    if text is None:
        lines = _decoded_lines(block, config, counts)
    else:
        lines = map(str.strip, text.removesuffix("\n").split("\n"))
    for number, line in enumerate(lines, start=block.first_line):
        if on_line is not None:
            on_line(block.path, number, line)
        yield number, line


def _plain_text(data: bytes) -> str | None:
    """Return the text of bytes, ``None`` if something in them has to be cleaned or counted."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    return None if any(character in text for character in _ODD_CHARACTERS) else text


def _decoded_lines(block: TextBlock, config: CorpusConfig, counts: CorpusCounts) -> Iterator[str]:
    """Yield the clean lines of a block with odd bytes or characters, each looked at by itself."""
    has_crlf = False
    for number, raw in enumerate(block.data.removesuffix(b"\n").split(b"\n"), start=block.first_line):
        if raw.endswith(b"\r"):
            raw = raw[:-1]
            has_crlf = True
        if number == 1 and raw.startswith(b"\xef\xbb\xbf"):
            raw = raw[3:]
            counts.bom_files += 1
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            if config.invalid_utf8 == "error":
                raise InputError(
                    f"corpus {block.path}, line {number}: invalid UTF-8 ({error.reason}); mend the file, or "
                    "let invalid_utf8 be replace"
                ) from None
            counts.invalid_utf8_lines += 1
            line = raw.decode("utf-8", errors="ignore")
        yield _clean(line, counts)
    counts.crlf_files += has_crlf


def _clean(line: str, counts: CorpusCounts) -> str:
    if line.isascii() and line.isprintable():
        return line.strip()
    if _REMOVED.search(line):
        counts.nul_characters += line.count("\x00")
        counts.replacement_characters += line.count("\ufffd")
        counts.surrogate_characters += sum("\ud800" <= character <= "\udfff" for character in line)
        line = _REMOVED.sub("", line)
    line, replaced = _FOREIGN_LINE_ENDS.subn(" ", line)
    counts.foreign_line_ends += replaced
    return line.strip()


def _kept_lines(lines: list[str], config: CorpusConfig, counts: CorpusCounts) -> list[str]:
    kept = []
    for line in lines:
        counts.lines += 1
        fault = fault_of_line(line) if config.prose_only else None
        if fault is not None:
            counts.dropped_lines[fault] = counts.dropped_lines.get(fault, 0) + 1
            continue
        counts.characters += len(line)
        _count_repeated(line, counts)
        kept.append(line)
    return kept


def _count_repeated(line: str, counts: CorpusCounts) -> None:
    key = int.from_bytes(blake2b(line.encode(), digest_size=8).digest(), "little")
    if key in counts.line_hashes:
        counts.repeated_lines += 1
    elif len(counts.line_hashes) < _MOST_LINE_HASHES:
        counts.line_hashes.add(key)
