"""Task records: label order, label numbers, GLUE directories."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.bundle import load_bundle
from bertsmith.errors import InputError
from bertsmith.tasks.classification import label_numbers, labels_of
from bertsmith.tasks.regression import label_values
from bertsmith.tasks.rows import Columns, Row
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import TASKS, find_task, stored_model
from tests.recipes import tiny


def rows(*labels: str) -> list[Row]:
    return [Row((f"text {n}", None), label, n + 2) for n, label in enumerate(labels)]


def test_c031_labels_are_sorted_whatever_the_order_of_the_rows() -> None:
    assert labels_of(rows("pos", "neg", "neu", "pos"), "t.csv") == ("neg", "neu", "pos")
    assert labels_of(rows("10", "9", "-1"), "t.csv") == ("-1", "9", "10")
    assert labels_of(rows("10", "9", "many"), "t.csv") == ("10", "9", "many")


def test_c031_an_unseen_label_is_named_with_its_line() -> None:
    with pytest.raises(InputError, match=r"dev\.csv, line 3: label 'mixed' is unknown .*neg, neu, pos"):
        label_numbers(rows("neu", "mixed"), ("neg", "neu", "pos"), "dev.csv")
    assert label_numbers(rows("neu", "pos"), ("neg", "neu", "pos"), "dev.csv").tolist() == [1, 2]


def test_a_single_class_is_refused() -> None:
    with pytest.raises(InputError, match="every row has the label 'a'"):
        labels_of(rows("a", "a"), "t.csv")


@pytest.mark.parametrize("label", ["high", "nan", "inf"])
def test_a_label_that_is_no_number_is_named(label: str) -> None:
    with pytest.raises(InputError, match=rf"t\.csv, line 3: '{label}' is no number"):
        label_values(rows("1.5", label), "t.csv")


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'sst2'"):
        find_task("sst-2")


# Rows, and how many of them have the last label (or the mean value), as the data's documentation counts them.
GLUE_COUNTS = {
    "sst2": ("SST-2", {"train": (67349, 37569), "dev": (872, 444)}, 1821),
    "mrpc": ("MRPC", {"train": (3668, 2474), "dev": (408, 279)}, 1725),
    "stsb": ("STS-B", {"train": (5749, 2.7010), "dev": (1500, 2.3639)}, 1379),
    "cola": ("CoLA", {"train": (8551, 6023), "dev": (1043, 721)}, 1063),
    "rte": ("RTE", {"train": (2490, 1241), "dev": (277, 131)}, 3000),
}


@pytest.mark.parametrize("name", list(GLUE_COUNTS))
def test_glue_directories_are_read_whole(shared_data: Path, name: str) -> None:
    task = TASKS[name]
    directory, splits, test_rows = GLUE_COUNTS[name]
    source = DataSource(str(shared_data / "glue" / directory))
    for split, (count, total) in splits.items():
        read = task.read(source, split)
        assert read is not None
        assert len(read.rows) == read.counts["rows"] == count
        assert not read.partial
        if task.labels is None:
            assert label_values(read.rows, read.path).mean() == pytest.approx(total, abs=1e-4)
        else:
            assert label_numbers(read.rows, task.labels, read.path).sum() == total
        assert not any("\ufeff" in text or "\r" in text for row in read.rows for text in row.texts if text)
    test = task.read(source, "test")
    assert test is not None
    assert len(test.rows) == test_rows
    assert {row.label for row in test.rows} == {None}
    # The directory of all tasks will do as well.
    assert task.read(DataSource(str(shared_data / "glue")), "dev") == task.read(source, "dev")


def test_a_part_of_a_split_says_so(tmp_path: Path) -> None:
    (tmp_path / "dev.part.tsv.gz").write_bytes(gzip.compress(b"sentence\tlabel\nfine\t1\n"))
    read = TASKS["sst2"].read(DataSource(str(tmp_path)), "dev")
    assert read is not None
    assert read.partial
    assert TASKS["sst2"].read(DataSource(str(tmp_path)), "train") is None


def test_a_glue_task_reads_a_file_too(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text("sentence,extra,label\nfine,x,1\n")
    read = TASKS["sst2"].read(DataSource(str(path)), "train")
    assert read is not None
    assert read.columns == Columns("sentence", None, "label")
    assert label_numbers(read.rows, ("0", "1"), read.path).tolist() == [1]


def test_flags_that_a_glue_directory_would_ignore_are_refused(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nfine\t1\n")
    with pytest.raises(InputError, match=r"--label stars would be ignored"):
        TASKS["sst2"].read(DataSource(str(tmp_path), label="stars"), "dev")
    with pytest.raises(InputError, match=r"--dev x\.csv would be ignored"):
        TASKS["sst2"].read(DataSource(str(tmp_path), dev="x.csv"), "dev")
    with pytest.raises(InputError, match="split 'valid' of SST-2 is unknown"):
        TASKS["sst2"].read(DataSource(str(tmp_path)), "valid")


def test_a_directory_of_another_task_is_refused(tmp_path: Path) -> None:
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nfine\t1\n")
    with pytest.raises(InputError, match="no column '#1 String', is this MRPC"):
        TASKS["mrpc"].read(DataSource(str(tmp_path)), "dev")
    with pytest.raises(InputError, match=r"no train\.tsv or dev\.tsv or test\.tsv"):
        TASKS["mrpc"].read(DataSource(str(tmp_path / "..")), "dev")


def test_values_are_float64_and_numbers_int64() -> None:
    assert label_values(rows("1.5", "-2e1"), "t.csv").dtype == np.float64
    assert label_numbers(rows("a"), ("a",), "t.csv").dtype == np.int64


def test_signs_alone_make_no_number_of_a_label() -> None:
    assert labels_of(rows("--5", "3", "+-4"), "t.csv") == ("+-4", "--5", "3")
    assert labels_of(rows("1" * 5000, "3"), "t.csv") == ("1" * 5000, "3")
    assert labels_of(rows("+10", "9"), "t.csv") == ("9", "+10")


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_glue_file_without_a_row_is_refused(tmp_path: Path, split: str) -> None:
    (tmp_path / f"{split}.tsv").write_text("sentence\tlabel\n")
    with pytest.raises(InputError, match=rf"{split}\.tsv: no row in it"):
        TASKS["sst2"].read(DataSource(str(tmp_path)), split)


def test_own_data_is_a_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a directory; name a \.csv"):
        TASKS["classify"].read(DataSource(str(tmp_path)), "dev")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_model_with_a_weight_that_is_no_number_gives_no_answers(tmp_path: Path, value: float) -> None:
    bundle = load_bundle(tiny.save_model(tmp_path / "model"))
    stored_model(bundle)
    name = "mlm_head.dense.weight"
    bundle.state[name] = torch.clone(bundle.state[name])
    bundle.state[name][1, 2] = value
    with pytest.raises(InputError, match=f"{name} holds NaN or infinity, the model is broken"):
        stored_model(bundle)
