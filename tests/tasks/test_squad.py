"""Reading questions: every form, exact places, and no question lost."""

from __future__ import annotations

import gzip
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from bertsmith.errors import InputError
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.squad import Gold, count_answers, found_near, read_questions
from bertsmith.tasks.task import TASKS

C037 = [
    (" Oslo is big.", "Oslo", 1),
    ("I saw Oslo.", "oslo", 6),
    ("I saw Oslo.", "Oslo", 5),
    ("pay \u00a0100\u00a0kr now", "100\u00a0kr", 5),
    ("Dr Müller", "Müller", 3),
]


def nested(*paragraphs: tuple[str, list[dict[str, Any]]]) -> dict[str, Any]:
    return {"version": "1.1", "data": [{"paragraphs": [{"context": c, "qas": q} for c, q in paragraphs]}]}


def write(path: Path, content: str) -> str:
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return str(path)


def test_all_forms_give_the_same_questions(tmp_path: Path) -> None:
    answers = [{"text": "Oslo", "answer_start": 0}, {"text": "is", "answer_start": 5}]
    rows = [
        {"id": "a", "question": "Where?", "context": "Oslo is big.", "answers": answers},
        {"id": "b", "question": "Who?", "context": "Oslo is big.", "answers": [], "is_impossible": True},
    ]
    tree = nested(("Oslo is big.", [{k: v for k, v in row.items() if k != "context"} for row in rows]))
    lines = "\r\n".join(json.dumps(row) for row in rows)
    columns = [dict(row, answers={"text": [a["text"] for a in row["answers"]]}) for row in rows]
    columns[0]["answers"]["answer_start"] = [0, 5]
    files = [
        write(tmp_path / "a.json", json.dumps(tree, indent=2)),
        write(tmp_path / "b.json.gz", json.dumps(tree)),
        write(tmp_path / "c.jsonl", "\ufeff" + lines),
        write(tmp_path / "d.json", lines),
        write(tmp_path / "e.jsonl.gz", "\n\n".join(json.dumps(row) for row in columns)),
    ]
    for path in files:
        first, second = read_questions(path)
        assert first.golds == (Gold("Oslo", 0, 4), Gold("is", 5, 7))
        assert (first.id, first.question, first.passage) == ("a", "Where?", "Oslo is big.")
        assert not first.impossible
        assert second.impossible
        assert second.golds == ()
    assert [question.line for question in read_questions(files[4])] == [1, 3]
    (single,) = read_questions(write(tmp_path / "f.json", json.dumps(rows[0])))
    assert single.id == "a"


def test_c037_places_are_kept_and_wrong_ones_listed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    qas = [
        (context, [{"id": f"q{n}", "question": "?", "answers": [{"text": text, "answer_start": start}]}])
        for n, (context, text, start) in enumerate(C037, start=1)
    ]
    questions = read_questions(write(tmp_path / "train.json", json.dumps(nested(*qas))))
    for question, (context, text, start) in zip(questions, C037, strict=True):
        assert question.passage == context, "not one character of a passage changes"
        (gold,) = question.golds
        assert gold.start is not None
        assert context[gold.start : gold.end].lower() == text.lower()
        assert gold.as_stated == (question.id in ("q1", "q4", "q5"))
        if gold.as_stated:
            assert gold.start == start
            assert context[gold.start : gold.end] == text
    with caplog.at_level(logging.WARNING):
        counts = count_answers(questions, "train.json")
    assert counts == {"answers": 5, "mismatched_answers": 2, "answers_found_nowhere": 0}
    assert "2 of 5 answers do not match the context: q2 (found at 6), q3 (found at 6)" in caplog.text


def test_answers_are_looked_for_near_the_stated_place() -> None:
    passage = "Bergen, oslo, Oslo and Oslo."
    assert found_near(passage, "Oslo", 15).start == 14
    assert found_near(passage, "Oslo", 22).start == 23
    assert found_near(passage, "OSLO", 9).start == 8, "in other letters where the same ones stand nowhere"
    assert found_near(passage, "Oslo", None) == Gold("Oslo", 14, 18)
    assert found_near(passage, "Rome", 3).start is None
    assert found_near("aaa", "aa", 1) == Gold("aa", 1, 3, as_stated=False), "also where places overlap"
    assert found_near("a.b axb", "a.b", 4).start == 0, "signs of patterns are letters like others"
    assert found_near("x", "", 0).start is None
    assert found_near("x", " ", 0).start is None
    for text in ("New York ", "new\u00a0york", "New  York"):
        assert found_near("in New York", text, 3) == Gold(text, 3, 11, as_stated=False)
    assert found_near("in  New \n York", "New York", None) == Gold("New York", 4, 14, as_stated=False)


def test_lost_answers_and_empty_texts(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [
        {"question": "", "context": "Oslo", "answers": [{"text": "Rome", "answer_start": -1}]},
        {"question": "?", "context": "", "answers": [{"text": "", "answer_start": 0}]},
        {"question": "?", "context": "Oslo"},
        {"question": "?", "answers": []},
    ]
    questions = read_questions(write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, rows))))
    assert [question.missing for question in questions] == [(), (), ("answers",), ("context",)]
    assert [question.lacking for question in questions] == [(), (), (), ("context",)]
    assert [question.impossible for question in questions] == [False, True, False, True]
    assert [question.id for question in questions] == ["1", "2", "3", "4"]
    with caplog.at_level(logging.WARNING):
        assert count_answers(questions, "x") == {
            "answers": 1,
            "mismatched_answers": 1,
            "answers_found_nowhere": 1,
        }
    assert "1 (found nowhere)" in caplog.text


def test_half_a_surrogate_pair_is_one_replacement_character(tmp_path: Path) -> None:
    row = {"question": "\ud800?", "context": "\udc00 Oslo", "answers": [{"text": "Oslo", "answer_start": 2}]}
    (found,) = read_questions(write(tmp_path / "x.jsonl", json.dumps(row)))
    assert (found.question, found.passage) == ("\ufffd?", "\ufffd Oslo")
    assert found.golds == (Gold("Oslo", 2, 6),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "no JSON"),
        ("[1]", "a JSON list"),
        ("{", "no JSON"),
        ('{"data": 3}', r"no list 'data'"),
        ('{"data": [{}]}', r"data\[0\]: no list 'paragraphs'"),
        ('{"data": [{"paragraphs": [{"context": "x"}]}]}', r"data\[0\]\.paragraphs\[0\]: no list 'qas'"),
        ('{"data": []}', "no question in it"),
        ('{"question": 3, "context": "x"}', "question is 3; expected a string"),
        ('{"question": "x", "context": "x", "is_impossible": "no"}', "is_impossible"),
        ('{"question": "x", "context": "x", "answers": "x"}', "answers is"),
        ('{"question": "x", "context": "x", "answers": {"text": ["x"], "answer_start": []}}', "answers is"),
        ('{"question": "x", "context": "x", "answers": [{"answer_start": 1}]}', "the text of an answer"),
        (
            '{"question": "x", "context": "x", "answers": [{"text": "x", "answer_start": "1"}]}',
            "answer_start is",
        ),
    ],
)
def test_broken_files_say_where(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_questions(write(tmp_path / "x.json", content))


def test_damaged_files(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_questions(str(tmp_path / "x.json"))
    (tmp_path / "y.json").write_bytes(b'{"data": "\xff"}')
    with pytest.raises(InputError, match="not UTF-8"):
        read_questions(str(tmp_path / "y.json"))
    (tmp_path / "z.json.gz").write_bytes(gzip.compress(b'{"data": []}')[:-4])
    with pytest.raises(InputError, match="damaged or cut gzip"):
        read_questions(str(tmp_path / "z.json.gz"))


def test_splits_are_found_by_their_published_names(tmp_path: Path) -> None:
    one = nested(("Oslo", [{"id": "a", "question": "?", "answers": [{"text": "Oslo", "answer_start": 0}]}]))
    write(tmp_path / "train-v1.1.json", json.dumps(one))
    write(tmp_path / "dev-v1.1.part.json.gz", json.dumps(one))
    write(tmp_path / "dev-v2.0.json", json.dumps(one))
    source = DataSource(str(tmp_path))
    train, dev = (TASKS["squad1"].read(source, split) for split in ("train", "dev"))
    assert train is not None
    assert dev is not None
    assert (train.partial, dev.partial) == (False, True)
    assert train.counts["rows"] == 1
    assert TASKS["squad2"].read(source, "train") is None
    write(tmp_path / "dev-v1.1.json", json.dumps(one))
    with pytest.raises(InputError, match=r"several files could be dev: dev-v1\.1\.json, dev-v1\.1\.part"):
        TASKS["squad1"].read(source, "dev")
    with pytest.raises(InputError, match="--dev x would be ignored"):
        TASKS["squad1"].read(DataSource(str(tmp_path), dev="x"), "train")
    with pytest.raises(InputError, match="a directory; name a"):
        TASKS["answer"].read(source, "train")
    files = DataSource(str(tmp_path / "train-v1.1.json"), dev=str(tmp_path / "dev-v2.0.json"))
    assert [TASKS["answer"].read(files, split).path for split in ("train", "dev")] == [files.data, files.dev]
    assert TASKS["answer"].read(DataSource(files.data), "dev") is None


def test_rows_that_lack_something_stop_or_are_counted(tmp_path: Path) -> None:
    rows = [
        {"question": "?", "context": "Oslo", "answers": [{"text": "Oslo"}]},
        {"question": "?", "context": "Oslo"},
        {"id": "x", "question": None, "answers": []},
        {"question": "?", "context": "Oslo", "is_impossible": True},
    ]
    path = write(tmp_path / "x.jsonl", "\n".join(map(json.dumps, rows)))
    with pytest.raises(InputError, match=r"2 questions lack a value: 2 \(answers\), x \(question and "):
        TASKS["answer"].read(DataSource(path), "train")
    kept = TASKS["answer"].read(DataSource(path, missing="skip"), "train")
    assert kept is not None
    assert [row.line for row in kept.rows] == [1, 4]
    assert (kept.counts["rows"], kept.counts["missing_rows"]) == (2, 2)
    assert kept.rows[1].impossible


def test_the_published_files(shared_data: Path) -> None:
    dev = read_questions(str(shared_data / "squad" / "dev-v2.0.rebuilt.json.gz"))
    assert (len(dev), sum(question.impossible for question in dev)) == (11873, 5945)
    assert count_answers(dev, "dev") == {
        "answers": 20302,
        "mismatched_answers": 0,
        "answers_found_nowhere": 0,
    }
    assert all(q.passage[g.start : g.end] == g.text for q in dev for g in q.golds)
    trial = read_questions(str(shared_data / "cmrc2018" / "cmrc2018_trial.json.gz"))
    assert count_answers(trial, "trial") == {
        "answers": 1002,
        "mismatched_answers": 5,
        "answers_found_nowhere": 0,
    }
    assert all(q.passage[g.start : g.end] == g.text for q in trial for g in q.golds), "found one place before"
