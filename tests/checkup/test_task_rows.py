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
