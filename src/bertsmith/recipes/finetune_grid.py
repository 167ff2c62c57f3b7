"""Which runs a fine-tuning consists of: a grid of settings times seeds. No heavy imports."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertsmith.config import nearest, nested, overlay, to_dict
from bertsmith.errors import InputError
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune_recipes import RECIPES
from bertsmith.stored_task import MOST_CELLS
from bertsmith.training.config import OptimizerConfig

GRIDS: Mapping[str, tuple[str, ...]] = {
    "paper": ("batch-size=16,32", "optimizer.learning-rate=5e-5,3e-5,2e-5", "epochs=2,3,4"),
    "glue": ("optimizer.learning-rate=5e-5,4e-5,3e-5,2e-5",),
}
"""Source: the paper, section A.3; section 4.1 (with batches of 32 and 3 epochs)."""

_OF_A_RUN = ("batch_size", "epochs", "dropout", "layer_rate_decay", "reinit_layers", "early_stopping")
SWEEPABLE = (*_OF_A_RUN, *(f"optimizer.{field.name}" for field in dataclasses.fields(OptimizerConfig)))
"""What differs between runs on the same rows; other settings change what is read, and would be read once."""


@dataclass(frozen=True)
class Cell:
    """One point of the grid.

    Attributes:
        values: the settings that the grid gives, by path; empty without a grid.
        config: all settings of its runs.
    """

    values: dict[str, Any]
    config: FinetuneConfig


def check(config: FinetuneConfig) -> None:
    """Refuse settings out of range, and those that nothing would read.

    Raises:
        InputError: one of them is wrong; it is named.
    """
    for name in ("epochs", "batch_size", "seeds"):
        if getattr(config, name) < 1:
            raise InputError(f"{name.replace('_', '-')} is {getattr(config, name)}; it has to be at least 1")
    for name in ("early_stopping", "reinit_layers", "restart_failed"):
        if getattr(config, name) < 0:
            raise InputError(f"{name.replace('_', '-')} is {getattr(config, name)}; it has to be at least 0")
    if not 0.0 < config.layer_rate_decay <= 1.0:
        raise InputError(
            f"layer-rate-decay is {config.layer_rate_decay}; it has to be above 0 and at most 1 (no decay)"
        )
    if config.dropout is not None and not 0.0 <= config.dropout < 1.0:
        raise InputError(f"dropout is {config.dropout}; it has to be at least 0 and below 1")
    _check_features(config)
    if config.reinit_layers and config.random_weights:
        raise InputError("reinit-layers would be ignored: --random-weights draws every weight; leave it out")


def _check_features(config: FinetuneConfig) -> None:
    """Refuse what a frozen encoder leaves no use for, and what only a head on one has.

    Raises:
        InputError: it is named.
    """
    for name, is_used in (
        ("reinit-layers", config.reinit_layers > 0),
        ("layer-rate-decay", config.layer_rate_decay != 1.0),
        ("bilstm", config.bilstm),
    ):
        if is_used and config.features is not None:
            raise InputError(f"{name} would be ignored: --features trains no layer; leave it out")
    if config.lstm_size is not None:
        if config.features is None:
            raise InputError(
                f"lstm-size {config.lstm_size} would be ignored without --features; leave it out"
            )
        if not 1 <= config.lstm_size <= MOST_CELLS:
            raise InputError(f"lstm-size is {config.lstm_size}; it has to be 1 to {MOST_CELLS}")


def cells_of(config: FinetuneConfig) -> list[Cell]:
    """Return the grid's points: every combination, the last axis fastest; without a grid, one.

    Raises:
        InputError: an axis or the recipe is unknown, an axis or value is there twice, a value is wrong, or a
            setting would be ignored.
    """
    if config.recipe not in RECIPES:
        raise InputError(f"recipe {config.recipe!r} is unknown; {nearest(config.recipe, list(RECIPES))}")
    axes: dict[str, list[str]] = {}
    for text in _spelt_out(config.grid):
        name, values = _axis(text)
        if name in axes:
            raise InputError(f"--grid: {name} is there twice; give all its values at once")
        axes[name] = values
    _require_free(config, axes)
    cells = []
    for combination in itertools.product(*axes.values()):
        changed = overlay(config, nested(dict(zip(axes, combination, strict=True)), "--grid"), "--grid")
        check(changed)
        cells.append(Cell({name: _value_of(changed, name) for name in axes}, changed))
    for name, texts in axes.items():
        if len({_value_of(cell.config, name) for cell in cells}) < len(texts):
            raise InputError(f"--grid: {name} holds a value twice; give each once")
    _require_read(cells)
    return cells


def _require_read(cells: Sequence[Cell]) -> None:
    """Refuse early stopping that stops no run.

    Raises:
        InputError: it would be ignored.
    """
    longest: dict[int, int] = {}
    for cell in cells:
        patience = cell.config.early_stopping
        longest[patience] = max(longest.get(patience, 0), cell.config.epochs)
    for patience, epochs in longest.items():
        if patience and patience >= epochs - 1:
            raise InputError(
                f"early-stopping {patience} would be ignored: a run of {epochs} epochs is over before; make "
                "it smaller"
            )


def _spelt_out(grid: Sequence[str]) -> list[str]:
    return [axis for word in grid for axis in GRIDS.get(word, (word,))]


def _axis(text: str) -> tuple[str, list[str]]:
    name, is_axis, values = text.partition("=")
    name = name.strip().replace("-", "_")
    if not is_axis:
        raise InputError(
            f"--grid {text!r} is neither {' nor '.join(GRIDS)} nor an axis such as batch-size=16,32"
        )
    if name not in SWEEPABLE:
        raise InputError(f"--grid: {name!r} cannot be swept; {nearest(name, list(SWEEPABLE))}")
    parts = [part.strip() for part in values.split(",")]
    if not all(parts):
        raise InputError(f"--grid {text!r}: a value is empty; write for example {name}=1,2")
    return name, parts


def _value_of(config: FinetuneConfig, path: str) -> Any:
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _require_free(config: FinetuneConfig, axes: Mapping[str, Any]) -> None:
    """Refuse a setting that is given and swept, and a recipe of which the grid leaves nothing.

    Raises:
        InputError: one would be ignored.
    """
    bare = FinetuneConfig(config.task, config.model, config.data, config.out, features=config.features)
    default, recipe = RECIPES["default"](bare), RECIPES[config.recipe](bare)
    for name in axes:
        value = _value_of(config, name)
        if value != _value_of(recipe, name):
            raise InputError(
                f"{name.replace('_', '-')} is {value}, which would be ignored: the grid sweeps it; leave it "
                "out, or sweep other settings"
            )
    changed = {name for name in SWEEPABLE if _value_of(recipe, name) != _value_of(default, name)}
    if changed and changed <= set(axes):
        raise InputError(
            f"recipe {config.recipe} would be ignored: the grid sweeps all that it sets; leave one out"
        )


_OF_THE_ROWS = ("data", "dev", "text", "second_text", "label", "missing", "limit_rows")
_OF_THE_PLAN = ("model", "out", "recipe", "grid", "seeds", "seed", "restart_failed", "resume", "precision")


def settings_of(config: FinetuneConfig) -> dict[str, Any]:
    """Return the settings that decide what a run becomes, as JSON types, but its rows, start and seed."""
    left_out = {*_OF_THE_ROWS, *_OF_THE_PLAN}
    return {name: value for name, value in to_dict(config).items() if name not in left_out}
