"""Files of columns as in the CoNLL shared tasks: one word a line, its tag in the last column.

Fields are parted by blanks or, in a line that holds one, by tabs; a blank line ends a sentence, a line that
begins with -DOCSTART- parts documents. In a file without such a line every sentence is its own document.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from bertsmith.errors import InputError
from bertsmith.tasks.entities import (
    OUTSIDE,
    SCHEMES,
    Entity,
    entities_of,
    find_scheme,
    irregular_tags,
    parts_of,
    tags_of,
)
from bertsmith.tasks.rows import Columns
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.tables import text_lines
from bertsmith.tasks.tagged_rows import TaggedRow, row_of_words

DOCUMENT_START = "-DOCSTART-"
SPLITS = {
    "train": ("eng.train", "train.txt", "train.conll"),
    "dev": ("eng.testa", "valid.txt", "dev.txt", "valid.conll", "dev.conll"),
    "test": ("eng.testb", "test.txt", "test.conll"),
}
"""Names of the files of a split in a directory; ``.gz`` may follow."""


@dataclass(frozen=True)
class ColumnFile:
    """A file of columns.

    Attributes:
        rows: its sentences.
        counts: ``rows``, ``documents``, ``words``, ``entities``, and ``irregular_tags``: tags that the scheme
            would have written otherwise (an I- that continues nothing); they are read as the script does.
        scheme: of the tags, a name in ``SCHEMES``; ``None``: the file has none.
        word_column: which column holds the words, counted from 1.
        tag_column: which holds the tags; ``None``: none does.
    """

    rows: list[TaggedRow]
    counts: dict[str, int]
    scheme: str | None
    word_column: int
    tag_column: int | None


@dataclass(frozen=True)
class _Sentence:
    """The fields of each line, the number of the first line, the document."""

    fields: list[list[str]]
    line: int
    document: int


def find_split(directory: Path, split: str) -> Path | None:
    """Return the file of a split in a directory, ``None`` if there is none.

    Raises:
        InputError: the split has no such name, or several files could be it.
    """
    if split not in SPLITS:
        raise InputError(f"split {split!r} is unknown; take one of {', '.join(SPLITS)}")
    paths = [directory / (name + packed) for name in SPLITS[split] for packed in ("", ".gz")]
    found = [path for path in paths if path.is_file()]
    if len(found) > 1:
        names = " and ".join(path.name for path in found)
        raise InputError(f"{directory}: {names} could both be the {split} file; name the file itself")
    return found[0] if found else None


def read_columns(path: str, source: DataSource, labelled: bool = True) -> ColumnFile:
    """Read a file of columns, plain or ``.gz``.

    Args:
        path: the file.
        source: ``text`` and ``label``: which columns hold words and tags, counted from 1; else those stored
            with a model, where the file has them; else the first and, if there are several, the last.
            ``scheme``: of the tags, a name in ``SCHEMES``: a tag that it would write otherwise is an error;
            ``None``: it is found, and such tags are counted.
        labelled: read the tags too.

    Raises:
        InputError: the file is missing or damaged, a line has more or fewer columns than the first, a tag is
            of no known scheme or not of the named one.
    """
    sentences = _sentences(path)
    if not sentences:
        raise InputError(f"{path}: no word in it; expected one word a line, blank lines between sentences")
    width = len(sentences[0].fields[0])
    stored = source.stored or Columns("1")
    word_at = _column(path, "--text", source.text or _fitting(stored.text, width) or "1", width)
    has_tags = labelled and (source.label is not None or width > 1)
    named = source.label or _fitting(stored.label, width) or str(width)
    tag_at = _column(path, "--label", named, width) if has_tags else None
    rows = []
    all_tags: list[list[str]] = []
    for sentence in sentences:
        words = [fields[word_at] for fields in sentence.fields]
        if tag_at is None:
            entities = None
        else:
            all_tags.append([fields[tag_at] for fields in sentence.fields])
            entities = _entities_of(path, sentence.line, all_tags[-1])
        rows.append(row_of_words(words, entities, sentence.line, sentence.document))
    found = None if tag_at is None else _scheme_of(path, sentences, all_tags, source.scheme)
    counts = {
        "rows": len(rows),
        "missing_rows": 0,
        "documents": len({row.document for row in rows}),
        "words": sum(len(row.words) for row in rows),
        "entities": sum(len(row.entities or ()) for row in rows),
        "irregular_tags": sum(len(irregular_tags(tags, found)) for tags in all_tags) if found else 0,
    }
    return ColumnFile(rows, counts, found, word_at + 1, None if tag_at is None else tag_at + 1)


def _sentences(path: str) -> list[_Sentence]:
    sentences: list[_Sentence] = []
    fields: list[list[str]] = []
    first = starts = width = 0
    for number, line in enumerate(chain(text_lines(path), [""]), start=1):
        found = fields_of(line)
        if found and found[0] != DOCUMENT_START:
            width = width or len(found)
            _check_fields(path, number, found, width)
            first = first if fields else number
            fields.append(found)
            continue
        if fields:
            sentences.append(_Sentence(fields, first, starts))
            fields = []
        starts += bool(found)
    if starts:
        return sentences
    return [dataclasses.replace(sentence, document=place) for place, sentence in enumerate(sentences)]


def fields_of(line: str) -> list[str]:
    """Return the fields of a line; none of a blank one.

    Only blanks and tabs part fields: other white space, such as U+3000, may be a word.
    """
    line = line.strip("\r\n")
    if not line.strip(" \t"):
        return []
    return line.split("\t") if "\t" in line else [field for field in line.split(" ") if field]


def _check_fields(path: str, number: int, fields: list[str], width: int) -> None:
    if len(fields) != width:
        raise InputError(
            f"{path}, line {number}: {len(fields)} columns, the lines before have {width}; mend the line"
        )
    if not all(fields):
        raise InputError(f"{path}, line {number}: an empty column; mend the line")


def _fitting(number: str | None, width: int) -> str | None:
    return number if number is not None and number.isdigit() and 1 <= int(number) <= width else None


def _column(path: str, flag: str, name: str, width: int) -> int:
    """Return the place of a column that is named by its number."""
    if not name.isascii() or not name.isdigit() or not 1 <= int(name) <= width:
        raise InputError(f"{path}: {flag} is {name!r}; the file has columns 1 to {width}, name one by number")
    return int(name) - 1


def _entities_of(path: str, line: int, tags: Sequence[str]) -> list[Entity]:
    try:
        return entities_of(tags)
    except InputError:
        for number, tag in enumerate(tags, start=line):
            try:
                parts_of(tag)
            except InputError as error:
                raise InputError(f"{path}, line {number}: {error}") from None
        raise


def _scheme_of(
    path: str, sentences: Sequence[_Sentence], all_tags: Sequence[Sequence[str]], named: str | None
) -> str:
    if named is None:
        try:
            return find_scheme(all_tags)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    if named not in SCHEMES:
        raise InputError(f"scheme {named!r} is unknown; take one of {', '.join(SCHEMES)}")
    for sentence, tags in zip(sentences, all_tags, strict=True):
        for place in irregular_tags(tags, named):
            right = tags_of(entities_of(tags), len(tags), named)[place]
            raise InputError(
                f"{path}, line {sentence.line + place}: tag {tags[place]!r} is not as {named} writes it "
                f"({right}); mend it, or leave out --scheme to read it as it is"
            )
    return named


def lines_with_tags(path: str, tags: Iterator[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a file of columns with one column more, the form that the CoNLL script scores.

    Args:
        path: the file.
        tags: of each sentence, one a word.
    """
    rest: list[str] = []
    is_inside = False
    for line in text_lines(path):
        line = line.strip("\r\n")
        fields = fields_of(line)
        is_word = bool(fields) and fields[0] != DOCUMENT_START
        if is_word and not is_inside:
            assert not rest, "a sentence has one tag a word"
            rest = list(next(tags, ()))[::-1]
        is_inside = is_word
        if fields:
            delimiter = "\t" if "\t" in line else " "
            line = f"{line.rstrip(' ')}{delimiter}{rest.pop() if is_word else OUTSIDE}"
        yield line + "\n"
    assert not rest, "a sentence has one tag a word"
    assert next(tags, None) is None, "one sequence of tags a sentence"
