from __future__ import annotations

import json
import os
import pickle

import pytest
import torch
from torch import nn

from bertsmith.errors import InputError
from bertsmith.files import sha256_of
from bertsmith.training import checkpoint
from bertsmith.training.config import OptimizerConfig
from bertsmith.training.optimizer import build_optimizer

SETTINGS = {"seed": 0, "optimizer": {"name": "adamw", "betas": (0.9, 0.999)}}


class Tied(nn.Module):
    """Two names for one weight, stacked layers, and a buffer."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first = nn.Linear(width, 3)
        self.second = nn.Linear(width, 3)
        self.second.weight = self.first.weight
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])
        self.register_buffer("count", torch.zeros(2))


def trained(name: str = "adamw", steps: int = 3) -> tuple[Tied, torch.optim.Optimizer]:
    torch.manual_seed(1)
    model = Tied()
    model.count.fill_(7)
    optimizer = build_optimizer(model, OptimizerConfig(name=name, learning_rate=0.1))
    for _ in range(steps):
        advance(model, optimizer)
    return model, optimizer


def advance(model: Tied, optimizer: torch.optim.Optimizer) -> None:
    inputs = torch.arange(8.0).reshape(2, 4)
    hidden = model.layers[1](model.layers[0](model.first(inputs)))
    (model.second(hidden @ torch.ones(3, 4)) ** 2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def save(run, step, keep=2, model_and_optimizer=None, **state):
    model, optimizer = model_and_optimizer or trained()
    return checkpoint.save(run, step, model, optimizer, {"settings": SETTINGS} | state, keep)


@pytest.mark.parametrize("name", ["adamw", "bert-adam", "lamb", "muon"])
def test_a_restored_run_goes_on_bit_by_bit(name, tmp_path):
    model, optimizer = trained(name)
    save(tmp_path, 3, model_and_optimizer=(model, optimizer), tokens=12, ratio=0.1)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert (found.step, found.state["tokens"], found.state["ratio"]) == (3, 12, 0.1)
    other = Tied()
    other_optimizer = build_optimizer(other, OptimizerConfig(name=name, learning_rate=0.1))
    checkpoint.restore(found, other, other_optimizer)
    for _ in range(2):
        advance(model, optimizer)
        advance(other, other_optimizer)
    for (key, value), restored in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(value, restored), key
    assert other.first.weight is other.second.weight


def test_only_tensors_and_json_are_written(tmp_path):
    directory = save(tmp_path, 1)
    assert sorted(path.name for path in directory.iterdir()) == [
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
    ]
    assert directory.name == "step-00000001"


def test_the_newest_are_kept(tmp_path):
    for step in (1, 2, 30, 4):
        save(tmp_path, step, keep=2)
    names = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert names == ["step-00000002", "step-00000004"]  # 30 can only be what a resumed run passed over


def test_what_a_killed_save_left_is_cleared_and_never_read(tmp_path):
    save(tmp_path, 1)
    leftover = tmp_path / "checkpoints" / ".step-00000009.77.tmp"
    leftover.mkdir()
    (leftover / "model.safetensors").write_bytes(b"half")
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 1
    save(tmp_path, 2)
    assert not leftover.exists()


def test_without_any_checkpoint_there_is_none(tmp_path):
    assert checkpoint.latest(tmp_path) is None


def cut_short(directory):
    path = directory / "optimizer.safetensors"
    path.write_bytes(path.read_bytes()[:-10])


def flip_a_bit(directory):
    path = directory / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(bytes(content))


def remove(directory):
    (directory / "model.safetensors").unlink()


def empty_state(directory):
    (directory / "state.json").write_text("")


def foreign_step(directory):
    path = directory / "state.json"
    path.write_text(path.read_text().replace('"step": 2', '"step": 5'))


@pytest.mark.parametrize("damage", [cut_short, flip_a_bit, remove, empty_state, foreign_step])
def test_a_damaged_checkpoint_is_passed_over_with_a_warning(damage, tmp_path, caplog):
    save(tmp_path, 1)
    damage(save(tmp_path, 2))
    found = checkpoint.latest(tmp_path)
    assert found is not None
    assert found.step == 1
    assert "step-00000002 is damaged" in caplog.text


def test_all_damaged_is_an_error_and_no_silent_start_from_scratch(tmp_path):
    cut_short(save(tmp_path, 1))
    with pytest.raises(InputError, match="1 checkpoints and all are damaged"):
        checkpoint.latest(tmp_path)


def test_another_format_is_named(tmp_path):
    path = save(tmp_path, 1) / "state.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 9'))
    with pytest.raises(InputError, match="checkpoint format 9"):
        checkpoint.latest(tmp_path)


class Pwned:
    def __reduce__(self):
        return (os.system, ("touch case_pwned",))


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors"])
@pytest.mark.parametrize("hash_is_forged", [False, True])
def test_c052_a_pickle_in_a_checkpoint_is_never_run(file, hash_is_forged, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory = save(tmp_path, 2)
    (directory / file).write_bytes(pickle.dumps(Pwned()))
    if hash_is_forged:
        content = json.loads((directory / "state.json").read_text())
        content["sha256"][file] = sha256_of(directory / file)
        (directory / "state.json").write_text(json.dumps(content))
        found = checkpoint.latest(tmp_path)
        assert found is not None
        with pytest.raises(InputError, match="cannot be read"):
            checkpoint.restore(found, *trained())
    else:
        with pytest.raises(InputError, match="damaged"):
            checkpoint.latest(tmp_path)
    assert not (tmp_path / "case_pwned").exists()


def test_another_model_is_refused(tmp_path):
    save(tmp_path, 1)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    wide = Tied(5)
    with pytest.raises(InputError, match="cannot be read as this model's checkpoint"):
        checkpoint.restore(found, wide, build_optimizer(wide, OptimizerConfig()))


def test_changed_settings_are_named_with_both_values(tmp_path):
    save(tmp_path, 1)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    checkpoint.require_same_settings(found, SETTINGS, SETTINGS, SETTINGS)
    changed = {"seed": 1, "optimizer": {"name": "bert-adam", "betas": (0.9, 0.999)}, "new": True}
    with pytest.raises(InputError) as caught:
        checkpoint.require_same_settings(found, changed, changed, SETTINGS)
    message = str(caught.value)
    assert "seed was 0, is now 1" in message
    assert "optimizer.name was 'adamw', is now 'bert-adam'" in message
    assert "new was absent, is now True" in message
    assert "betas" not in message


def test_a_setting_that_the_checkpoint_does_not_know_was_at_its_default(tmp_path):
    save(tmp_path, 1)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    defaults = SETTINGS | {"compile": False}
    checkpoint.require_same_settings(found, SETTINGS | {"compile": False}, SETTINGS, defaults)
    with pytest.raises(InputError, match="compile was False, is now True"):
        checkpoint.require_same_settings(found, SETTINGS | {"compile": True}, SETTINGS, defaults)


def test_a_setting_that_counts_no_more_is_compared_with_what_is_given(tmp_path):
    save(tmp_path, 1)
    found = checkpoint.latest(tmp_path)
    assert found is not None
    fewer = {name: value for name, value in SETTINGS.items() if name != "seed"}
    checkpoint.require_same_settings(found, fewer, SETTINGS, SETTINGS)
    with pytest.raises(InputError, match="seed was 0, is now 7"):
        checkpoint.require_same_settings(found, fewer, SETTINGS | {"seed": 7}, SETTINGS)


def test_an_earlier_checkpoint_is_found_and_later_ones_are_discarded(tmp_path):
    for step in (1, 2, 3):
        save(tmp_path, step, keep=3, at=step)
    found = checkpoint.latest(tmp_path, up_to=2)
    assert found is not None
    assert (found.step, found.state["at"]) == (2, 2)
    assert checkpoint.latest(tmp_path, up_to=0) is None
    checkpoint.discard_after(tmp_path, 2)
    assert [path.name for path in sorted((tmp_path / "checkpoints").iterdir())] == [
        "step-00000001",
        "step-00000002",
    ]
