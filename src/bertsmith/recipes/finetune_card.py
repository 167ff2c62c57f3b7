"""The card of a fine-tuned model: what it is for, what it was measured on, what is not known of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith.metrics import LabelScore
from bertsmith.recipes.caveats import caveats, rows_of
from bertsmith.recipes.model_card import LICENSE, NOT_KNOWN, card, cell, code, listed, table
from bertsmith.stored_task import plain_head

_PIPELINES = {
    "classification": "text-classification",
    "regression": "text-classification",
    "multi-label": "text-classification",
    "tagging": "token-classification",
    "spans": "question-answering",
    "choice": "multiple-choice",
    "embedding": "sentence-similarity",
}
"""What the hub calls a kind of task; others have a head that transformers lacks."""
_VECTORS = ("embedding",)
"""Kinds whose answers are vectors of texts."""
_MOST_LABELS = 30


def finetuned_card(
    summary: Mapping[str, Any],
    environment: Mapping[str, Any],
    usage: str,
    label_scores: Sequence[LabelScore],
) -> str:
    """Return the card.

    Args:
        summary: content of metrics.json.
        environment: content of environment.json.
        usage: a line of Python that answers.
        label_scores: of each label on dev; empty where rows have no single label.
    """
    parts = [
        _introduction(summary),
        "## Use",
        *_usage(summary, usage),
        "## Results on dev",
        *_results(summary),
    ]
    if label_scores:
        parts += [_label_table(label_scores)]
    if summary.get("calibration"):
        parts += ["## Probabilities", _probabilities(summary["calibration"])]
    parts += ["## Read this with the figures", listed([*caveats(summary), NOT_KNOWN, LICENSE])]
    parts += ["## Data", *_data(summary), "## Training", *_training(summary, environment)]
    return card(f"BERT fine-tuned on {summary['task']}", _metadata(summary), parts)


def _metadata(summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the hub reads: tags, and results in its model-index."""
    pipeline = _PIPELINES.get(summary["kind"])
    found: dict[str, Any] = {"library_name": "bertsmith", "tags": ["bert", "fine-tuning", summary["kind"]]}
    if pipeline is None or not summary["dev"]:
        return found
    result = {
        "task": {"type": pipeline},
        "dataset": {
            "name": f"{summary['task']}, {summary['dev_source']}",
            "type": summary["task"],
            "split": "dev",
        },
        "metrics": [{"type": name, "value": value} for name, value in summary["dev"].items()],
    }
    index = [{"name": f"bert-{summary['task']}", "results": [result]}]
    return found | {"pipeline_tag": pipeline, "model-index": index}


def _introduction(summary: Mapping[str, Any]) -> str:
    begin = _last_parts(summary["model"])
    start = f"random weights of the shape of {begin}" if summary["settings"]["random_weights"] else begin
    labels = summary["labels"]
    is_classifier = bool(labels) and plain_head(summary["kind"]) == "classification"
    answer = f" It answers with one of {len(labels)} labels." if is_classifier else ""
    limit = summary["settings"]["seq_len"]
    return (
        f"A {cell(summary['kind'])} model for the task **{cell(summary['task'])}**, fine-tuned with "
        f"Bertsmith from {cell(start)}.{answer} It reads at most {limit} pieces at once."
    )


def _usage(summary: Mapping[str, Any], usage: str) -> list[str]:
    verb, out = ("embed", "vectors.npy") if summary["kind"] in _VECTORS else ("predict", "answers.jsonl")
    parts = [
        code("python", "import bertsmith", "", usage),
        code("sh", f"bertsmith {verb} --model MODEL --input FILE --out {out}"),
    ]
    if summary["kind"] not in _PIPELINES:
        return [*parts, "`transformers` loads the encoder alone (`AutoModel`), not the trained head."]
    note = "`transformers` loads the directory too"
    tuned = ", ".join(summary["tuned"])
    return [
        *parts,
        f"{note}, but does not know what stands in `task.json` ({cell(tuned)})." if tuned else f"{note}.",
    ]


def _results(summary: Mapping[str, Any]) -> list[str]:
    several = len(summary["seeds"]) > 1
    lines = [
        [name, value, *([summary["mean"][name], summary["std"][name]] if several else [])]
        for name, value in (summary["dev"] or {}).items()
    ]
    headings = ["metric", "this model"]
    if several:
        headings += [f"mean of {len(summary['seeds'])} seeds", "standard deviation"]
    return [table(headings, lines)]


def _label_table(scores: Sequence[LabelScore]) -> str:
    shown = scores
    if len(scores) > _MOST_LABELS:
        shown = sorted(scores, key=lambda one: one.f1)[:_MOST_LABELS]
    lines = [[one.name, one.rows, one.predicted, one.precision, one.recall, one.f1] for one in shown]
    found = table(["label", "rows", "predicted", "precision", "recall", "F1"], lines)
    return found if shown is scores else f"{found}\n\nThe {len(shown)} labels of lowest F1 of {len(scores)}."


def _probabilities(found: Mapping[str, Any]) -> str:
    before = f"The expected calibration error on dev is {found['error_as_trained']:.3f} as trained"
    if found["temperature"] == 1.0:
        return f"{before}; the dev rows choose no temperature, so probabilities are those of the training."
    return (
        f"{before} and {found['error']:.3f} at temperature {found['temperature']:.3f}, which was chosen on "
        f"dev ({found['error_cross_fitted']:.3f} where it is fitted on other rows than those scored). "
        "Bertsmith prints probabilities at that temperature; it changes no label. Other tools print those as "
        "trained."
    )


def _data(summary: Mapping[str, Any]) -> list[str]:
    splits = list(summary["truncated"])
    lines = [
        ["rows", *(rows_of(summary, split) for split in splits)],
        ["cut to the model's length", *(summary["truncated"][split] for split in splits)],
        ["left out, a value is missing", *(summary["missing_rows"][split] for split in splits)],
        ["SHA-256 of the file", *(summary["data_sha256"][split] for split in splits)],
    ]
    parts = [f"Dev: {cell(summary['dev_source'])}.", table(["", *splits], lines)]
    counts = summary["label_counts"]
    if counts and len(counts["train"]) <= _MOST_LABELS:
        rows = [[name, *(counts[split][name] for split in splits)] for name in counts["train"]]
        parts.append(table(["label", *splits], rows))
    return parts


def _training(summary: Mapping[str, Any], environment: Mapping[str, Any]) -> list[str]:
    versions = environment.get("versions") or {}
    facts = {
        **summary["settings"],
        "seconds of training, all seeds": summary["train_seconds"],
        "device": environment.get("device"),
        "precision": environment.get("precision"),
        "bertsmith": versions.get("bertsmith"),
        "torch": versions.get("torch"),
        "commit": environment.get("commit"),
    }
    return [table(["setting", "value"], list(facts.items()))]


def _last_parts(path: str) -> str:
    """Return a path's last two parts: the rest says where things are on one machine."""
    return "/".join(Path(path).parts[-2:])
