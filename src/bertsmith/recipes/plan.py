"""The verb ``plan``: a minute of measuring, and what a run would take: time, memory, disk, cost."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from rich.console import Console

from bertsmith.bench.capacity import (
    Capacity,
    Timing,
    Workload,
    count_parameters,
    extrapolate,
    measure,
    micro_batch_sizes,
)
from bertsmith.bench.synthetic import mean_length
from bertsmith.bench.turns import product_rate, versions
from bertsmith.config import bytes_of, count_of, duration_seconds
from bertsmith.data.shards import id_dtype
from bertsmith.device import (
    available_memory,
    describe,
    dtype_name,
    keep_freed_memory,
    limit_threads,
    pick_device,
    pick_precision,
)
from bertsmith.errors import InputError
from bertsmith.recipes.machine_config import PlanConfig
from bertsmith.recipes.plan_report import show_plan
from bertsmith.recipes.pretrain_config import PretrainConfig

_FEW_LAYERS = (1, 3)
_USABLE_MEMORY = 0.9
_STATIC_BYTES_PER_PARAMETER = 16  # weight, gradient and two moments, float32
_BYTES_PER_INSTANCE = 13  # its place, its second segment, its label


def plan(config: PlanConfig) -> dict[str, Any]:
    """Measure training steps of the real model and say what the whole run takes.

    A model that does not fit into the memory is measured with one and with three layers, and the figures are
    drawn on in a straight line.

    Returns:
        What was measured, memory, disk, and for each number of devices time, device hours and cost; with the
        assumptions.

    Raises:
        InputError: the settings do not fit together.
    """
    _check(config)
    Console(stderr=True).print(f"plan: measuring takes about {config.measure_seconds:g} s", highlight=False)
    threads = limit_threads()
    keep_freed_memory()
    device = pick_device()
    architecture = dataclasses.replace(config.architecture, vocab_size=config.vocab_size)
    workload = Workload(
        architecture,
        config.optimizer,
        config.masking,
        config.seq_len,
        pick_precision(config.precision, device),
        device,
        config.compile,
        config.checkpoint_activations,
    )
    here = available_memory(device)
    memory = bytes_of(config.memory) if config.memory else here
    usable = min((size for size in (here, memory) if size is not None), default=None)
    layers = _layers_to_measure(workload, usable)
    capacity = _measure(workload, config, layers, usable)
    best = _recommended(capacity, config, memory)
    return {
        "preset": config.preset,
        "device": describe(device),
        "threads": threads,
        "precision": dtype_name(workload.precision),
        "parameters": capacity.parameters,
        "seq_len": config.seq_len,
        "batch_size": config.batch_size,
        "micro_batch_size": best.micro_batch_size,
        "measured_layers": list(layers) or None,
        "measurements": [
            dataclasses.asdict(timing)
            | {"tokens_per_second": round(timing.tokens_per_second(config.batch_size), 1)}
            for timing in capacity.timings
        ],
        **_speed(best, workload, config.batch_size),
        "memory": _memory(capacity, best, memory),
        "devices": [_on_devices(count, capacity, best, config) for count in _device_counts(config.devices)],
        "disk": _disk(capacity, config),
        "assumptions": _assumptions(config, capacity, layers),
        "versions": versions(),
    }


def show(summary: dict[str, Any]) -> None:
    """Print a summary for people on standard output."""
    show_plan(summary, Console(highlight=False))


def _check(config: PlanConfig) -> None:
    """Refuse wrong settings before a minute is spent."""
    if (config.tokens is None) == (config.budget is None):
        raise InputError("give either --tokens (such as 137B) or --budget (such as 4d)")
    for parse, text in (
        (count_of, config.tokens),
        (duration_seconds, config.budget),
        (bytes_of, config.memory),
    ):
        if text is not None:
            parse(text)
    positions = config.architecture.max_positions
    for name, least, most in (
        ("devices", 1, math.inf),
        ("batch_size", 1, math.inf),
        ("vocab_size", 1, math.inf),
        ("seq_len", 16, positions),
        ("scaling_efficiency", 1e-3, 1.0),
        ("measure_seconds", 1e-3, math.inf),
        ("device_hour_cost", 0.0, math.inf),
    ):
        value = getattr(config, name)
        if value is not None and not (least <= value <= most and value < math.inf):
            until = f" to {most}" if most < math.inf else " on"
            raise InputError(f"{name} is {value}; it has to be from {least}{until}")
    if config.devices > config.batch_size:
        raise InputError(
            f"{config.devices} devices for a batch of {config.batch_size} instances: some would have nothing "
            "to do; raise batch_size"
        )


def _layers_to_measure(workload: Workload, memory: int | None) -> tuple[int, ...]:
    """Return the numbers of layers to measure instead of the whole model; none when that fits."""
    needed = _STATIC_BYTES_PER_PARAMETER * count_parameters(workload.architecture)
    is_small = memory is None or needed <= _USABLE_MEMORY * memory
    return () if is_small or workload.architecture.num_layers <= _FEW_LAYERS[-1] else _FEW_LAYERS


def _measure(workload: Workload, config: PlanConfig, layers: tuple[int, ...], memory: int | None) -> Capacity:
    sizes = micro_batch_sizes(config.seq_len, config.batch_size)
    most = None if memory is None else int(_USABLE_MEMORY * memory)
    if not layers:
        return measure(workload, sizes, config.batch_size, config.measure_seconds, most)
    few, more = (
        measure(
            dataclasses.replace(
                workload, architecture=dataclasses.replace(workload.architecture, num_layers=number)
            ),
            sizes,
            config.batch_size,
            config.measure_seconds / len(layers),
            most,
        )
        for number in layers
    )
    return extrapolate(few, more, (layers[0], layers[1]), workload)


def _recommended(capacity: Capacity, config: PlanConfig, memory: int | None) -> Timing:
    """Return the fastest of the sizes that fit; of equally fast ones (within 2 %) the smallest."""
    fitting = [
        timing
        for timing in capacity.timings
        if memory is None or capacity.total_bytes(timing) <= _USABLE_MEMORY * memory
    ] or list(capacity.timings[:1])
    fastest = max(timing.tokens_per_second(config.batch_size) for timing in fitting)
    return next(timing for timing in fitting if timing.tokens_per_second(config.batch_size) > 0.98 * fastest)


def _speed(best: Timing, workload: Workload, batch_size: int) -> dict[str, Any]:
    """Return tokens a second, and the model's arithmetic as a share of a bare matrix product's rate."""
    shape = workload.architecture
    rate = product_rate(
        round(best.tokens), shape.hidden_size, shape.intermediate_size, workload.precision, workload.device
    )
    speed = best.tokens_per_second(batch_size)
    gflops = best.operations / best.tokens * speed / 1e9
    return {
        "tokens_per_second": round(speed, 1),
        "model_flops_per_token": round(best.operations / best.tokens),
        "gflops": round(gflops, 1),
        "product_gflops": round(rate, 1),
        "fraction_of_product_rate": round(gflops / rate, 3),
    }


def _memory(capacity: Capacity, best: Timing, memory: int | None) -> dict[str, Any]:
    total = capacity.total_bytes(best)
    return {
        "weights_bytes": capacity.weight_bytes,
        "gradients_bytes": capacity.weight_bytes,
        "optimizer_bytes": capacity.optimizer_bytes,
        "activations_bytes": capacity.activation_bytes(best),
        "total_bytes": total,
        "peak_bytes": best.peak_bytes,
        "available_bytes": memory,
        "fits": None if memory is None else total <= _USABLE_MEMORY * memory,
    }


def _device_counts(most: int) -> list[int]:
    powers = [1 << exponent for exponent in range(most.bit_length()) if 1 << exponent <= most]
    return powers if powers[-1] == most else [*powers, most]


def _on_devices(count: int, capacity: Capacity, best: Timing, config: PlanConfig) -> dict[str, Any]:
    """Return time and cost on so many devices, each with its part of the batch."""
    part = math.ceil(config.batch_size / count)
    sizes = [
        timing for timing in capacity.timings if timing.micro_batch_size <= min(part, best.micro_batch_size)
    ]
    timing = sizes[-1] if sizes else capacity.timings[0]
    kept = config.scaling_efficiency if count > 1 else 1.0
    # A part that is rounded up makes the others wait for the largest one.
    speed = timing.tokens_per_second(part) * kept * config.batch_size / part
    tokens = count_of(config.tokens) if config.tokens else duration_seconds(config.budget or "") * speed
    seconds = tokens / speed
    device_hours = count * seconds / 3600
    return {
        "devices": count,
        "tokens_per_second": round(speed, 1),
        "tokens": round(tokens),
        "steps": math.ceil(tokens / (config.batch_size * mean_length(config.seq_len))),
        "micro_batch_size": min(timing.micro_batch_size, part),
        "seconds": round(seconds, 1),
        "device_hours": round(device_hours, 3),
        "cost": None if config.device_hour_cost is None else round(device_hours * config.device_hour_cost, 2),
    }


def _disk(capacity: Capacity, config: PlanConfig) -> dict[str, Any]:
    per_token = id_dtype(config.vocab_size).itemsize + _BYTES_PER_INSTANCE / mean_length(config.seq_len)
    checkpoint = capacity.weight_bytes + capacity.optimizer_bytes
    return {
        "data_bytes_per_billion_tokens": round(1e9 * per_token),
        "data_bytes": round(count_of(config.tokens) * per_token) if config.tokens else None,
        "checkpoint_bytes": checkpoint,
        "checkpoints_bytes": (PretrainConfig.keep_checkpoints + 1) * checkpoint,
        "model_bytes": capacity.weight_bytes,
    }


def _assumptions(config: PlanConfig, capacity: Capacity, layers: tuple[int, ...]) -> list[str]:
    steps = sum(timing.steps for timing in capacity.timings)
    lines = [
        f"the speed of {steps} measured steps on made-up instances (nine in ten of {config.seq_len} pieces) "
        "is that of the whole run; evaluations, checkpoints and restarts are not counted",
        f"devices like this one, the batch of {config.batch_size} divided among them; with more than one, "
        f"each keeps {100 * config.scaling_efficiency:g} % of its speed (--scaling-efficiency)",
        "tokens are counted without padding, and repeated ones each time; the data on disk is for "
        "tokens that are each read once: for k epochs divide it by k",
        f"{PretrainConfig.keep_checkpoints} checkpoints are kept and one more is being written",
    ]
    lines.append(f"a vocabulary of {config.vocab_size:,} entries (--vocab-size)")
    if layers:
        few, more = layers
        lines.append(
            f"the model does not fit here: measured with {few} and {more} layers, drawn on in a straight "
            f"line to {config.architecture.num_layers}"
        )
    return lines
