from __future__ import annotations

import pytest

from bertsmith.config import bytes_of, count_of, duration_seconds, nearest, overlay, to_dict
from bertsmith.errors import InputError
from bertsmith.recipes.config import VocabConfig
from bertsmith.recipes.pretrain_config import PretrainConfig


@pytest.mark.parametrize(
    "text, seconds", [("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2 h", 7200), ("45", 45), ("1d", 86400)]
)
def test_durations(text, seconds):
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "0m", "-3m", "3 weeks", "m", "1h30"])
def test_no_durations(text):
    with pytest.raises(InputError, match="no duration"):
        duration_seconds(text)


def test_overlay_changes_only_what_is_named():
    base = PretrainConfig(data="d", out="o")
    changed = overlay(base, {"batch-size": 7, "optimizer": {"learning_rate": "3e-5"}}, "file")
    assert (changed.batch_size, changed.optimizer.learning_rate) == (7, 3e-5)
    before, after = to_dict(base), to_dict(changed)
    after["batch_size"], after["optimizer"]["learning_rate"] = (
        before["batch_size"],
        base.optimizer.learning_rate,
    )
    assert before == after


def test_overlay_names_the_nearest_setting_and_its_path():
    with pytest.raises(
        InputError, match=r"run.yaml: optimizer: unknown setting 'learning_rat'.*'learning_rate'"
    ):
        overlay(PretrainConfig(data="d", out="o"), {"optimizer": {"learning_rat": 1}}, "run.yaml")


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": "many"},
        {"batch_size": 1.5},
        {"resume": "yes"},
        {"optimizer": 3},
        {"batch_size": True},
        {1: 2},
    ],
)
def test_overlay_refuses_wrong_types(changes):
    with pytest.raises(InputError, match=r"expected|unknown setting '1'"):
        overlay(PretrainConfig(data="d", out="o"), changes, "run.yaml")


def test_overlay_takes_lists_nulls_and_numbers_for_text():
    assert overlay(VocabConfig([], "o"), {"corpus": ["a", "b"]}, "f").corpus == ["a", "b"]
    assert overlay(PretrainConfig("d", "o", budget="1m"), {"budget": None}, "f").budget is None
    assert overlay(PretrainConfig("d", "o"), {"budget": 90}, "f").budget == "90"


def test_overlay_round_trips_every_setting():
    base = PretrainConfig(data="d", out="o", budget="3m")
    assert overlay(PretrainConfig(data="", out=""), to_dict(base), "f") == base


def test_nearest():
    assert nearest("pretain", ["pretrain", "prepare"]) == "did you mean 'pretrain'?"
    assert nearest("xyz", ["b", "a"]) == "known: a, b"


@pytest.mark.parametrize(
    "text, number",
    [
        ("137B", 137 * 10**9),
        ("3.3B", 33 * 10**8),
        ("500M", 5 * 10**8),
        ("64k", 64000),
        ("1T", 10**12),
        ("1_000", 1000),
    ],
)
def test_counts(text, number):
    assert count_of(text) == number


@pytest.mark.parametrize(
    "text, number",
    [("16G", 16 << 30), ("1.5GiB", 3 << 29), ("800M", 800 << 20), ("12 gb", 12 << 30), ("123", 123)],
)
def test_sizes(text, number):
    assert bytes_of(text) == number


@pytest.mark.parametrize("text", ["", "0", "-3M", "many", "3Q", "1e9", "M"])
def test_no_amounts(text):
    for parse in (count_of, bytes_of):
        with pytest.raises(InputError, match="no amount; write for example"):
            parse(text)
