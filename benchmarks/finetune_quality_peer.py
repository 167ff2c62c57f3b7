"""The quality benchmark's peer: a plain loop over transformers' model, scored with scikit-learn and scipy."""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

from glue_files import TASKS, Rows, read


def peer(task: str, seed: int, glue: Path, arguments: argparse.Namespace) -> list[dict[str, float]]:
    """Fine-tune; return the dev metrics of every epoch, those of a second dev set after its name."""
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification, get_linear_schedule_with_warmup

    torch.manual_seed(seed)
    record = TASKS[task]
    train, devs = read(task, "train", glue), [read(task, split, glue) for split in record.dev]
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    outputs = 1 if record.labels is None else len(record.labels)
    model = BertForSequenceClassification.from_pretrained(arguments.model, num_labels=outputs)
    no_decay = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [value for name, value in named if not name.endswith(no_decay)], "weight_decay": 0.01},
        {"params": [value for name, value in named if name.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=arguments.rate, eps=1e-6)
    steps = arguments.epochs * math.ceil(len(train) / arguments.batch_size)
    scheduler = get_linear_schedule_with_warmup(optimizer, math.ceil(0.1 * steps), steps)
    half = arguments.precision == "bfloat16"

    def forward(rows: Rows) -> Any:
        texts = [[row[0] for row in rows]] + ([[row[1] for row in rows]] if rows[0][1] is not None else [])
        inputs = tokenizer(
            *texts, padding=True, truncation=True, max_length=arguments.seq_len, return_tensors="pt"
        )
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            return model(**inputs).logits.float()

    results = []
    for _ in range(arguments.epochs):
        model.train()
        order = torch.randperm(len(train)).tolist()
        for start in range(0, len(train), arguments.batch_size):
            rows = [train[index] for index in order[start : start + arguments.batch_size]]
            labels = torch.tensor([row[2] for row in rows])
            logits = forward(rows)
            if outputs == 1:
                loss = torch.nn.functional.mse_loss(logits.squeeze(1), labels)
            else:
                loss = torch.nn.functional.cross_entropy(logits, labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
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
