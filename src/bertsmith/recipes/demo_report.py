"""The demo's report: one HTML file that needs nothing beside it."""

from __future__ import annotations

import io
import json
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from bertsmith.errors import InputError
from bertsmith.files import write_text


def write_report(out: Path, summary: dict[str, Any]) -> None:
    """Write ``report.html`` from the demo's summary and the log of its pretraining run.

    Args:
        out: the demo's directory.
        summary: what :func:`bertsmith.recipes.demo.demo` returns.
    """
    jinja2 = _imported("jinja2")
    events = [json.loads(line) for line in (out / "run" / "metrics.jsonl").read_text().splitlines()]
    pretraining = summary["pretraining"]
    starts = [
        {"name": name, "values": values, "mean": mean(values), "std": stdev(values) if len(values) > 1 else 0.0}
        for name, values in ((name, accuracies(result)) for name, result in summary["finetuning"].items())
    ]
    difference, errors = compare(starts[0]["values"], starts[1]["values"])
    template = files("bertsmith.recipes").joinpath("demo_report.html").read_text(encoding="utf-8")
    html = jinja2.Environment(autoescape=True).from_string(template).render(
        corpus_bytes=(out / "corpus" / "train.txt").stat().st_size,
        num_modules=(out / "corpus" / "train.txt").read_text(encoding="utf-8").count("\n\n") + 1,
        budget=summary["budget"],
        device=summary["environment"].get("device", "cpu"),
        seconds=summary["seconds"],
        heldout_loss=pretraining["heldout_mlm_loss"],
        heldout_accuracy=pretraining["heldout_mlm_accuracy"],
        nsp_accuracy=pretraining.get("heldout_nsp_accuracy"),
        unigram=pretraining["heldout_unigram_entropy"],
        uniform=pretraining["uniform_entropy"],
        tokens_per_second=pretraining["tokens_per_second"],
        curve=loss_curve(events, pretraining["heldout_unigram_entropy"], pretraining["uniform_entropy"]),
        examples=summary["examples"],
        libraries=summary["libraries"],
        train_rows=summary["finetuning"]["pretrained"]["train_rows"],
        dev_rows=summary["finetuning"]["pretrained"]["dev_rows"],
        starts=starts,
        difference=difference,
        standard_errors=errors,
        next=summary["next"],
        environment=summary["environment"],
    )
    write_text(out / "report.html", html)


def accuracies(result: dict[str, Any]) -> list[float]:
    """Return the dev accuracy of each seed of a fine-tuning."""
    return [seed["dev"]["accuracy"] for seed in result["seeds"]]


def compare(first: list[float], second: list[float]) -> tuple[float, float]:
    """Return the difference of the means, and that difference in its standard errors (Welch)."""
    difference = mean(first) - mean(second)
    if min(len(first), len(second)) < 2:
        return difference, float("nan")
    variance = stdev(first) ** 2 / len(first) + stdev(second) ** 2 / len(second)
    return difference, difference / max(variance, 1e-12) ** 0.5


def loss_curve(events: list[dict[str, Any]], unigram: float, uniform: float) -> str:
    """Return the masked-word loss over the steps as SVG, with the levels of blind and frequency guessing."""
    _imported("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    training = [(event["step"], event["mlm_loss"]) for event in events if "mlm_loss" in event]
    heldout = [(event["step"], event["heldout_mlm_loss"]) for event in events if "heldout_mlm_loss" in event]
    axes.plot(*zip(*training, strict=True), color="#9bb7d4", linewidth=0.8, label="training batches")
    axes.plot(*zip(*heldout, strict=True), color="#1f4e8c", marker="o", markersize=4, label="held out, fixed masks")
    for level, name in ((uniform, "blind guess, ln V"), (unigram, "word frequencies")):
        axes.axhline(level, color="#a33", linestyle="--", linewidth=0.9)
        axes.annotate(f"{name}: {level:.2f}", (0.99, level), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    axes.set_xlabel("step")
    axes.set_ylabel("masked-word loss (nats)")
    axes.set_ylim(top=uniform + 0.5)
    axes.legend(loc="lower left", frameon=False)
    picture = io.StringIO()
    figure.savefig(picture, format="svg")
    return picture.getvalue()[picture.getvalue().index("<svg") :]


def _imported(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise InputError(f"the demo's report needs {name}: pip install 'bertsmith[demo]'") from None
