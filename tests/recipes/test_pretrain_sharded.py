"""FSDP: the same run with the weights spread over the ranks."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import resource

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from bertsmith.errors import InputError
from bertsmith.files import sha256_of
from bertsmith.recipes.pretrain import pretrain
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.training import checkpoint
from bertsmith.training.config import OptimizerConfig
from tests.ranks import run_ranks
from tests.recipes.pretraining import settings, timeless, weights
from tests.recipes.ranks import losses, pretrain_on


def assert_same_model(run, other, atol: float = 2e-5) -> None:
    one, two = (load_file(path / "model/model.safetensors") for path in (run, other))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(
            two[name], value, rtol=0, atol=atol, msg=lambda text, name=name: f"{name}: {text}"
        )


@pytest.mark.parametrize(
    "name", ["adamw", "muon", *(pytest.param(name, marks=pytest.mark.slow) for name in ("bert-adam", "lamb"))]
)
def test_sharded_is_replicated(name, pretraining_data, tmp_path):
    changes = {"dropout": 0.0, "micro_batch_size": 3, "checkpoint_steps": 5}
    changes |= {"optimizer": OptimizerConfig(name=name, learning_rate=1e-3)}
    _, seen, _ = pretrain_on(2, settings(pretraining_data, tmp_path / "replicated", **changes))
    _, read, _ = pretrain_on(2, settings(pretraining_data, tmp_path / "sharded", sharding="fsdp", **changes))
    assert read == seen
    assert losses(tmp_path / "sharded") == pytest.approx(losses(tmp_path / "replicated"), abs=1e-5)
    # Muon makes its updates orthogonal in bfloat16, which turns other last bits into other third digits.
    assert_same_model(tmp_path / "sharded", tmp_path / "replicated", atol=1e-3 if name == "muon" else 2e-5)
    names = sorted(path.name for path in (tmp_path / "sharded/checkpoints").iterdir())
    assert names == ["step-00000010", "step-00000012"]
    files = sorted((tmp_path / "sharded/checkpoints/step-00000012").iterdir())
    assert [path.suffix for path in files] == [".safetensors", ".safetensors", ".json"]
    with safe_open(files[0], "pt") as part:
        shape = part.get_slice("bert.embeddings.word.weight").get_shape()
        assert shape == [33, 32], "each rank writes its half"


def test_a_sharded_run_goes_on_unsharded_and_sharded_again(pretraining_data, tmp_path, caplog):
    pretrain_on(1, settings(pretraining_data, tmp_path / "whole", dropout=0.0))
    config = settings(pretraining_data, tmp_path / "cut", dropout=0.0)
    for number, (world, sharding, stop) in enumerate(
        [(2, "fsdp", 3), (1, "none", 6), (3, "fsdp", 8), (2, "fsdp", 10), (1, "fsdp", 0)]
    ):
        part = dataclasses.replace(config, resume=number > 0, sharding=sharding)
        summary, _, _ = pretrain_on(world, part, stop_after=stop)
        assert summary["step"] == (stop or 12)
    assert "sharding was 'fsdp', is 'none'" in caplog.text or "sharding was fsdp, is none" in caplog.text
    assert losses(tmp_path / "cut") == pytest.approx(losses(tmp_path / "whole"), abs=1e-5)
    assert_same_model(tmp_path / "cut", tmp_path / "whole")


def test_a_sharded_run_resumes_bit_by_bit(pretraining_data, tmp_path):
    whole = settings(pretraining_data, tmp_path / "whole", sharding="fsdp")
    pretrain_on(2, whole)
    cut = dataclasses.replace(whole, out=str(tmp_path / "cut"))
    pretrain_on(2, cut, stop_after=5)
    pretrain_on(2, dataclasses.replace(cut, resume=True))
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")


class Pwned:
    def __reduce__(self):
        return (os.system, ("touch case_pwned",))


def test_c052_a_sharded_checkpoint_holds_no_pickle_and_runs_none(pretraining_data, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = settings(pretraining_data, tmp_path / "run", sharding="fsdp", steps=2)
    pretrain(config)
    (directory,) = (tmp_path / "run/checkpoints").iterdir()
    assert sorted(path.suffix for path in directory.iterdir()) == [".json", ".safetensors"]
    (shard,) = directory.glob("*.safetensors")
    content = json.loads((directory / "state.json").read_text())
    shard.write_bytes(pickle.dumps(Pwned()))
    (directory / ".metadata").write_bytes(pickle.dumps(Pwned()))
    with pytest.raises(InputError, match="all are damaged"):
        pretrain(dataclasses.replace(config, resume=True))
    content["sha256"] = {shard.name: sha256_of(shard)}
    (directory / "state.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="cannot be read as this model's checkpoint"):
        pretrain(dataclasses.replace(config, resume=True))
    assert not (tmp_path / "case_pwned").exists()


def test_an_unknown_sharding_is_refused(pretraining_data, tmp_path):
    with pytest.raises(InputError, match="sharding 'zero' is unknown; take one of none, fsdp"):
        pretrain(settings(pretraining_data, tmp_path / "run", sharding="zero"))
    assert not torch.distributed.is_initialized()


def limited(config: PretrainConfig, limit_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, limit_bytes))
    pretrain(config)


def test_parts_that_find_no_room_leave_the_checkpoints_before(pretraining_data, tmp_path):
    run = tmp_path / "run"
    config = settings(pretraining_data, run, sharding="fsdp", checkpoint_steps=3, steps=9)
    pretrain_on(2, config, stop_after=4)
    part = next((run / "checkpoints/step-00000004").glob("*.safetensors")).stat().st_size
    ended = run_ranks(2, limited, dataclasses.replace(config, resume=True), part * 9 // 10)
    assert [(one.code, one.error) for one in ended] == [(0, ""), (0, "")]
    names = sorted(path.name for path in (run / "checkpoints").iterdir())
    assert names == ["step-00000003", "step-00000004"]
    found = checkpoint.latest(run)
    assert found is not None
    assert found.step == 4
    assert (run / "model/model.safetensors").exists()
