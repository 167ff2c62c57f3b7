from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.text.prose import fault_of_line

PROSE = [
    "This is a sentence.",
    '"No."',
    "'Oh?'",
    '"Eh? ... what? ..."',
    "He said:",
    '"Yes, but — — "',
    "To be, or not to be, that is the question:",
    "The rose is red,",
    "It happened in 1984.",
    "10,000 people came.",
    "- He left, and nobody ever saw him again.",
    "1. The first point is that it works.",
    "A line without a stop at its end that is as long as a paragraph of running text usually is in books",
    "他走了。",
    "“女……”阿Q想。",
    "哈哈！",
    "旭生先生：今天天气很好，",
    "根据《[[基本法|基本法]]》第104条，[[立法会|立法会]]举行会议，讨论了有关的问题。",
    "हिन्दी में लिखा गया एक वाक्य।",
    "Le prix est de 5 € « environ ».",
]

NO_PROSE = [
    ("Name | Age | City", "table"),
    ("| 2001 || gold || 3.4 |", "table"),
    ("one\ttwo\tthree", "table"),
    ("|---|---|", "table"),
    ("* * * * *", "few letters"),
    ("------", "few letters"),
    ("__________________", "few letters"),
    ("== + == + ==", "few letters"),
    ("1990 12.3 14.5 16.7", "many digits"),
    ("2019年", "many digits"),
    ("Answer: 60, 60-1/2.", "many digits"),
    ("• an item", "list"),
    ("* An item that ends with a stop.", "list"),
    ("- bread", "list"),
    ("1. Milk", "list"),
    ("a) Eggs", "list"),
    ("一、苹果", "list"),
    ("（二）梨", "list"),
    ("References", "header"),
    ("Contents:", "header"),
    ("CHAPTER I. DOWN THE RABBIT-HOLE", "header"),
    ("== History ==", "header"),
    ("第一章 总论", "header"),
    ("http://www.example.com/foo/bar", "header"),
]


@pytest.mark.parametrize("line", PROSE)
def test_prose_is_kept(line: str) -> None:
    assert fault_of_line(line) is None


@pytest.mark.parametrize("line, fault", NO_PROSE)
def test_what_is_no_prose_is_named(line: str, fault: str) -> None:
    assert fault_of_line(line) == fault


@pytest.mark.parametrize("part", ["books-en", "wiki-en", "zh"])
def test_nearly_all_paragraphs_of_real_prose_are_kept(part: str, shared_data: Path) -> None:
    lines = []
    for name in ("heldout", "train-00"):
        with gzip.open(shared_data / "corpus" / part / f"{name}.txt.gz", "rt", encoding="utf-8") as file:
            lines += [line for line in file.read().split("\n") if line]
    dropped = sum(fault_of_line(line) is not None for line in lines)
    assert len(lines) > 15_000
    assert dropped < 0.005 * len(lines)


@given(st.text(min_size=1).map(str.strip).filter(bool))
def test_any_line_is_judged(line: str) -> None:
    assert fault_of_line(line) in (None, "table", "few letters", "many digits", "list", "header")
