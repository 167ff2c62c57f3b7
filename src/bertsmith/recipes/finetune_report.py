"""What a fine-tuning leaves behind: metrics, predictions on dev, the model directory and its card."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from bertsmith import files, metrics
from bertsmith.bundle import save_bundle
from bertsmith.calibration import calibration_of
from bertsmith.metrics import LabelScore
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.recipes.finetune_card import finetuned_card
from bertsmith.tasks.kind import Encoding, Outputs, Score, Task
from bertsmith.tasks.prepared import TrainingData
from bertsmith.tasks.task import all_settings, settings_of

Answers = list[dict[str, Any]]

LEARNED, CONSTANT, DIVERGED = "learned", "constant predictions", "diverged"


@dataclass
class SeedRun:
    """One run.

    Attributes:
        seed: of head, order and dropout.
        main_metric: what the best epoch is chosen by.
        epochs: the score on dev after each epoch.
        best_epoch: counted from 1; 0: none was finished.
        status: LEARNED; CONSTANT: the best epoch predicts the same for every row; DIVERGED: the loss became
            infinite or NaN.
        seconds: of training and evaluations.
        state: weights of the best epoch, by our names; empty when another run was better.
        outputs: of the best epoch on dev, in the unit of the labels.
        tuned: what was chosen on dev with these outputs.
    """

    seed: int
    main_metric: str
    epochs: list[Score] = field(default_factory=list)
    best_epoch: int = 0
    status: str = LEARNED
    seconds: float = 0.0
    state: dict[str, Tensor] = field(default_factory=dict)
    outputs: Outputs = field(default_factory=list)
    tuned: dict[str, Any] = field(default_factory=dict)

    @property
    def best(self) -> Score | None:
        """The score of the best epoch; ``None`` when the run diverged within the first."""
        return self.epochs[self.best_epoch - 1] if self.epochs else None

    def line(self) -> str:
        """Return the run in one line for people."""
        if self.best is None:
            return f"seed {self.seed}: {self.status} within the first epoch"
        values = ", ".join(f"{name} {value:.4f}" for name, value in self.best.metrics.items())
        doubt = "" if self.status == LEARNED else f"  ({self.status})"
        return f"seed {self.seed}: dev {values} in epoch {self.best_epoch}, {self.seconds:.1f} s{doubt}"

    def to_dict(self) -> dict[str, Any]:
        """Return the run as it stands in metrics.json."""
        best = self.best
        return {
            "seed": self.seed,
            "status": self.status,
            "dev": dict(best.metrics) if best else None,
            "dev_loss": best.loss if best else None,
            "best_epoch": self.best_epoch,
            "epochs": [{"dev": dict(epoch.metrics), "dev_loss": epoch.loss} for epoch in self.epochs],
            "train_seconds": round(self.seconds, 3),
        }


def greeting(data: TrainingData) -> str:
    """Say what was read."""
    train, dev = data.train.rows, data.dev.rows
    parts = [f"{len(train.rows):,} training rows of {train.path}{' (a part)' if train.partial else ''}"]
    parts.append(f"{len(dev.rows):,} dev rows ({data.dev_source}{', a part' if dev.partial else ''})")
    for name, split in data.other_dev.items():
        parts.append(f"{len(split.rows.rows):,} {name} rows{' (a part)' if split.rows.partial else ''}")
    if data.labels is not None:
        parts.append(f"{len(data.labels)} labels")
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


def summarize(
    config: FinetuneConfig, task: Task, data: TrainingData, runs: Sequence[SeedRun], best: SeedRun
) -> dict[str, Any]:
    """Return the content of metrics.json: ``dev`` of the kept run, mean and std over all finished runs."""
    finished = [run.best.metrics for run in runs if run.best is not None]
    means, deviations = metrics.mean_and_deviation(finished)
    truncated = {name: sum(split.truncated) for name, split in data.splits.items()}
    return {
        "task": task.name,
        "kind": task.kind.name,
        "model": config.model,
        "dev": dict(best.best.metrics) if best.best else None,
        "dev_details": best.best.details if best.best else {},
        "main_metric": task.main_metric,
        "best_seed": best.seed,
        "mean": means,
        "std": deviations,
        "seeds": [run.to_dict() for run in runs],
        "failed_runs": [{"seed": run.seed, "why": run.status} for run in runs if run.status != LEARNED],
        "tuned": best.tuned,
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
        "train_seconds": round(sum(run.seconds for run in runs), 3),
        "settings": {
            "epochs": config.epochs,
            "batch_size": config.batch_size,
            "learning_rate": config.optimizer.learning_rate,
            "seq_len": config.seq_len,
            "truncation": config.truncation,
            "dropout": config.dropout,
            "random_weights": config.random_weights,
            **settings_of(task, {name: getattr(config, name) for name in all_settings()}),
        },
    }


@dataclass(frozen=True)
class Kept:
    """The run that is kept, and what it was trained with."""

    task: Task
    data: TrainingData
    encoding: Encoding
    model: nn.Module
    run: SeedRun


def save(out: Path, kept: Kept, summary: dict[str, Any]) -> None:
    """Write the model directory, predictions-dev.jsonl and, last, metrics.json."""
    columns = kept.data.train.rows.columns
    stored = {
        "task": kept.task.name,
        "head": kept.task.kind.name,
        "labels": summary["labels"],
        **kept.encoding.stored(),
        "columns": None if columns is None else columns.stored(),
        "main_metric": kept.task.main_metric,
        "metrics": {"dev": summary["dev"]},
    }
    if kept.run.tuned:
        stored["tuned"] = kept.run.tuned
    answers = kept.task.kind.answers(kept.data.dev, kept.run.outputs, kept.data.labels, kept.run.tuned)
    summary["calibration"] = _calibration(kept, answers)
    environment = json.loads((out / "environment.json").read_text(encoding="utf-8"))
    pair = columns is not None and columns.second_text is not None
    example = kept.task.kind.example or ('("a text", "its second text")' if pair else '"a text"')
    usage = f'bertsmith.load("MODEL").{kept.task.kind.verb}([{example}])'
    card = finetuned_card(summary, environment, usage, _label_scores(kept, answers))
    save_bundle(out / "model", kept.model, kept.encoding.tokenizer, stored, card)
    _write_predictions(out / "predictions-dev.jsonl", kept, answers)
    files.write_json(out / "metrics.json", summary)


def _calibration(kept: Kept, answers: Answers) -> dict[str, float] | None:
    """Return how far the probabilities can be trusted on dev, where a temperature was chosen."""
    labels = kept.data.labels
    if labels is None or "temperature" not in kept.run.tuned:
        return None
    numbers = {name: number for number, name in enumerate(labels)}
    shares = np.array([[answer["probabilities"][name] for name in labels] for answer in answers])
    gold = np.array([numbers[label] for label in kept.data.dev.gold_objects])
    found = calibration_of(shares, gold, kept.run.tuned["temperature"])
    return {
        "temperature": found.temperature,
        "error_as_trained": found.before,
        "error": found.after,
        "error_cross_fitted": found.cross_fitted,
    }


def _label_scores(kept: Kept, answers: Answers) -> list[LabelScore]:
    """Return precision, recall and F1 of each label on dev, where a row has one."""
    labels = kept.data.labels
    if labels is None or not all(isinstance(answer.get("label"), str) for answer in answers):
        return []
    predicted = [answer["label"] for answer in answers]
    return metrics.label_scores(metrics.confusion(kept.data.dev.gold_objects, predicted, labels), labels)


def _write_predictions(path: Path, kept: Kept, answers: Answers) -> None:
    """Write one line a dev row: where it stands, its gold answer, ours, and what was read."""
    dev = kept.data.dev
    inputs = [len(row.ids) for row in dev.encoded] if len(dev.encoded) == len(dev.rows.rows) else None
    with files.atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for number, (row, gold, answer) in enumerate(
            zip(dev.rows.rows, dev.gold_objects, answers, strict=True)
        ):
            line = {"line": row.line, "gold": gold, **answer, "truncated": dev.truncated[number]}
            line |= {"pieces": inputs[number]} if inputs else {}
            line["texts"] = [text for text in getattr(row, "texts", ()) if text is not None]
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
