"""Probes: how much of a task a linear model reads off an encoder that is not trained for it.

A probe takes seconds where fine-tuning takes minutes. It says whether representations get better while a
model is pretrained; it does not say how good the model will be after fine-tuning.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import metrics
from bertsmith.errors import InputError
from bertsmith.features import pool
from bertsmith.model.bert import Bert
from bertsmith.randomness import generator
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.tasks.classification import CLASSIFICATION, LabelledRows, labelled
from bertsmith.tasks.encode import EncodedRow, encode_rows
from bertsmith.tasks.inference import Inference, run_rows
from bertsmith.tasks.kind import Encoding, Task
from bertsmith.tasks.prepared import read_training_data
from bertsmith.tasks.regression import REGRESSION
from bertsmith.tasks.source import DataSource
from bertsmith.tasks.task import find_task
from bertsmith.text.tokenizer import Tokenizer

_TRAIN_ROWS, _DEV_ROWS = 2000, 1000
_LONGEST_ROW = 128
_PENALTY = 10.0  # of the classifier's squared weights, on standardised features: there are few rows a feature
_RIDGE_PENALTIES = tuple(10.0**power for power in range(-1, 6))


@dataclass(frozen=True)
class ProbeRows:
    """Rows of one split, encoded once.

    Attributes:
        texts: of each row; of a pair the first text.
        second_texts: of each pair; ``None``: the rows are single texts.
        gold: label numbers int64 or values float64 ``(rows,)``.
    """

    texts: list[EncodedRow]
    second_texts: list[EncodedRow] | None
    gold: NDArray[Any]


@dataclass(frozen=True)
class Probe:
    """A task and the rows on which the encoder is probed."""

    task: Task
    train: ProbeRows
    dev: ProbeRows


def check_probes(config: PretrainConfig) -> None:
    """Refuse settings of probes that cannot be meant.

    Raises:
        InputError: naming the setting.
    """
    if config.probe_steps < 0:
        raise InputError(f"--probe-steps is {config.probe_steps}; it has to be at least 0")
    if config.probes and config.probe_data is None:
        raise InputError(f"--probes {' '.join(config.probes)} needs --probe-data, the directory of the tasks")
    if not config.probes and (config.probe_data is not None or config.probe_steps):
        raise InputError(
            "--probe-data and --probe-steps would be ignored; add --probes, such as --probes sst2"
        )
    for name in config.probes:
        task = find_task(name)
        if task.kind not in (CLASSIFICATION, REGRESSION):
            raise InputError(
                f"--probes {name}: a {task.kind.name} task cannot be probed; take one such as sst2"
            )
        if config.probes.count(name) > 1:
            raise InputError(f"--probes names {name} more than once; name it once")


def read_probes(config: PretrainConfig, tokenizer: Tokenizer, max_positions: int) -> list[Probe]:
    """Read and encode the rows of each probe: at most 2,000 to fit on and 1,000 to score, always the same.

    Raises:
        InputError: the data is missing or broken.
    """
    encoding = Encoding(tokenizer, min(_LONGEST_ROW, max_positions), "tail")
    return [_read(find_task(name), str(config.probe_data), encoding) for name in config.probes]


def _read(task: Task, path: str, encoding: Encoding) -> Probe:
    data = read_training_data(task, DataSource(path), encoding, _TRAIN_ROWS, seed=0)
    train, dev = labelled(data.train), labelled(data.dev)
    if len(np.unique(train.gold)) < 2:
        raise InputError(f"{train.rows.path}: all rows have the same label; nothing can be probed")
    chosen = generator(0, "limit").permutation(len(dev.gold))[:_DEV_ROWS]
    every = np.arange(len(train.gold))
    return Probe(task, _rows(train, every, encoding), _rows(dev, np.sort(chosen), encoding))


def _rows(split: LabelledRows, chosen: NDArray[np.int64], encoding: Encoding) -> ProbeRows:
    texts = [split.rows.rows[index].texts for index in chosen]

    def encoded(column: Sequence[str]) -> list[EncodedRow]:
        return encode_rows([(text, None) for text in column], encoding.tokenizer, encoding.seq_len)

    seconds = [second for _, second in texts if second is not None]
    return ProbeRows(
        encoded([first for first, _ in texts]), encoded(seconds) if seconds else None, split.gold[chosen]
    )


def probe(probes: Sequence[Probe], encoder: Bert, inference: Inference) -> dict[str, float]:
    """Return every metric of every probe as ``probe_TASK_METRIC``.

    The encoder computes in evaluation mode and is put back into the mode it was in; no random number is
    drawn, so the training goes on as if nothing had happened.
    """
    was_training = encoder.training
    encoder.eval()
    try:
        return {
            f"probe_{each.task.name}_{name}": value
            for each in probes
            for name, value in _score(each, encoder, inference).items()
        }
    finally:
        encoder.train(was_training)


def _score(task_probe: Probe, encoder: Bert, inference: Inference) -> dict[str, float]:
    """Fit on the training rows, return the task's metrics on the dev rows."""
    train = _features(task_probe.train, encoder, inference)
    dev = _features(task_probe.dev, encoder, inference)
    predicted = _predictions(task_probe, train, dev)
    return metrics.compute(task_probe.task.metrics, task_probe.dev.gold, predicted)


def _predictions(task_probe: Probe, train: NDArray[np.float64], dev: NDArray[np.float64]) -> NDArray[Any]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if task_probe.task.kind == REGRESSION:
        model: Any = RidgeCV(alphas=_RIDGE_PENALTIES)
    else:
        model = LogisticRegression(C=1.0 / _PENALTY, max_iter=300)
    pipeline = make_pipeline(StandardScaler(), model)
    with warnings.catch_warnings():
        # The last digits of a probe are not worth more iterations.
        warnings.simplefilter("ignore", ConvergenceWarning)
        pipeline.fit(train, task_probe.train.gold)
    predicted: NDArray[Any] = pipeline.predict(dev)
    return predicted


def _features(rows: ProbeRows, encoder: Bert, inference: Inference) -> NDArray[np.float64]:
    """Return the mean over each text's places, float64 ``(rows, hidden)``; of pairs ``(rows, 2 * hidden)``.

    Source: SentEval (arXiv 1803.05449), section 3: a pair is the absolute difference and the product of both.
    """
    first = _means(rows.texts, encoder, inference)
    if rows.second_texts is None:
        return first
    second = _means(rows.second_texts, encoder, inference)
    return np.concatenate([np.abs(first - second), first * second], axis=1)  # (rows, 2 * hidden)


def _means(rows: Sequence[EncodedRow], encoder: Bert, inference: Inference) -> NDArray[np.float64]:
    width = encoder.config.hidden_size
    found = run_rows(
        rows, lambda batch: pool(encoder(batch.tokens), batch.tokens.layout, "mean"), width, inference
    )
    return found.astype(np.float64)
