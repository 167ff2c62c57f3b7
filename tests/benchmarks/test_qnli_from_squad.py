"""QNLI's rows from SQuAD's: the rule on a passage made for it, and beside the published rows."""

from __future__ import annotations

import csv
import importlib
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PASSAGE = (
    "The tower was built in 1889 by an engineer. The tower stands in the old town. "
    "Many visitors climb the tower each year. Its lift broke in 1940."
)


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("qnli_from_squad")


def squad(*questions: tuple[str, str]) -> dict[str, Any]:
    """Return a SQuAD file of one passage; each question with its answer."""
    asked = [
        {"question": text, "answers": [{"text": answer, "answer_start": PASSAGE.index(answer)}]}
        for text, answer in questions
    ]
    return {"data": [{"paragraphs": [{"context": PASSAGE, "qas": asked}]}]}


def test_the_answer_and_the_most_similar_other_sentence(script: ModuleType) -> None:
    (pairing,) = script.pairings(squad(("Who climbs the tower each year?", "Many visitors")))
    assert pairing.answer == "Many visitors climb the tower each year."
    assert pairing.other == "The tower stands in the old town."
    assert pairing.lead == pytest.approx(4 / 6**0.5 / 7**0.5 - 3 / 6**0.5 / 9**0.5)


def test_questions_without_one_answering_sentence_are_left_out(script: ModuleType) -> None:
    across = PASSAGE[PASSAGE.index("engineer") : PASSAGE.index("stands")]
    answers = [{"text": "1889", "answer_start": PASSAGE.index("1889")}]
    answers.append({"text": "1940", "answer_start": PASSAGE.index("1940")})
    several = squad(("When?", "1889"))
    several["data"][0]["paragraphs"][0]["qas"][0]["answers"] = answers
    assert list(script.pairings(several)) == []
    (pairing,) = script.pairings(squad(("Which tower?", across)))
    assert pairing.answer.startswith("The tower was built"), "where the answer begins"


def test_a_sentence_with_the_words_of_the_answer_is_no_other(script: ModuleType) -> None:
    (pairing,) = script.pairings(squad(("What was built in 1889 in the old town?", "The tower")))
    assert "The tower" not in pairing.other


def test_misleading_questions_and_as_many_close_ones_are_chosen(script: ModuleType) -> None:
    leads = [0.5, -0.1, 0.2, 0.0, 0.1, 0.3]
    found = [script.Pairing(str(number), "a", "b", lead) for number, lead in enumerate(leads)]
    assert [pairing.question for pairing in script.chosen(found)] == ["1", "2", "3", "4"]


def test_rows_are_written_in_the_published_layout(script: ModuleType, tmp_path: Path) -> None:
    asked = squad(
        ("Where did\tthe tower stand in the old town in 1940?", "lift"),
        ("Who climbs the tower each year?", "Many visitors"),
    )
    counts = script.write(asked, tmp_path / "train.tsv", seed=0)
    assert counts == {"questions_with_a_pair": 2, "questions_chosen": 2, "rows": 4}
    with open(tmp_path / "train.tsv", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert [row["index"] for row in rows] == ["0", "1", "2", "3"]
    assert Counter(row["label"] for row in rows) == {"entailment": 2, "not_entailment": 2}
    assert "Where did the tower stand in the old town in 1940?" in [row["question"] for row in rows]
    script.write(asked, tmp_path / "again.tsv", seed=0)
    assert (tmp_path / "again.tsv").read_bytes() == (tmp_path / "train.tsv").read_bytes()


def test_most_published_dev_rows_have_our_sentences(script: ModuleType, shared_data: Path) -> None:
    dev = script.read(shared_data / "squad" / "dev-v1.1.rebuilt.json.gz")
    published = script.text_of(shared_data / "glue" / "QNLI" / "dev.tsv.gz")
    found = script.agreement(dev, published)
    assert found["same_sentence_entailment"] > 0.93
    assert found["same_sentence_not_entailment"] > 0.5, "another similarity: see the script"
    assert found["questions_paired"] > 0.99
