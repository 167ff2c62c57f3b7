from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.text.config import CorpusConfig
from bertsmith.text.sentences import document_sentences, split_sentences

BOUNDARIES = Path(__file__).parents[2] / "benchmarks" / "sentence_boundaries.json"

# Sentences are separated by " | " where the paragraph has a space, by "|" where it has none.
ENGLISH = [
    "It rained. | We stayed in! | Did you? | Yes.",
    "Dr. Smith met Mr. and Mrs. Jones of St. Louis. | They talked.",
    "J. R. R. Tolkien wrote it. | H. G. Wells did not.",
    "E. A. Poe was born in the U.S. in 1809. | He died in Baltimore.",
    "He lived in the U.S. | The city was big.",
    "The U.S. Senate voted at 5 p.m. on Tuesday. | It failed.",
    "They came at 5 p.m. | Then they left.",
    "See Fig. 3 and vol. 2, pp. 4 and 5. | No. 7 is best, cf. Brown.",
    "Acme Inc. makes soap, oil, etc. | The firm is old.",
    "He wrote to Gens. Lee and Grant on Jan. 5. | Nobody answered.",
    "Smith et al. (1988) found none. | Brown et al. disagree.",
    "It costs 3.50 dollars. | That is version 2.0.1 of it.",
    "There were ten. | 12 came back. | 3,700 did not.",
    '"Who are you?" he asked. | "I am Tom." | He left.',
    '"Stop!" cried the old man. | "You there! | Stop!"',
    "“I found it. | I have done my duty; and I have nothing to say.” | He bowed.",
    "'It is late,' said Ann. | 'Go home.'",
    "She left. | (Nobody saw her.) | The door (was it open?) was shut.",
    "I wonder... he said. | I wonder... | Nobody knows.",
    "Oh! what a day it was. | Ah!! | Yes?! | No.",
    "He is taller than I. | Good for him.",
    "World War I. | Posted abroad, he wrote.",
    "It was [sic] so.[3] | The end.",
    "1. The first item. | The second sentence.",
    "IV. Of ghosts. | There are none.",
    "The web page is example.com. | Visit it, e.g. Today.",
    "He said no. | No means no.",
    "In 1990 she moved to St. Paul. | There she died.",
    "Prices rose by 5%. | 80% of the people noticed.",
    "Élan came. | Édouard left. | Ödön stayed.",
]

CHINESE = [
    "今天很好。|我们走吧！|真的吗？|是。",
    "他说：“你好。”|然后就走了。",
    "“你好！”他喊道。|“再见。”",
    "“我和你困觉！”|阿Q忽然抢上去。",
    "“我知道了。”|宝玉道：“很好。|我也知道。”",
    "小说（一九二一年。）很好。|《你好吗？》是书名。",
    "（一人上。）|谁在那里？|（不答。）|走吧。",
    "价格是3.14元。|2018年涨了。|SP-01也涨了！",
    "好吧……我走了。|他问“怎么了？”，没人回答。",
    "「你好。」|『再见！』|完。",
    "这两个问题？|问题不大。",
    "我用Python写的!|你呢?|好。",
    "大规模的战争！！！|结束了？！|是的。",
]


@pytest.mark.parametrize("marked", ENGLISH)
def test_english_is_split(marked: str) -> None:
    assert split_sentences(marked.replace(" | ", " ")) == marked.split(" | ")


@pytest.mark.parametrize("marked", CHINESE)
def test_chinese_is_split(marked: str) -> None:
    assert split_sentences(marked.replace("|", "")) == marked.split("|")


def test_mixed_text_is_split() -> None:
    assert split_sentences("He said 你好。 Then he left.他走了。") == [
        "He said 你好。",
        "Then he left.他走了。",
    ]


@pytest.mark.parametrize("paragraph", ["", " ", "\n\t "])
def test_nothing_gives_no_sentence(paragraph: str) -> None:
    assert split_sentences(paragraph) == []


@pytest.mark.parametrize(
    "language, part, least", [("en", "development", 0.995), ("en", "test", 0.99), ("zh", "test", 0.98)]
)
def test_hand_marked_paragraphs_are_split_as_marked(
    language: str, part: str, least: float, shared_data: Path
) -> None:
    rows = [
        row
        for row in json.loads(BOUNDARIES.read_text())[part]
        if row[0].startswith("zh") == (language == "zh")
    ]
    files = {}
    for name in {row[0] for row in rows}:
        with gzip.open(shared_data / "corpus" / name, "rt", encoding="utf-8", newline="\n") as file:
            files[name] = file.read().split("\n")
    right = found = marked = 0
    for name, number, starts in rows:
        text = files[name][number - 1]
        sentences = split_sentences(text)
        place = 0
        places = set()
        for sentence in sentences:
            place = text.index(sentence, place)
            places.add(place)
            place += len(sentence)
        places -= {0}
        right += len(places & set(starts))
        found += len(places)
        marked += len(starts)
    assert marked > 70
    assert 2 * right / (found + marked) >= least


def without_space(text: str) -> str:
    return "".join(text.split())


PIECES = st.sampled_from(
    [
        *".!?…。！？\"'”’“‘)(」「》《，：\n\u2028\x85 ",
        " Mr.",
        " U.S.",
        "...",
        "他说",
        "问",
        " The",
        " a",
        "1",
        " 2",
        "\u3000",
        "I",
    ]
)


@settings(max_examples=1500, deadline=None)
@given(st.one_of(st.text(max_size=80), st.lists(PIECES, max_size=40).map("".join)))
def test_no_character_but_space_is_lost_or_altered(paragraph: str) -> None:
    sentences = split_sentences(paragraph)
    assert without_space("".join(sentences)) == without_space(paragraph)
    assert all(sentence and sentence == sentence.strip() for sentence in sentences)
    place = 0
    for sentence in sentences:
        place = paragraph.index(sentence, place) + len(sentence)
    assert split_sentences(paragraph) == sentences


def test_no_character_of_real_text_is_lost(shared_data: Path) -> None:
    number = 0
    for part in ("books-en", "wiki-en", "zh"):
        with gzip.open(shared_data / "corpus" / part / "heldout.txt.gz", "rt", encoding="utf-8") as file:
            for line in file:
                sentences = split_sentences(line)
                number += len(sentences)
                assert without_space("".join(sentences)) == without_space(line)
    assert number > 15_000


@pytest.mark.parametrize(
    "unit",
    [
        ".",
        "…",
        "!",
        "。",
        '"',
        ".'",
        "!”",
        "([",
        ". ",
        "? (",
        "A.",
        "Mr. ",
        "“",
        "说",
        "。”",
        "1. ",
        " ",
        "-",
    ],
)
def test_the_time_grows_with_the_length_only(unit: str) -> None:
    text = unit * (200_000 // len(unit)) + " End."
    started = time.process_time()
    split_sentences(text)
    assert time.process_time() - started < 4


def test_the_sentences_of_a_document_are_split_or_its_lines() -> None:
    lines = ["One. Two.", "Three four"]
    assert document_sentences(lines, CorpusConfig()) == ["One.", "Two.", "Three four"]
    assert document_sentences(lines, CorpusConfig(sentences="line")) == lines
