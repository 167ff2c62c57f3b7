"""The settings of the verb ``glue``."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class GlueConfig:
    """Score models of the GLUE tasks together, write the leaderboard's zip, or check one.

    Attributes:
        models: model directories, one a task; TASK=DIR for a model that does not store which task it is for.
        data: the directory that holds the tasks' directories (CoLA, SST-2, ...).
        out: the .zip to write; each of its files needs a model or --majority then.
        majority: files of the zip, such as wnli or MNLI-m, whose rows all get the most frequent label of the
            training rows (STS-B: their mean), as many as there are officially; test rows are not needed.
        check: a .zip to check, from anyone; nothing else is done then.
        missing: a dev row without text or label: "error" or "skip"; test rows are all answered.
        batch_tokens: pieces a forward pass.
        precision: "auto", "float32" or "bfloat16".
    """

    models: list[str] = field(default_factory=list)
    data: str | None = None
    out: str | None = None
    majority: list[str] = field(default_factory=list)
    check: str | None = None
    missing: str = "error"
    batch_tokens: int = 4096
    precision: str = "float32"
