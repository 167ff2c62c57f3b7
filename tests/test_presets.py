from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml

from bertsmith.cli import run
from bertsmith.config import to_dict
from bertsmith.data.config import MaskingConfig, PairingConfig
from bertsmith.model.bert import BertForPreTraining
from bertsmith.presets import PRESETS

# Name: layers, width, heads, feed-forward, millions of parameters (the paper and the original's README).
SHAPES = {
    "tiny": (2, 128, 2, 512, 4.4),
    "mini": (4, 256, 4, 1024, 11.2),
    "small": (4, 512, 8, 2048, 28.8),
    "medium": (8, 512, 8, 2048, 41.4),
    "base": (12, 768, 12, 3072, 110),
    "large": (24, 1024, 16, 4096, 336),  # the paper rounds to 340
}
NAMES = [f"{recipe}-{size}" for recipe in ("bert", "roberta") for size in SHAPES]


def test_the_presets_are_the_published_ones():
    assert PRESETS.keys() >= {*NAMES, "roberta"}


@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_parameters(name):
    layers, width, heads, feed_forward, millions = SHAPES[name.partition("-")[2]]
    config = PRESETS[name]("DATA", "RUN")
    shape = config.architecture
    assert (shape.num_layers, shape.hidden_size, shape.num_heads, shape.intermediate_size) == (
        layers,
        width,
        heads,
        feed_forward,
    )
    assert (config.data, config.out, config.preset) == ("DATA", "RUN", name)
    assert (shape.hidden_dropout, shape.attention_dropout) == (0.1, 0.1)
    with torch.device("meta"):
        model = BertForPreTraining(type(shape)(**(vars(shape) | {"vocab_size": 30522})))
    encoder = sum(parameter.numel() for parameter in (*model.bert.parameters(), *model.pooler.parameters()))
    assert encoder / 1e6 == pytest.approx(millions, rel=0.01)


@pytest.mark.parametrize("name", ["bert-base", "bert-large"])
def test_the_large_presets_follow_the_paper(name):
    config = PRESETS[name]("DATA", "RUN")
    assert config.batch_size == 256
    assert config.batch_size % config.micro_batch_size == 0
    assert config.optimizer.name == "bert-adam"
    assert config.optimizer.learning_rate == 1e-4
    assert config.optimizer.warmup_fraction == 10_000 / 1_000_000


def flat(config, prefix=""):
    """Return every setting by its path."""
    found = {}
    for name, value in config.items():
        path = f"{prefix}{name}"
        found |= flat(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return found


@pytest.mark.parametrize("size", ["tiny", "mini", "small", "medium"])
def test_every_deviation_of_the_fast_presets_is_documented(size):
    fast, bert = (flat(to_dict(PRESETS[f"{recipe}-{size}"]("DATA", "RUN"))) for recipe in ("fast", "bert"))
    changed = {name for name in fast if fast[name] != bert[name]} - {"preset"}
    text = (Path(__file__).parent.parent / "docs" / "recipes.md").read_text(encoding="utf-8")
    table = text.split("## The fast recipe")[1].split("##")[0]
    named = set(re.findall(r"^\| `([a-z0-9_.]+)`", table, re.MULTILINE))
    assert changed == named - {"long_data", "pairing"}, "those two are settings of the data"


@pytest.mark.parametrize("size", SHAPES)
def test_the_roberta_presets_are_robertas(size):
    config = PRESETS[f"roberta-{size}"]("DATA", "RUN")
    bert = PRESETS[f"bert-{size}"]("DATA", "RUN")
    assert config.architecture.family == "roberta"
    assert config.architecture.num_segments == 1
    assert config.batch_size > bert.batch_size
    assert config.batch_size % config.micro_batch_size == 0
    optimizer = config.optimizer
    assert (optimizer.name, optimizer.beta2, optimizer.eps, optimizer.weight_decay) == (
        "adamw",
        0.98,
        1e-6,
        0.01,
    )
    assert config.masking.dynamic


@pytest.mark.parametrize("size, rate, warmup_steps", [("base", 6e-4, 24_000), ("large", 4e-4, 30_000)])
def test_the_large_roberta_presets_follow_its_table_9(size, rate, warmup_steps):
    config = PRESETS[f"roberta-{size}"]("DATA", "RUN")
    assert config.batch_size == 8192
    assert config.optimizer.learning_rate == rate
    assert config.optimizer.warmup_fraction * 500_000 == pytest.approx(warmup_steps)
    assert config.optimizer.max_grad_norm == 0.0
    assert PRESETS["roberta"]("DATA", "RUN") == PRESETS["roberta-base"]("DATA", "RUN")


def test_presets_import_nothing_heavy():
    code = "import sys, bertsmith.presets; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_bert_exact_is_what_its_page_says(capsys):
    """The commands of docs/pretraining.md, read by the command line."""
    text = (Path(__file__).parent.parent / "docs" / "pretraining.md").read_text(encoding="utf-8")
    block = text.split("## The original, exactly")[1].split("```")[1]
    printed = []
    for line in block.strip().splitlines():
        assert run([*line.split()[1:], "--print-config"]) == 0
        printed.append(yaml.safe_load(capsys.readouterr().out))
    short, long, pretraining = printed
    assert (short["seq_len"], long["seq_len"]) == (128, 512)
    for data in (short, long):
        config = PairingConfig(data["pairing"], data["seq_len"], passes=data["passes"])
        assert config == PairingConfig("nsp", data["seq_len"], 0.1, 0.5, passes=10)
        assert (data["text"]["sentences"], data["text"]["documents"]) == ("line", "blank-line")
        assert (data["heldout"], data["text"]["prose_only"]) == (0, False)
    exact = to_dict(replace(PRESETS["bert-exact"]("d128", "run"), long_data="d512"))
    assert pretraining == yaml.safe_load(yaml.safe_dump(exact))


def test_bert_exact_has_the_originals_settings():
    config = PRESETS["bert-exact"]("d128", "run")
    assert (config.steps, config.batch_size, config.long_batch_size) == (1_000_000, 256, 256)
    assert (config.architecture.activation, config.optimizer.schedule) == ("gelu_tanh", "bert-linear")
    assert config.masking == MaskingConfig(dynamic=False, random_specials=True)
