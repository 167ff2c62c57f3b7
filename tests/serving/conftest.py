"""Models of every kind, and a server that has them all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bertsmith import predictor
from bertsmith.bundle import save_bundle
from bertsmith.serving.served import ServedModel
from bertsmith.stored_task import FROZEN
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from tests.recipes.tiny import VOCABULARY, save_model
from tests.serving.running import Client, serving
from tests.test_predictor_kinds import KINDS

PAIRS = {"text": "a", "second_text": "b", "label": "c"}
HEADS = [head for head in KINDS if not head.startswith(FROZEN) or head == "feature-classification"]


@pytest.fixture(scope="session")
def directories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny model for each head, for pairs, and one as pretraining leaves it; not to be changed."""
    root = tmp_path_factory.mktemp("served")
    made = {"pretrained": save_model(root / "pretrained")}
    heads = [(head, head, {}) for head in HEADS]
    for name, head, more in [*heads, ("pairs", "classification", {"columns": PAIRS})]:
        verb, make, stored, _ = KINDS[head]
        torch.manual_seed(0)
        task = {"task": verb, "head": head, "labels": None, "seq_len": 32, **stored, **more}
        made[name] = root / name
        save_bundle(made[name], make(), Tokenizer(VOCABULARY, TokenizerConfig()), task, "card")
    return made


@pytest.fixture(scope="session")
def models(directories: dict[str, Path]) -> list[ServedModel]:
    return [ServedModel(name, predictor.load(path), "float32") for name, path in directories.items()]


@pytest.fixture(scope="module")
def client(models: list[ServedModel]) -> Iterator[Client]:
    """A client of a server of all models with the default settings; it ends before other files' tests."""
    with serving(models) as client:
        yield client


@pytest.fixture(scope="session")
def minilm(minilm_path: Path) -> ServedModel:
    """A real model that makes vectors."""
    return ServedModel("minilm", predictor.load(minilm_path), "float32")
