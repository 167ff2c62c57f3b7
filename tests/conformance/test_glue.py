"""Facts 29 to 31: GLUE's metrics, files and submission."""

from __future__ import annotations

import gzip
import zipfile

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics as sklearn

from bertsmith import metrics
from bertsmith.tasks.glue_averages import averages
from bertsmith.tasks.glue_submission import SUBMISSION, write_submission
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import TASKS
from tests.tasks.test_glue_averages import BERT_LARGE
from tests.tasks.test_glue_submission import LABELS, some_predictions

OFFICIAL = {
    **{task: {"accuracy": sklearn.accuracy_score} for task in ("sst2", "mnli", "qnli", "rte", "wnli")},
    **{task: {"f1": sklearn.f1_score, "accuracy": sklearn.accuracy_score} for task in ("mrpc", "qqp")},
    "cola": {"matthews": sklearn.matthews_corrcoef},
    "stsb": {
        "pearson": lambda gold, found: stats.pearsonr(gold, found)[0],
        "spearman": lambda gold, found: stats.spearmanr(gold, found)[0],
    },
}
"""Task -> its metrics by the libraries that GLUE's own script calls."""

# Directory, file, columns of the texts and the label, whether there is a header line.
FILES = {
    "cola": ("CoLA", "dev.tsv", (3,), 1, False),
    "sst2": ("SST-2", "dev.tsv", (0,), 1, True),
    "mrpc": ("MRPC", "dev.tsv", (3, 4), 0, True),
    "stsb": ("STS-B", "dev.tsv", (7, 8), -1, True),
    "qqp": ("QQP", "dev.part.tsv", (3, 4), 5, True),
    "mnli": ("MNLI", "dev_matched.part.tsv", (8, 9), -1, True),
    "qnli": ("QNLI", "dev.tsv", (1, 2), -1, True),
    "rte": ("RTE", "dev.tsv", (1, 2), -1, True),
    "wnli": ("WNLI", "dev.tsv", (1, 2), -1, True),
}


def plain_rows(shared_data, name):
    """Lines cut at tabs, and nothing else: no quotes, no escapes."""
    directory, file, texts, label, has_header = FILES[name]
    data = gzip.decompress((shared_data / "glue" / directory / f"{file}.gz").read_bytes())
    lines = data.decode("utf-8-sig").replace("\r\n", "\n").removesuffix("\n").split("\n")[has_header:]
    fields = [line.split("\t") for line in lines]
    return [(tuple(row[place] for place in texts), row[label]) for row in fields]


def read(shared_data, name):
    return TASKS[name].read(DataSource(str(shared_data / "glue")), "dev").rows


@pytest.mark.parametrize("name", OFFICIAL)
def test_fact_29_metrics_of_each_task(fact, name, shared_data):
    line = fact(
        29, "metrics of each task, on its dev labels and random predictions", "scikit-learn and scipy"
    )
    labels = [label for _, label in plain_rows(shared_data, name)]
    draw = np.random.default_rng(0)
    if name == "stsb":
        gold = np.array(labels, dtype=np.float64)
        found = np.round(gold + draw.normal(size=len(gold)), 1)
    else:
        gold = np.array([TASKS[name].labels.index(label) for label in labels])
        found = np.where(
            draw.random(len(gold)) < 0.3, draw.integers(len(TASKS[name].labels), size=len(gold)), gold
        )
    ours = metrics.compute(tuple(OFFICIAL[name]), gold, found)
    assert set(OFFICIAL[name]) <= set(TASKS[name].metrics)
    line.difference(
        max(abs(ours[key] - official(gold, found)) for key, official in OFFICIAL[name].items()), 1e-12
    )


def test_fact_29_mnli_has_two_dev_sets(fact):
    line = fact(29, "MNLI: matched and mismatched are scored apart", "the published splits")
    assert TASKS["mnli"].other_dev == ("dev_mismatched",)
    line.exact()


def test_fact_29_the_three_averages(fact):
    line = fact(
        29, "three averages of BERT-LARGE's published row, each under its name", "80.5, 82.1 and 81.55 of 100"
    )
    found = averages(BERT_LARGE)
    assert list(found) == ["leaderboard_nine_tasks", "paper_nine_columns", "eight_tasks"]
    differences = np.abs(np.array(list(found.values())) - [80.5, 82.1, 81.55])
    line.difference(float(differences.max()), 0.05)


@pytest.mark.parametrize("name", FILES)
def test_fact_30_files_are_cut_at_tabs_alone(fact, name, shared_data):
    line = fact(30, "texts and labels of nine tasks' dev files, quotes and all", "lines cut at tabs")
    expected = plain_rows(shared_data, name)
    ours = [
        (tuple(text for text in row.texts if text is not None), row.label) for row in read(shared_data, name)
    ]
    assert ours == expected
    line.exact()


def test_fact_30_labels_have_the_names_of_the_files(fact, shared_data):
    line = fact(
        30, "label names are those of the files, in the original's order", "get_labels of each processor"
    )
    processors = {
        "cola": ["0", "1"],
        "mrpc": ["0", "1"],
        "mnli": ["contradiction", "entailment", "neutral"],
    }
    for name, labels in processors.items():
        assert list(TASKS[name].labels) == labels
    for name in set(FILES) - {"stsb"}:
        assert {label for _, label in plain_rows(shared_data, name)} == set(TASKS[name].labels)
    line.exact()


def test_fact_31_the_submission(fact, tmp_path):
    line = fact(
        31,
        "the zip: eleven files, index and prediction, label names, STS-B within 0 to 5",
        "zipfile, by hand",
    )
    predictions = some_predictions()
    write_submission(tmp_path / "submission.zip", predictions)
    names = "CoLA SST-2 MRPC QQP STS-B MNLI-m MNLI-mm QNLI RTE WNLI AX"
    with zipfile.ZipFile(tmp_path / "submission.zip") as archive:
        assert set(archive.namelist()) == {f"{name}.tsv" for name in names.split()}
        files = {name: archive.read(name).decode("ascii") for name in archive.namelist()}
    for file in SUBMISSION:
        header, *rows = files[file.name].removesuffix("\n").split("\n")
        assert header == "index\tprediction"
        found = [row.split("\t") for row in rows]
        assert [index for index, _ in found] == [str(number) for number in range(file.rows)]
        if file.name in LABELS:
            assert [value for _, value in found] == predictions[file.name]
            assert {value for _, value in found} == set(LABELS[file.name].split())
        else:
            clipped = np.clip(predictions[file.name], 0, 5)
            assert np.abs(np.array([float(value) for _, value in found]) - clipped).max() < 1e-6
    line.exact()
