"""Files of Hugging Face's tools: what is read, and what is refused."""

from __future__ import annotations

import json
import os

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from bertsmith.errors import InputError
from bertsmith.interop.model_files import has_state, read_config, read_state


@pytest.fixture
def stored() -> dict[str, Tensor]:
    return {name: torch.full((5, 8), place) for place, name in enumerate(["a.weight", "a.bias", "b.weight"])}


class Payload:
    """Unpickling this runs a command, as a malicious file would."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


@pytest.mark.parametrize("legacy", [False, True], ids=["zip", "legacy"])
def test_c052_a_pickle_that_runs_code_is_refused_and_nothing_runs(stored, tmp_path, legacy):
    mark = tmp_path / "case_pwned"
    content = dict(stored) | {"extra": Payload(f"touch {mark}")}
    torch.save(content, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=not legacy)
    with pytest.raises(InputError, match=r"pytorch_model.bin: refused.*may run code") as caught:
        read_state(tmp_path)
    assert not mark.exists()
    assert "\n" not in str(caught.value)


def test_c052_a_bin_of_tensors_alone_loads(stored, tmp_path):
    for content in (stored, {"state_dict": stored, "epoch": 3}):
        torch.save(content, tmp_path / "pytorch_model.bin")
        loaded = read_state(tmp_path)
        assert loaded.keys() == stored.keys()


def test_a_bin_that_holds_something_else_is_refused(tmp_path):
    torch.save({"weights": [1, 2, 3]}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="expected a dictionary of tensors"):
        read_state(tmp_path)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
@pytest.mark.parametrize("kept", [0, 4, 100, -20])
def test_a_cut_file_of_weights_is_one_clear_error(stored, tmp_path, name, kept):
    path = tmp_path / name
    save_file(stored, path) if name.endswith("safetensors") else torch.save(stored, path)
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(InputError, match=r"not a whole .* file|refused") as caught:
        read_state(tmp_path)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("stem, ending", [("model", "safetensors"), ("pytorch_model", "bin")])
def test_weights_in_several_files_are_read_together(stored, tmp_path, stem, ending):
    names = sorted(stored)
    files = {f"{stem}-0000{part + 1}-of-00002.{ending}": names[part::2] for part in range(2)}
    for file, part in files.items():
        write = save_file if ending == "safetensors" else torch.save
        write({name: stored[name] for name in part}, tmp_path / file)
    weight_map = {name: file for file, part in files.items() for name in part}
    index = tmp_path / f"{stem}.{ending}.index.json"
    index.write_text(json.dumps({"weight_map": weight_map}))
    found = read_state(tmp_path)
    assert found.keys() == stored.keys()
    assert all(torch.equal(found[name], value) for name, value in stored.items())
    assert has_state(tmp_path)
    (tmp_path / f"{stem}-00002-of-00002.{ending}").unlink()
    with pytest.raises(InputError, match="00002-of-00002"):
        read_state(tmp_path)
    for broken in ({"weight_map": ["a"]}, {}, {"weight_map": {"a": 3}}):
        index.write_text(json.dumps(broken))
        with pytest.raises(InputError, match="weight_map is no object of weights and files"):
            read_state(tmp_path)


def test_weights_of_another_framework_are_named(tmp_path):
    (tmp_path / "tf_model.h5").write_bytes(b"")
    assert not has_state(tmp_path)
    with pytest.raises(InputError, match=r"tf_model\.h5 is not read, save the model with save_pretrained"):
        read_state(tmp_path)


def test_a_byte_order_mark_before_a_config_is_no_part_of_it(tmp_path):
    (tmp_path / "config.json").write_text("\ufeff{}", encoding="utf-8")
    assert read_config(tmp_path / "config.json") == {}


def test_no_weights_is_an_error_that_says_what_is_expected(tmp_path):
    with pytest.raises(InputError, match=r"model\.safetensors or pytorch_model\.bin"):
        read_state(tmp_path)


@pytest.mark.parametrize("content", ["", "{", '{"a": 1}}', "[1, 2]", "\x00\x01"])
def test_a_broken_config_is_one_clear_error(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(InputError, match=r"config\.json: (not valid JSON|holds list)") as caught:
        read_config(path)
    assert "\n" not in str(caught.value)
