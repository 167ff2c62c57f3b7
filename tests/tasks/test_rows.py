"""Readers: no row vanishes, none is joined to another, line numbers are right."""

from __future__ import annotations

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.errors import InputError
from bertsmith.tasks import custom
from bertsmith.tasks.rows import Columns, find_columns, rows_of, several_labels
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.tables import open_table

ANY = {"text": None, "second_text": None, "label": None}


def read(path: Path, missing: str = "error", **named: str) -> list[tuple[str, str | None, str | None, int]]:
    table = open_table(str(path))
    columns = find_columns(table, None, {**ANY, **named}, None)
    return [(*row.texts, row.label, row.line) for row in rows_of(table, columns, missing)[0]]


def write(path: Path, content: str | bytes) -> Path:
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("name", ["rows.tsv", "rows.tsv.gz"])
def test_c027_quotes_in_tsv_are_plain_characters(tmp_path: Path, name: str) -> None:
    path = write(
        tmp_path / name, 'sentence\tlabel\n"only an opening quote\t1\nplain row\t0\nends " inside\t1\n'
    )
    assert read(path) == [
        ('"only an opening quote', None, "1", 2),
        ("plain row", None, "0", 3),
        ('ends " inside', None, "1", 4),
    ]


@pytest.mark.parametrize("row, fields", [("too\tmany\t1", 3), ("too few", 1)])
def test_c027_a_row_with_a_wrong_number_of_tabs_is_named(tmp_path: Path, row: str, fields: int) -> None:
    path = write(tmp_path / "rows.tsv", f"sentence\tlabel\nfine\t1\n{row}\nfine\t0\n")
    with pytest.raises(
        InputError, match=rf"rows\.tsv, line 3: {fields} fields, expected 2 \(sentence, label\)"
    ):
        read(path)


def test_a_row_of_csv_with_a_wrong_number_of_fields_is_named_by_its_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", 'text,label\n"two\nlines",a\n"three\n\nlines",b,c\n')
    with pytest.raises(InputError, match=r"rows\.csv, line 4: 3 fields, expected 2"):
        read(path)


def test_c029_words_for_nothing_are_text_in_csv(tmp_path: Path) -> None:
    path = write(tmp_path / "r.csv", "text,label\nNA,neg\nnull,pos\nNone,neg\nnan,pos\n,neg\nok,None\n")
    with pytest.raises(InputError, match=r"1 rows lack a value: line 6 \(text\)"):
        read(path)
    assert read(path, "skip") == [
        ("NA", None, "neg", 2),
        ("null", None, "pos", 3),
        ("None", None, "neg", 4),
        ("nan", None, "pos", 5),
        ("ok", None, "None", 7),
    ]


def test_c029_json_null_is_missing_and_the_word_is_not(tmp_path: Path) -> None:
    objects = [("NA", "neg"), ("null", "pos"), ("None", "neg"), ("nan", "pos"), (None, "neg"), ("ok", "None")]
    lines = [json.dumps({"text": text, "label": label}) for text, label in objects]
    path = write(tmp_path / "r.jsonl", "\n".join(lines) + "\n")
    with pytest.raises(InputError, match=r"1 rows lack a value: line 5 \(text\)"):
        read(path)
    table = open_table(str(path))
    rows, counts = rows_of(table, Columns("text", None, "label"), "skip")
    assert [row.texts[0] for row in rows] == ["NA", "null", "None", "nan", "ok"]
    assert counts == {"rows": 5, "missing_rows": 1, "blank_lines": 0}


def test_c029_several_missing_values_are_all_counted_and_named(tmp_path: Path) -> None:
    path = write(tmp_path / "r.tsv", "text\tlabel\n\t\na\t\n\tb\n" + "\tc\n" * 6)
    with pytest.raises(InputError, match=r"9 rows lack a value: line 2 \(text and label\), line 3 \(label\)"):
        read(path)


@pytest.mark.parametrize("name", ["w.csv", "w.csv.gz", "w.tsv", "w.jsonl", "w.jsonl.gz"])
def test_c009_bom_and_crlf(tmp_path: Path, name: str) -> None:
    separator = "\t" if ".tsv" in name else ","
    content = f"text{separator}label\r\nhello{separator}pos\r\nyes{separator}neg\r\n"
    if ".jsonl" in name:
        content = '{"text": "hello", "label": "pos"}\r\n{"text": "yes", "label": "neg"}\r\n'
    path = write(tmp_path / name, b"\xef\xbb\xbf" + content.encode())
    assert [row[:3] for row in read(path)] == [("hello", None, "pos"), ("yes", None, "neg")]


@given(st.lists(st.tuples(st.text(min_size=1).filter(str.strip), st.sampled_from(["a", 'b"', "c,d"]))))
def test_every_row_that_the_csv_module_writes_comes_back(rows: list[tuple[str, str]]) -> None:
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL)
    writer.writerows([("text", "label"), *rows])
    try:
        content = buffer.getvalue().encode()
    except UnicodeEncodeError:  # a lone surrogate is no text that a file can hold
        return
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = write(Path(directory) / "rows.csv", content)
        assert [(row[0], row[2]) for row in read(path)] == rows


def test_line_separators_of_unicode_do_not_end_a_row(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.tsv", "text\tlabel\na\u2028b\x85c\x0bd\t1\n")
    assert read(path) == [("a\u2028b\x85c\x0bd", None, "1", 2)]


def test_an_unclosed_quote_does_not_swallow_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.csv", 'text,label\nfine,a\n"open,b\nmore,a\n')
    with pytest.raises(InputError, match=r"rows\.csv, line 3: broken CSV"):
        read(path)


def test_a_text_longer_than_the_csv_modules_limit_is_read(tmp_path: Path) -> None:
    text = "word " * 50_000
    assert read(write(tmp_path / "rows.csv", f"text,label\n{text},a\n")) == [(text, None, "a", 2)]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("a.csv", b"", "empty"),
        ("a.jsonl", b"\n\n", "empty"),
        ("a.csv", b"text,text\nx,y\n", "column 'text' occurs twice"),
        ("a.tsv", b"text\tlabel\nfine\ta\nbad \xff\tb\n", "line 3: not UTF-8"),
        ("a.jsonl", b'{"text": "a", "label": "b"}\n{"text": \n', "line 2: no JSON"),
        ("a.jsonl", b'{"text": "a", "label": "b"}\n[1]\n', "line 2: a JSON list"),
        (
            "a.jsonl",
            b'{"text": "a", "label": ' + b"1" * 5000 + b"}\n",
            "line 1: JSON beyond what can be read",
        ),
        ("a.jsonl", b'{"text": ' + b"[" * 100_000 + b"\n", "line 1: JSON beyond what can be read"),
        ("a.jsonl", b'{"text": 7, "label": "b"}\n', "line 1: 'text' is 7, a text has to be a string"),
        ("a.jsonl", b'{"text": "a", "label": ["b"]}\n', "line 1: 'label' is a list"),
        ("a.csv", b"title,label\na,b\n", "no column is known to be the text.*columns: title, label"),
        ("a.csv", b"text,sentence,label\na,b,c\n", "several columns could be the text"),
        ("a.xlsx", b"", r"the name has to end in \.csv, \.tsv or \.jsonl"),
    ],
)
def test_broken_files_are_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(write(tmp_path / name, content))


def test_a_cut_gzip_file_is_named(tmp_path: Path) -> None:
    whole = gzip.compress(b"text\tlabel\n" + b"".join(b"row %d\t1\n" % n for n in range(5000)))
    (tmp_path / "cut.tsv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InputError, match=r"cut\.tsv\.gz: damaged or cut gzip file after line \d+"):
        read(tmp_path / "cut.tsv.gz")


def test_a_missing_file_or_label_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        open_table(str(tmp_path / "none.csv"))
    path = write(tmp_path / "rows.csv", "text,stars\na,5\n")
    with pytest.raises(InputError, match="name it with --label; columns: text, stars"):
        custom.read_file(DataSource(str(path)), str(path))
    with pytest.raises(InputError, match=r"no column 'star' \(--label\); did you mean 'stars'"):
        custom.read_file(DataSource(str(path), label="star"), str(path))
    lines = write(tmp_path / "rows.txt", "fine\tgood\nbad\tpoor\n")
    with pytest.raises(InputError, match=r"make it a \.tsv whose first line names the columns"):
        custom.read_file(DataSource(str(lines)), str(lines))


def test_blank_lines_are_counted_and_in_one_column_they_are_rows(tmp_path: Path) -> None:
    two = open_table(str(write(tmp_path / "two.tsv", "text\tlabel\na\t1\n\nb\t0\n\n")))
    rows, counts = rows_of(two, Columns("text", None, "label"), "error")
    assert [row.line for row in rows] == [2, 4]
    assert counts["blank_lines"] == 2
    for name in ("one.tsv", "one.csv"):
        one = open_table(str(write(tmp_path / name, "text\na\n\nb\n")))
        rows, _ = rows_of(one, Columns("text"), "keep")
        assert [(row.texts[0], row.missing) for row in rows] == [("a", ()), ("", ("text",)), ("b", ())]


@pytest.mark.parametrize(
    "header, columns",
    [
        ("sentence1\tsentence2\tscore", Columns("sentence1", "sentence2", "score")),
        ("Quality\t#1 String\t#2 String", Columns("#1 String", "#2 String", "Quality")),
        ("Text\tLabel", Columns("Text", None, "Label")),
        ("premise\thypothesis", Columns("premise", "hypothesis", None)),
        ("text\tsecond_text\tlabel", Columns("text", "second_text", "label")),
        ("text\ttext_pair\tlabel", Columns("text", "text_pair", "label")),
    ],
)
def test_columns_are_found_by_the_header(tmp_path: Path, header: str, columns: Columns) -> None:
    table = open_table(str(write(tmp_path / "rows.tsv", header + "\n")))
    assert find_columns(table, None, ANY, None) == columns


def test_stored_columns_win_over_found_ones_and_fix_whether_rows_are_pairs(tmp_path: Path) -> None:
    content = "sentence1,sentence2,body,label,verdict\na,b,c,d,e\n"
    path = str(write(tmp_path / "rows.csv", content))
    single = DataSource(path, stored=Columns("body", None, "verdict"))
    read = custom.read_file(single, path)
    assert read.columns == Columns("body", None, "verdict")
    assert read.unread == ("sentence1", "sentence2", "label")
    pair = DataSource(path, stored=Columns("gone", "lost", "verdict"))
    assert custom.read_file(pair, path).columns == Columns("sentence1", "sentence2", "verdict")
    with pytest.raises(InputError, match="the model takes pairs"):
        custom.read_file(DataSource(path, text="body", stored=Columns("x", "y", "verdict")), path)


def test_numbers_and_truth_values_of_json_are_labels_by_their_spelling(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", '{"text":"a","label":1}\n{"text":"b","label":true}\n')
    assert [row[2] for row in read(path)] == ["1", "true"]


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(InputError, match="missing is 'drop'"):
        DataSource("rows.csv", missing="drop")


@pytest.mark.parametrize(
    "named", [{"label": "text"}, {"text": "label"}, {"text": "text", "second_text": "text"}]
)
def test_a_column_cannot_be_two_things(tmp_path: Path, named: dict[str, str]) -> None:
    path = str(write(tmp_path / "rows.csv", "text,label\na,b\n"))
    with pytest.raises(InputError, match=r"column '(text|label)' would be read twice"):
        custom.read_file(DataSource(path, **named), path)


def test_keys_that_the_first_json_object_lacks_are_columns(tmp_path: Path) -> None:
    path = write(tmp_path / "r.jsonl", '{"id": 1}\n\n{"text": "a", "label": "b", "id": 2}\n{"text": "c"}\n')
    table = open_table(str(path))
    assert table.columns == ("id", "text", "label")
    rows, counts = rows_of(table, find_columns(table, None, ANY, None), "keep")
    assert [(row.texts[0], row.label, row.line, row.missing) for row in rows] == [
        ("", None, 1, ("text", "label")),
        ("a", "b", 3, ()),
        ("c", None, 4, ("label",)),
    ]
    assert counts == {"rows": 3, "missing_rows": 2, "blank_lines": 1}


def several(path: Path, separator: str | None = None, **more: Any) -> list[Any]:
    table = open_table(str(path))
    columns = Columns("text", None, "labels", separator)
    return rows_of(table, columns, more.get("missing", "error"), several_labels)[0]


def test_several_labels_of_a_list(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    values = [["b", "a"], [], ["None", "NA"], ["a", "a"], [1, True, 0.5], ["a;b"]]
    path.write_text("".join(json.dumps({"text": "x", "labels": value}) + "\n" for value in values))
    expected = [("a", "b"), (), ("NA", "None"), ("a",), ("0.5", "1", "true"), ("a;b",)]
    assert [row.label for row in several(path)] == expected


def test_several_labels_of_a_field(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('text,labels\nx,b; a\nx,\nx,null\n"x\ny",NA;None\n')
    assert [row.label for row in several(path, ";")] == [("a", "b"), (), ("null",), ("NA", "None")]
    assert [row.label for row in several(path, " ")] == [("a", "b;"), (), ("null",), ("NA;None",)]


@pytest.mark.parametrize(
    "value, separator, message",
    [
        ("a;b", None, r"a\.jsonl, line 2: 'labels' is text, so that several labels need --label-separator"),
        ("a;;b", ";", "'labels' has an empty label in it"),
        ("a;", ";", "'labels' has an empty label in it"),
        (["a", ""], None, "'labels' has an empty label in it"),
        (["a", None], None, "'labels' has an empty label in it"),
        (["a", ["b"]], None, "a label is a string or number"),
        ({"a": 1}, None, r"'labels' is {\"a\": 1}; expected a list of labels"),
        (3, None, "expected a list of labels"),
    ],
)
def test_labels_that_cannot_be_told_are_named(
    tmp_path: Path, value: Any, separator: str | None, message: str
) -> None:
    path = tmp_path / "a.jsonl"
    rows = [{"text": "x", "labels": []}, {"text": "y", "labels": value}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(InputError, match=message):
        several(path, separator)


def test_c029_a_null_of_several_labels_is_missing_and_an_empty_list_is_not(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "x", "labels": []}\n{"text": "y", "labels": null}\n{"text": "z"}\n')
    with pytest.raises(InputError, match=r"2 rows lack a value: line 2 \(labels\), line 3 \(labels\)"):
        several(path)
    assert [row.label for row in several(path, missing="skip")] == [()]
