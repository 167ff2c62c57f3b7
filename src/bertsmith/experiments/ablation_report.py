"""The page of an experiment: the paper's numbers beside ours, figures, findings, how to run it again."""

from __future__ import annotations

import shlex
from pathlib import Path

from bertsmith.experiments import plots, results, shown
from bertsmith.experiments.command import flags_of, flat
from bertsmith.experiments.config import AblateConfig
from bertsmith.experiments.designs import Column
from bertsmith.experiments.page import Table, rendered
from bertsmith.experiments.plots import COLORS, Curve
from bertsmith.experiments.results import Results
from bertsmith.files import write_text


def write_report(directory: Path, found: Results, config: AblateConfig) -> Path:
    """Write report.html and, of each figure, an SVG file; return the page's path."""
    drawn = figures(found)
    for name, svg in drawn.items():
        write_text(directory / f"figure-{name}.svg", standalone(svg))
    path = directory / "report.html"
    write_text(path, html(found, config, list(drawn.values())))
    return path


def html(found: Results, config: AblateConfig, drawn: list[str]) -> str:
    """Return the page, with figures as inline SVG.

    Raises:
        InputError: a package of the extra ``report`` is missing.
    """
    settings = {name: shown.text(value) for name, value in flat(found.base).items() if name != "out"}
    return rendered(
        "ablation_page.html",
        title=found.design.title,
        source=found.design.source,
        main_table=Table(results.headings(found), results.lines(found)),
        findings=found.findings(),
        caveats=found.doubts(),
        drawn=drawn,
        mixtures=_mixtures(found),
        command=command_of(config),
        settings=settings,
        runs=[str(run.pretrained.directory) for result in found.rows for run in result.runs],
        seconds=shown.duration(
            sum(
                outcome.seconds
                for result in found.rows
                for run in result.runs
                for outcome in (run.pretrained, *run.fine_tuned.values())
            )
        ),
    )


def command_of(config: AblateConfig) -> str:
    """Return the command line that makes the study again."""
    flags = flags_of(config, AblateConfig(config.experiment, ""), "experiment")
    return shlex.join(["bertsmith", "ablate", config.experiment, *flags])


def figures(found: Results) -> dict[str, str]:
    """Return a figure of each column, and of the held-out losses, as inline SVG by name."""
    drawn = {}
    for column in found.columns:
        drawn[_file_name(column.name)] = _over_steps(found, column) or _strips(
            f"{column.name}, % on dev", [(result.row.name, result.values(column)) for result in found.rows]
        )
    masked = found.masked
    losses = [(one.row.name, one.losses) for one in masked if one.row.predicts_as(masked[0].row)]
    if len(losses) > 1:
        drawn["loss"] = _strips("held-out loss of masked pieces, nats", losses)
    return {name: svg for name, svg in drawn.items() if svg}


def standalone(svg: str) -> str:
    """Return an inline figure as a file of its own."""
    return svg.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" color="#1b2430" ', 1) + "\n"


def _strips(title: str, groups: list[tuple[str, list[float]]]) -> str:
    shown_groups = [
        (name, COLORS[0 if number == 0 else 1], values)
        for number, (name, values) in enumerate(groups)
        if values
    ]
    return plots.strips(title, shown_groups) if shown_groups else ""


def _over_steps(found: Results, column: Column) -> str:
    """Return the means over the pretraining's steps, a curve an objective; empty where rows have no steps."""
    curves = []
    for color, reads_left, name in ((COLORS[0], False, "masked"), (COLORS[1], True, "left-to-right")):
        points = sorted(
            (one.row.step, results.spread(one.values(column)))
            for one in found.rows
            if one.row.step is not None and one.row.reads_left == reads_left and one.values(column)
        )
        places = [float(step) for step, _ in points if step is not None]
        means = [value[0] for _, value in points if value is not None]
        if places:
            curves.append(Curve(name, places, means, color, "points"))
    return plots.curves(f"{column.name}, % on dev", curves, "steps of pretraining") if curves else ""


def _mixtures(found: Results) -> Table | None:
    """Return what stood in the place of predicted pieces in each row's first batches, beside the setting."""
    lines = []
    for result in found.rows:
        for run in result.runs:
            counted = run.pretrained.mixture
            if counted:
                shares = [f"{100 * counted[name]:.2f} %" for name in ("mask", "same", "random")]
                lines.append([result.row.name, str(run.seed), *shares, f"{counted['pieces']:,.0f}"])
    return Table(["row", "seed", "[MASK]", "the same", "another", "pieces counted"], lines) if lines else None


def _file_name(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name.lower()).strip("-")
