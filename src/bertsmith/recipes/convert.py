"""The verb ``convert``: a checkpoint of another tool to a model directory, and what became of each weight."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertsmith.bundle import Bundle, bundle_of, load_bundle, load_encoder, write_bundle
from bertsmith.device import dtype_name
from bertsmith.errors import InputError, RunError
from bertsmith.files import atomic_directory, write_json
from bertsmith.interop import huggingface, model_files, weight_names
from bertsmith.interop.heads import Heads, heads_of
from bertsmith.recipes.convert_config import ConvertConfig
from bertsmith.recipes.convert_report import told, weights_report
from bertsmith.recipes.convert_source import Source, read_source
from bertsmith.recipes.model_card import LICENSE, NOT_KNOWN, card, code, listed

REPORT_FILE = "conversion-report.json"
_CARD_FILE = "README.md"


def convert(config: ConvertConfig) -> dict[str, Any]:
    """Convert a model.

    Returns:
        The report, which is written as conversion-report.json: format, architecture, what became of each
        weight (see ``weights_report``), notes, and how many tensors were read back and found equal.

    Raises:
        InputError: there is no model, its encoder or a head is not whole, or a setting does not fit.
        RunError: what was written is not what is read back.
    """
    out = Path(config.out)
    _check_out(out)
    source = read_source(config)
    if source.directory.resolve() == out.resolve():
        raise InputError(f"--out {out} is where the model is read from; give another directory")
    read = _bundle(source, config)
    heads = heads_of((read.task or {}).get("head"), read.state)
    bundle = _kept(read, heads, source)
    with atomic_directory(out) as temporary:
        write_bundle(
            dataclasses.replace(bundle, directory=temporary), heads.bert_class, _card(source, config)
        )
        report = {
            "out": str(out),
            "report": str(out / REPORT_FILE),
            "input": config.input,
            "weights_read": str(source.weights),
            "format": source.format,
            **_facts(bundle, temporary),
            "notes": _notes(source, read, bundle, config),
            "weights": _weights(source, bundle, temporary, heads),
            "tensors_equal": _compared(bundle, temporary),
        }
        write_json(temporary / REPORT_FILE, report)
    return report


def show(report: dict[str, Any]) -> None:
    """Print a report for people."""
    print(told(report))


def _check_out(out: Path) -> None:
    """Refuse to put a model in the place of something else."""
    if out.is_file() or (out.is_dir() and any(out.iterdir()) and not (out / "config.json").is_file()):
        raise InputError(f"--out {out} exists and is no model directory; give another, or remove it")


def _bundle(source: Source, config: ConvertConfig) -> Bundle:
    """Return the model as it was read, with the settings' changes."""
    values = dict(source.values)
    if config.activation is not None:
        values["hidden_act"] = huggingface.activation_name(config.activation)
    bundle = bundle_of(source.directory, values, source.tokenizer, source.stored, config.allow_missing)
    if not config.labels:
        return bundle
    task = bundle.task or {}
    names = task.get("labels")
    if names is None:
        head = task.get("head", "no")
        raise InputError(f"--labels would be ignored: the model has {head} head whose outputs have no names")
    if len(config.labels) != len(names) or len({*config.labels} - {""}) != len(names):
        raise InputError(f"--labels names {', '.join(config.labels)}; expected {len(names)} different names")
    return dataclasses.replace(bundle, task=task | {"labels": config.labels})


def _kept(bundle: Bundle, heads: Heads, source: Source) -> Bundle:
    """Return the model with the weights that it consists of alone; those to draw at random are drawn.

    Raises:
        InputError: a head is there in part.
    """
    missing = heads.missing(bundle.state, bundle.config.tied_decoder)
    for name in missing:
        part = name.partition(".")[0]
        if any(stored.startswith(f"{part}.") for stored in bundle.state):
            theirs = weight_names.their_name(name, huggingface.model_type_of(bundle.config))
            raise InputError(
                f"{source.weights}: {theirs} is missing, the head is not whole; get the whole file"
            )
    encoder = {f"bert.{name}": value for name, value in load_encoder(bundle).state_dict().items()}
    on_top = {name: value for name, value in bundle.state.items() if heads.own(name)}
    return dataclasses.replace(bundle, state=encoder | on_top)


def _facts(bundle: Bundle, written: Path) -> dict[str, Any]:
    """Return what the new model is."""
    values = model_files.read_config(written / "config.json")
    return {
        "architecture": values["architectures"][0],
        "head": (bundle.task or {}).get("head"),
        "labels": (bundle.task or {}).get("labels"),
        "tied_decoder": bundle.config.tied_decoder,
        "parameters": sum(value.numel() for value in bundle.state.values()),
        "vocabulary": bundle.tokenizer.vocab_size,
        "cased": not getattr(bundle.tokenizer.config, "lowercase", False),
    }


def _weights(source: Source, bundle: Bundle, written: Path, heads: Heads) -> dict[str, Any]:
    names = model_files.read_state(written)
    return weights_report(source, huggingface.model_type_of(bundle.config), names, heads.bert_class)


def _compared(bundle: Bundle, written: Path) -> int:
    """Read the new model back and compare it bit by bit with what was to be written.

    Raises:
        RunError: a tensor came back as another one.
    """
    again = load_bundle(written)
    assert again.state.keys() == bundle.state.keys(), "every weight was written, and nothing else"
    for name, value in again.state.items():
        if not torch.equal(value.view(torch.int32), bundle.state[name].view(torch.int32)):
            raise RunError(f"{name} was written, but another tensor was read back; is the disk sound?")
    return len(again.state)


def _notes(source: Source, read: Bundle, bundle: Bundle, config: ConvertConfig) -> list[str]:
    """Return what a person should know who relies on the new model."""
    notes = []
    types = {dtype_name(value.dtype) for value in source.stored.values() if _is_float(value)}
    if types - {"float32"}:
        notes.append(f"stored as {', '.join(sorted(types))}, written as float32 with the same values")
    words = read.config.vocab_size
    rows = {len(value) for name, value in source.stored.items() if name.endswith("word_embeddings.weight")}
    if rows and max(rows) > words:
        notes.append(f"the word embeddings had {max(rows)} rows, cut to the {words} of vocab_size")
    if bundle.tokenizer.vocab_size < words:
        notes.append(
            f"the vocabulary has {bundle.tokenizer.vocab_size} pieces, the embeddings {words} rows: the rest "
            "is padding"
        )
    if not bundle.config.tied_decoder and "mlm_head.decoder.weight" in bundle.state:
        notes.append("the decoder is a matrix of its own, not the word embeddings")
    if source.format == "tf1" and config.activation is None and bundle.config.activation == "gelu":
        notes.append(
            "gelu is read as erf, as Hugging Face reads it; google-research/bert computes the tanh form "
            "since 2019-02-07: --activation gelu_tanh"
        )
    broken = [name for name, value in source.stored.items() if not torch.isfinite(value).all()]
    if broken:
        notes.append(f"{len(broken)} weights hold NaN or infinity, such as {broken[0]}: the model is broken")
    labels = (bundle.task or {}).get("labels") or []
    if labels and all(name == f"LABEL_{place}" for place, name in enumerate(labels)):
        notes.append("the files do not name the labels; give them with --labels in the order of the outputs")
    return notes


def _is_float(value: Tensor) -> bool:
    return value.is_floating_point()


def _card(source: Source, config: ConvertConfig) -> str:
    """Return the source's model card with a line on the conversion, or a card of our own."""
    path = source.directory / _CARD_FILE
    converted = f"Converted with Bertsmith; {REPORT_FILE} says what became of each weight."
    if path.is_file():
        text = path.read_text(encoding="utf-8-sig", errors="replace").rstrip()
        return text if converted in text else f"{text}\n\n## Conversion\n\n{converted}\n"
    use = code("sh", "bertsmith finetune --task classify --model MODEL --data rows.csv --out RUN")
    parts = [converted, "## Use", use, "## Read this", listed([NOT_KNOWN, LICENSE])]
    return card(Path(config.input).name, {"library_name": "bertsmith", "tags": ["bert"]}, parts)
