"""The loader: a pure function of the step, each example once per epoch, the same for any micro-batch."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
import torch

from bertsmith.data.batch import IGNORED, PretrainingBatch
from bertsmith.data.config import MaskingConfig, Targets
from bertsmith.data.cuts import BatchWarmup
from bertsmith.data.loader import PretrainingLoader, fixed_batches
from bertsmith.data.shards import Instances
from bertsmith.distributed import Ranks
from bertsmith.errors import InputError
from tests.data.conftest import rows_of, write_split

Pairs = Callable[..., Instances]


def masked_rows(batch: PretrainingBatch) -> dict[int, tuple[list[int], list[int], list[int], int]]:
    """Return for each example its masked ids, its picks within the row, their labels and its NSP label."""
    result = {}
    picks, labels = batch.picks.numpy(), batch.pick_labels.numpy()
    layout = batch.tokens.layout
    for row, (start, length) in enumerate(zip(layout.starts, layout.lengths, strict=True)):
        here = (picks >= start) & (picks < start + length)
        result[int(batch.example_ids[row])] = (
            batch.tokens.input_ids[start : start + length].tolist(),
            (picks[here] - start).tolist(),
            labels[here].tolist(),
            int(batch.nsp_labels[row]),
        )
    return result


def same(one: PretrainingBatch, two: PretrainingBatch) -> bool:
    return (
        one.tokens.layout == two.tokens.layout
        and torch.equal(one.tokens.input_ids, two.tokens.input_ids)
        and torch.equal(one.tokens.segment_ids, two.tokens.segment_ids)
        and torch.equal(one.tokens.position_ids, two.tokens.position_ids)
        and torch.equal(one.picks, two.picks)
        and torch.equal(one.pick_labels, two.pick_labels)
        and torch.equal(one.nsp_labels, two.nsp_labels)
        and np.array_equal(one.example_ids, two.example_ids)
    )


@pytest.mark.parametrize(("batch_size", "micro"), [(4, 0), (12, 4), (4, 3), (36, 5), (100, 0)])
def test_c019_each_example_exactly_once_per_epoch(pairs, vocabulary, batch_size, micro) -> None:
    instances = pairs(37)
    loader = PretrainingLoader(instances, vocabulary, MaskingConfig(), 1, batch_size)
    assert loader.num_examples == 37
    assert loader.steps_per_epoch == -(-37 // batch_size)
    orders = []
    for epoch in range(4):
        seen: list[int] = []
        for step in range(epoch * loader.steps_per_epoch, (epoch + 1) * loader.steps_per_epoch):
            for batch in loader.batch(step, micro):
                assert len(batch.example_ids) <= (micro or batch_size)
                seen += batch.example_ids.tolist()
        assert Counter(seen) == Counter(range(37))
        orders.append(seen)
    assert len({tuple(order) for order in orders}) == 4


def test_c019_a_step_does_not_depend_on_the_steps_before_it(pairs, vocabulary) -> None:
    instances = pairs(37)
    straight = PretrainingLoader(instances, vocabulary, MaskingConfig(), 3, 4)
    steps = [straight.batch(step, 3) for step in range(25)]
    for step in (24, 3, 17, 9, 10, 0):
        fresh = PretrainingLoader(instances, vocabulary, MaskingConfig(), 3, 4)
        again = fresh.batch(step, 3)
        assert len(again) == len(steps[step])
        assert all(same(one, two) for one, two in zip(again, steps[step], strict=True))


def test_a_growing_batch_reads_each_example_once_per_epoch(pairs, vocabulary) -> None:
    """And in the same order, with the same masks, as one that does not grow."""
    instances = pairs(37)
    growing = PretrainingLoader(instances, vocabulary, MaskingConfig(), 3, 8, BatchWarmup(2, 9))
    plain = PretrainingLoader(instances, vocabulary, MaskingConfig(), 3, 37)
    assert [len(growing.example_ids(step)) for step in range(12)] == [2, 2, 3, 4, 4, 5, 6, 6, 5, 8, 8, 8]
    rows: list[dict[int, object]] = [{}, {}]
    for step in range(14):
        epoch = int(growing.epochs(step))
        for batch in growing.batch(step, 3):
            assert not rows[epoch].keys() & set(batch.example_ids.tolist())
            rows[epoch].update(masked_rows(batch))
        fresh = PretrainingLoader(instances, vocabulary, MaskingConfig(), 3, 8, BatchWarmup(2, 9))
        assert np.array_equal(fresh.example_ids(step), growing.example_ids(step))
    assert growing.epochs(9) == 1.0
    assert growing.epochs(14) == 2.0
    for epoch in (0, 1):
        assert rows[epoch] == masked_rows(plain.batch(epoch)[0])


def test_micro_batches_cut_the_same_rows_and_masks(pairs, vocabulary) -> None:
    loader = PretrainingLoader(pairs(50), vocabulary, MaskingConfig(), 0, 20)
    for step in range(6):
        (whole,) = loader.batch(step)
        for micro in (1, 3, 7, 20, 64):
            parts = loader.batch(step, micro)
            merged: dict[int, tuple[list[int], list[int], list[int], int]] = {}
            for part in parts:
                merged.update(masked_rows(part))
            assert merged == masked_rows(whole)
            ids = np.concatenate([part.example_ids for part in parts])
            np.testing.assert_array_equal(ids, whole.example_ids)


@pytest.mark.parametrize("micro", [0, 1, 3, 64])
@pytest.mark.parametrize("world", [1, 2, 3, 8])
def test_ranks_get_the_same_rows_and_masks_in_equally_many_batches(pairs, vocabulary, world, micro) -> None:
    loader = PretrainingLoader(pairs(37), vocabulary, MaskingConfig(), 0, 10)
    for step in range(5):  # the fourth is short: 7 rows
        (whole,) = loader.batch(step)
        merged: dict[int, tuple[list[int], list[int], list[int], int]] = {}
        numbers, tokens = set(), []
        for rank in range(world):
            batches = loader.batch(step, micro, Ranks(rank, world))
            numbers.add(len(batches))
            for batch in batches:
                assert not merged.keys() & set(batch.example_ids.tolist())
                if len(batch.example_ids):
                    merged.update(masked_rows(batch))
                else:  # takes part for nothing
                    assert batch.tokens.layout.batch == 1
                    assert (len(batch.picks), len(batch.pick_labels)) == (0, 0)
                    assert batch.nsp_labels.tolist() == [IGNORED]
            tokens.append(sum(batch.tokens.layout.num_tokens for batch in batches))
        assert len(numbers) == 1
        assert merged == masked_rows(whole)
        if world == 2:
            assert abs(tokens[0] - tokens[1]) <= 32


@pytest.mark.parametrize("world", [2, 3, 8])
def test_ranks_evaluate_each_example_once(pairs, vocabulary, world) -> None:
    instances = pairs(40)
    whole = list(fixed_batches(instances, vocabulary, MaskingConfig(), 25, 10))
    parts = [
        list(fixed_batches(instances, vocabulary, MaskingConfig(), 25, 10, Ranks(rank, world)))
        for rank in range(world)
    ]
    assert len({len(part) for part in parts}) == 1
    real = [batch for part in parts for batch in part if len(batch.example_ids)]
    assert len(real) == 3
    assert all(any(same(one, two) for two in real) for one in whole)


def test_rows_are_the_instances_with_their_masks_undone(pairs, vocabulary) -> None:
    instances = pairs(60, shard_pieces=200)
    loader = PretrainingLoader(instances, vocabulary, MaskingConfig(), 0, 16)
    for step in range(loader.steps_per_epoch):
        for batch in loader.batch(step, 6):
            lengths = batch.tokens.layout.lengths
            assert list(lengths) == sorted(lengths)
            ids = batch.tokens.input_ids.clone()
            ids[batch.picks] = batch.pick_labels
            for row, start in enumerate(batch.tokens.layout.starts):
                example = instances.example(int(batch.example_ids[row]))
                end = start + lengths[row]
                assert ids[start:end].tolist() == example.ids.tolist()
                segments = batch.tokens.segment_ids[start:end].tolist()
                n = lengths[row]
                assert segments == [0] * example.second_start + [1] * (n - example.second_start)
                assert batch.tokens.position_ids[start:end].tolist() == list(range(n))
                assert int(batch.nsp_labels[row]) == example.nsp_label


def test_dynamic_masks_change_each_epoch_and_static_masks_do_not(pairs, vocabulary) -> None:
    instances = pairs(40)

    def epoch_masks(dynamic: bool, epoch: int) -> dict[int, tuple[list[int], list[int], list[int], int]]:
        loader = PretrainingLoader(instances, vocabulary, MaskingConfig(dynamic=dynamic), 0, 8)
        result = {}
        for step in range(epoch * 5, (epoch + 1) * 5):
            for batch in loader.batch(step):
                result.update(masked_rows(batch))
        return result

    assert epoch_masks(False, 0) == epoch_masks(False, 3)
    first, second = epoch_masks(True, 0), epoch_masks(True, 1)
    assert sum(first[index] != second[index] for index in range(40)) > 30


def test_the_seed_changes_order_and_masks(pairs, vocabulary) -> None:
    instances = pairs(40)
    one = PretrainingLoader(instances, vocabulary, MaskingConfig(), 0, 40)
    two = PretrainingLoader(instances, vocabulary, MaskingConfig(), 1, 40)
    assert masked_rows(one.batch(0)[0]) != masked_rows(two.batch(0)[0])
    one, two = (PretrainingLoader(instances, vocabulary, MaskingConfig(), seed, 8) for seed in (0, 1))
    assert set(one.example_ids(0).tolist()) != set(two.example_ids(0).tolist())


def test_heldout_masks_never_change(pairs, vocabulary) -> None:
    instances = pairs(40)
    one = list(fixed_batches(instances, vocabulary, MaskingConfig(), 25, 10))
    two = list(fixed_batches(instances, vocabulary, MaskingConfig(), 25, 10))
    assert [len(batch.example_ids) for batch in one] == [10, 10, 5]
    assert all(same(a, b) for a, b in zip(one, two, strict=True))
    assert len({int(index) for batch in one for index in batch.example_ids}) == 25
    merged: dict[int, object] = {}
    for batch in fixed_batches(instances, vocabulary, MaskingConfig(), 25, 4):
        merged.update(masked_rows(batch))
    assert merged == {k: v for batch in one for k, v in masked_rows(batch).items()}
    every = list(fixed_batches(instances, vocabulary, MaskingConfig(), 0, 16))
    assert sorted(int(index) for batch in every for index in batch.example_ids) == list(range(40))


def test_instances_without_a_pair_have_no_nsp_label(tmp_path, vocabulary) -> None:
    from tests.data.conftest import rows_of, write_split

    write_split(tmp_path / "data", rows_of([[2, 7, 8, 3], [2, 9, 3]], [4, 3], [-1, -1]), 16)
    instances = Instances.open(tmp_path / "data", "train")
    (batch,) = PretrainingLoader(instances, vocabulary, MaskingConfig(), 0, 2).batch(0)
    assert batch.nsp_labels.tolist() == [IGNORED, IGNORED]
    assert batch.tokens.segment_ids.tolist() == [0] * 7


def test_no_instances_and_no_batch_size_are_refused(pairs, tmp_path, vocabulary) -> None:
    with pytest.raises(InputError, match="batch-size is 0"):
        PretrainingLoader(pairs(4), vocabulary, MaskingConfig(), 0, 0)
    from tests.data.conftest import rows_of, write_split

    write_split(tmp_path / "empty", rows_of([], [], []), 16)
    with pytest.raises(InputError, match="no train instances"):
        PretrainingLoader(Instances.open(tmp_path / "empty", "train"), vocabulary, MaskingConfig(), 0, 4)


def test_a_batch_costs_little(pairs, vocabulary) -> None:
    """32 x 128: a few milliseconds at most, so that loading never holds up a step."""
    loader = PretrainingLoader(pairs(300, seq_len=128), vocabulary, MaskingConfig(), 0, 32)
    loader.batch(0)
    times = []
    for step in range(20):
        start = time.perf_counter()
        loader.batch(step)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.02


def test_held_out_batches_are_of_one_source_each(vocabulary, tmp_path) -> None:
    draw = np.random.default_rng(3)
    lengths = draw.integers(4, 16, size=50).tolist()
    sources = draw.integers(0, 3, size=50).tolist()
    rows = [draw.integers(5, 1000, size=length).tolist() for length in lengths]
    write_split(tmp_path / "data", rows_of(rows, lengths, [-1] * 50, sources), seq_len=16)
    instances = Instances.open(tmp_path / "data", "train")
    batches = list(fixed_batches(instances, vocabulary, MaskingConfig(), 0, 4))
    for batch in batches:
        assert len(np.unique(instances.sources(batch.example_ids))) == 1
        assert list(batch.tokens.layout.lengths) == sorted(batch.tokens.layout.lengths)
    assert sorted(np.concatenate([batch.example_ids for batch in batches]).tolist()) == list(range(50))
    # Which instances are together changes none of their masks.
    alone = list(fixed_batches(instances, vocabulary, MaskingConfig(), 0, 1))
    together = {key: row for batch in batches for key, row in masked_rows(batch).items()}
    assert together == {key: row for batch in alone for key, row in masked_rows(batch).items()}


def test_a_model_that_sees_the_left_predicts_every_next_piece(pairs, vocabulary) -> None:
    instances = pairs(9)
    loader = PretrainingLoader(instances, vocabulary, MaskingConfig(), 1, 4, targets=Targets("next"))
    special = {vocabulary.cls_id, vocabulary.sep_id, vocabulary.mask_id, vocabulary.pad_id}
    for step in range(loader.steps_per_epoch):
        (batch,) = loader.batch(step)
        for index, (ids, picks, labels, _) in masked_rows(batch).items():
            assert ids == instances.example(index).ids.tolist()
            wanted = [(place, id) for place, id in enumerate(ids[1:]) if id not in special]
            assert list(zip(picks, labels, strict=True)) == wanted


def test_without_pairs_the_masks_are_the_same_and_no_pair_counts(pairs, vocabulary) -> None:
    instances = pairs(9)
    with_pairs, without = (
        PretrainingLoader(instances, vocabulary, MaskingConfig(), 1, 4, targets=Targets(pairs=told)).batch(0)[
            0
        ]
        for told in (True, False)
    )
    assert torch.equal(with_pairs.picks, without.picks)
    assert torch.equal(with_pairs.tokens.input_ids, without.tokens.input_ids)
    assert with_pairs.count_pairs() == 4
    assert without.count_pairs() == 0
