"""Which runs a plan has."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from bertsmith.errors import InputError
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune_grid import cells_of, settings_of
from bertsmith.recipes.finetune_recipes import QUESTIONS, RECIPES
from bertsmith.tasks.spans import SPANS
from bertsmith.tasks.task import TASKS
from bertsmith.training.config import OptimizerConfig

PLAIN = FinetuneConfig("rte", "model", "data", "out")


def swept(config: FinetuneConfig, **settings: Any) -> FinetuneConfig:
    return replace(config, **settings)


def test_the_papers_grid_is_every_combination_of_its_appendix() -> None:
    cells = cells_of(swept(PLAIN, grid=["paper"]))
    found = [
        (cell.config.batch_size, cell.config.optimizer.learning_rate, cell.config.epochs) for cell in cells
    ]
    assert found == list(product((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4)))
    first = cells[0]
    assert first.values == {"batch_size": 16, "optimizer.learning_rate": 5e-5, "epochs": 2}
    # Nothing else changes.
    changed = replace(PLAIN.optimizer, learning_rate=5e-5)
    assert first.config == swept(PLAIN, grid=["paper"], batch_size=16, epochs=2, optimizer=changed)


def test_glues_grid_is_that_of_section_4() -> None:
    cells = cells_of(swept(PLAIN, grid=["glue"]))
    assert [cell.config.optimizer.learning_rate for cell in cells] == [5e-5, 4e-5, 3e-5, 2e-5]
    assert {(cell.config.batch_size, cell.config.epochs) for cell in cells} == {(32, 3)}


def test_without_a_grid_there_is_one_point() -> None:
    (cell,) = cells_of(PLAIN)
    assert (cell.values, cell.config) == ({}, PLAIN)


def test_axes_of_ones_own_have_the_types_of_the_settings() -> None:
    cells = cells_of(swept(PLAIN, grid=["dropout=0, 0.1,null", "optimizer.name=adamw,bert-adam"]))
    found = [(cell.config.dropout, cell.config.optimizer.name) for cell in cells]
    assert found == list(product((0.0, 0.1, None), ("adamw", "bert-adam")))
    assert isinstance(found[0][0], float)


def test_settings_that_need_each_other_can_be_swept_together() -> None:
    cells = cells_of(swept(PLAIN, grid=["optimizer.decay-fraction=0.1,0.3", "optimizer.schedule=wsd"]))
    assert [(c.config.optimizer.schedule, c.config.optimizer.decay_fraction) for c in cells] == [
        ("wsd", 0.1),
        ("wsd", 0.3),
    ]


@pytest.mark.parametrize(
    "grid, message",
    [
        (["papr"], "neither paper nor glue nor an axis"),
        (["batch-sizes=1,2"], "'batch_sizes' cannot be swept; did you mean 'batch_size'"),
        (["seq-len=64,128"], "'seq_len' cannot be swept"),
        (["batch-size=16,sixteen"], "batch_size is 'sixteen'; expected int"),
        (["batch-size=16,16"], "batch_size holds a value twice"),
        (["optimizer.learning-rate=5e-5,0.00005"], "holds a value twice"),
        (["batch-size=16,"], "a value is empty"),
        (["batch-size=[16"], "no value"),
        (["paper", "epochs=3"], "epochs is there twice"),
        (["epochs=0,3"], "epochs is 0; it has to be at least 1"),
        (["optimizer.learning-rate=-1"], "learning_rate is -1.0"),
        (["optimizer.power=0.3"], "only schedule 'power' reads it"),
        (["layer-rate-decay=0.9,1.1"], "layer-rate-decay is 1.1"),
        (["early-stopping=0,3"], "early-stopping 3 would be ignored"),
    ],
)
def test_a_wrong_grid_is_refused(grid: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cells_of(swept(PLAIN, grid=grid))


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"grid": ["paper"], "batch_size": 8}, "batch-size is 8, which would be ignored: the grid sweeps it"),
        (
            {"grid": ["glue"], "optimizer": OptimizerConfig(learning_rate=1e-3)},
            "optimizer.learning-rate is 0.001, which would be ignored",
        ),
        ({"recipe": "stabel"}, "recipe 'stabel' is unknown; did you mean 'stable'"),
        ({"layer_rate_decay": 0.0}, "layer-rate-decay is 0.0"),
        ({"reinit_layers": -1}, "reinit-layers is -1"),
        ({"restart_failed": -1}, "restart-failed is -1"),
        ({"reinit_layers": 1, "random_weights": True}, "reinit-layers would be ignored"),
        ({"early_stopping": 2}, "early-stopping 2 would be ignored: a run of 3 epochs"),
        (
            {"early_stopping": 3, "grid": ["epochs=2,4"]},
            "early-stopping 3 would be ignored: a run of 4 epochs",
        ),
    ],
)
def test_settings_that_nothing_would_read_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        cells_of(swept(PLAIN, **settings))


def test_early_stopping_that_acts_on_some_points_is_taken() -> None:
    assert len(cells_of(swept(PLAIN, early_stopping=1, grid=["epochs=2,4"]))) == 2


def test_the_stable_recipe_is_that_of_its_paper() -> None:
    config = RECIPES["stable"](PLAIN)
    rate, optimizer = config.optimizer.learning_rate, config.optimizer
    assert (config.epochs, rate, optimizer.name, optimizer.warmup_fraction) == (20, 2e-5, "adamw", 0.1)
    assert optimizer.schedule == "linear"
    assert cells_of(config)[0].config == config
    with pytest.raises(InputError, match="recipe stable would be ignored: the grid sweeps all that it sets"):
        cells_of(swept(config, grid=["epochs=2,3"]))


def test_a_grid_may_sweep_a_part_of_what_a_recipe_sets() -> None:
    config = RECIPES["original"](PLAIN)
    assert config.optimizer.name == "bert-adam"
    cells = cells_of(swept(config, grid=["paper"]))
    assert {cell.config.optimizer.name for cell in cells} == {"bert-adam"}
    assert len(cells) == 18


def test_what_does_not_change_a_run_is_not_of_its_settings() -> None:
    other = swept(
        PLAIN, model="m", data="d", out="o", seeds=9, seed=3, grid=["paper"], resume=True, restart_failed=2
    )
    assert settings_of(other) == settings_of(PLAIN)
    for name, value in [("seq_len", 64), ("early_stopping", 1), ("dropout", 0.2), ("random_weights", True)]:
        assert settings_of(swept(PLAIN, **{name: value})) != settings_of(PLAIN), name


def test_every_task_of_questions_has_their_default_length() -> None:
    assert set(QUESTIONS) == {name for name, task in TASKS.items() if task.kind is SPANS}


def test_a_rate_that_a_task_has_by_default_can_be_swept() -> None:
    bare = FinetuneConfig("conll", "model", "data", "out", features="last")
    config = RECIPES["default"](bare)
    cells = cells_of(swept(config, grid=["optimizer.learning-rate=1e-3,3e-3"]))
    assert [cell.config.optimizer.learning_rate for cell in cells] == [1e-3, 3e-3]
    with pytest.raises(InputError, match=r"learning-rate is 0\.01, which would be ignored"):
        cells_of(swept(bare, optimizer=OptimizerConfig(learning_rate=1e-2), grid=["glue"]))


@pytest.mark.parametrize("dropout", [1.0, -0.1, math.nan])
def test_a_dropout_out_of_range_is_refused_before_anything_is_written(dropout):
    config = FinetuneConfig("classify", "model", "data", "out", dropout=dropout)
    with pytest.raises(InputError, match=r"dropout is .*; it has to be at least 0 and below 1"):
        cells_of(config)
