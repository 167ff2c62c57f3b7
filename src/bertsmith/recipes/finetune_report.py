"""What a fine-tuning leaves behind: metrics, predictions on dev, the model directory and its card."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from bertsmith import files, metrics
from bertsmith.bundle import model_card, save_bundle
from bertsmith.recipes.config import FinetuneConfig
from bertsmith.tasks.kind import Encoding, Kind, Outputs, Score, Task
from bertsmith.tasks.prepared import TrainingData
from bertsmith.tasks.task import all_settings, settings_of

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


def summarize(
    config: FinetuneConfig, task: Task, data: TrainingData, runs: Sequence[SeedRun], best: SeedRun
) -> dict[str, Any]:
    """Return the content of metrics.json: ``dev`` of the kept run, mean and std over all finished runs."""
    finished = [run.best.metrics for run in runs if run.best is not None]
    means, deviations = metrics.mean_and_deviation(finished)
    truncated = {name: sum(split.truncated) for name, split in data.splits.items()}
    return {
        "task": task.name,
        "model": config.model,
        "dev": dict(best.best.metrics) if best.best else None,
        "dev_details": best.best.details if best.best else {},
        "main_metric": task.main_metric,
        "best_seed": best.seed,
        "mean": means,
        "std": deviations,
        "seeds": [run.to_dict() for run in runs],
        "failed_runs": [{"seed": run.seed, "why": run.status} for run in runs if run.status != LEARNED],
        "labels": list(data.labels) if data.labels is not None else None,
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
    pair = columns is not None and columns.second_text is not None
    card = _card(summary, kept.task.kind, pair)
    save_bundle(out / "model", kept.model, kept.encoding.tokenizer, stored, card)
    _write_predictions(out / "predictions-dev.jsonl", kept)
    files.write_json(out / "metrics.json", summary)


def _card(summary: dict[str, Any], kind: Kind, pair: bool) -> str:
    facts = {
        "task": summary["task"],
        "started from": "/".join(Path(summary["model"]).parts[-2:]),
        "answers": ", ".join(summary["labels"]) if summary["labels"] else kind.name,
        "training rows": summary["train_rows"],
        "dev rows": f"{summary['dev_rows']} ({summary['dev_source']})",
        "dev metrics of this model, chosen as the best on the same rows": summary["dev"],
        "mean over seeds": summary["mean"],
        "standard deviation over seeds": summary["std"],
        "settings": summary["settings"],
        "sha256 of the data": summary["data_sha256"],
        "rows that were cut": summary["truncated"],
    }
    example = kind.example or ('("a text", "its second text")' if pair else '"a text"')
    usage = f'import bertsmith\n\nbertsmith.load("model").{kind.verb}([{example}])'
    return model_card(f"BERT fine-tuned on {summary['task']}", facts, usage)


def _write_predictions(path: Path, kept: Kept) -> None:
    """Write one line a dev row: where it stands, its gold answer, ours."""
    dev, run = kept.data.dev, kept.run
    answers = kept.task.kind.answers(dev, run.outputs, kept.data.labels, run.tuned)
    with files.atomic_file(path) as temporary, open(temporary, "w", encoding="utf-8") as file:
        for row, gold, answer, cut in zip(
            dev.rows.rows, dev.gold_objects, answers, dev.truncated, strict=True
        ):
            line = {"line": row.line, "gold": gold, **answer, "truncated": cut}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
