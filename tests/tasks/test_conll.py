"""Files of columns: every form that is about, real files with their published counts, written back whole."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.tasks import conll
from bertsmith.tasks.conll import ColumnFile, find_split, lines_with_tags
from bertsmith.tasks.entities import Entity, entities_of, tags_of
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.tagged_rows import in_words
from tests.tasks.test_entities import conlleval

FOUR = (
    "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\nrejects VBZ I-VP O\n\n"
    "-DOCSTART- -X- O O\n\nPeter NNP I-NP I-PER\nBlackburn NNP I-NP I-PER\nRome NNP I-NP B-PER\n"
)


def write(path: Path, text: str) -> str:
    path.write_bytes(text.encode("utf-8"))
    return str(path)


def read_columns(path: str, **settings: str) -> ColumnFile:
    return conll.read_columns(path, DataSource(path, **settings))  # type: ignore[arg-type]


def test_words_entities_lines_and_documents(tmp_path: Path) -> None:
    columns = read_columns(write(tmp_path / "a.txt", FOUR))
    first, second = columns.rows
    assert (first.spelled, first.line, first.text) == (["EU", "rejects"], 3, "EU rejects")
    assert (second.spelled, second.line) == (["Peter", "Blackburn", "Rome"], 8)
    assert first.document != second.document
    assert second.entities == (Entity(0, 15, "PER"), Entity(16, 20, "PER"))
    assert in_words(second) == [Entity(0, 2, "PER"), Entity(2, 3, "PER")]
    assert (columns.scheme, columns.word_column, columns.tag_column) == ("iob1", 1, 4)
    assert columns.counts == {
        "rows": 2,
        "missing_rows": 0,
        "documents": 2,
        "words": 5,
        "entities": 3,
        "irregular_tags": 0,
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "\ufeff" + text.replace("\n", "\r\n"),
        lambda text: text.replace(" ", "\t"),
        lambda text: text.replace(" ", "  ").replace("\n", " \n"),
        lambda text: "\n\n" + text.replace("\n\n", "\n \n\t\n\n"),
        lambda text: text.replace("-DOCSTART- -X- O O\n\n", "-DOCSTART-\n"),
        lambda text: text.removeprefix("-DOCSTART- -X- O O\n\n") + "\n-DOCSTART- -X- O O\n",
    ],
)
def test_other_line_ends_delimiters_and_places_of_docstart(tmp_path: Path, change: object) -> None:
    expected = read_columns(write(tmp_path / "a.txt", FOUR)).rows
    found = read_columns(write(tmp_path / "b.txt", change(FOUR))).rows  # type: ignore[operator]
    assert [(row.spelled, row.entities) for row in found] == [(row.spelled, row.entities) for row in expected]
    assert found[0].document != found[1].document


def test_without_docstart_every_sentence_is_a_document(tmp_path: Path) -> None:
    rows = read_columns(write(tmp_path / "a.txt", "a O\nb O\n\nc O\n\nd O\n")).rows
    assert [row.document for row in rows] == [0, 1, 2]
    assert [row.line for row in rows] == [1, 4, 6]


def test_white_space_that_is_no_blank_is_a_word(tmp_path: Path) -> None:
    rows = read_columns(write(tmp_path / "a.txt", "\u3000 O\n\u00a0 O\n\u2028 B-X\n")).rows
    assert rows[0].spelled == ["\u3000", "\u00a0", "\u2028"]
    assert in_words(rows[0]) == [Entity(2, 3, "X")]
    tabs = read_columns(write(tmp_path / "b.txt", " \tB-X\nNew York\tI-X\n")).rows
    assert tabs[0].spelled == [" ", "New York"]


def test_columns_are_chosen_by_number(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", FOUR)
    chunks = read_columns(path, label="3")
    assert {entity.label for row in chunks.rows for entity in row.entities or ()} == {"NP", "VP"}
    assert read_columns(path, text="2", label="4").rows[0].spelled == ["NNP", "VBZ"]
    for name in ("0", "5", "-1", "ner", "²"):
        with pytest.raises(InputError, match="columns 1 to 4"):
            read_columns(path, label=name)


def test_a_single_column_has_no_tags(tmp_path: Path) -> None:
    columns = read_columns(write(tmp_path / "a.txt", "a\nb\n\nc\n"))
    assert [row.entities for row in columns.rows] == [None, None]
    assert (columns.scheme, columns.tag_column) == (None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a O\nb\n", "line 2: 1 columns, the lines before have 2"),
        ("a O\nb O O\n", "line 2: 3 columns"),
        ("a\tO\n\tO\n", "line 2: an empty column"),
        ("a O\n\nb B-X\nc PER\n", "line 4: tag 'PER' is of no known scheme"),
        ("a B-X\nb E-X\n\nc U-X\n", "no scheme has together"),
        ("\n\n", "no word in it"),
        ("", "no word in it"),
        ("-DOCSTART- O\n", "no word in it"),
    ],
)
def test_broken_files_are_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_columns(write(tmp_path / "a.txt", text))
    assert "a.txt" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_named_scheme_is_demanded(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "a B-X\nb I-X\n\nc O\nd I-X\n")
    assert read_columns(path).counts["irregular_tags"] == 1
    assert read_columns(path).scheme == "iob2"
    with pytest.raises(InputError, match=r"line 5: tag 'I-X' is not as iob2 writes it \(B-X\)"):
        read_columns(path, scheme="iob2")
    with pytest.raises(InputError, match="scheme 'iobes' is unknown"):
        read_columns(path, scheme="iobes")


def test_files_of_a_directory(tmp_path: Path) -> None:
    assert find_split(tmp_path, "dev") is None
    (tmp_path / "eng.testa").touch()
    assert find_split(tmp_path, "dev") == tmp_path / "eng.testa"
    (tmp_path / "valid.txt.gz").touch()
    with pytest.raises(InputError, match=r"eng\.testa and valid\.txt\.gz"):
        find_split(tmp_path, "dev")
    with pytest.raises(InputError, match="'testa' is unknown"):
        find_split(tmp_path, "testa")


def test_tags_are_written_behind_the_lines_they_belong_to(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", "\ufeff" + FOUR.replace("\n", "\r\n"))
    written = "".join(lines_with_tags(path, iter([["B-ORG", "O"], ["O", "O", "S-LOC"]])))
    lines = [line.rpartition(" ")[2] for line in written.splitlines() if line]
    assert lines == ["O", "B-ORG", "O", "O", "O", "O", "S-LOC"]
    assert [line.rpartition(" ")[0] for line in written.splitlines()] == FOUR.splitlines()
    tabs = write(tmp_path / "b.txt", "a b\tO\n\nc\tO")
    assert "".join(lines_with_tags(tabs, iter([["O"], ["B-X"]]))) == "a b\tO\tO\n\nc\tO\tB-X\n"


@pytest.mark.parametrize(
    "numbers", [("train", 14041, 203621, 23499), ("dev", 3250, 51362, 5942), ("test", 3453, 46435, 5648)]
)
def test_conll_2003_has_its_published_counts_in_both_schemes(
    shared_data: Path, numbers: tuple[str, int, int, int]
) -> None:
    split, sentences, words, entities = numbers
    documents = {"train": 946, "dev": 216, "test": 231}[split]
    first = find_split(shared_data / "conll2003", split)
    second = find_split(shared_data / "conll2003" / "iob2", split)
    iob1, iob2 = read_columns(str(first)), read_columns(str(second))
    assert (iob1.scheme, iob2.scheme) == ("iob1", "iob2")
    for columns in (iob1, iob2):
        assert columns.counts["rows"] == sentences
        assert columns.counts["words"] == words
        assert columns.counts["entities"] == entities
        assert columns.counts["documents"] == documents
        assert columns.counts["irregular_tags"] == 0
    assert [row.entities for row in iob1.rows] == [row.entities for row in iob2.rows]


def test_c043_iob1_scores_as_the_same_file_in_iob2(shared_data: Path, tmp_path: Path) -> None:
    """The script's counts on the real file against shifted predictions do not depend on the scheme."""
    path = str(shared_data / "conll2003" / "eng.testb.gz")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        sentences = [block.splitlines() for block in file.read().split("\n\n")]
    gold = [
        [line.split()[-1] for line in lines] for lines in sentences if lines and "-DOCSTART-" not in lines[0]
    ]
    predicted = [["O", *tags[:-1]] for tags in gold]  # shifted by a word: mostly wrong, stray tags
    as_iob2 = [tags_of(entities_of(tags), len(tags), "iob2") for tags in gold]
    assert conlleval(gold, predicted) == conlleval(as_iob2, predicted)
    rows = read_columns(path).rows
    assert [tags_of(in_words(row), len(row.words), "iob1") for row in rows] == gold
    text = "".join(lines_with_tags(path, iter(as_iob2)))
    (tmp_path / "both.txt").write_text(text, encoding="utf-8")
    again = read_columns(str(tmp_path / "both.txt"))
    assert again.scheme == "iob2"
    assert [row.entities for row in again.rows] == [row.entities for row in rows]


def test_chinese_characters_in_columns(shared_data: Path) -> None:
    weibo = read_columns(str(shared_data / "weibo_ner" / "weiboNER_2nd_conll.dev.gz"))
    assert (weibo.counts["rows"], weibo.counts["entities"]) == (270, 389)
    msra = read_columns(str(shared_data / "msra_ner" / "test.txt.gz"))
    assert (msra.counts["rows"], msra.counts["words"]) == (4631, 172601)
    assert (msra.counts["entities"], msra.counts["irregular_tags"]) == (
        6181 + 11,
        11,
    )  # B- tags, stray I- tags
