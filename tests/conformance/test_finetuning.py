"""Facts 26 to 28: settings of fine-tuning, runs of several seeds, answers that may be none, choices."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch

from bertsmith.objectives import ChoiceObjective
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.finetune_grid import cells_of
from bertsmith.recipes.finetune_recipes import RECIPES
from bertsmith.tasks.choice import encode_choices
from bertsmith.tasks.choice_rows import ChoiceRow
from bertsmith.tasks.decoding import decode
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.source import RowSet
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.schedule import rate_of
from tests.conformance import plain_answers
from tests.recipes.tiny import VOCABULARY, config, make_rows, save_model, write_csv
from tests.tasks.test_decoding import random_outputs, windows_of, words

PAPER = {
    **dict.fromkeys(("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte"), (32, 5e-5, 3)),
    "squad1": (32, 5e-5, 3),
    "squad2": (48, 5e-5, 2),
    "swag": (16, 2e-5, 3),
}
"""Task -> batch size, learning rate, epochs. Source: sections 4.1 to 4.4; for GLUE its largest rate."""


def of(task, **settings):
    return FinetuneConfig(task, "model", "data", "out", **settings)


def told(settings):
    return settings.batch_size, settings.optimizer.learning_rate, settings.epochs


def test_fact_26_the_grids_are_the_papers(fact):
    line = fact(26, "--grid paper and --grid glue: which runs there are", "the paper, A.3 and 4.1")
    cells = cells_of(of("classify", grid=["paper"]))
    assert {told(cell.config) for cell in cells} == set(
        itertools.product((16, 32), (5e-5, 3e-5, 2e-5), (2, 3, 4))
    )
    cells = cells_of(of("cola", grid=["glue"]))
    assert {told(cell.config) for cell in cells} == set(
        itertools.product((32,), (5e-5, 4e-5, 3e-5, 2e-5), (3,))
    )
    assert all(cell.config.dropout is None for cell in cells), "the model's own, 0.1"
    line.exact()


@pytest.mark.parametrize("steps", [10, 345])
def test_fact_26_the_rate_over_a_run(fact, steps):
    line = fact(26, "learning rate at every step: warm-up over 10 %, linear to 0", "optimization.py in NumPy")
    optimizer = RECIPES["original"](of("cola")).optimizer
    rate = rate_of(optimizer)
    ours = [rate(step / steps) * optimizer.learning_rate for step in range(steps + 1)]
    done = np.arange(steps + 1)
    theirs = 5e-5 * np.where(done < 0.1 * steps, done / (0.1 * steps), 1 - done / steps)
    line.difference(float(np.abs(ours - theirs).max()), 1e-12)


def test_fact_26_restarts_share_the_checkpoint_and_the_best_on_dev_is_kept(fact, tmp_path):
    line = fact(
        26, "--seeds: same checkpoint, other order and head; the best on dev is kept", "the runs' own files"
    )
    data = write_csv(tmp_path / "train.csv", make_rows(60))
    dev = write_csv(tmp_path / "dev.csv", make_rows(40, seed=1))
    settings = config(save_model(tmp_path / "model"), data, tmp_path / "run", dev=str(dev), seeds=2, epochs=2)
    finetune(settings)
    found = json.loads((tmp_path / "run" / "metrics.json").read_text())
    values = [run["dev"]["accuracy"] for run in found["seeds"]]
    assert len(set(values)) > 1, "the seeds make a difference"
    assert found["dev"]["accuracy"] == max(values)
    line.exact()


def test_fact_27_the_papers_settings_of_each_task(fact):
    line = fact(27, "--recipe original: batch size, rate, epochs of eleven tasks", "the paper, 4.1 to 4.4")
    assert {task: told(RECIPES["original"](of(task))) for task in PAPER} == PAPER
    line.exact()


def test_fact_27_the_default_recipe_is_ours(fact):
    line = fact(27, "--recipe default", "the paper, 4.1 to 4.4")
    default = RECIPES["default"](of("squad2"))
    assert told(default) == (32, 2e-5, 3)
    assert default.optimizer.name == "adamw"
    line.deliberate(
        "batch 32, rate 2e-5, 3 epochs for every task, with bias correction, which fail less often (28); "
        "--recipe original has the paper's"
    )


@pytest.mark.parametrize("seed", range(12))
def test_fact_27_no_answer_above_a_threshold(fact, seed):
    line = fact(
        27,
        "best answer and null score over all windows, no answer above a threshold",
        "write_predictions, re-derived",
    )
    draw = np.random.default_rng(seed)
    number, space = int(draw.integers(1, 40)), int(draw.integers(1, 16))
    text, passage = words(number)
    windows = windows_of(number, space, int(draw.integers(1, 12)))
    outputs = random_outputs(windows, seed)
    found = decode(text, passage, windows, outputs, 5, 20)
    best, null = plain_answers.best_and_null(windows, outputs, max_length=5)
    odds = null - best[0]
    for threshold in (-1.0, 0.0, 0.5, odds - 1e-3, odds + 1e-3):
        expected = "" if odds > threshold else text[3 * best[1] : 3 * best[2] + 2]
        assert found.answers(threshold)[0].text == expected
    line.difference(max(abs(found.spans[0].score - best[0]), abs(found.null_score - null)), 1e-5)


def test_fact_27_the_loss_of_a_choice_is_a_softmax_over_its_choices(fact):
    line = fact(27, "loss of rows with four choices", "softmax over four scores in float64 NumPy")
    scores, labels = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32), (3, 0, 1, 2, 2)
    choices = ("good", "bad so", "so", "poor fine good")
    rows = RowSet([ChoiceRow(f"worda {label}", choices, label, 1) for label in labels], "items")
    split = encode_choices(rows, Encoding(Tokenizer(VOCABULARY, TokenizerConfig()), 32, "tail"))
    batch = split.batch(range(5))
    flat = torch.from_numpy(scores.ravel())[torch.from_numpy(np.argsort(batch.places.ravel().numpy()))]
    sums, _ = ChoiceObjective().sums(lambda tokens: flat[:, None], batch)
    shares = np.exp(scores.astype(np.float64)) / np.exp(scores.astype(np.float64)).sum(axis=1, keepdims=True)
    line.difference(abs(float(sums["loss"]) + np.log(shares[np.arange(5), labels]).sum()), 1e-5)


def test_fact_28_the_stable_recipe(fact):
    line = fact(
        28, "--recipe stable: bias correction, rate 2e-5, 20 epochs, warm-up 10 %", "arXiv 2006.04884"
    )
    stable = RECIPES["stable"](of("rte"))
    assert (stable.epochs, stable.optimizer.learning_rate, stable.optimizer.warmup_fraction) == (
        20,
        2e-5,
        0.1,
    )
    assert stable.optimizer.name == "adamw"
    line.exact()
