"""The quality benchmark's peer: a plain loop over transformers' model, scored with scikit-learn and scipy."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from glue_files import TASKS, Rows, read
from peer_training import train_epochs


def peer(task: str, seed: int, glue: Path, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Fine-tune; return the dev metrics of every epoch, those of a second dev set after its name."""
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification

    torch.manual_seed(seed)
    record = TASKS[task]
    train, devs = read(task, "train", glue), [read(task, split, glue) for split in record.dev]
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    outputs = 1 if record.labels is None else len(record.labels)
    model = BertForSequenceClassification.from_pretrained(arguments.model, num_labels=outputs)
    half = arguments.precision == "bfloat16"

    def forward(rows: Rows) -> Any:
        texts = [[row[0] for row in rows]] + ([[row[1] for row in rows]] if rows[0][1] is not None else [])
        inputs = tokenizer(
            *texts, padding=True, truncation=True, max_length=arguments.seq_len, return_tensors="pt"
        )
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            return model(**inputs).logits.float()

    def loss_of(numbers: list[int]) -> Any:
        rows = [train[number] for number in numbers]
        labels, logits = torch.tensor([row[2] for row in rows]), forward(rows)
        if outputs == 1:
            return torch.nn.functional.mse_loss(logits.squeeze(1), labels)
        return torch.nn.functional.cross_entropy(logits, labels)

    results = []
    for _ in train_epochs(model, len(train), loss_of, vars(arguments)):
        found: dict[str, float] = {}
        for split, dev in zip(record.dev, devs, strict=True):
            with torch.no_grad():
                scores = torch.cat([forward(dev[start : start + 64]) for start in range(0, len(dev), 64)])
            values = metrics_of(task, scores.numpy(), [row[2] for row in dev])
            prefix = "" if split == record.dev[0] else f"{split.removeprefix('dev_')}_"
            found |= {f"{prefix}{name}": value for name, value in values.items()}
        results.append(found)
    return results


def metrics_of(task: str, scores: Any, gold: list[Any]) -> dict[str, float]:
    """Return the task's metrics by scikit-learn and scipy."""
    from scipy.stats import pearsonr, spearmanr
    from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

    main_metric = TASKS[task].main_metric
    if main_metric == "spearman":
        values = scores[:, 0]
        return {"pearson": float(pearsonr(gold, values)[0]), "spearman": float(spearmanr(gold, values)[0])}
    labels = scores.argmax(axis=1)
    result = {"accuracy": float(accuracy_score(gold, labels))}
    if main_metric == "f1":
        result = {"f1": float(f1_score(gold, labels)), **result}
    if main_metric == "matthews":
        result = {"matthews": float(matthews_corrcoef(gold, labels)), **result}
    return result
