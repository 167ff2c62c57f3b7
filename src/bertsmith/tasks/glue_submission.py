"""The zip that the GLUE leaderboard takes: eleven files of ``index prediction``.

Source: the GLUE benchmark's submission instructions.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bertsmith import files
from bertsmith.tasks.task import TASKS

HEADER = "index\tprediction"
LOWEST, HIGHEST = 0.0, 5.0
"""Of the similarities of STS-B."""
_DATE = (1980, 1, 1, 0, 0, 0)  # the same predictions give the same bytes


@dataclass(frozen=True)
class SubmissionFile:
    """One file of the zip.

    Attributes:
        name: of the file.
        task: whose model predicts it; the diagnostic set is answered by the model of MNLI.
        data: the task in whose directory the rows are.
        split: which rows of that task.
        rows: how many there are.
    """

    name: str
    task: str
    data: str
    split: str
    rows: int

    @property
    def labels(self) -> tuple[str, ...] | None:
        """Names of the labels; ``None``: values."""
        return TASKS[self.task].labels


SUBMISSION = (
    SubmissionFile("CoLA.tsv", "cola", "cola", "test", 1063),
    SubmissionFile("SST-2.tsv", "sst2", "sst2", "test", 1821),
    SubmissionFile("MRPC.tsv", "mrpc", "mrpc", "test", 1725),
    SubmissionFile("STS-B.tsv", "stsb", "stsb", "test", 1379),
    SubmissionFile("QQP.tsv", "qqp", "qqp", "test", 390_965),
    SubmissionFile("MNLI-m.tsv", "mnli", "mnli", "test", 9796),
    SubmissionFile("MNLI-mm.tsv", "mnli", "mnli", "test_mismatched", 9847),
    SubmissionFile("QNLI.tsv", "qnli", "qnli", "test", 5463),
    SubmissionFile("RTE.tsv", "rte", "rte", "test", 3000),
    SubmissionFile("WNLI.tsv", "wnli", "wnli", "test", 146),
    SubmissionFile("AX.tsv", "mnli", "ax", "test", 1104),
)


def write_submission(path: Path, predictions: Mapping[str, Sequence[str | float]]) -> None:
    """Write the zip, whole or not at all.

    Args:
        path: the zip.
        predictions: by file name and in the order of the test rows: label names, or values of STS-B, which
            are clipped to 0..5.
    """
    with files.atomic_file(path) as temporary, zipfile.ZipFile(temporary, "w") as archive:
        for file in SUBMISSION:
            rows = predictions[file.name]
            assert len(rows) == file.rows, f"{file.name}: {len(rows)} predictions for {file.rows} rows"
            info = zipfile.ZipInfo(file.name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, "".join(_lines(file, rows)))


def _lines(file: SubmissionFile, rows: Sequence[str | float]) -> Iterator[str]:
    yield f"{HEADER}\n"
    for index, prediction in enumerate(rows):
        if file.labels is None:
            assert math.isfinite(float(prediction)), f"{file.name}: {prediction} is no value"
            yield f"{index}\t{min(max(float(prediction), LOWEST), HIGHEST):.6f}\n"
        else:
            assert prediction in file.labels, f"{file.name}: {prediction!r} is no label of {file.task}"
            yield f"{index}\t{prediction}\n"
