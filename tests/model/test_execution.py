"""Recomputed and compiled layers against layers as they are."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import NORMS, BertConfig
from bertsmith.model.execution import prepare_layers
from bertsmith.training.loop import autocast
from tests.model.rows import VOCAB_SIZE, places_of, random_ids, rows_of

CPU = torch.device("cpu")
CONFIG = BertConfig(VOCAB_SIZE, 48, 3, 4, 80, 64, hidden_dropout=0.2, attention_dropout=0.2)


def built(norm: str, dropout: float = 0.2) -> BertForPreTraining:
    torch.manual_seed(0)
    return BertForPreTraining(
        replace(CONFIG, norm=norm, hidden_dropout=dropout, attention_dropout=dropout)
    ).train()


def losses_and_gradients(
    model: BertForPreTraining, lengths: tuple[int, ...], precision: torch.dtype
) -> list[Tensor]:
    tokens = rows_of(random_ids(lengths, seed=len(lengths)))
    picks = places_of(tokens.layout)[::3]
    model.zero_grad()
    torch.manual_seed(7)
    with autocast(CPU, precision):
        mlm_scores, nsp_scores = model(tokens, picks)
    loss = mlm_scores.float().logsumexp(-1).sum() + nsp_scores.float()[:, 0].square().sum()
    loss.backward()
    return [loss.detach(), *(parameter.grad for parameter in model.parameters())]


def compiling(test):
    """Mark a test that compiles: it takes long, and PyTorch's compiler warns of what it does itself."""
    return pytest.mark.slow(pytest.mark.filterwarnings("ignore")(test))


class Saved:
    """Counts the bytes that the forward pass keeps for the backward pass."""

    def __init__(self) -> None:
        self.bytes = 0

    def pack(self, tensor: Tensor) -> Tensor:
        self.bytes += tensor.nbytes
        return tensor


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16], ids=str)
def test_recomputed_gradients_are_the_same_bit_by_bit_with_dropout(norm, precision):
    plain, recomputed = built(norm), built(norm)
    prepare_layers(recomputed, CPU, compiled=False, recomputed=True)
    assert list(plain.state_dict()) == list(recomputed.state_dict())
    for lengths in ((5, 9, 9, 3, 40, 12), (30, 30)):
        ours = losses_and_gradients(recomputed, lengths, precision)
        for value, expected in zip(ours, losses_and_gradients(plain, lengths, precision), strict=True):
            assert torch.equal(value, expected)
    undropped = losses_and_gradients(built(norm, 0.0), lengths, precision)
    assert not torch.equal(ours[0], undropped[0])


def test_recomputed_layers_keep_little():
    kept = []
    for recomputed in (False, True):
        model = built("post")
        prepare_layers(model, CPU, compiled=False, recomputed=recomputed)
        tokens = rows_of(random_ids((60, 60, 60)))
        saved = Saved()
        with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
            model.bert(tokens)
        kept.append(saved.bytes)
    assert kept[1] < kept[0] / 4


def test_recomputed_layers_evaluate_as_they_are():
    model = built("pre").eval()
    tokens = rows_of(random_ids((5, 9)))
    with torch.no_grad():
        expected = model.bert(tokens)
        prepare_layers(model, CPU, compiled=False, recomputed=True)
        assert torch.equal(model.bert(tokens), expected)


@compiling
@pytest.mark.parametrize("norm", NORMS)
def test_compiled_layers_agree_and_are_compiled_a_few_times(norm):
    """Every batch has another number of tokens, and the reading of the last layer is another shape."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    plain, compiled = built(norm, 0.0), built(norm, 0.0)
    prepare_layers(compiled, CPU, compiled=True, recomputed=False)
    assert list(plain.state_dict()) == list(compiled.state_dict())
    graphs = []
    for step in range(12):
        lengths = tuple(range(3 + step, 30 + 2 * step, 5))
        ours = losses_and_gradients(compiled, lengths, torch.float32)
        for value, expected in zip(ours, losses_and_gradients(plain, lengths, torch.float32), strict=True):
            torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-4)
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[-1] == graphs[1]  # nothing new after the second step
    assert graphs[-1] <= 4
    assert not counters["graph_break"]


@compiling
def test_compiled_layers_drop_their_share_and_repeat_with_the_seed_also_when_recomputed():
    torch.compiler.reset()
    models = []
    for recomputed in (False, True):
        model = built("post")
        prepare_layers(model, CPU, compiled=True, recomputed=recomputed)
        models.append(losses_and_gradients(model, (30, 31, 32), torch.float32))
        again = losses_and_gradients(model, (30, 31, 32), torch.float32)
        assert all(torch.equal(one, two) for one, two in zip(models[-1], again, strict=True))
    for one, two in zip(*models, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    undropped = losses_and_gradients(built("post", 0.0), (30, 31, 32), torch.float32)
    assert not torch.equal(models[0][0], undropped[0])


WITHOUT_COMPILER = """
import logging, torch
logging.basicConfig(format="%(levelname)s %(message)s")
from bertsmith.model.bert import Bert
from bertsmith.model.config import BertConfig
from bertsmith.model.execution import prepare_layers
from tests.model.rows import random_ids, rows_of
model = Bert(BertConfig(97, 24, 2, 2, 32, 40))
prepare_layers(model, torch.device("cpu"), compiled=True, recomputed=False)
print(tuple(model(rows_of(random_ids((5, 7)))).shape))
"""


def test_without_a_compiler_one_line_warns_and_the_layers_run():
    environment = os.environ | {"CXX": "no-such-compiler"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_COMPILER], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "(12, 24)\n"
    lines = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert len(lines) == 1
    assert lines[0].startswith("WARNING the layers are not compiled: no working compiler for cpu (")
