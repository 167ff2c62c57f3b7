"""A tiny model and tiny data that it can learn, for the recipes' tests."""

from __future__ import annotations

import csv
import random
from pathlib import Path

import torch

from bertsmith.bundle import save_bundle
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer
from bertsmith.training.config import OptimizerConfig

WORDS = ["good", "fine", "bad", "poor", "so", "so", *(f"word{letter}" for letter in "abcdefghijklmnop")]
VOCABULARY = [*SPECIAL_TOKENS, *dict.fromkeys(WORDS)]
SHAPE = BertConfig(
    vocab_size=len(VOCABULARY),
    hidden_size=32,
    num_layers=2,
    num_heads=2,
    intermediate_size=64,
    max_positions=64,
    initializer_std=0.1,
)
SIGNS = {"pos": ("good", "fine"), "neg": ("bad", "poor"), "neu": ("so",)}


def save_model(path: Path) -> Path:
    """Write a model directory as pretraining leaves it."""
    torch.manual_seed(0)
    task = {"task": "pretrain", "head": "pretraining", "labels": None, "seq_len": 64}
    save_bundle(path, BertForPreTraining(SHAPE), Tokenizer(VOCABULARY, TokenizerConfig()), task, "card")
    return path


def make_rows(number: int, labels: tuple[str, ...] = ("pos", "neg"), seed: int = 0) -> list[tuple[str, str]]:
    """Return (text, label) rows whose label a word of the text tells."""
    draw = random.Random(seed)
    rows = []
    for _ in range(number):
        label = draw.choice(labels)
        words = [draw.choice(WORDS[6:]) for _ in range(draw.randint(1, 9))]
        words.insert(draw.randint(0, len(words)), draw.choice(SIGNS[label]))
        rows.append((" ".join(words), label))
    return rows


def write_csv(path: Path, rows: list[tuple[str, ...]], header: tuple[str, ...] = ("text", "label")) -> Path:
    """Write rows as CSV."""
    with open(path, "w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def config(model: Path, data: Path, out: Path, **settings: object) -> FinetuneConfig:
    """Return settings with which the tiny model learns the tiny data in a second."""
    values: dict[str, object] = {
        "task": "classify",
        "epochs": 8,
        "batch_size": 16,
        "seq_len": 32,
        "precision": "float32",
        "optimizer": OptimizerConfig(learning_rate=3e-3),
    }
    return FinetuneConfig(model=str(model), data=str(data), out=str(out), **(values | settings))  # type: ignore[arg-type]
