"""Real runs of a second, made once."""

from __future__ import annotations

from pathlib import Path

import pytest

from bertsmith.recipes.finetune import finetune
from bertsmith.recipes.pretrain import pretrain
from tests.recipes import pretraining, tiny

SCRIPT = "<script>document.title = 'owned'</script>"
NASTY = [
    (f"good {SCRIPT} word", "neg"),
    ("<img src=x onerror=\"document.title='owned'\"> fine", "neg"),
    ("坏的句子，不是好的 good 𠮷", "neg"),
    ("bad \u202eright to left\u202c \x07 bell \u2028 line", "pos"),
    ("so " * 40, "<b>neu</b> $x^2$"),
]


@pytest.fixture(scope="session")
def classified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fine-tuning of two seeds on three labels; dev holds texts that a page must not believe."""
    folder = tmp_path_factory.mktemp("classified")
    rows = [
        (text, "<b>neu</b> $x^2$" if label == "neu" else label)
        for text, label in tiny.make_rows(150, ("pos", "neg", "neu"))
    ]
    train = tiny.write_csv(folder / "train.csv", rows)
    dev = tiny.write_csv(folder / "dev.csv", [*rows[:55], *NASTY])
    model = tiny.save_model(folder / "start")
    finetune(tiny.config(model, train, folder / "run", dev=str(dev), seeds=2, epochs=4))
    return folder / "run"


@pytest.fixture(scope="session")
def regressed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression of one seed."""
    folder = tmp_path_factory.mktemp("regressed")
    rows = [(text, str(2.5 if label == "pos" else -1)) for text, label in tiny.make_rows(120)]
    data = tiny.write_csv(folder / "rows.csv", rows, ("text", "score"))
    finetune(tiny.config(tiny.save_model(folder / "start"), data, folder / "run", task="regress", epochs=3))
    return folder / "run"


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pretraining run on two sources."""
    folder = tmp_path_factory.mktemp("pretrained")
    data = pretraining.prepared_of_two_sources(folder)
    pretrain(pretraining.settings(data, folder / "run", evaluate_steps=4))
    return folder / "run"
