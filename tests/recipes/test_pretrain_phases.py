"""Two phases: short instances for most of a run, long ones at its end."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from bertsmith.bundle import load_bundle
from bertsmith.data.config import MaskingConfig, Targets
from bertsmith.data.shards import Instances
from bertsmith.distributed import Ranks
from bertsmith.errors import InputError
from bertsmith.recipes.pretrain import pretrain
from bertsmith.recipes.pretrain_phases import Phases
from bertsmith.recipes.pretrain_settings import tokenizer_of
from bertsmith.training import checkpoint
from bertsmith.training.schedule import Budget
from tests.recipes import pretraining
from tests.recipes.pretraining import SHAPE, events, settings, timeless, weights
from tests.recipes.test_pretrain_resume import Died, dying_after


@pytest.fixture(scope="module")
def long_data(tmp_path_factory):
    """The same corpus as ``pretraining_data``, in instances of up to 64 pieces."""
    return pretraining.prepared(tmp_path_factory.mktemp("long"), seq_len=64)


def opened(data, long_data, **changes):
    config = settings(data, Path("RUN"), long_data=str(long_data), **changes)
    return open_phases(config)


def open_phases(config):
    instances = Instances.open(config.data, "train")
    return Phases.open(config, instances, tokenizer_of(instances), Targets())


def rows(batches):
    return [batch.tokens.layout.lengths for batch in batches]


def ids(batches):
    return np.concatenate([batch.example_ids for batch in batches])


@pytest.mark.parametrize(
    "steps, fraction, first_long", [(20, 0.1, 18), (10, 0.3, 7), (7, 0.5, 4), (3, 0.6, 2)]
)
def test_the_last_part_of_the_steps_reads_long_instances(
    steps, fraction, first_long, pretraining_data, long_data
):
    phases = opened(pretraining_data, long_data, steps=steps, long_fraction=fraction)
    budget = Budget(steps=steps)
    alone = open_phases(settings(pretraining_data, Path("RUN"), steps=steps))
    for step in range(steps):
        batch = phases.batch(step, budget)
        if step < first_long:
            assert ids(batch).tolist() == ids(alone.batch(step, budget)).tolist()
            assert max(max(lengths) for lengths in rows(batch)) <= 32
        else:
            expected = phases.long.loader.batch(step - first_long)
            assert ids(batch).tolist() == ids(expected).tolist()
            assert max(max(lengths) for lengths in rows(batch)) > 32
    assert phases.long_start == first_long


def test_any_order_of_asking_gives_the_same_batches(pretraining_data, long_data):
    budget = Budget(steps=12)
    forward, backward = (opened(pretraining_data, long_data, long_fraction=0.25) for _ in range(2))
    there = [ids(forward.batch(step, budget)).tolist() for step in range(12)]
    back = [ids(backward.batch(step, budget)).tolist() for step in reversed(range(12))]
    assert there == back[::-1]


def test_ranks_share_the_steps_of_both_phases(pretraining_data, long_data):
    budget = Budget(steps=12)
    alone, *shared = (opened(pretraining_data, long_data, long_fraction=0.25) for _ in range(3))
    for step in range(12):
        parts = [phases.batch(step, budget, Ranks(rank, 2)) for rank, phases in enumerate(shared)]
        assert sorted(np.concatenate([ids(part) for part in parts])) == sorted(ids(alone.batch(step, budget)))
        assert len(parts[0]) == len(parts[1])


def test_steps_keep_their_tokens_unless_a_batch_is_given(pretraining_data, long_data):
    budget = Budget(steps=12)
    phases = opened(pretraining_data, long_data, batch_size=9, micro_batch_size=5)
    assert [len(lengths) for lengths in rows(phases.batch(0, budget))] == [5, 4]
    assert [len(lengths) for lengths in rows(phases.batch(11, budget))] == [2, 2]
    given = opened(pretraining_data, long_data, batch_size=9, micro_batch_size=5, long_batch_size=7)
    assert [len(lengths) for lengths in rows(given.batch(11, budget))] == [2, 2, 2, 1]


def test_with_a_time_budget_the_clock_switches_once_and_the_checkpoint_knows_where(
    pretraining_data, long_data
):
    now = [0.0]
    budget = Budget(seconds=100.0, clock=lambda: now[0])
    phases = opened(pretraining_data, long_data, steps=None, budget="100s", long_fraction=0.2)
    assert rows(phases.batch(3, budget)) == rows(phases.loader.batch(3))
    assert phases.state()["long_start"] is None
    now[0] = 81.0
    long = [ids(phases.batch(step, budget)).tolist() for step in (4, 5, 6)]
    assert phases.state()["long_start"] == 4
    assert long == [ids(phases.long.loader.batch(step)).tolist() for step in (0, 1, 2)]
    assert phases.epochs(6) == phases.loader.epochs(4) > 0
    now[0] = 0.0  # another process, whose clock says something else
    resumed = opened(pretraining_data, long_data, steps=None, budget="100s", long_fraction=0.2)
    resumed.restore(json.loads(json.dumps(phases.state())))
    assert [ids(resumed.batch(step, budget)).tolist() for step in (4, 5, 6)] == long


def test_a_run_of_two_phases(pretraining_data, long_data, tmp_path, monkeypatch):
    config = settings(
        pretraining_data,
        tmp_path / "whole",
        long_data=str(long_data),
        long_fraction=0.25,
        checkpoint_steps=2,
        evaluate_steps=4,
    )
    metrics = pretrain(config)
    evaluations = [event for event in events(tmp_path / "whole") if "heldout_loss" in event]
    assert ["heldout_long_mlm_loss" in event for event in evaluations] == [False, False, True]  # 4, 8, 12
    assert metrics["heldout_long_mlm_loss"] == evaluations[-1]["heldout_long_mlm_loss"]
    assert metrics["heldout_long_mlm_loss"] != metrics["heldout_mlm_loss"]
    assert load_bundle(metrics["model"]).task["seq_len"] == 64

    cut = dataclasses.replace(config, out=str(tmp_path / "cut"), resume=True)
    for stop in (8, 10):  # before the first long step, and in the midst of them
        with monkeypatch.context() as patch:
            dying_after(stop, patch)
            with pytest.raises(Died):
                pretrain(cut)
    pretrain(cut)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")

    for changes, named in (
        ({"long_data": None, "long_fraction": 0.1}, "long_data was '"),
        ({"long_fraction": 0.5}, "long_fraction was 0.25, is now 0.5"),
        ({"long_batch_size": 3}, "long_batch_size was 0, is now 3"),
    ):
        with pytest.raises(InputError, match=named):
            pretrain(dataclasses.replace(cut, **changes))


def test_a_timed_run_ends_on_long_instances(pretraining_data, long_data, tmp_path):
    config = settings(
        pretraining_data,
        tmp_path / "run",
        steps=None,
        budget="4s",
        long_data=str(long_data),
        long_fraction=0.5,
        log_steps=1000,
    )
    metrics = pretrain(config)
    (newest,) = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1:]
    start = json.loads((newest / "state.json").read_text())["state"]["long_start"]
    assert 0 < start < metrics["step"]
    assert "heldout_long_mlm_loss" in metrics


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"long_fraction": 0.2}, "--long-fraction is given without --long-data"),
        ({"long_batch_size": 4}, "--long-batch-size is given without --long-data"),
        ({"long_data": "LONG", "long_fraction": 0.0}, "--long-fraction is 0.0"),
        ({"long_data": "LONG", "long_fraction": 1.0}, "--long-fraction is 1.0"),
        ({"long_data": "LONG", "steps": 9}, "a phase without a step"),
        ({"long_data": "LONG", "long_batch_size": -1}, "--long-batch-size is -1"),
        ({"long_data": "SHORT"}, "the long data has to be the longer one"),
        ({"long_data": "FULL"}, "--pairing full-sentences"),
        ({"long_data": "nowhere"}, "nowhere: no manifest.json"),
        (
            {"long_data": "LONG", "architecture": dataclasses.replace(SHAPE, max_positions=40)},
            "max_positions is 40, but the data was prepared with --seq-len 64",
        ),
    ],
)
def test_what_does_not_fit_together_is_refused_before_training(
    changes, named, pretraining_data, long_data, tmp_path
):
    if changes.get("long_data") == "FULL":
        changes = {"long_data": str(pretraining.prepared(tmp_path, "full-sentences", seq_len=64))}
    known = {"LONG": str(long_data), "SHORT": str(pretraining_data)}
    changes = {
        name: known.get(value, value) if isinstance(value, str) else value for name, value in changes.items()
    }
    with pytest.raises(InputError, match=named):
        pretrain(settings(pretraining_data, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_another_vocabulary_is_refused(pretraining_data, long_data, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(long_data, other)
    manifest = json.loads((other / "manifest.json").read_text())
    manifest["vocabulary"]["identity"] = "another"
    (other / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(InputError, match=f"prepare it with --vocab {pretraining_data}"):
        pretrain(settings(pretraining_data, tmp_path / "run", long_data=str(other)))


def test_skipped_batches_move_the_data_and_not_the_phases(pretraining_data, long_data):
    phases = opened(pretraining_data, long_data, steps=20, long_fraction=0.5)
    plain = opened(pretraining_data, long_data, steps=20, long_fraction=0.5)
    budget = Budget(steps=20)
    phases.restore(plain.state() | {"skipped_batches": 3})
    for step in (0, 6, 10, 15):
        assert np.array_equal(ids(phases.batch(step, budget)), ids(plain.batch(step + 3, budget)))
    lengths = [max(map(max, rows(phases.batch(step, budget)))) for step in (9, 10)]
    assert lengths[0] <= 32 < lengths[1]


def test_the_long_phase_has_its_own_usual_losses(pretraining_data, long_data, tmp_path):
    pretrain(settings(pretraining_data, tmp_path / "run", long_data=str(long_data), long_fraction=0.25))
    found = checkpoint.latest(tmp_path / "run")
    assert found is not None
    assert len(found.state["watcher"]["losses"]) == 3


def test_static_masks_of_one_pass_are_warned_of(pretraining_data, caplog):
    config = settings(pretraining_data, Path("RUN"))
    open_phases(config)
    assert "--passes" not in caplog.text
    open_phases(dataclasses.replace(config, masking=MaskingConfig(dynamic=False)))
    assert "all epochs have the same masks; the original prepares ten passes (--passes 10)" in caplog.text
