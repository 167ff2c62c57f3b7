"""The files of the GLUE tasks: splits, parts, rows that end early."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import TASKS

# Labels of each split, as the data's documentation counts them; whether the file is a part.
COUNTS = {
    ("qqp", "train"): ({"0": 14750, "1": 8747}, True),
    ("qqp", "dev"): ({"0": 4871, "1": 2729}, True),
    ("mnli", "train"): ({"contradiction": 1010, "entailment": 995, "neutral": 995}, True),
    ("mnli", "dev"): ({"entailment": 2681, "contradiction": 2435, "neutral": 2353}, True),
    ("mnli", "dev_mismatched"): ({"entailment": 346, "contradiction": 335, "neutral": 319}, True),
    ("qnli", "dev"): ({"entailment": 2702, "not_entailment": 2761}, False),
    ("qnli", "test"): ({None: 5463}, False),
    ("wnli", "train"): ({"0": 323, "1": 312}, False),
    ("wnli", "dev"): ({"0": 40, "1": 31}, False),
    ("wnli", "test"): ({None: 146}, False),
    ("ax", "test"): ({None: 1104}, False),
}


@pytest.mark.parametrize("name, split", list(COUNTS))
def test_real_files_are_read_whole(shared_data: Path, name: str, split: str) -> None:
    read = TASKS[name].read(DataSource(str(shared_data / "glue")), split)
    assert read is not None
    labels, partial = COUNTS[name, split]
    assert Counter(row.label for row in read.rows) == labels
    assert read.partial is partial
    known = TASKS[name].labels
    assert None in labels or (known is not None and set(known) == set(labels))
    assert all(row.texts[1] for row in read.rows), "every row of these tasks is a pair"


@pytest.mark.parametrize("name", ["MNLI", "QNLI"])
def test_the_published_columns_are_those_of_the_official_sample(shared_data: Path, name: str) -> None:
    source = DataSource(str(shared_data / "glue" / name / "official-layout-sample"))
    splits = {"MNLI": ("train", "dev", "dev_mismatched", "test", "test_mismatched")}
    for split in splits.get(name, ("train", "dev", "test")):
        read = TASKS[name.lower()].read(source, split)
        assert read is not None
        assert len(read.rows) in (5, 6)


def test_a_row_that_ends_early_lacks_a_value(tmp_path: Path) -> None:
    """The published QQP has such rows; they used to be told apart from no other damage."""
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    (tmp_path / "train.tsv").write_text(
        f"{header}1\t2\t3\tWhy?\tHow?\t0\n4\t5\t6\tWhat?\n7\t8\t9\tA?\tB?\t1\n"
    )
    with pytest.raises(InputError, match=r"1 rows lack a value: line 3 \(question2 and is_duplicate\).*skip"):
        TASKS["qqp"].read(DataSource(str(tmp_path)), "train")
    read = TASKS["qqp"].read(DataSource(str(tmp_path), missing="skip"), "train")
    assert read is not None
    assert [row.line for row in read.rows] == [2, 4]
    assert read.counts["missing_rows"] == 1


def test_a_row_that_is_too_long_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("index\tquestion\tsentence\tlabel\n0\ta\tb\tc\tentailment\n")
    with pytest.raises(InputError, match=r"dev\.tsv, line 2: 5 fields, expected 4"):
        TASKS["qnli"].read(DataSource(str(tmp_path)), "dev")


def test_the_splits_of_a_task_are_named(tmp_path: Path) -> None:
    (tmp_path / "dev_matched.tsv").write_text("sentence1\tsentence2\tgold_label\na\tb\tneutral\n")
    source = DataSource(str(tmp_path))
    matched = TASKS["mnli"].read(source, "dev")
    assert matched is not None
    assert matched.rows[0].label == "neutral"
    assert TASKS["mnli"].read(source, "dev_mismatched") is None
    with pytest.raises(InputError, match="take one of train, dev, dev_mismatched, test, test_mismatched"):
        TASKS["mnli"].read(source, "matched")
    with pytest.raises(InputError, match=r"no train\.tsv or dev_matched\.tsv or .* of MNLI"):
        TASKS["mnli"].read(DataSource(str(tmp_path.parent)), "dev")


def test_own_data_has_one_dev_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.tsv"
    path.write_text("sentence1\tsentence2\tgold_label\na\tb\tneutral\n")
    source = DataSource(str(path), dev=str(path))
    assert TASKS["mnli"].read(source, "dev") is not None
    assert TASKS["mnli"].read(source, "dev_mismatched") is None


def test_the_labelled_diagnostic_set_is_read_when_it_is_there(tmp_path: Path) -> None:
    columns = "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\tDomain"
    header = f"{columns}\tPremise\tHypothesis\tLabel\n"
    (tmp_path / "diagnostic-full.tsv").write_text(f"{header}\t\tNegation\t\tNews\ta\tb\tcontradiction\n")
    read = TASKS["ax"].read(DataSource(str(tmp_path)), "dev")
    assert read is not None
    assert (read.rows[0].texts, read.rows[0].label) == (("a", "b"), "contradiction")
