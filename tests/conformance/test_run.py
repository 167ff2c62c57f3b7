"""All of it at once: from a file of text to trained weights, by the verbs and by the references."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from bertsmith.bundle import load_bundle
from bertsmith.model.bert import BertForPreTraining
from bertsmith.presets import bert_exact
from bertsmith.randomness import generator, seed_of
from bertsmith.recipes.pretrain import pretrain
from tests.conformance import plain_instances
from tests.conformance.models import original_names
from tests.conformance.numpy_bert import Batch, Shape
from tests.conformance.numpy_gradients import losses_and_gradients
from tests.conformance.numpy_training import Adam, learning_rate
from tests.conformance.prepared import MOST, SEED, Prepared, mask_numbers

STEPS, LONG_STEPS, WARMUP_STEPS, BATCH, RATE = 20, 2, 4, 8, 2e-3


def plain_batch(prepared: Prepared, chosen: list[int]) -> Batch:
    """Return a padded batch of the plain version's rows with its masks."""
    ids_of = {piece: number for number, piece in enumerate(prepared.vocabulary)}
    rows = list(prepared.rows)
    longest = max(len(rows[number]) for number in chosen)
    ids, segments, mask = np.zeros((3, len(chosen), longest), dtype=np.int64)
    picks, words, labels = [], [], []
    for place, number in enumerate(chosen):
        row, pair = rows[number], prepared.pairs[number]
        most = MOST[prepared.instances.seq_len]
        masked, places = plain_instances.masked(
            row, prepared.vocabulary, most, mask_numbers(prepared, number, most)
        )
        ids[place, : len(row)] = [ids_of[piece] for piece in masked]
        segments[place, len(pair.first) + 2 : len(row)] = 1
        mask[place, : len(row)] = 1
        picks += [(place, one) for one in places]
        words += [ids_of[row[one]] for one in places]
        labels.append(pair.label)
    first, second = np.array(picks).T
    return Batch(ids, segments, mask, (first, second), np.array(words), np.array(labels))


def plain_batches(prepared: dict[int, Prepared]) -> Iterator[Batch]:
    """Yield the batches of the run: short ones, then long ones, each phase in its own random order."""
    for data, steps in ((prepared[32], STEPS - LONG_STEPS), (prepared[128], LONG_STEPS)):
        order = generator(SEED, "order").permutation(len(data.pairs)).tolist()
        for step in range(steps):
            yield plain_batch(data, order[step * BATCH : (step + 1) * BATCH])


def test_fact_21_a_whole_run_in_small(fact, prepared, tmp_path):
    line = fact(21, "weights after 20 steps of bert-exact in small, moved by 0.1", "plain version, NumPy")
    preset = bert_exact(str(prepared[32].instances.directory), str(tmp_path / "run"))
    small = replace(
        preset.architecture,
        hidden_size=16,
        num_layers=2,
        num_heads=2,
        intermediate_size=32,
        max_positions=128,
    )
    config = replace(
        preset,
        long_data=str(prepared[128].instances.directory),
        steps=STEPS,
        batch_size=BATCH,
        long_batch_size=BATCH,
        micro_batch_size=4,
        dropout=0.0,
        seed=SEED,
        architecture=small,
        optimizer=replace(preset.optimizer, learning_rate=RATE, warmup_fraction=WARMUP_STEPS / STEPS),
    )
    pretrain(config)
    ours = original_names(load_bundle(tmp_path / "run" / "model").state)

    torch.manual_seed(seed_of(SEED, "weights"))
    vocab_size = len(prepared[32].vocabulary)
    start = original_names(BertForPreTraining(replace(small, vocab_size=vocab_size)).state_dict())
    adam = Adam(start)
    for step, batch in enumerate(plain_batches(prepared)):
        _, gradients = losses_and_gradients(adam.weights, Shape(num_layers=2, num_heads=2), batch)
        adam.step(gradients, learning_rate(step, RATE, STEPS, WARMUP_STEPS))
    moved = {name: np.abs(adam.weights[name] - start[name]).max() for name in start}
    still = {name for name in moved if moved[name] < 1e-3}
    assert 0.05 < max(moved.values()) < 0.2
    assert still == {name for name in start if name.endswith("key/bias")}, "softmax does not see that one"
    line.difference(max(np.abs(ours[name] - adam.weights[name]).max() for name in start), 2e-4)
