"""Model cards: the hub's own reader takes them, and they say what they should."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bertsmith.recipes.caveats import caveats
from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.model_card import cell
from tests.recipes import tiny

hub = pytest.importorskip("huggingface_hub")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("card")
    names = {"pos": "good | <b>", "neg": "bad_*x*"}
    rows = [(text, names[label]) for text, label in tiny.make_rows(120)]
    data = tiny.write_csv(folder / "rows.csv", [*rows, ("good " * 50, names["pos"])])
    finetune(tiny.config(tiny.save_model(folder / "start"), data, folder / "run", seeds=2, epochs=3))
    return folder / "run"


def figures_of(run: Path) -> dict[str, Any]:
    figures: dict[str, Any] = json.loads((run / "metrics.json").read_text())
    return figures


def test_the_hub_reads_its_head(run: Path) -> None:
    data = hub.ModelCard.load(run / "model" / "README.md").data
    figures = figures_of(run)
    assert data.pipeline_tag == "text-classification"
    assert data.library_name == "bertsmith"
    assert {one.metric_type: one.metric_value for one in data.eval_results} == figures["dev"]
    assert {one.dataset_type for one in data.eval_results} == {"classify"}


def test_it_says_what_the_figures_hang_on(run: Path) -> None:
    card = (run / "model" / "README.md").read_text()
    figures = figures_of(run)
    for caveat in caveats(figures):
        assert cell(caveat) in card
    assert figures["data_sha256"]["train"] in card
    assert 'bertsmith.load("MODEL").classify(["a text"])' in card
    assert f"{figures['mean']['accuracy']:.4f} | {figures['std']['accuracy']:.4f}" in card
    assert "expected calibration error" in card
    assert "Dev: a tenth of the training rows, chosen by seed 0." in card
    assert str(run.parent) not in card, "no path of this machine"


def test_names_of_labels_break_no_table(run: Path) -> None:
    card = (run / "model" / "README.md").read_text()
    lines = [line for line in card.splitlines() if "good" in line and line.startswith("|")]
    assert len(lines) == 2
    assert all(line.startswith(r"| good \| &lt;b> |") for line in lines)
    assert r"| bad\_\*x\* |" in card


def test_caveats_speak_only_of_what_is_known() -> None:
    assert caveats({}) == []
    figures = {
        "failed_runs": [{"seed": 3, "why": "diverged"}],
        "seeds": [{"seed": 3}],
        "partial": {"train": True, "dev": False},
        "truncated": {"train": 1200, "dev": 0},
        "train_rows": 4000,
        "missing_rows": {"train": 0, "dev": 2},
        "dev_source": "dev file",
    }
    found = caveats(figures)
    assert found[0] == "Seed 3 failed: diverged."
    assert found[1].startswith("One seed")
    assert "Only a part of the train rows was there: all may give other figures." in found
    assert "1,200 of 4,000 train rows are longer than the model reads and were cut." in found
    assert "2 dev rows lack text or label and were left out." in found
    assert len(found) == 6


def test_a_pretrained_models_card_says_where_it_stands(finished_run: Path) -> None:
    text = (finished_run / "model" / "README.md").read_text()
    figures = json.loads((finished_run / "metrics.json").read_text())
    data = hub.ModelCard.load(finished_run / "model" / "README.md").data
    assert data.pipeline_tag == "fill-mask"
    assert rf"| heldout\_mlm\_loss | {figures['heldout_mlm_loss']:.4f} |" in text
    assert r"| optimizer.learning\_rate | 0.0010 |" in text
    assert "The model knows little more than how frequent each word is." in text
    assert str(finished_run) not in text
