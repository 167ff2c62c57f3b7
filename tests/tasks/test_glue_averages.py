"""The three averages of GLUE, against the published row of BERT-LARGE."""

from __future__ import annotations

import pytest

from bertsmith.tasks.glue_averages import averages

# BERT-LARGE on the test sets. Source: the paper's Table 1 and its entry on the GLUE leaderboard.
BERT_LARGE = {
    "cola": {"matthews": 60.5},
    "sst2": {"accuracy": 94.9},
    "mrpc": {"f1": 89.3, "accuracy": 85.4},
    "stsb": {"pearson": 87.6, "spearman": 86.5},
    "qqp": {"f1": 72.1, "accuracy": 89.3},
    "mnli": {"accuracy": 86.7, "mismatched_accuracy": 85.9},
    "qnli": {"accuracy": 92.7},
    "rte": {"accuracy": 70.1},
    "wnli": {"accuracy": 65.1},
}


def test_the_published_row_gives_the_published_averages() -> None:
    found = averages(BERT_LARGE)
    assert found["leaderboard_nine_tasks"] == pytest.approx(80.5, abs=0.05)
    assert found["paper_nine_columns"] == pytest.approx(82.1, abs=0.05)
    assert found["eight_tasks"] == pytest.approx(81.55, abs=0.005)


def test_what_is_missing_leaves_out_the_averages_that_need_it() -> None:
    without = {task: metrics for task, metrics in BERT_LARGE.items() if task != "wnli"}
    found = averages(without)
    assert found["leaderboard_nine_tasks"] is None
    assert found["paper_nine_columns"] == pytest.approx(82.1, abs=0.05)
    assert set(averages({}).values()) == {None}
    matched_only = averages({**BERT_LARGE, "mnli": {"accuracy": 86.7}})
    assert set(matched_only.values()) == {None}
    one_metric = averages({**BERT_LARGE, "stsb": {"spearman": 86.5}})
    assert one_metric["leaderboard_nine_tasks"] is None
    assert one_metric["eight_tasks"] is not None
