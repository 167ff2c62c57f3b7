"""What the measurements are made of; the measuring itself is tested through the verb plan."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from bertsmith.bench.capacity import (
    Capacity,
    Timing,
    Workload,
    count_parameters,
    extrapolate,
    measure,
    micro_batch_sizes,
)
from bertsmith.data.config import MaskingConfig
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.training.config import OptimizerConfig

SHAPE = BertConfig(vocab_size=200, hidden_size=32, num_layers=5, num_heads=2, intermediate_size=64)
WORKLOAD = Workload(SHAPE, OptimizerConfig(), MaskingConfig(), 32, torch.float32, torch.device("cpu"))


def timing(size: int, seconds: float, optimizer_seconds: float = 0.0, peak: int = 0) -> Timing:
    return Timing(size, 100.0 * size, 1.0, seconds, optimizer_seconds, 2, peak)


def test_parameters_are_counted_without_making_the_model() -> None:
    assert count_parameters(SHAPE) == sum(p.numel() for p in BertForPreTraining(SHAPE).parameters())


@pytest.mark.parametrize(
    "seq_len, batch_size, sizes",
    [
        (128, 256, [8, 16, 32, 64, 128]),
        (128, 32, [8, 16, 32]),
        (128, 20, [8, 16, 20]),
        (512, 256, [2, 4, 8, 16, 32]),
        (2048, 4, [1, 2, 4]),
        (128, 4, [4]),
    ],
)
def test_sizes_to_try(seq_len: int, batch_size: int, sizes: list[int]) -> None:
    assert micro_batch_sizes(seq_len, batch_size) == sizes


def test_speed_counts_the_optimiser_once_a_step() -> None:
    assert timing(8, 2.0, 1.0).tokens_per_second(32) == pytest.approx(4 * 800 / (4 * 2.0 + 1.0))
    assert timing(8, 2.0, 1.0).tokens_per_second(4) == pytest.approx(400 / (1.0 + 1.0))


def test_measuring_stops_where_memory_ends() -> None:
    all_sizes = measure(WORKLOAD, [2, 4, 8], 8, 2.0, None)
    assert [found.micro_batch_size for found in all_sizes.timings][:2] == [2, 4]
    one = measure(WORKLOAD, [2, 4, 8], 8, 2.0, 1)
    assert [found.micro_batch_size for found in one.timings] == [2]
    assert one.parameters == count_parameters(SHAPE)


def test_activations_that_are_recomputed_need_less_memory() -> None:
    """In processes of their own: the peak of a process never falls."""
    code = (
        "import sys, torch\n"
        "from dataclasses import replace\n"
        "from bertsmith.bench.capacity import measure\n"
        "from tests.bench.test_capacity import SHAPE, WORKLOAD\n"
        "shape = replace(SHAPE, hidden_size=128, intermediate_size=512, num_layers=8)\n"
        "workload = replace(WORKLOAD, architecture=shape, seq_len=128, recomputed=sys.argv[1] == 'yes')\n"
        "found = measure(workload, [32], 32, 1e-9, None)\n"
        "print(found.activation_bytes(found.timings[0]))\n"
    )
    kept, recomputed = (
        int(
            subprocess.run(
                [sys.executable, "-c", code, word], capture_output=True, text=True, check=True
            ).stdout
        )
        for word in ("no", "yes")
    )
    assert recomputed < 0.8 * kept


def test_measuring_stops_when_the_time_is_over() -> None:
    assert len(measure(WORKLOAD, [2, 4, 8], 8, 1e-9, None).timings) == 1


def test_extrapolation_is_a_straight_line() -> None:
    few = Capacity(10, 80, 7, (timing(8, 1.0, 0.5, 1000), timing(16, 1.5)))
    more = Capacity(20, 160, 9, (timing(8, 2.0, 0.6, 1400),))
    found = extrapolate(few, more, (1, 3), WORKLOAD)  # five layers: twice the difference further
    assert found.parameters == count_parameters(SHAPE)
    assert (found.optimizer_bytes, found.base_bytes) == (240, 7)
    (whole,) = found.timings
    assert (whole.seconds, whole.optimizer_seconds, whole.peak_bytes) == pytest.approx((3.0, 0.7, 1800))
