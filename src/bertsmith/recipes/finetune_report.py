"""What a fine-tuning leaves behind: metrics, predictions on dev, the model directory and its card."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from bertsmith import files, metrics
from bertsmith.bundle import save_bundle
from bertsmith.calibration import calibration_of
from bertsmith.metrics import LabelScore
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune_card import finetuned_card
from bertsmith.recipes.finetune_run import SeedRun
from bertsmith.recipes.finetune_runs import Slot
from bertsmith.recipes.finetune_table import failures, grid_summary, spread
from bertsmith.significance import bootstrap_interval
from bertsmith.tasks.kind import Encoding, Task
from bertsmith.tasks.prepared import TrainingData

_SHOWN_COLUMNS = 8


def greeting(data: TrainingData) -> str:
    """Say what was read."""
    train, dev = data.train.rows, data.dev.rows
    parts = [f"{len(train.rows):,} training rows of {train.path}{' (a part)' if train.partial else ''}"]
    parts.append(f"{len(dev.rows):,} dev rows ({data.dev_source}{', a part' if dev.partial else ''})")
    for name, split in data.other_dev.items():
        parts.append(f"{len(split.rows.rows):,} {name} rows{' (a part)' if split.rows.partial else ''}")
    if data.labels is not None:
        parts.append(f"{len(data.labels)} labels")
    if train.unread:
        more = ", ..." if len(train.unread) > _SHOWN_COLUMNS else ""
        parts.append(f"columns not read: {', '.join(train.unread[:_SHOWN_COLUMNS])}{more}")
    cut = sum(sum(split.truncated) for split in data.splits.values())
    if cut:
        parts.append(f"{cut:,} rows are too long and were cut (see --seq-len)")
    left_out = sum(_counted("missing_rows", data).values())
    if left_out:
        parts.append(f"{left_out:,} rows lack text or label and were left out")
    return "; ".join(parts)


def _counted(count: str, data: TrainingData) -> dict[str, int]:
    return {name: split.rows.counts.get(count, 0) for name, split in data.splits.items()}


def _label_counts(data: TrainingData) -> dict[str, dict[str, int]] | None:
    """Return how many rows have each label; where a row has several, or entities, how often each occurs."""
    if data.labels is None:
        return None
    counts = {
        name: Counter(label for gold in split.gold_objects for label in _labels_in(gold))
        for name, split in data.splits.items()
    }
    occurring = {label for found in counts.values() for label in found}
    # Words are tagged with more than the labels of entities.
    names = data.labels if occurring <= set(data.labels) else sorted(occurring)
    return {name: {label: found[label] for label in names} for name, found in counts.items()}


def _labels_in(gold: Any) -> list[str]:
    several = gold if isinstance(gold, list | tuple) else [gold]
    named = [one.get("label") if isinstance(one, dict) else one for one in several]
    return [label for label in named if isinstance(label, str)]


@dataclass(frozen=True)
class Kept:
    """The run that is kept, and what it was trained with.

    Attributes:
        task: the task.
        data: its rows.
        encoding: how they became pieces.
        model: finished: as it is saved.
        run: what the run found.
        answers: to the dev rows, one JSON object a row.
    """

    task: Task
    data: TrainingData
    encoding: Encoding
    model: nn.Module
    run: SeedRun
    answers: list[dict[str, Any]]


def summarize(config: FinetuneConfig, kept: Kept, slots: Sequence[Slot]) -> dict[str, Any]:
    """Return the content of metrics.json.

    Args:
        config: all settings of the kept run.
        kept: the kept run.
        slots: all runs of the plan.

    Returns:
        Among others ``dev`` of the kept run; ``seeds``, ``mean``, ``median``, ``std`` and ``max`` of the runs
        that differ from it by their seed alone; the same for each point of the grid as ``grid``.
    """
    data, best = kept.data, kept.run
    truncated = {name: sum(split.truncated) for name, split in data.splits.items()}
    same = [slot.run for slot in slots if slot.run.settings == best.settings]
    return {
        "task": kept.task.name,
        "kind": kept.task.kind.name,
        "model": config.model,
        "dev": dict(best.best.metrics) if best.best else None,
        "dev_details": best.best.details if best.best else {},
        "dev_interval": _dev_interval(kept),
        "calibration": _calibration(kept),
        "main_metric": kept.task.main_metric,
        "tuned": best.tuned,
        "best_seed": best.seed,
        **spread(same),
        "seeds": [run.to_dict() for run in same],
        "grid_settings": best.settings,
        "grid": grid_summary(slots),
        "failed_runs": failures(slots),
        "labels": list(data.labels) if data.labels is not None else None,
        "label_counts": _label_counts(data),
        "train_rows": len(data.train.rows.rows),
        "dev_rows": len(data.dev.rows.rows),
        "dev_source": data.dev_source,
        "other_dev_rows": {name: len(split.rows.rows) for name, split in data.other_dev.items()},
        "partial": {name: split.rows.partial for name, split in data.splits.items()},
        "truncated_rows": sum(truncated.values()),
        "truncated": truncated,
        "missing_rows": _counted("missing_rows", data),
        "blank_lines": _counted("blank_lines", data),
        "counts": {name: split.rows.counts for name, split in data.splits.items()},
        "data_sha256": {name: files.sha256_of(Path(split.rows.path)) for name, split in data.splits.items()},
        "train_seconds": round(sum(run.seconds for slot in slots for run in slot.runs), 3),
        "settings": {
            "recipe": config.recipe,
            "epochs": config.epochs,
            "batch_size": config.batch_size,
            "learning_rate": config.optimizer.learning_rate,
            "seq_len": config.seq_len,
            "truncation": config.truncation,
            "dropout": config.dropout,
            "early_stopping": config.early_stopping,
            "layer_rate_decay": config.layer_rate_decay,
            "reinit_layers": config.reinit_layers,
            "bilstm": config.bilstm,
            "random_weights": config.random_weights,
            **kept.encoding.settings,
        },
    }


def described(task: Task, encoding: Encoding, data: TrainingData) -> dict[str, Any]:
    """Return what task.json says of a model before it is trained: its head, and how rows become inputs."""
    columns = data.train.rows.columns
    return {
        "task": task.name,
        "head": task.kind.name,
        "labels": None if data.labels is None else list(data.labels),
        **encoding.stored(),
        "columns": None if columns is None else columns.stored(),
    }


def save(out: Path, kept: Kept, summary: dict[str, Any]) -> None:
    """Write the model directory, predictions-dev.jsonl and, last, metrics.json."""
    stored = {
        **described(kept.task, kept.encoding, kept.data),
        "main_metric": kept.task.main_metric,
        "metrics": {"dev": summary["dev"]},
    }
    if kept.run.tuned:
        stored["tuned"] = kept.run.tuned
    environment = json.loads((out / "environment.json").read_text(encoding="utf-8"))
    columns = kept.data.train.rows.columns
    pair = columns is not None and columns.second_text is not None
    example = kept.task.kind.example or ('("a text", "its second text")' if pair else '"a text"')
    usage = f'bertsmith.load("MODEL").{kept.task.kind.verb}([{example}])'
    card = finetuned_card(summary, environment, usage, _label_scores(kept))
    save_bundle(out / "model", kept.model, kept.encoding.tokenizer, stored, card)
    _write_predictions(out / "predictions-dev.jsonl", kept)
    files.write_json(out / "metrics.json", summary)


def _dev_interval(kept: Kept) -> dict[str, float] | None:
    """Return the bootstrap interval of the kept run's main metric; ``None`` where there is none."""
    gold, labels = kept.data.dev.gold_objects, kept.data.labels
    sample = kept.task.kind.sample(kept.task.main_metric, gold, kept.answers, labels)
    found = sample and bootstrap_interval(sample.metric, sample.gold, sample.predicted)
    return dataclasses.asdict(found) if found else None


def _calibration(kept: Kept) -> dict[str, float] | None:
    """Return how far the probabilities can be trusted on dev, where a temperature was chosen."""
    labels = kept.data.labels
    if labels is None or "temperature" not in kept.run.tuned:
        return None
    numbers = {name: number for number, name in enumerate(labels)}
    shares = np.array([[answer["probabilities"][name] for name in labels] for answer in kept.answers])
    gold = np.array([numbers[label] for label in kept.data.dev.gold_objects])
    found = calibration_of(shares, gold, kept.run.tuned["temperature"])
    return {
        "temperature": found.temperature,
        "error_as_trained": found.before,
        "error": found.after,
        "error_cross_fitted": found.cross_fitted,
    }


def _label_scores(kept: Kept) -> list[LabelScore]:
    """Return precision, recall and F1 of each label on dev, where a row has one."""
    labels = kept.data.labels
    if labels is None or not all(isinstance(answer.get("label"), str) for answer in kept.answers):
        return []
    predicted = [answer["label"] for answer in kept.answers]
    return metrics.label_scores(metrics.confusion(kept.data.dev.gold_objects, predicted, labels), labels)


def _write_predictions(path: Path, kept: Kept) -> None:
    """Write one line a dev row: where it stands, its gold answer, ours, and what was read."""
    dev = kept.data.dev
    inputs = [len(row.ids) for row in dev.encoded] if len(dev.encoded) == len(dev.rows.rows) else None
    # Half a surrogate pair is written as JSON spells it.
    with (
        files.atomic_file(path) as temporary,
        open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        for number, (row, gold, answer) in enumerate(
            zip(dev.rows.rows, dev.gold_objects, kept.answers, strict=True)
        ):
            line = {"line": row.line, "gold": gold, **answer, "truncated": dev.truncated[number]}
            line |= {"pieces": inputs[number]} if inputs else {}
            line["texts"] = [text for text in row.texts if text is not None]
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
