"""The same model under every spelling of its weights' names."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertsmith.interop.model_files import read_state
from bertsmith.interop.weight_names import state_from_huggingface, state_to_huggingface, their_name
from bertsmith.model.bert import Bert, BertForPreTraining
from bertsmith.model.config import BertConfig
from tests.model.rows import VOCAB_SIZE, random_ids, rows_of

CONFIG = BertConfig(VOCAB_SIZE, 24, 2, 3, 48, 40, hidden_dropout=0.2, layer_norm_eps=1e-6)


@pytest.fixture(scope="module")
def stored() -> dict[str, Tensor]:
    """Weights of a small model under Hugging Face's names; norms and biases are not trivial."""
    torch.manual_seed(0)
    model = BertForPreTraining(CONFIG)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.3, std=0.2)
    return state_to_huggingface(model.state_dict())


def renamed(stored: dict[str, Tensor], *pairs: tuple[str, str]) -> dict[str, Tensor]:
    result = {}
    for name, value in stored.items():
        for old, new in pairs:
            name = name.replace(old, new)
        result[name] = value
    return result


VARIANTS = {
    "gamma and beta": lambda s: renamed(
        s, ("LayerNorm.weight", "LayerNorm.gamma"), ("LayerNorm.bias", "LayerNorm.beta")
    ),
    "no bert prefix": lambda s: renamed({n: v for n, v in s.items() if n.startswith("bert.")}, ("bert.", "")),
    "position_ids": lambda s: s | {"bert.embeddings.position_ids": torch.arange(40)[None]},
    "module prefix": lambda s: {f"module.{n}": v for n, v in s.items()},
    "module, no bert, gamma": lambda s: {
        f"module.{n.removeprefix('bert.')}".replace("LayerNorm.weight", "LayerNorm.gamma"): v
        for n, v in s.items()
        if n.startswith("bert.")
    },
    "tied decoder stored": lambda s: (
        s
        | {
            "cls.predictions.decoder.weight": s["bert.embeddings.word_embeddings.weight"].clone(),
            "cls.predictions.decoder.bias": s["cls.predictions.bias"].clone(),
        }
    ),
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.parametrize("format", ["safetensors", "bin"])
def test_c048_every_spelling_of_names_gives_the_same_hidden_states(stored, variant, format, tmp_path):
    tokens = rows_of(random_ids((5, 9, 12)))
    if format == "safetensors":
        save_file(
            {name: value.contiguous() for name, value in variant(stored).items()},
            tmp_path / "model.safetensors",
        )
    else:
        torch.save(variant(stored), tmp_path / "pytorch_model.bin")
    states = []
    for state in (state_from_huggingface(stored), state_from_huggingface(read_state(tmp_path))):
        model = Bert(CONFIG).eval()
        encoder = {n.removeprefix("bert."): v for n, v in state.items() if n.startswith("bert.")}
        model.load_state_dict(encoder)  # strict: nothing missing, nothing left over
        states.append(model(tokens))
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=1e-6)


def test_c048_only_a_layer_norms_gamma_and_beta_are_renamed(stored):
    odd = {"head.alpha_beta": torch.ones(1), "head.gamma": torch.ones(1), "LayerNormal.beta": torch.ones(1)}
    assert odd.keys() <= state_from_huggingface(stored | odd).keys()


def test_names_go_there_and_back(stored):
    ours = state_from_huggingface(stored)
    assert ours.keys() == BertForPreTraining(CONFIG).state_dict().keys()
    back = state_to_huggingface(ours)
    assert back.keys() == stored.keys()
    assert all(torch.equal(back[name], stored[name]) for name in stored)
    assert their_name("bert.layers.3.attention.qkv.bias") == "bert.encoder.layer.3.attention.self.query.bias"


def test_half_precision_files_become_float32(stored):
    halves = {name: value.half() for name, value in stored.items()}
    assert {value.dtype for value in state_from_huggingface(halves).values()} == {torch.float32}
