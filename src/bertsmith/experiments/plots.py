"""Figures as inline SVG: text stays text, and its colour is that of the page around it, light or dark."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.calibration import Bin

COLORS = ("#3f7fd1", "#df8420", "#2c9c72", "#a565c4", "#d2504b", "#1fa0b5", "#8a7f4e", "#d1669e")
"""Of runs and seeds; told apart by most colour-blind readers, and readable on white and on black."""

_INK = "#010203"  # stands for the page's own colour
_WIDTH, _HEIGHT = 4.0, 2.55  # inches: beside two others on the page, a font of 9 points is its small text
_MOST_POINTS = 300
_MOST_DOTS = 3000
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "bertsmith",
    "text.parse_math": False,  # a dollar in a name is a dollar
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": _INK,
    "grid.alpha": 0.13,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.formatter.useoffset": False,
    "font.size": 9.0,
    "lines.linewidth": 1.5,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
}


@dataclass(frozen=True)
class Curve:
    """One curve of a figure.

    Attributes:
        label: its name in the legend; empty: it has none.
        x: the places.
        y: the values.
        color: of ``COLORS``.
        style: "line", "faint" (what is behind a mean) or "points" (few measured points, joined).
        marked: place of the point to mark, the best epoch.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: str = COLORS[0]
    style: str = "line"
    marked: float | None = None


def binned(
    x: Sequence[float], y: Sequence[float], most: int = _MOST_POINTS
) -> tuple[list[float], list[float]]:
    """Return means of neighbouring points, so that there are at most ``most``."""
    parts = min(len(x), most)
    if parts == len(x):
        return list(x), list(y)
    means = [[float(part.mean()) for part in np.array_split(np.asarray(one), parts)] for one in (x, y)]
    return means[0], means[1]


def curves(
    title: str,
    found: Sequence[Curve],
    x_label: str,
    levels: Mapping[str, float] | None = None,
    bottom: float | None = None,
) -> str:
    """Return curves over the steps, with named horizontal levels.

    Args:
        title: what is plotted, with its unit.
        found: at least one curve.
        x_label: what the places are.
        levels: values to draw across the figure, by name.
        bottom: where the axis begins; default: as the values say.
    """
    with _figure(title) as drawn:
        axes = drawn.axes
        for curve in found:
            x, y = binned(curve.x, curve.y)
            if curve.style == "faint":
                axes.plot(x, y, color=curve.color, alpha=0.35, linewidth=0.8)
            else:
                marker = {"marker": "o", "markersize": 3.5} if curve.style == "points" or len(x) == 1 else {}
                axes.plot(x, y, color=curve.color, label=curve.label or None, **marker)
            if curve.marked is not None:
                value = curve.y[list(curve.x).index(curve.marked)]
                axes.plot(
                    [curve.marked], [value], "o", markersize=9, markerfacecolor="none", color=curve.color
                )
        for name, level in (levels or {}).items():
            axes.axhline(level, color=_INK, linestyle=(0, (4, 3)), linewidth=0.8, alpha=0.7)
            place = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom"}
            axes.annotate(f"{name} {level:.2f}", (0.995, level), fontsize=8.5, **place)
        if levels:
            axes.margins(y=0.12)
        if bottom is not None:
            axes.set_ylim(bottom=bottom)
        axes.set_xlabel(x_label)
        _legend(axes)
    return drawn.svg


def reliability(before: Sequence[Bin], after: Sequence[Bin]) -> str:
    """Return accuracy over the probability that the model states, before and after temperature scaling."""
    with _figure("share of right labels", square=True) as drawn:
        axes = drawn.axes
        axes.plot([0, 1], [0, 1], color=_INK, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.7)
        for bins, color, name in ((before, COLORS[1], "as trained"), (after, COLORS[0], "with temperature")):
            if not bins:
                continue
            total = sum(one.count for one in bins)
            x, y = [one.confidence for one in bins], [one.accuracy for one in bins]
            axes.plot(x, y, color=color, linewidth=1.2, label=name)
            axes.scatter(x, y, s=[12 + 300 * one.count / total for one in bins], color=color, alpha=0.55)
        axes.set_xlim(0, 1.03)
        axes.set_ylim(0, 1.05)
        axes.set_xlabel("probability that the model states (area: share of rows)")
        _legend(axes, "upper left")
    return drawn.svg


@dataclass(frozen=True)
class Bar:
    """A value with its 95 % interval, such as the accuracy of the rows of one length."""

    name: str
    value: float
    low: float
    high: float


def bars(title: str, found: Sequence[Bar], x_label: str, level: float | None = None) -> str:
    """Return values with their intervals side by side, and the value of all rows across."""
    with _figure(title) as drawn:
        axes = drawn.axes
        places = np.arange(len(found))
        values = np.array([bar.value for bar in found])
        reach = [
            np.maximum(0, values - [bar.low for bar in found]),
            np.maximum(0, [bar.high for bar in found] - values),
        ]
        axes.bar(places, values, width=0.62, color=COLORS[0], alpha=0.55)
        axes.errorbar(places, values, yerr=reach, fmt="none", ecolor=_INK, elinewidth=1.0, capsize=3)
        if level is not None:
            axes.axhline(level, color=_INK, linestyle=(0, (4, 3)), linewidth=0.8, alpha=0.7)
        axes.set_xticks(places, [bar.name for bar in found])
        axes.grid(visible=False, axis="x")
        axes.set_xlabel(x_label)
    return drawn.svg


def scatter(gold: NDArray[np.float64], predicted: NDArray[np.float64]) -> str:
    """Return predicted over gold values, with the line on which both are the same.

    Args:
        gold: float64 ``(rows,)``, finite.
        predicted: float64 ``(rows,)``, finite.
    """
    with _figure("predicted value", square=True) as drawn:
        step = -(-len(gold) // _MOST_DOTS)
        low = float(min(gold.min(), predicted.min()))
        high = float(max(gold.max(), predicted.max()))
        drawn.axes.plot([low, high], [low, high], color=_INK, linewidth=0.8, linestyle=(0, (4, 3)), alpha=0.7)
        drawn.axes.scatter(gold[::step], predicted[::step], s=9, color=COLORS[0], alpha=0.4, linewidths=0)
        drawn.axes.set_xlabel("value in the data" + (f" (every {step}th row)" if step > 1 else ""))
    return drawn.svg


def strips(title: str, groups: Sequence[tuple[str, str, Sequence[float]]]) -> str:
    """Return each group's values as dots, with mean and standard deviation: a line of seeds for each run.

    Args:
        title: what the values are.
        groups: name, colour, and at least one finite value each.
    """
    with _figure(title) as drawn:
        axes = drawn.axes
        for place, (_, color, values) in enumerate(groups):
            axes.plot(values, [place] * len(values), "o", color=color, alpha=0.55, markersize=5)
            deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
            middle = float(np.mean(values))
            axes.errorbar(
                [middle], [place + 0.2], xerr=[deviation], fmt="D", color=color, markersize=5, capsize=4
            )
        axes.set_yticks(range(len(groups)), [name for name, _, _ in groups])
        axes.set_ylim(len(groups) - 0.4, -0.6)  # the first on top
        axes.grid(visible=False, axis="y")
        axes.grid(visible=True, axis="x")
    return drawn.svg


@dataclass
class _Drawn:
    axes: Any
    svg: str = ""


@contextmanager
def _figure(title: str, square: bool = False) -> Iterator[_Drawn]:
    """Yield axes to draw on; their SVG is there when the block has ended."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context(_STYLE), warnings.catch_warnings():
        # Only widths are measured with this font; the reader's browser has the characters.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(_WIDTH, 3.7) if square else (_WIDTH, _HEIGHT), layout="constrained")
        drawn = _Drawn(figure.subplots())
        yield drawn
        drawn.axes.set_title(title, fontsize=9.5, loc="left")
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    drawn.svg = _inline(file.getvalue(), title)


def _inline(svg: str, title: str) -> str:
    """Return a figure's file as an element of a page: scaled by the page, in its colour."""
    svg = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<g id="[^"]*">', "<g>", svg)
    svg = re.sub(r"font-family: [^;]*; ", "", svg)
    head = f'<svg role="img" aria-label="{escape(title)}" '
    return re.sub(r'<svg [^>]*(viewBox="[^"]*")[^>]*>', lambda found: f"{head}{found[1]}>", svg, count=1)


def _legend(axes: Any, place: str = "best") -> None:
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        axes.legend(handles, labels, loc=place)
