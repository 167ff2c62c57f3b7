"""``report``: runs as one HTML file that needs nothing beside it: results, errors, how they were made."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.errors import InputError
from bertsmith.experiments.comparison import compare
from bertsmith.experiments.fine_tuned import fine_tuned
from bertsmith.experiments.page import badge, rendered
from bertsmith.experiments.pretrained import pretrained
from bertsmith.experiments.runs import FINE_TUNING, PRETRAINING, Run, read_runs
from bertsmith.recipes.config import ReportConfig
from bertsmith.recipes.demo_report import imported


def report(config: ReportConfig) -> dict[str, Any]:
    """Write the report of one run or several.

    Returns:
        Where it is, of which runs, and what was missing in them.

    Raises:
        InputError: a path is no run, or the report would replace something that is no report.
    """
    out = Path(config.out)
    if out.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"--out {out}: a report is an HTML file; give a name that ends in .html")
    if config.errors < 0:
        raise InputError(f"--errors is {config.errors}; it has to be 0 (no texts) or more")
    files.require_no_directory(out)
    runs = read_runs(config.runs)
    files.write_text(out, html(runs, config))
    return {
        "out": str(out),
        "runs": [{"path": str(run.path), "kind": run.kind, "problems": run.problems} for run in runs],
    }


def html(runs: list[Run], config: ReportConfig) -> str:
    """Return the page.

    Raises:
        InputError: a package of the extra ``report`` is missing.
    """
    imported("matplotlib")
    of_kind = {kind: [run for run in runs if run.kind == kind] for kind in (FINE_TUNING, PRETRAINING)}
    numbers = itertools.count()
    badged = {kind: [(run, badge(next(numbers))) for run in some] for kind, some in of_kind.items()}
    return rendered(
        "report_page.html",
        title=config.title or _title(runs),
        comparisons=[compare(kind, some) for kind, some in badged.items() if len(some) > 1],
        fine_tuned=[fine_tuned(run, letter, config.errors) for run, letter in badged[FINE_TUNING]],
        pretrained=[pretrained(run, letter) for run, letter in badged[PRETRAINING]],
        several=len(runs) > 1,
    )


def _title(runs: list[Run]) -> str:
    if len(runs) > 1:
        return f"{len(runs)} runs"
    task = runs[0].metrics.get("task") or runs[0].config.get("task") or runs[0].config.get("preset")
    return f"{'Fine-tuning' if runs[0].kind == FINE_TUNING else 'Pretraining'} {task or runs[0].name}"
