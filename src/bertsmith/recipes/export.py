"""Export a model for other programs, with proof: what was written is computed anew and measured."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from bertsmith import files
from bertsmith.bundle import architecture_of, load_bundle, write_bundle, write_settings
from bertsmith.config import nearest
from bertsmith.device import limit_threads
from bertsmith.errors import InputError, RunError
from bertsmith.interop.sentence_transformers import StoredPooling
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.export_card import export_card
from bertsmith.recipes.export_check import Measure
from bertsmith.recipes.export_config import FORMATS, ExportConfig
from bertsmith.recipes.labelled import read_labelled
from bertsmith.stored_task import EMBEDDING
from bertsmith.tasks.inference import Inference
from bertsmith.tasks.task import stored_model

if TYPE_CHECKING:
    from bertsmith.interop.variants import Variant

_DEFAULT = ExportConfig("", "")
REPORT_FILE = "export-report.json"
DEFAULT_MAX_LOSS = 0.01
_EXACT = ("fp32", "hf")
"""Variants that only rounding may tell from ours."""


def export(config: ExportConfig) -> dict[str, Any]:
    """Export a model.

    Returns:
        What export-report.json holds: each variant's file, size, largest difference and metrics.

    Raises:
        InputError: a setting or the data is wrong, or the model is of a kind that is not exported.
        RunError: a variant's outputs are not the model's, or it loses too much; nothing is written.
    """
    limit_threads()
    _check(config)
    out = Path(config.out)
    if out.exists() and not (out / REPORT_FILE).is_file() and not _is_empty(out):
        raise InputError(f"--out {out}: is there already and is no export; name another directory")
    bundle = load_bundle(config.model)
    task = bundle.task or {}
    pooling = None
    if task.get("head") == EMBEDDING:
        settings = task["settings"]
        pooling = StoredPooling(settings["pooling"], settings["normalize"], task.get("seq_len"))
    labelled = None
    if config.data is not None:
        wanted = EvaluateConfig(config.model, config.data, task=config.task, split=config.split)
        labelled = read_labelled(wanted, bundle)
    inference = Inference(torch.device("cpu"), torch.float32, config.batch_tokens)
    measure = Measure(bundle, stored_model(bundle), pooling, labelled, inference)
    report: dict[str, Any] = {"model": config.model, "to": config.to}
    if labelled is not None:
        report |= {"data": labelled.split.rows.path, "examples": len(labelled.split.rows.rows)}
        report |= {"task": labelled.task.name, "metric": measure.main_metric, "ours": measure.ours}
    with files.atomic_directory(out) as directory:
        write = _write_onnx if config.to == "onnx" else _write_huggingface
        report |= write(config, measure, directory)
        files.write_json(directory / REPORT_FILE, report)
        files.write_text(directory / "README.md", export_card(report))
    return {**report, "out": config.out}


def _is_empty(path: Path) -> bool:
    return path.is_dir() and not any(path.iterdir())


def _check(config: ExportConfig) -> None:
    """Refuse settings that do not go together.

    Raises:
        InputError: a setting is unknown or would be ignored, or a package is missing.
    """
    if config.to not in FORMATS:
        raise InputError(f"--to {config.to} is unknown; take one of {', '.join(FORMATS)}")
    if config.to == "hf" and config.opset is not None:
        raise InputError(f"--opset {config.opset} would be ignored: it is for --to onnx; leave it out")
    if config.to == "hf" and config.variants != _DEFAULT.variants:
        raise InputError("--variants would be ignored: they are for --to onnx; leave them out")
    for package in FORMATS[config.to]:
        if find_spec(package) is None:
            raise InputError(f"--to {config.to} needs {package}: pip install 'bertsmith[{config.to}]'")
    if config.to == "onnx":
        _opset_and_variants(config)
    if config.data is None:
        _check_without_data(config)
    elif config.max_loss is not None and not config.max_loss >= 0.0:
        raise InputError(f"--max-loss is {config.max_loss}; it has to be 0 or more")


def _check_without_data(config: ExportConfig) -> None:
    for name in ("max_loss", "task", "split", "batch_tokens"):
        if (value := getattr(config, name)) != getattr(_DEFAULT, name):
            flag = name.replace("_", "-")
            raise InputError(f"--{flag} {value} would be ignored without --data; add it or leave it out")
    if lossy := [name for name in config.variants if name not in _EXACT]:
        raise InputError(f"--variants {lossy[0]} needs --data: labelled rows that show what it loses")


def _opset_and_variants(config: ExportConfig) -> tuple[int, list[Variant]]:
    """Return what is to be written.

    Raises:
        InputError: the version of the operators is out of range, or a variant is unknown or its program is
            not installed.
    """
    from bertsmith.interop.onnx_export import DEFAULT_OPSET, check_opset
    from bertsmith.interop.variants import VARIANTS

    opset = DEFAULT_OPSET if config.opset is None else config.opset
    check_opset(opset)
    for name in config.variants:
        if name not in VARIANTS:
            raise InputError(f"--variants {name} is unknown; {nearest(name, list(VARIANTS))}")
    chosen = [VARIANTS[name] for name in dict.fromkeys(["fp32", *config.variants])]
    for variant in chosen:
        variant.require_program()
    return opset, chosen


def _write_onnx(config: ExportConfig, measure: Measure, directory: Path) -> dict[str, Any]:
    """Write the variants asked for; see ``export``."""
    from bertsmith.interop.onnx_export import to_onnx
    from bertsmith.interop.variants import write_variant

    opset, chosen = _opset_and_variants(config)
    graph = to_onnx(measure.model, opset, measure.pooling)
    write_settings(measure.bundle, architecture_of(measure.model), directory)
    found = {}
    for variant in chosen:
        path = write_variant(variant, graph, directory)
        found[variant.name] = {
            "file": variant.file,
            "megabytes": round(
                sum(file.stat().st_size for file in path.parent.glob(f"{path.stem}.*")) / 1e6, 1
            ),
            "computed_by": f"{variant.program} {version(variant.program)}",
            **_proved(config, measure, variant.name, variant.run(path)),
        }
    inputs, outputs = ([value.name for value in values] for values in (graph.graph.input, graph.graph.output))
    return {"opset": opset, "inputs": inputs, "outputs": outputs, "variants": found}


def _write_huggingface(config: ExportConfig, measure: Measure, directory: Path) -> dict[str, Any]:
    """Write a directory for transformers; see ``export``."""
    from bertsmith.interop.exported import require_known, transformers_run

    require_known(measure.model)
    write_bundle(dataclasses.replace(measure.bundle, directory=directory), architecture_of(measure.model), "")
    size = (directory / "model.safetensors").stat().st_size
    found = {
        "file": "model.safetensors",
        "megabytes": round(size / 1e6, 1),
        "computed_by": f"transformers {version('transformers')}",
        **_proved(config, measure, "hf", transformers_run(directory)),
    }
    return {"variants": {"hf": found}}


def _proved(config: ExportConfig, measure: Measure, name: str, run: Any) -> Mapping[str, Any]:
    """Return what a variant is worth.

    Raises:
        RunError: it is not equal where it has to be, or loses too much.
    """
    if name in _EXACT:
        measure.require_equal(name, run)
    found = measure.of(run)
    limit = DEFAULT_MAX_LOSS if config.max_loss is None else config.max_loss
    if "loss" in found and not found["loss"] <= limit:
        metric = measure.main_metric
        raise RunError(
            f"{name}: {metric} is {found['metrics'][metric]:.4f}, the model's {measure.ours[metric]:.4f}; it "
            f"loses more than --max-loss {limit:g}; nothing is written"
        )
    return found
