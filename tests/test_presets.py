from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from bertsmith.model.bert import BertForPreTraining
from bertsmith.presets import PRESETS

# Name: layers, width, heads, feed-forward, millions of parameters (the paper and the original's README).
SHAPES = {
    "bert-tiny": (2, 128, 2, 512, 4.4),
    "bert-mini": (4, 256, 4, 1024, 11.2),
    "bert-small": (4, 512, 8, 2048, 28.8),
    "bert-medium": (8, 512, 8, 2048, 41.4),
    "bert-base": (12, 768, 12, 3072, 110),
    "bert-large": (24, 1024, 16, 4096, 336),  # the paper rounds to 340
}


def test_the_presets_are_the_published_ones():
    assert PRESETS.keys() == SHAPES.keys()


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_and_parameters(name):
    layers, width, heads, feed_forward, millions = SHAPES[name]
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


def test_presets_import_nothing_heavy():
    code = "import sys, bertsmith.presets; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
