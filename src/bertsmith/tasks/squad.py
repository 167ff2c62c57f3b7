"""Questions on passages: the JSON of SQuAD (1.1, 2.0, CMRC 2018, XQuAD) and JSON lines of the same keys.

Passages are kept character for character, so that places in them stay what they are. An answer that does not
stand where the file says is looked for; it is listed and counted either way, and no question is dropped.
"""

from __future__ import annotations

import gzip
import json
import logging
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bertsmith.errors import InputError
from bertsmith.tasks.source import DataSource, RowSet
from bertsmith.tasks.tables import open_table

_LOG = logging.getLogger(__name__)
_LISTED = 50
_SURROGATE = re.compile("[\ud800-\udfff]")  # no UTF-8 file can hold one, so no answer may either


@dataclass(frozen=True)
class Gold:
    """One gold answer.

    Attributes:
        text: as it stands in the file.
        start: its first character in the passage; ``None``: it was not found there.
        end: the character behind its last one.
        as_stated: it stands where the file says; where the file says nothing, it stands somewhere.
    """

    text: str
    start: int | None
    end: int
    as_stated: bool = True


@dataclass(frozen=True)
class Question:
    """A question on a passage.

    Attributes:
        id: the file's name for it.
        question: its text.
        passage: the text that may hold the answer.
        golds: the gold answers; none where there is no answer, or none is known.
        impossible: the passage holds no answer.
        line: its line in a file of JSON lines; in SQuAD's JSON the how-manieth question it is, from 1.
        missing: keys without a value.
    """

    id: str
    question: str
    passage: str
    golds: tuple[Gold, ...]
    impossible: bool
    line: int
    missing: tuple[str, ...] = ()

    @property
    def texts(self) -> tuple[str, str]:
        """Question and passage."""
        return self.question, self.passage

    @property
    def label(self) -> str:
        """The gold answers in one text."""
        return " | ".join(gold.text for gold in self.golds)

    @property
    def lacking(self) -> tuple[str, ...]:
        """Keys without which there is nothing to answer."""
        return tuple(key for key in self.missing if key != "answers")


@dataclass(frozen=True)
class QuestionSet(RowSet[Question]):
    """The questions of one split."""

    def where(self, index: int) -> str:
        """Return which question it is, for messages."""
        return f"{self.path}, question {self.rows[index].id}:"

    def groups(self) -> list[list[int]]:
        """Return the questions on each passage: dev should hold no passage that was trained on."""
        found: dict[str, list[int]] = {}
        for index, row in enumerate(self.rows):
            found.setdefault(row.passage, []).append(index)
        return list(found.values())


def read_split(published: str | None, source: DataSource, split: str) -> QuestionSet | None:
    """Read the questions of one split.

    Args:
        published: pattern of the published files' names without ending, "{}" for the split; ``None``: own
            data.
        source: a file for each split, or a directory with published names.
        split: "train" or "dev".

    Returns:
        The questions that have what training and scores need; ``None`` without a file of that split.

    Raises:
        InputError: a file is missing or broken, a question lacks something (and is not to be skipped), or a
            flag would be ignored.
    """
    for flag, value in source.named.items():
        if value is not None:
            raise InputError(
                f"--{flag.replace('_', '-')} {value} would be ignored: questions have the keys question, "
                "context and answers; leave it out"
            )
    path = _path_of(published, source, split)
    if path is None:
        return None
    found = read_questions(path)
    lacking = [question for question in found if question.missing]
    if lacking and source.missing == "error":
        named = ", ".join(f"{row.id} ({' and '.join(row.missing)})" for row in lacking[:5])
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise InputError(
            f"{path}: {len(lacking)} questions lack a value: {named}{more}; mend them, or --missing skip"
        )
    rows = [question for question in found if not question.missing]
    if not rows:
        raise InputError(f"{path}: no question with a context and answers")
    counts = {"rows": len(rows), "missing_rows": len(lacking), **count_answers(rows, path)}
    return QuestionSet(rows, path, partial=".part." in Path(path).name, counts=counts)


def _path_of(published: str | None, source: DataSource, split: str) -> str | None:
    """Return the file of a split: as named, or by its published name in the directory."""
    if not Path(source.data).is_dir():
        return source.data if split == "train" else source.dev
    if published is None:
        raise InputError(f"{source.data}: a directory; name a .jsonl or .json file of questions")
    if source.dev is not None:
        raise InputError(
            f"--dev {source.dev} would be ignored: {source.data} is a directory with files of fixed names; "
            "leave it out, or name files"
        )
    names = [f"{published.format(split)}{ending}" for ending in (".json", ".json.gz")]
    found = sorted({path for name in names for path in Path(source.data).glob(name)})
    if len(found) > 1:
        listed = ", ".join(path.name for path in found)
        raise InputError(f"{source.data}: several files could be {split}: {listed}; name the file itself")
    return str(found[0]) if found else None


def read_questions(path: str) -> list[Question]:
    """Read every question of a file.

    Args:
        path: .json with SQuAD's nesting, or .json or .jsonl with one object a line: ``question``,
            ``context`` and, as far as known, ``id``, ``answers`` (a list of ``text`` and ``answer_start``,
            or one object of two such lists) and ``is_impossible``; ``.gz`` may follow.

    Raises:
        InputError: the file is missing, damaged, or of another form; the place is named.
    """
    found = list(_questions(path))
    if not found:
        raise InputError(f"{path}: no question in it")
    return found


def _questions(path: str) -> Iterator[Question]:
    if path == "-":
        raise InputError("questions are read from a file; give a .json or .jsonl file instead of -")
    if path.removesuffix(".gz").endswith(".json"):
        content = _whole_json(path)
        if content is not None:
            yield from _nested(content, path)
            return
    for line, values in open_table(path).records:
        yield _question(values, values.get("context"), line, f"{path}, line {line}")


def _whole_json(path: str) -> Mapping[str, Any] | None:
    """Return the content of a file that is one JSON object with ``data``; ``None`` for JSON lines."""
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    try:
        raw = gzip.decompress(Path(path).read_bytes()) if path.endswith(".gz") else Path(path).read_bytes()
        content = json.loads(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason}); convert the file to UTF-8") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path}: damaged or cut gzip file ({error})") from None
    except json.JSONDecodeError as error:
        if error.msg == "Extra data":
            return None
        raise InputError(f"{path}: no JSON ({error}); copy the file again") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: JSON beyond what can be read ({error})") from None
    if isinstance(content, dict) and "data" not in content and "question" in content:
        return None  # a single line
    if not isinstance(content, dict):
        raise InputError(
            f"{path}: a JSON {type(content).__name__}; expected an object with data, as SQuAD has"
        )
    return content


def _nested(content: Mapping[str, Any], path: str) -> Iterator[Question]:
    number = 0
    for a, article in enumerate(_items(content, "data", path)):
        for p, paragraph in enumerate(_items(article, "paragraphs", f"{path}: data[{a}]")):
            place = f"{path}: data[{a}].paragraphs[{p}]"
            for q, values in enumerate(_items(paragraph, "qas", place)):
                number += 1
                yield _question(values, paragraph.get("context"), number, f"{place}.qas[{q}]")


def _items(parent: Any, key: str, place: str) -> list[Any]:
    items = parent.get(key) if isinstance(parent, dict) else None
    if not isinstance(items, list):
        raise InputError(f"{place}: no list {key!r}; expected SQuAD's form: data, paragraphs, qas")
    return items


def _question(values: Any, passage: Any, line: int, place: str) -> Question:
    if not isinstance(values, dict):
        raise InputError(f"{place}: a JSON {type(values).__name__}; expected an object with question")
    texts = {"question": values.get("question"), "context": passage}
    for key, text in texts.items():
        if text is not None and not isinstance(text, str):
            raise InputError(f"{place}: {key} is {json.dumps(text)[:40]}; expected a string")
        texts[key] = text and _SURROGATE.sub("\ufffd", text)
    impossible = values.get("is_impossible")
    if impossible is not None and not isinstance(impossible, bool):
        raise InputError(f"{place}: is_impossible is {json.dumps(impossible)[:40]}; expected true or false")
    answers = values.get("answers")
    whole = texts["context"] or ""
    golds = tuple(_gold(text, start, whole, place) for text, start in _answers(answers, place))
    known = texts | {"answers": [] if impossible else answers}
    return Question(
        id=str(line if values.get("id") is None else values["id"]),
        question=texts["question"] or "",
        passage=whole,
        golds=golds,
        impossible=bool(impossible) or (answers is not None and not any(gold.text for gold in golds)),
        line=line,
        missing=tuple(key for key, value in known.items() if value is None),
    )


def _answers(answers: Any, place: str) -> list[tuple[Any, Any]]:
    """Return (text, start) of each answer."""
    if answers is None:
        return []
    if isinstance(answers, dict):  # two lists side by side, as in tables of columns
        texts, starts = answers.get("text"), answers.get("answer_start")
        if isinstance(texts, list) and starts is None:
            starts = [None] * len(texts)
        if isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts):
            return list(zip(texts, starts, strict=True))
    elif isinstance(answers, list) and all(isinstance(answer, dict) for answer in answers):
        return [(answer.get("text"), answer.get("answer_start")) for answer in answers]
    raise InputError(
        f"{place}: answers is {json.dumps(answers)[:60]}; expected a list of text and answer_start"
    )


def _gold(text: Any, start: Any, passage: str, place: str) -> Gold:
    if not isinstance(text, str):
        raise InputError(f"{place}: the text of an answer is {json.dumps(text)[:40]}; expected a string")
    if start is not None and type(start) is not int:
        raise InputError(f"{place}: answer_start is {json.dumps(start)[:40]}; expected a whole number")
    if text and start is not None and start >= 0 and passage.startswith(text, start):
        return Gold(text, start, start + len(text))
    return found_near(passage, text, start)


def found_near(passage: str, text: str, start: int | None) -> Gold:
    """Return the answer at the place nearest to ``start`` where it stands.

    First in the same letters, then in small or capital ones and with any white space between its words.
    Without a ``start`` the first such place counts. An answer that stands nowhere has no place.
    """
    words = r"\s+".join(map(re.escape, text.split()))
    for pattern in (re.compile(re.escape(text)), re.compile(words, re.IGNORECASE)) if words else ():
        found = re.finditer(f"(?=({pattern.pattern}))", passage, pattern.flags)
        nearest = min(found, key=lambda match: abs(match.start() - (start or 0)), default=None)
        if nearest is not None:
            exact = nearest[1] == text
            return Gold(text, nearest.start(), nearest.end(1), as_stated=start is None and exact)
    return Gold(text, None, 0, as_stated=False)


def count_answers(questions: Sequence[Question], path: str) -> dict[str, int]:
    """Count the answers, those that do not stand where the file says, and of these those that stand nowhere.

    The second kind is named in a warning, question by question.
    """
    golds = [(question, gold) for question in questions for gold in question.golds if gold.text]
    wrong = [(question, gold) for question, gold in golds if not gold.as_stated]
    if wrong:
        named = ", ".join(
            f"{question.id} ({'found nowhere' if gold.start is None else f'found at {gold.start}'})"
            for question, gold in wrong[:_LISTED]
        )
        more = f" and {len(wrong) - _LISTED} more" if len(wrong) > _LISTED else ""
        _LOG.warning(
            "%s: %d of %d answers do not match the context: %s%s; one found elsewhere is learnt there, a "
            "question without any place teaches nothing; scores compare texts alone",
            *(path, len(wrong), len(golds), named, more),
        )
    lost = sum(gold.start is None for _, gold in wrong)
    return {"answers": len(golds), "mismatched_answers": len(wrong), "answers_found_nowhere": lost}
