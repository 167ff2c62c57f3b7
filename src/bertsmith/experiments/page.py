"""What the pages of fine-tuning and pretraining runs have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from bertsmith.experiments import shown
from bertsmith.experiments.command import command_of, settings_of
from bertsmith.experiments.plots import COLORS
from bertsmith.experiments.runs import Run
from bertsmith.recipes.demo_report import imported


def rendered(template: str, **values: Any) -> str:
    """Return a page of this folder's template, with the macros and the style that all share.

    Raises:
        InputError: a package of the extra ``report`` is missing.
    """
    jinja2 = imported("jinja2")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    macros, body, style = (
        files("bertsmith.experiments").joinpath(name).read_text(encoding="utf-8")
        for name in ("page_macros.html", template, "page_style.css")
    )
    page: str = environment.from_string(macros + body).render(style=style, **values)
    return page


@dataclass(frozen=True)
class Tile:
    """One figure that a reader sees first: its name, its value, and what to compare it with."""

    name: str
    value: str
    beside: str = ""


@dataclass(frozen=True)
class Table:
    """Lines under headings; the first cell of a line names it."""

    headings: list[str]
    lines: list[list[str]]


@dataclass(frozen=True)
class Badge:
    """The letter and the colour of a run on the whole page."""

    letter: str
    color: str


def badge(number: int) -> Badge:
    """Return the badge of the run of that number, from 0: A to Z, AA, AB and so on."""
    letter, rest = "", number + 1
    while rest:
        rest, place = divmod(rest - 1, 26)
        letter = chr(ord("A") + place) + letter
    return Badge(letter, COLORS[number % len(COLORS)])


@dataclass(frozen=True)
class Origin:
    """How a run was made.

    Attributes:
        command: the line that repeats it; empty when the settings are missing.
        settings: by their paths.
        environment: by name.
    """

    command: str
    settings: dict[str, str]
    environment: dict[str, str]

    @classmethod
    def of(cls, run: Run) -> Origin:
        """Return the origin of a run."""
        environment = {name: shown.text(value) for name, value in _flat(run.environment).items()}
        settings = {name: shown.text(value) for name, value in settings_of(run).items()}
        return cls(shown.text(command_of(run), 100_000), settings, environment)


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in values.items():
        found |= _flat(value) if isinstance(value, Mapping) else {name: "unknown" if value is None else value}
    return found


def differences(runs: Sequence[Run], badges: Sequence[Badge]) -> Table | None:
    """Return the settings in which runs differ, a column each; ``None`` when they differ in none but out."""
    settings = [settings_of(run) for run in runs]
    names = dict.fromkeys(name for one in settings for name in one if name != "out")
    lines = [[name, *(shown.text(one.get(name, "–")) for one in settings)] for name in names]
    lines = [line for line in lines if len(set(line[1:])) > 1]
    return Table(["setting", *(badge.letter for badge in badges)], lines) if lines else None


def origin_doubts(run: Run) -> list[str]:
    """Return what makes a run hard to repeat."""
    doubts = [f"{problem[0].upper()}{problem[1:]}." for problem in run.problems]
    commit = run.environment.get("commit")
    if isinstance(commit, str) and commit.endswith("-dirty"):
        doubts.append(
            f"The source was changed after commit {commit[:12]}: the commit alone does not repeat it."
        )
    return doubts
