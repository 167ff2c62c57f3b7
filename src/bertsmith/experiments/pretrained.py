"""What the page shows of a pretraining run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bertsmith.experiments import plots, shown
from bertsmith.experiments.page import Badge, Origin, Table, Tile, origin_doubts
from bertsmith.experiments.plots import COLORS, Curve
from bertsmith.experiments.runs import Event, Run, points

HELD_OUT = "heldout_mlm_loss"
_SHOWN_POINTS = 80


@dataclass(frozen=True)
class Pretrained:
    """One pretraining run on the page."""

    run: Run
    badge: Badge
    title: str
    tiles: list[Tile]
    doubts: list[str]
    curves: list[str]
    sources: Table | None
    probes: Table | None
    origin: Origin


def pretrained(run: Run, badge: Badge) -> Pretrained:
    """Return everything that the page shows of a pretraining run."""
    return Pretrained(
        run=run,
        badge=badge,
        title=shown.text(run.config.get("preset") or "pretraining"),
        tiles=_tiles(run),
        doubts=_doubts(run) + origin_doubts(run),
        curves=_curves(run),
        sources=_sources(run),
        probes=_probes(run),
        origin=Origin.of(run),
    )


def last(run: Run, key: str) -> Any:
    """Return a figure of metrics.json; of a run that is not finished, the last one that was logged."""
    if run.metrics.get(key) is not None:
        return run.metrics[key]
    return next((event[key] for event in reversed(run.events) if event.get(key) is not None), None)


def levels(run: Run) -> dict[str, float]:
    """Return what the masked-word loss has to be compared with, by name."""
    known = {"ln V": "uniform_entropy", "word frequencies": "heldout_unigram_entropy"}
    found = {name: run.metrics.get(key) for name, key in known.items()}
    return {name: float(level) for name, level in found.items() if isinstance(level, int | float)}


def _tiles(run: Run) -> list[Tile]:
    tiles = []
    loss, unigram = last(run, HELD_OUT), levels(run).get("word frequencies")
    if loss is not None:
        below = f"{unigram - loss:+.2f} nats below word frequencies" if unigram is not None else "nats"
        tiles.append(Tile("held-out masked-word loss", shown.number(loss), below.replace("+", "")))
    for key, name, beside in (
        ("heldout_mlm_accuracy", "masked words right", "held out"),
        ("heldout_nsp_accuracy", "pairs right", "next sentence, held out"),
    ):
        value = last(run, key)
        if isinstance(value, float):
            tiles.append(Tile(name, f"{value:.1%}", beside))
    if last(run, "tokens") is not None:
        epochs = run.metrics.get("epochs")
        tiles.append(Tile("tokens", millions(last(run, "tokens")), f"{epochs} passes" if epochs else ""))
    if last(run, "tokens_per_second") is not None:
        time = shown.duration(last(run, "seconds"))
        tiles.append(Tile("tokens a second", f"{last(run, 'tokens_per_second'):,.0f}", f"over {time}"))
    if run.metrics.get("parameters"):
        tiles.append(Tile("parameters", millions(run.metrics["parameters"])))
    return tiles


def millions(count: float) -> str:
    """Return a count in millions."""
    return f"{count / 1e6:,.1f} M"


def _doubts(run: Run) -> list[str]:
    doubts = []
    if not run.metrics:
        doubts.append(
            "The run is not finished: figures are the last ones logged, and the levels are not known."
        )
    findings = run.metrics.get("findings") or [event for event in run.events if "finding" in event]
    doubts += [_finding(finding) for finding in findings]
    rollbacks = run.metrics.get("rollbacks")
    if rollbacks:
        doubts.append(f"The run went back to an earlier checkpoint {rollbacks} times.")
    loss, unigram = last(run, HELD_OUT), levels(run).get("word frequencies")
    if loss is None:
        doubts.append("Nothing was held out: the loss is that of the training text.")
    elif unigram is not None and loss > unigram - 0.1:
        doubts.append("The model knows little more than how frequent each word is; see docs/training.md.")
    return [shown.text(doubt) for doubt in doubts]


def _finding(finding: dict[str, Any]) -> str:
    kind = str(finding.get("kind") or finding.get("finding")).replace("_", " ")
    return f"Step {finding.get('step')}, {kind}: {finding.get('text')}"


def _curves(run: Run) -> list[str]:
    figures = [_loss(run)]
    for title, keys in (
        ("next-sentence loss", {"nsp_loss": "training", "heldout_nsp_loss": "held out"}),
        (
            "share of masked words that are right",
            {"mlm_accuracy": "training", "heldout_mlm_accuracy": "held out"},
        ),
        ("held-out masked-word loss of each source", _with_prefix(run.events, f"{HELD_OUT}_")),
        ("tokens a second", {"tokens_per_second": ""}),
        ("learning rate", {"learning_rate": ""}),
        ("gradient norm", {"grad_norm": ""}),
        ("probes", _with_prefix(run.events, "probe_")),
    ):
        drawn: list[Curve] = []
        for key, name in keys.items():
            x, y = points(run.events, key)
            is_measured = key.startswith(("heldout", "probe"))  # seldom, each of them counts
            if x and not is_measured:
                x, y = plots.binned(x, y, _SHOWN_POINTS)
            if x:
                color = COLORS[len(drawn) % len(COLORS)]
                drawn.append(Curve(name, x, y, color, "points" if is_measured else "line"))
        if drawn:
            bottom = 0.0 if title.startswith("tokens") else None
            figures.append(plots.curves(title, drawn, "step", bottom=bottom))
    return [figure for figure in figures if figure]


def _loss(run: Run) -> str:
    training, heldout = points(run.events, "mlm_loss"), points(run.events, HELD_OUT)
    long = points(run.events, "heldout_long_mlm_loss")
    drawn = [
        Curve(name, *found, color, style)
        for name, found, color, style in (
            ("", training, COLORS[0], "faint"),
            ("training, mean", plots.binned(*training, _SHOWN_POINTS), COLORS[0], "line"),
            ("held out", heldout, COLORS[1], "points"),
            ("held out, long instances", long, COLORS[2], "points"),
        )
        if found[0]
    ]
    return plots.curves("masked-word loss (nats)", drawn, "step", levels(run)) if drawn else ""


def _with_prefix(events: Sequence[Event], prefix: str) -> dict[str, str]:
    """Return the keys of the events that begin with the prefix, and what follows it."""
    keys = dict.fromkeys(key for event in events for key in event if key.startswith(prefix))
    return {key: shown.text(key.removeprefix(prefix), 40) for key in keys}


def _sources(run: Run) -> Table | None:
    """Return each source's held-out figures."""
    names = _with_prefix([run.metrics, *run.events], f"{HELD_OUT}_")
    lines = []
    for key, name in names.items():
        source = key.removeprefix(f"{HELD_OUT}_")
        loss, level = last(run, key), run.metrics.get(f"heldout_unigram_entropy_{source}")
        below = level - loss if isinstance(level, float) and isinstance(loss, float) else None
        accuracy = last(run, f"heldout_mlm_accuracy_{source}")
        lines.append([name, *map(shown.number, (loss, level, below, accuracy))])
    headings = ["source", "masked-word loss", "word frequencies", "below them", "accuracy"]
    return Table(headings, lines) if lines else None


def _probes(run: Run) -> Table | None:
    """Return what probes found before the first step and at the end."""
    lines = []
    for key, name in _with_prefix(run.events, "probe_").items():
        _, values = points(run.events, key)
        if values:
            lines.append([name, *map(shown.number, (values[0], values[-1]))])
    return Table(["probe", "first", "last"], lines) if lines else None
