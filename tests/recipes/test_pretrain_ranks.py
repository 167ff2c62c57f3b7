"""Several processes train as one: same examples, same masks, same numbers."""

from __future__ import annotations

import dataclasses
import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from bertsmith import distributed
from bertsmith.data.config import MaskingConfig
from bertsmith.data.loader import fixed_batches
from bertsmith.data.shards import Instances, Rows, ShardWriter, id_dtype
from bertsmith.model.bert import BertForPreTraining
from bertsmith.objectives import PretrainingObjective
from bertsmith.recipes.pretrain import pretrain
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.loop import LoopSettings, evaluate
from tests.ranks import run_ranks, values_of
from tests.recipes import pretraining
from tests.recipes.pretraining import SHAPE, events, settings, timeless, weights
from tests.recipes.ranks import losses, pretrain_on


def test_one_rank_two_ranks_and_four_micro_batches_are_one_run(pretraining_data, tmp_path):
    found = {}
    for name, world, changes in (
        ("whole", 1, {}),
        ("two-ranks", 2, {}),
        ("cut", 1, {"micro_batch_size": 2}),
        ("three-ranks-cut", 3, {"micro_batch_size": 2}),
    ):
        config = settings(pretraining_data, tmp_path / name, dropout=0.0, **changes)
        summary, seen, steps = pretrain_on(world, config)
        found[name] = (seen, steps, losses(tmp_path / name), summary)
        assert len(list((tmp_path / name).glob("events.out.*"))) == 1, "one rank writes"
    seen, steps, expected, summary = found.pop("whole")
    assert steps == 12
    assert [len(examples) for examples in seen.values()] == [8] * 12
    for name, (others, others_steps, numbers, others_summary) in found.items():
        assert others == seen, name
        assert others_steps == steps, name
        assert numbers == pytest.approx(expected, abs=1e-5), name
        assert others_summary["tokens"] == summary["tokens"], name
        assert [event["tokens"] for event in events(tmp_path / name) if "tokens" in event] == [
            event["tokens"] for event in events(tmp_path / "whole") if "tokens" in event
        ]


def test_two_ranks_repeat_themselves_bit_by_bit_with_dropout(pretraining_data, tmp_path):
    for name in ("one", "other"):
        pretrain_on(2, settings(pretraining_data, tmp_path / name, steps=5, micro_batch_size=3))
    assert weights(tmp_path / "one") == weights(tmp_path / "other")
    assert timeless(tmp_path / "one") == timeless(tmp_path / "other")


def test_resumed_on_one_rank_and_on_two_again(pretraining_data, tmp_path, caplog):
    whole = settings(pretraining_data, tmp_path / "whole", dropout=0.0)
    _, expected, _ = pretrain_on(1, whole)
    config = settings(pretraining_data, tmp_path / "cut", dropout=0.0)
    seen = {}
    for world, changes, stop in ((2, {}, 4), (1, {"micro_batch_size": 3}, 9), (2, {}, 0)):
        part = dataclasses.replace(config, resume=seen != {}, **changes)
        summary, read, _ = pretrain_on(world, part, stop_after=stop)
        assert summary.get("interrupted", False) is (stop > 0)
        assert not seen.keys() & read.keys()
        seen |= read
        if world == 1:
            assert "ranks was 2, is 1; micro_batch_size was 0, is 3" in caplog.text
    assert seen == expected
    assert losses(tmp_path / "cut") == pytest.approx(losses(tmp_path / "whole"), abs=1e-5)


@pytest.mark.parametrize("world", [2, 3])
def test_the_same_number_of_ranks_resumes_bit_by_bit(world, pretraining_data, tmp_path):
    pretrain_on(world, settings(pretraining_data, tmp_path / "whole"))
    cut = settings(pretraining_data, tmp_path / "cut")
    pretrain_on(world, cut, stop_after=5)
    pretrain_on(world, dataclasses.replace(cut, resume=True))
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")


def in_shards(data, sizes):
    """Cut the train split anew into shards of so many instances."""
    instances = Instances.open(data, "train")
    manifest = json.loads((data / "manifest.json").read_text())
    shards, start = [], 0
    for number, size in enumerate(sizes):
        writer = ShardWriter(data / f"part-{number}", id_dtype(100))
        indices = np.arange(start, start + size)
        rows = instances.rows(indices)
        writer.append(
            Rows(
                np.concatenate(rows),
                np.cumsum([0, *map(len, rows)], dtype=np.int64),
                instances.second_starts(indices).astype(np.int32),
                instances.labels(indices).astype(np.int8),
                instances.sources(indices).astype(np.uint16),
            )
        )
        (shard,) = writer.close()
        for entry in shard["files"].values():
            named = entry["file"].replace("00000", f"{number:05d}")
            (data / f"part-{number}" / entry["file"]).rename(data / "train" / f"new-{named}")
            entry["file"] = f"new-{named}"
        shards.append(shard)
        start += size
    manifest["splits"]["train"]["shards"] = shards
    (data / "manifest.json").write_text(json.dumps(manifest))


def held_out(data: str, batch_size: int) -> tuple[dict[str, float], list[int]]:
    """Evaluate the train split in batches of 2; return the means and this rank's examples."""
    with distributed.joined():
        tokenizer = Tokenizer.load(data)
        torch.manual_seed(0)
        model = BertForPreTraining(dataclasses.replace(SHAPE, vocab_size=tokenizer.vocab_size))
        instances = Instances.open(data, "train")
        batches = list(
            fixed_batches(instances, tokenizer, MaskingConfig(), 0, batch_size, distributed.ranks())
        )
        means = evaluate(model, PretrainingObjective(), batches, LoopSettings(0, torch.device("cpu")))
        return means, [int(example) for batch in batches for example in batch.example_ids]


@pytest.mark.parametrize("shards", [(7,), (3, 5)])
def test_c023_uneven_ends_do_not_hang(shards, pretraining_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(pretraining_data, data)
    pretraining.keep_instances(data, sum(shards))
    in_shards(data, shards)
    epochs, steps_per_epoch = 2, -(-sum(shards) // 2)
    changes = {"batch_size": 2, "steps": epochs * steps_per_epoch, "dropout": 0.0, "evaluate_examples": 5}
    found = []
    for world in (1, 2):
        run = tmp_path / f"ranks-{world}"
        _, seen, steps = pretrain_on(world, settings(data, run, **changes))
        assert steps == epochs * steps_per_epoch
        for epoch in range(epochs):
            of_epoch = range(epoch * steps_per_epoch, (epoch + 1) * steps_per_epoch)
            examples = [example for step in of_epoch for example in seen[step]]
            assert sorted(examples) == list(range(sum(shards)))
        found.append((seen, losses(run)))
    assert found[1][0] == found[0][0]
    assert found[1][1] == pytest.approx(found[0][1], abs=1e-5)

    means, examples = held_out(str(data), 2)
    assert sorted(examples) == list(range(sum(shards)))
    evaluated = values_of(run_ranks(2, held_out, str(data), 2))
    assert [one[0] for one in evaluated] == [pytest.approx(means, rel=1e-6)] * 2
    assert sorted(evaluated[0][1] + evaluated[1][1]) == list(range(sum(shards)))


def test_more_ranks_than_examples(pretraining_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(pretraining_data, data)
    pretraining.keep_instances(data, 2)
    changes = {"batch_size": 2, "steps": 3, "dropout": 0.0, "evaluate_examples": 1}
    pretrain_on(1, settings(data, tmp_path / "one", **changes))
    pretrain_on(3, settings(data, tmp_path / "three", **changes))
    assert losses(tmp_path / "three") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)


def test_data_without_pairs_trains_the_same_weights_on_two_ranks(tmp_path):
    data = pretraining.prepared(tmp_path, pairing="full-sentences")
    for world in (1, 2):
        pretrain_on(world, settings(data, tmp_path / f"ranks-{world}", dropout=0.0, steps=4))
    one, two = (load_file(tmp_path / f"ranks-{world}/model/model.safetensors") for world in (1, 2))
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-5, msg=name)
        if "pooler" in name or "seq_relationship" in name:
            assert torch.equal(two[name], value), "what has no target stays as it was drawn"


def test_a_time_budget_ends_at_the_same_step_everywhere(pretraining_data, tmp_path):
    config = settings(pretraining_data, tmp_path / "run", steps=None, budget="5s", checkpoint_seconds=1)
    summary, _, steps = pretrain_on(2, config)
    assert summary["step"] == steps > 0


def failing(config) -> None:
    pretrain(config)


def test_a_mistake_is_told_once_and_ends_all_ranks(finished_run, pretraining_data):
    ended = run_ranks(2, failing, settings(pretraining_data, finished_run))
    assert "not empty; add --resume" in ended[0].error
    assert (ended[1].code, ended[1].value, ended[1].error) == (2, None, "ended without a word")
