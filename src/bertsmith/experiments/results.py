"""What the runs of an experiment say together: means, deviations, tests, and findings computed from them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertsmith.experiments.designs import Column, Design, Row
from bertsmith.experiments.study import Outcome
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.significance import detectable_difference, welch_p

_LEVEL = 0.05
_LOSS = "heldout_mlm_loss"


@dataclass(frozen=True)
class Run:
    """One row with one seed.

    Attributes:
        seed: of pretraining and fine-tuning.
        pretrained: what the pretraining came to.
        fine_tuned: what each column's fine-tuning came to, by the column's name.
    """

    seed: int
    pretrained: Outcome
    fine_tuned: Mapping[str, Outcome]


@dataclass
class RowResult:
    """A row with its runs so far."""

    row: Row
    runs: list[Run]

    def values(self, column: Column) -> list[float]:
        """Return the column's metric in percent of each run that has one."""
        found = [run.fine_tuned.get(column.name) for run in self.runs]
        return [100 * one.metrics[column.metric] for one in found if one and column.metric in one.metrics]

    @property
    def losses(self) -> list[float]:
        """Held-out losses of the predicted pieces, of the runs that have one, at the end of the run."""
        if self.row.step is not None:
            return []
        found = [run.pretrained.metrics.get(_LOSS) for run in self.runs]
        return [loss for loss in found if loss is not None]

    def has_losses_beside(self, other: RowResult) -> bool:
        """Say whether their held-out losses compare: of the same pieces, and not of the same pretrainings."""
        mine, others = ({run.pretrained.directory for run in result.runs} for result in (self, other))
        return self.row.predicts_as(other.row) and mine != others

    def doubts(self, columns: Sequence[Column]) -> list[str]:
        """Return what went wrong in its runs, a line each."""
        lines = [
            f"{self.row.name}, seed {run.seed}: the pretraining {run.pretrained.status}"
            for run in self.runs
            if run.pretrained.status != "finished"
        ]
        return lines + [
            f"{self.row.name}, seed {run.seed}, {column.name}: {run.fine_tuned[column.name].status}"
            for run in self.runs
            for column in columns
            if column.name in run.fine_tuned and run.fine_tuned[column.name].status != "finished"
        ]


@dataclass(frozen=True)
class Comparison:
    """A row beside the first one, in one column.

    Attributes:
        row: its name.
        column: its heading.
        difference: of the means, in the column's unit.
        p: two-sided, by Welch's test over seeds, after Holm's correction for all comparisons of the table;
            ``None``: too few runs.
        published: the paper's difference; ``None``: it has none.
    """

    row: str
    column: str
    difference: float
    p: float | None
    published: float | None

    @property
    def is_clear(self) -> bool:
        """Whether chance is no likely reason."""
        return self.p is not None and self.p < _LEVEL

    def text(self, reference: str) -> str:
        """Return the comparison as a sentence."""
        side = "above" if self.difference > 0 else "below"
        size = f"{abs(self.difference):.2f}"
        paper = "" if self.published is None else f" The paper's difference: {self.published:+.1f}."
        start = f"{self.column}: {self.row} is {size} {side} {reference}"
        if self.difference == 0.0:
            return f"{self.column}: {self.row} has the same mean as {reference}.{paper}"
        if self.p is None:
            return f"{start}; with fewer than two runs a side nothing can be said about chance.{paper}"
        if not self.is_clear:
            return f"{start}, which chance explains (p = {self.p:.2g}): no difference can be claimed.{paper}"
        if self.published is None or self.published == 0:
            return f"{start} (p = {self.p:.2g}).{paper}"
        same = math.copysign(1, self.published) == math.copysign(1, self.difference)
        return f"{start} (p = {self.p:.2g}), {'as' if same else 'unlike'} in the paper.{paper}"


@dataclass
class Results:
    """The table of an experiment.

    Attributes:
        design: the experiment.
        columns: what rows are judged by.
        rows: the first is the one that others are compared with.
        left_out: rows that were not run, with the reason.
        base: settings of pretraining that the rows share.
    """

    design: Design
    columns: list[Column]
    rows: list[RowResult]
    left_out: Mapping[str, str]
    base: PretrainConfig

    @property
    def masked(self) -> list[RowResult]:
        """The rows that predict masked pieces."""
        return [one for one in self.rows if not one.row.reads_left]

    def comparisons(self) -> list[Comparison]:
        """Return every other row beside the first one, in every column where both have runs."""
        first, *others = self.rows
        found = []
        for column in [None, *self.columns]:
            reference = _values(first, column)
            for one in others:
                values = _values(one, column)
                if not values or not reference or (column is None and not one.has_losses_beside(first)):
                    continue
                published = None if column is None else _published(one.row, column, first.row)
                found.append(
                    Comparison(
                        one.row.name,
                        "held-out loss" if column is None else column.name,
                        statistics.fmean(values) - statistics.fmean(reference),
                        welch_p(values, reference),
                        published,
                    )
                )
        return _corrected(found)

    def findings(self) -> list[str]:
        """Return what the numbers say, a sentence each; clear differences first."""
        reference = self.rows[0].row.name
        ordered = sorted(self.comparisons(), key=lambda one: (not one.is_clear, one.p is None))
        lines = [one.text(reference) for one in ordered]
        for column in self.columns:
            found = [run.fine_tuned.get(column.name) for result in self.rows for run in result.runs]
            outcomes = [one for one in found if one is not None]
            if outcomes and all(one.status != "finished" for one in outcomes):
                nothing = "no run learned more than one answer for all rows, so the column says nothing"
                lines.insert(0, f"{column.name}: {nothing}.")
        return lines

    def doubts(self) -> list[str]:
        """Return what to read with the figures."""
        lines = [
            *self._blind_spots(),
            *(line for result in self.rows for line in result.doubts(self.columns)),
        ]
        if any(not one.row.predicts_as(self.masked[0].row) for one in self.masked):
            lines.insert(0, "the held-out losses are of each row's own mixture: they are not compared")
        return lines + [f"{name} was left out: it {why}." for name, why in self.left_out.items()]

    def _blind_spots(self) -> list[str]:
        """Return for each column which differences its runs are too few to show."""
        tests = sum(one.p is not None for one in self.comparisons())
        lines = []
        for column in self.columns:
            least = detectable_difference([one.values(column) for one in self.rows], tests, _LEVEL)
            if least:
                unseen = f"a difference of less than {least:.1f} cannot be told from chance"
                lines.append(f"{column.name}: as these runs vary, {unseen} ({tests} are tested together)")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the table as JSON types."""
        return {
            "experiment": self.design.name,
            "rows": [_row_object(result, self.columns) for result in self.rows],
            "left_out": dict(self.left_out),
            "comparisons": [vars(one) for one in self.comparisons()],
            "findings": self.findings(),
            "doubts": self.doubts(),
        }


def column_key(column: Column) -> str:
    """Return the name under which the paper's numbers hold a column."""
    return "conll-features" if column.changes.get("features") else column.task


def published_of(row: Row, column: Column) -> float | None:
    """Return the paper's number of a cell; ``None``: it has none."""
    return row.published.get(column_key(column))


def spread(values: Sequence[float]) -> tuple[float, float] | None:
    """Return mean and sample standard deviation, 0 for one value; ``None`` without values."""
    if not values:
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def cell_text(values: Sequence[float], digits: int = 1) -> str:
    """Return a mean with its deviation as text; a dash without values."""
    found = spread(values)
    if found is None:
        return "–"
    mean, deviation = found
    return f"{mean:.{digits}f}" if len(values) < 2 else f"{mean:.{digits}f} ± {deviation:.{digits}f}"


def _values(result: RowResult, column: Column | None) -> list[float]:
    return result.losses if column is None else result.values(column)


def _published(row: Row, column: Column, first: Row) -> float | None:
    ours, reference = published_of(row, column), published_of(first, column)
    return None if ours is None or reference is None else ours - reference


def _corrected(found: list[Comparison]) -> list[Comparison]:
    """Return comparisons with p values corrected for their number (Holm, 1979)."""
    tested = sorted((one for one in found if one.p is not None), key=lambda one: one.p or 0.0)
    corrected: dict[int, float] = {}
    largest = 0.0
    for rank, one in enumerate(tested):
        assert one.p is not None, "chosen above"
        largest = max(largest, min(1.0, (len(tested) - rank) * one.p))
        corrected[id(one)] = largest
    return [
        Comparison(one.row, one.column, one.difference, corrected.get(id(one)), one.published)
        for one in found
    ]


def _row_object(result: RowResult, columns: Sequence[Column]) -> dict[str, Any]:
    mixtures = [run.pretrained.mixture for run in result.runs if run.pretrained.mixture]
    return {
        "name": result.row.name,
        "paper_name": result.row.paper_name,
        "seeds": [run.seed for run in result.runs],
        "heldout_loss": result.losses,
        "predicts": "neighbouring pieces" if result.row.reads_left else "masked pieces",
        "mixture": mixtures,
        "columns": {
            column.name: {"values": result.values(column), "paper": published_of(result.row, column)}
            for column in columns
        },
        "pretraining_seconds": [run.pretrained.seconds for run in result.runs],
        "runs": [str(run.pretrained.directory) for run in result.runs],
    }


def headings(results: Results) -> list[str]:
    """Return the headings of the table: ours beside the paper's."""
    names = [results.design.name, "runs", "held-out loss"]
    for column in results.columns:
        names += [column.name, "paper"]
    return names


def lines(results: Results) -> list[list[str]]:
    """Return the lines of the table as text."""
    found = []
    for result in results.rows:
        row = result.row
        name = row.name if row.paper_name is None else f"{row.name} (paper: {row.paper_name})"
        loss = cell_text(result.losses, 3) + (
            " (neighbouring pieces)" if row.reads_left and result.losses else ""
        )
        line = [name, str(len(result.runs)), loss]
        for column in results.columns:
            paper = published_of(row, column)
            line += [cell_text(result.values(column)), "" if paper is None else f"{paper:.1f}"]
        found.append(line)
    return found


def as_markdown(results: Results) -> str:
    """Return the table with what the numbers say below it."""
    head = headings(results)
    table = [head, ["---"] * len(head), *lines(results)]
    text = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in table)
    parts = [
        f"# {results.design.title} ({results.design.source})",
        text,
        "Mean and standard deviation over seeds, in percent on dev; losses in nats. The paper's numbers are "
        "of BERT-base on 3.3 billion words.",
    ]
    for title, found in (("Findings", results.findings()), ("Read this with the figures", results.doubts())):
        if found:
            parts.append(f"## {title}\n\n" + "\n".join(f"- {line}" for line in found))
    return "\n\n".join(parts) + "\n"
