"""The demo's report: one HTML file that needs nothing beside it."""

from __future__ import annotations

import io
import json
import math
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from bertsmith.errors import InputError


@dataclass(frozen=True)
class Start:
    """Dev accuracies of the fine-tuning runs from one start.

    Attributes:
        accuracies: of each seed, best epoch.
        mean: of them.
        std: sample standard deviation; 0 for one seed.
    """

    accuracies: list[float]
    mean: float
    std: float

    @classmethod
    def of(cls, result: dict[str, Any]) -> Start:
        """Return the figures of what ``finetune`` returns."""
        values = [seed["dev"]["accuracy"] for seed in result["seeds"] if seed["dev"] is not None]
        return cls(values, mean(values), stdev(values) if len(values) > 1 else 0.0)


@dataclass(frozen=True)
class Report:
    """What the report shows.

    Attributes:
        corpus_bytes: of the training text.
        num_modules: its documents.
        budget: of the pretraining, as given.
        seconds: of the whole demo until now.
        pretraining: what ``pretrain`` returns.
        events: the lines of its metrics.jsonl.
        examples: objects with ``text``, ``answer`` and ``guesses`` (``token``, ``probability``).
        libraries: the classes of the task.
        rows: training and dev rows.
        starts: "pretrained" and "random" fine-tuning results.
        environment: what environment.json holds.
        commands: what to try next.
    """

    corpus_bytes: int
    num_modules: int
    budget: str
    seconds: float
    pretraining: dict[str, Any]
    events: list[dict[str, Any]]
    examples: list[dict[str, Any]]
    libraries: list[str]
    rows: tuple[int, int]
    starts: dict[str, Start]
    environment: dict[str, Any]
    commands: list[str]

    def html(self) -> str:
        """Return the page.

        Raises:
            InputError: a package of the extra ``report`` is missing.
        """
        figures = self.pretraining
        levels = (figures["heldout_unigram_entropy"], figures["uniform_entropy"])
        difference, errors = compare(self.starts["pretrained"].accuracies, self.starts["random"].accuracies)
        template = files("bertsmith.recipes").joinpath("demo_report.html").read_text(encoding="utf-8")
        page: str = (
            imported("jinja2")
            .Environment(autoescape=True)
            .from_string(template)
            .render(
                report=self,
                figures=figures,
                unigram=levels[0],
                uniform=levels[1],
                curve=loss_curve(self.events, *levels),
                difference=difference,
                standard_errors=errors,
            )
        )
        return page


def read_events(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a metrics.jsonl."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def compare(first: list[float], second: list[float]) -> tuple[float, float | None]:
    """Return the difference of the means, and that difference in its standard errors (Welch).

    ``None`` where there is no error to compare with: one run a side, or runs without any spread.
    """
    difference = mean(first) - mean(second)
    if min(len(first), len(second)) < 2:
        return difference, None
    variance = stdev(first) ** 2 / len(first) + stdev(second) ** 2 / len(second)
    return difference, difference / math.sqrt(variance) if variance else None


def loss_curve(events: list[dict[str, Any]], unigram: float, uniform: float) -> str:
    """Return the masked-word loss over the steps as SVG, with the levels of blind and frequency guessing."""
    imported("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    axes = figure.subplots()
    curves: list[tuple[str, dict[str, Any], str]] = [
        ("mlm_loss", {"color": "#9bb7d4", "linewidth": 0.8}, "training batches"),
        ("heldout_mlm_loss", {"color": "#1f4e8c", "marker": "o", "markersize": 4}, "held out, fixed masks"),
    ]
    for key, style, label in curves:
        points = [(event["step"], event[key]) for event in events if key in event]
        axes.plot([step for step, _ in points], [loss for _, loss in points], label=label, **style)
    for level, name in ((uniform, "blind guess, ln V"), (unigram, "word frequencies")):
        axes.axhline(level, color="#a33", linestyle="--", linewidth=0.9)
        place = (0.99, level)
        axes.annotate(
            f"{name}: {level:.2f}", place, xycoords=("axes fraction", "data"), ha="right", va="bottom"
        )
    axes.set_xlabel("step")
    axes.set_ylabel("masked-word loss (nats)")
    axes.set_ylim(top=uniform + 0.5)
    axes.legend(loc="lower left", frameon=False)
    picture = io.StringIO()
    figure.savefig(picture, format="svg", metadata={"Date": None})
    svg = picture.getvalue()
    return svg[svg.index("<svg") :]


def imported(name: str) -> Any:
    """Return a package of the extra ``report``.

    Raises:
        InputError: it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        raise InputError(f"a report needs {name}: pip install 'bertsmith[report]'") from None
