"""Rows judged, lengths grouped; intervals beside Wilson's formula."""

from __future__ import annotations

import math

import pytest

from bertsmith.experiments.judged import by_length, confusions, interval, judge, worst


def label_line(gold: str, label: str, share: float, **facts: object) -> dict[str, object]:
    other = {"yes": "no", "no": "yes"}[label]
    return {
        "line": 2,
        "gold": gold,
        "label": label,
        "probabilities": {label: share, other: 1 - share},
    } | facts


def test_labels_are_judged_and_the_surest_errors_come_first() -> None:
    lines = [
        label_line("yes", "yes", 0.99),
        label_line("yes", "no", 0.6, line=3),
        label_line("yes", "no", 0.9, line=4, texts=["a", "b"], truncated=True, pieces=7),
    ]
    rows, lost = judge("classification", lines)
    assert lost == 0
    assert [row.right for row in rows] == [True, False, False]
    found = worst(rows, 5)
    assert [row.line for row in found] == [4, 3]
    assert (found[0].texts, found[0].pieces, found[0].truncated) == (("a", "b"), 7, True)
    assert found[0].note == "90.0% sure; 10.0% for yes"
    assert worst(rows, 1) == found[:1]


def test_values_are_judged_by_their_distance() -> None:
    rows, _ = judge(
        "regression", [{"line": 2, "gold": 1.0, "value": 1.5}, {"line": 3, "gold": 1.0, "value": -1.0}]
    )
    assert [row.right for row in rows] == [None, None]
    assert [(row.line, row.note) for row in worst(rows, 9)] == [(3, "off by -2"), (2, "off by +0.5")]


def test_a_kind_that_is_not_known_is_judged_by_equality() -> None:
    lines = [
        {"line": 1, "gold": ["Ada", "Ada L."], "answer": "Ada", "texts": ["who", "Ada"]},
        {"line": 2, "gold": ["Ada"], "answer": "Bob"},
        {"line": 3, "gold": ["B-PER", "O"], "tags": ["B-PER", "O"]},
    ]
    rows, lost = judge("something new", lines)
    assert ([row.right for row in rows], lost) == ([True, False, True], 0)
    assert rows[1].gold == '["Ada"]'


def test_lines_that_cannot_be_judged_are_counted() -> None:
    lines = [
        {},
        {"gold": "a", "label": "b"},
        {"gold": 1, "label": "yes", "probabilities": None},
        {"gold": "no", "label": "yes", "probabilities": {"yes": "much"}},
        {"gold": "no", "label": "yes", "probabilities": {"yes": float("nan"), "no": 0.1}},
        label_line("yes", "no", 0.6),
    ]
    rows, lost = judge("classification", lines)
    assert (len(rows), lost) == (1, 5)
    assert judge("regression", [{"gold": "x", "value": 1.0}, {"gold": 1.0, "value": math.nan}]) == ([], 2)


def test_lengths_are_grouped_evenly_and_every_row_counts_once() -> None:
    lines = [label_line("yes", "yes" if n % 3 else "no", 0.8, pieces=n) for n in range(1, 101)]
    bars, unit = by_length(judge("classification", lines)[0])
    assert unit == "pieces"
    assert [bar.name for bar in bars][:2] == ["1-16\n(16)", "17-33\n(17)"]
    assert sum(int(bar.name.split("\n")[1].strip("()")) for bar in bars) == 100
    assert bars[0].value == 11 / 16
    assert (bars[0].low, bars[0].high) == interval(11, 16)


def test_equal_lengths_are_one_group_and_few_rows_too() -> None:
    same = [label_line("yes", "yes", 0.8, pieces=9) for _ in range(50)]
    assert [bar.name for bar in by_length(judge("classification", same)[0])[0]] == ["9\n(50)"]
    few = [label_line("yes", "yes", 0.8, pieces=n) for n in range(12)]
    assert len(by_length(judge("classification", few)[0])[0]) == 1
    texts = [label_line("yes", "yes", 0.8, texts=["ab" * n, "c"]) for n in range(30)]
    bars, unit = by_length(judge("classification", texts)[0])
    assert (unit, bars[0].name) == ("characters", "1-20\n(10)")
    assert by_length(judge("classification", [label_line("yes", "yes", 0.8)])[0]) == ([], "")
    assert by_length([]) == ([], "")


@pytest.mark.parametrize(("right", "total"), [(0, 5), (5, 5), (7, 10), (300, 1000)])
def test_the_interval_is_wilsons(right: int, total: int) -> None:
    share, z = right / total, 1.959963984540054
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    reach = z / (1 + z * z / total) * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    assert interval(right, total) == pytest.approx((middle - reach, middle + reach), abs=1e-9)


def test_the_most_frequent_confusions_come_first() -> None:
    assert confusions([[5, 1, 0], [3, 9, 2], [0, 0, 4]], ["a", "b", "c"], 2) == [("b", "a", 3), ("b", "c", 2)]
