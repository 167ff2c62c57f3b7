"""Rows of tasks: each fault in a real file, and the shared GLUE tasks as they are."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

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
