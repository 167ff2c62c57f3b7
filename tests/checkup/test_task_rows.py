"""Rows of tasks: each fault in a real file, and the shared GLUE tasks as they are."""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.checkup.task_labels import edit_distance
from bertsmith.cli import run
from bertsmith.errors import InputError
from bertsmith.tasks.encode import encode_rows
from bertsmith.text.tokenizer import Tokenizer
from tests.checkup.texts import findings, prose

TEXTS = [line for document in prose(60, 3) for line in document]
CLEAN = [(text, str(number % 2)) for number, text in enumerate(TEXTS)]


def write(path: Path, rows: list[tuple[str, str]]) -> str:
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return str(path)


def found_in(
    tmp_path: Path, rows: list[tuple[str, str]], dev: list[tuple[str, str]], **more: Any
) -> dict[str, Any]:
    train, held = write(tmp_path / "train.csv", rows), write(tmp_path / "dev.csv", dev)
    return findings(data=train, dev=held, task="classify", **more)


def test_clean_rows_have_no_finding(tmp_path: Path) -> None:
    assert found_in(tmp_path, CLEAN[:150], CLEAN[150:]) == {}


def test_dev_rows_that_stand_in_train(tmp_path: Path) -> None:
    found = found_in(tmp_path, CLEAN[:150], [*CLEAN[150:], *CLEAN[3:23]])["dev_in_train"]
    assert (found["level"], found["count"]) == ("error", 20)
    example = found["examples"][0]
    assert example["place"] == f"{tmp_path / 'dev.csv'}:32"
    assert example["text"].startswith(f"as {tmp_path / 'train.csv'}:5: {TEXTS[3][:30]}")


def test_repeated_and_contradicting_rows(tmp_path: Path) -> None:
    rows = [*CLEAN[:150], CLEAN[0], (CLEAN[1][0], "0"), (CLEAN[2][0], "1")]
    found = found_in(tmp_path, rows, CLEAN[150:])
    assert found["repeated_rows"]["count"] == 3
    assert found["repeated_rows"]["examples"][0]["text"].startswith("as line 2: ")
    assert (found["contradicting_rows"]["count"], found["contradicting_rows"]["level"]) == (4, "warning")


def test_missing_values_and_few_rows(tmp_path: Path) -> None:
    found = found_in(tmp_path, [*CLEAN[:40], ("", "1"), ("A text.", "")], CLEAN[150:])
    assert (found["missing_values"]["count"], found["missing_values"]["level"]) == (2, "warning")
    assert "40 train rows" in found["few_rows"]["what"]


def test_lopsided_and_unknown_labels(tmp_path: Path) -> None:
    rows = [(text, "yes" if number > 3 else "no") for number, (text, _) in enumerate(CLEAN[:150])]
    found = found_in(tmp_path, rows, [(CLEAN[150][0], "no"), (CLEAN[151][0], "No")])
    assert found["lopsided_labels"]["level"] == "warning"
    assert "'yes' (of 2 labels)" in found["lopsided_labels"]["what"]
    assert (found["unknown_labels"]["count"], found["unknown_labels"]["level"]) == (1, "error")
    assert found["unknown_labels"]["examples"][0]["place"] == f"{tmp_path / 'dev.csv'}:3"


def test_rows_beyond_the_limit(tmp_path: Path, minilm_path: Path) -> None:
    rows = [*CLEAN[:150], *((" ".join(TEXTS[n : n + 3]), "1") for n in range(5))]
    found = found_in(tmp_path, rows, CLEAN[150:], vocab=str(minilm_path))["long_rows"]
    assert found["count"] == 5
    assert f"{tmp_path / 'train.csv'}:152" == found["examples"][0]["place"]
    assert "long_rows" not in found_in(tmp_path, CLEAN[:150], CLEAN[150:], vocab=str(minilm_path))


@pytest.mark.parametrize("task", ["cola", "sst2", "mrpc", "stsb", "rte"])
def test_the_published_tasks_can_be_trained_on(task: str, shared_data: Path) -> None:
    found = findings(data=str(shared_data / "glue"), task=task)
    assert "error" not in [finding["level"] for finding in found.values()], found


def test_dev_rows_that_stand_in_train_but_for_case_and_marks(tmp_path: Path) -> None:
    dev = [(CLEAN[3][0].upper().replace(".", "  !"), "1"), *CLEAN[150:]]
    found = found_in(tmp_path, CLEAN[:150], dev)["dev_in_train"]
    assert (found["count"], found["level"]) == (1, "warning")
    assert "(0 exactly, the others but for case, blanks and marks)" in found["what"]
    marks = found_in(tmp_path, [*CLEAN[:150], ("!", "1")], [("?", "1"), *CLEAN[150:]])
    assert "dev_in_train" not in marks, "texts of marks alone are compared as they are"


def test_misspelled_labels_are_told_from_names_that_are_alike(tmp_path: Path) -> None:
    names = ["positive"] * 70 + ["negative"] * 70 + ["postive", "Positive ", "negative", "class 1", "class 2"]
    rows = [(text, name) for (text, _), name in zip(CLEAN, names, strict=False)]
    found = found_in(tmp_path, rows, [(CLEAN[150][0], "negatvie")])
    assert found["label_typos"]["count"] == 3
    for shown in (
        "'postive' (1) like 'positive' (70)",
        "'Positive ' (1) like",
        "'negatvie' (1) like 'negative'",
    ):
        assert shown in found["label_typos"]["what"]
    assert "'class" not in found["label_typos"]["what"]
    assert found["rare_labels"]["count"] == 4
    assert found["rare_labels"]["level"] == "warning"


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_edit_distance_is_the_fewest_edits(first: str, second: str) -> None:
    """Against the recursion that defines it."""

    @cache
    def distance(i: int, j: int) -> int:
        if i == 0 or j == 0:
            return i + j
        best = min(
            distance(i - 1, j) + 1,
            distance(i, j - 1) + 1,
            distance(i - 1, j - 1) + (first[i - 1] != second[j - 1]),
        )
        if i > 1 and j > 1 and first[i - 1] == second[j - 2] and first[i - 2] == second[j - 1]:
            best = min(best, distance(i - 2, j - 2) + 1)
        return best

    assert edit_distance(first, second) == distance(len(first), len(second))


def test_damaged_texts(tmp_path: Path) -> None:
    rows = [*CLEAN[:150], ("The caf\ufffd was good.", "1"), ("The cafÃ© â€œwasâ€\x9d good.", "0")]
    found = found_in(tmp_path, rows, CLEAN[150:])
    assert found["replacement_characters"]["examples"][0]["place"].endswith(":152")
    assert found["mojibake"]["count"] == 1


def test_values_that_are_no_numbers(tmp_path: Path) -> None:
    rows = [(text, f"{number / 2}") for number, (text, _) in enumerate(CLEAN[:150])]
    train = write(tmp_path / "train.csv", [*rows, ("a", "3,5"), ("b", "inf"), ("c", "good")])
    found = findings(data=train, task="regress")
    assert (found["no_numbers"]["count"], found["no_numbers"]["level"]) == (3, "error")
    assert found["no_numbers"]["examples"][0]["text"] == "'3,5': a"
    assert "lopsided_labels" not in found
    assert "rare_labels" not in found


def test_lengths_are_counted_as_finetune_counts_them(tmp_path: Path, minilm_path: Path, capsys) -> None:
    tokenizer = Tokenizer.load(minilm_path)
    path = tmp_path / "train.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        pairs = [(TEXTS[n], " ".join(TEXTS[: n % 5]) or "x", str(n % 2)) for n in range(120)]
        csv.writer(file).writerows([("sentence1", "sentence2", "label"), *pairs])
    flags = ["--data", str(path), "--task", "classify", "--vocab", str(minilm_path), "--seq-len", "96"]
    assert run(["doctor", *flags, "--json"]) == 0
    lengths = json.loads(capsys.readouterr().out)["lengths"]
    encoded = encode_rows([(a, b) for a, b, _ in pairs], tokenizer, 512)
    true = sorted(len(row.ids) for row in encoded)
    assert (lengths["median"], lengths["longest"], lengths["limit"]) == (true[60], true[-1], 96)
    assert sum(part["rows"] for part in lengths["histogram"]) == 120
    for part in lengths["histogram"]:
        before = [length for length in true if length <= part["up_to"]]
        assert sum(p["rows"] for p in lengths["histogram"] if p["up_to"] <= part["up_to"]) == len(before)
    assert 96 in [part["up_to"] for part in lengths["histogram"]]
    assert run(["doctor", *flags]) == 0
    out = capsys.readouterr().out
    assert f"pieces of a train row: median {true[60]}, longest {true[-1]}" in out
    assert out.count("# beyond the limit") == sum(part["up_to"] > 96 for part in lengths["histogram"])


def test_flags_name_the_columns_and_are_not_ignored(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([("rede", "gruppe"), *CLEAN[:150]])
    with pytest.raises(InputError, match="no column is known to be the text"):
        findings(data=str(path), task="classify")
    assert findings(data=str(path), task="classify", text_column="rede", label_column="gruppe") == {}
    with pytest.raises(InputError, match="--label-column would be ignored for corpus"):
        findings(corpus=[str(path)], label_column="gruppe")


def jsonl(path: Path, rows: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_choices_that_are_equal_and_a_place_that_is_nearly_always_right(tmp_path: Path) -> None:
    rows = [
        {"context": text, "choices": ["one", f"two {n}"], "label": 0} for n, text in enumerate(TEXTS[:120])
    ]
    rows += [{"context": TEXTS[120 + n], "choices": ["same", "other", "same"], "label": 1} for n in range(9)]
    found = findings(data=jsonl(tmp_path / "a.jsonl", rows), task="choose")
    assert (found["repeated_choices"]["count"], found["repeated_choices"]["level"]) == (9, "warning")
    assert "the label '0' (of 2 labels)" in found["lopsided_labels"]["what"]
    assert set(found) == {"repeated_choices", "lopsided_labels"}


def test_rows_of_several_labels(tmp_path: Path) -> None:
    names = ["sport", "politics", "economy"]
    rows = [{"text": text, "labels": names[: n % 4]} for n, text in enumerate(TEXTS[:150])]
    rows += [{"text": TEXTS[150], "labels": ["sport", "Sport"]}, {"text": TEXTS[0], "labels": ["sport"]}]
    dev = [{"text": TEXTS[151], "labels": ["sport", "weather"]}]
    files = {"data": jsonl(tmp_path / "a.jsonl", rows), "dev": jsonl(tmp_path / "b.jsonl", dev)}
    found = findings(**files, task="multilabel")
    assert "'Sport' (1) like 'sport'" in found["label_typos"]["what"]
    assert found["unknown_labels"]["examples"][0]["text"].startswith("'weather': ")
    assert found["contradicting_rows"]["count"] == 2
    parted = tmp_path / "c.csv"
    write(parted, [(text, "|".join(names[: n % 4])) for n, text in enumerate(TEXTS[:150])])
    with pytest.raises(InputError, match="several labels need --label-separator"):
        findings(data=str(parted), task="multilabel")
    assert findings(data=str(parted), task="multilabel", label_separator="|") == {}


def test_entities_and_questions_are_looked_at_as_what_they_are(tmp_path: Path) -> None:
    tagged = [
        {"text": f"Ada of Oslo {n} {text}", "entities": [{"start": 0, "end": 3, "label": "person"}]}
        for n, text in enumerate(TEXTS[:120])
    ]
    tagged += [
        {"text": f"Bea {text}", "entities": [{"start": 0, "end": 3, "label": "Person"}]}
        for text in TEXTS[120:125]
    ]
    found = findings(data=jsonl(tmp_path / "a.jsonl", tagged), task="tag")
    assert set(found) == {"label_typos", "rare_labels"}
    asked = [
        {
            "id": str(n),
            "question": f"who {n}",
            "context": text,
            "answers": [{"text": text.split()[0], "answer_start": 0}],
        }
        for n, text in enumerate(TEXTS[:120])
    ]
    path = jsonl(tmp_path / "b.jsonl", [*asked, asked[0] | {"id": "again"}])
    assert set(findings(data=path, task="answer")) == {"repeated_rows"}


@pytest.mark.parametrize(
    "task, path",
    [
        ("swag", "codah/fold_0"),
        ("classify", "chnsenticorp/train.tsv.gz"),
        pytest.param("conll", "conll2003", marks=pytest.mark.slow),
        pytest.param("tag", "cluener/train.json.gz", marks=pytest.mark.slow),
        pytest.param("squad1", "squad", marks=pytest.mark.slow),
    ],
)
def test_the_shared_sets_of_other_kinds_can_be_trained_on(task: str, path: str, shared_data: Path) -> None:
    columns = {"text_column": "text_a"} if task == "classify" else {}
    found = findings(data=str(shared_data / path), task=task, **columns)
    assert "error" not in [finding["level"] for finding in found.values()], found
