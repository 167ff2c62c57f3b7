"""Extractive question answering: the answer is a span of the passage, or there is none.

Source: the paper, sections 4.2 and 4.3; run_squad.py.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from bertsmith.bundle import Bundle, load_task_model
from bertsmith.data.batch import IGNORED
from bertsmith.errors import InputError
from bertsmith.model.bert import BertForSpans
from bertsmith.objectives import SpanObjective
from bertsmith.significance import Sample, mean_score
from bertsmith.tasks import squad_metrics
from bertsmith.tasks.config import SpanConfig
from bertsmith.tasks.decoding import Decoded, decode, shares_of, windows_by_row
from bertsmith.tasks.inference import Inference, evaluation_mode, in_batches, lengths_of
from bertsmith.tasks.kind import Encoding, Kind, Labels, Outputs, Score, Split, Task
from bertsmith.tasks.questions import Questions, encode_questions
from bertsmith.tasks.source import RowSet

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Rules:
    """How a task's answers are scored.

    Attributes:
        rule: of one prediction.
        nullable: "no answer" can be right.
    """

    rule: squad_metrics.Rule
    nullable: bool


RULES: Mapping[str, Rules] = {
    "squad1": Rules(squad_metrics.squad1, nullable=False),
    "squad2": Rules(squad_metrics.squad2, nullable=True),
    "cmrc2018": Rules(squad_metrics.cmrc2018, nullable=False),
    "answer": Rules(squad_metrics.own, nullable=True),
}


@dataclass(frozen=True)
class Graded:
    """The scores of the best answers to all questions.

    Attributes:
        scores: exact match and F1, float64 ``(questions, 2)``.
        null_odds: float64 ``(questions,)``.
        has_answer: bool ``(questions,)``.
        answered: the best answer is not empty, bool ``(questions,)``.
    """

    scores: NDArray[np.float64]
    null_odds: NDArray[np.float64]
    has_answer: NDArray[np.bool_]
    answered: NDArray[np.bool_]

    def swept(self, metric: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return thresholds and means of a metric; see ``squad_metrics.sweep``."""
        return squad_metrics.sweep(self.scores[:, metric], self.null_odds, self.has_answer, self.answered)

    def means(self, threshold: float | None) -> dict[str, float]:
        """Return the means over all questions, and over those with and without an answer, where both occur.

        Args:
            threshold: questions whose null odds exceed it are left unanswered; ``None``: none is.
        """
        scores = self.scores
        if threshold is not None:
            scores = squad_metrics.with_threshold(scores, self.null_odds, self.has_answer, threshold)
        groups = {"": np.ones_like(self.has_answer)}
        if self.has_answer.any() and not self.has_answer.all():
            groups |= {"has_answer_": self.has_answer, "no_answer_": ~self.has_answer}
        return {
            f"{group}{name}": float(scores[chosen, column].mean())
            for group, chosen in groups.items()
            for column, name in enumerate(METRICS)
        }

    def best(self) -> dict[str, float]:
        """Return the best means that a threshold can give and that threshold, by the official script."""
        found = {}
        for column, name in enumerate(METRICS):
            odds, means = self.swept(column)
            found[f"best_{name}"], found[f"best_{name}_threshold"] = squad_metrics.official_best(means, odds)
        return found


METRICS = ("exact_match", "f1")


def grade(rule: squad_metrics.Rule, questions: Questions, found: list[Decoded]) -> Graded:
    """Score the best answer to each question."""
    texts = [answer.spans[0].text if answer.spans else "" for answer in found]
    golds = questions.gold_objects
    return Graded(
        squad_metrics.question_scores(rule, texts, golds),
        np.array([answer.null_odds for answer in found]),
        np.array([bool(texts) for texts in golds]),
        np.array([bool(text) for text in texts]),
    )


def _outputs(model: nn.Module, split: Split, inference: Inference) -> Outputs:
    """Return the scores of each window's places as first and last of the answer, ``(places, 2)`` each."""
    questions = asked(split)
    results: list[NDArray[np.float32]] = [np.zeros((0, 2), dtype=np.float32)] * questions.num_units
    with evaluation_mode(model):
        for batch, found in in_batches(
            lengths_of(questions.encoded), questions.batch, lambda batch: model(batch.tokens), inference
        ):
            scores, layout = found.float().cpu().numpy(), batch.tokens.layout  # (places, 2)
            for unit, start, length in zip(batch.rows, layout.starts, layout.lengths, strict=True):
                results[unit] = scores[start : start + length]
    return results


def asked(split: Split) -> Questions:
    """Return a split of this kind as what it is."""
    assert isinstance(split, Questions), "a split of questions"
    return split


def decoded(questions: Questions, outputs: Outputs) -> list[Decoded]:
    """Return what the outputs of all windows say to each question."""
    return [
        decode(
            question.passage,
            passage,
            [questions.windows[number] for number in numbers],
            [outputs[number] for number in numbers],
            questions.config.max_answer_len,
            questions.config.n_best,
        )
        for question, passage, numbers in zip(
            questions.rows.rows, questions.passages, windows_by_row(questions.windows), strict=True
        )
    ]


def _encode(task: Task, rows: RowSet[Any], labels: Labels, encoding: Encoding) -> Questions:
    return replace(encode_questions(rows, encoding), rule=RULES[task.name].rule)


def _fit(task: Task, train: Split, dev: Split) -> tuple[Split, Split]:
    """Refuse training questions that teach nothing."""
    if (asked(train).targets == IGNORED).all():
        raise InputError(
            f"{train.rows.path}: no answer stands in its passage; each needs text and answer_start"
        )
    parts, rows = train.num_units, len(train.rows.rows)
    if parts > 1.5 * rows:
        _LOG.warning(
            "%s: %d questions become %d windows; a larger --seq-len (384 in the original) reads more of a "
            "passage at once",
            *(train.rows.path, rows, parts),
        )
    return train, dev


def _tune(task: Task, split: Split, outputs: Outputs) -> dict[str, Any]:
    """Return the threshold of "no answer" with the best F1, where some questions have no answer."""
    questions, rules = asked(split), RULES[task.name]
    if not rules.nullable or all(questions.gold_objects):
        return {}
    odds, means = grade(rules.rule, questions, decoded(questions, outputs)).swept(METRICS.index("f1"))
    return {"null_threshold": squad_metrics.reachable_best(means, odds)}


def _score(task: Task, split: Split, outputs: Outputs, tuned: Mapping[str, Any]) -> Score:
    questions, rules = asked(split), RULES[task.name]
    found = decoded(questions, outputs)
    graded = grade(rules.rule, questions, found)
    threshold = _threshold(tuned) if rules.nullable else None
    values = graded.means(threshold)
    if rules.nullable and not graded.has_answer.all():
        values |= graded.best()
    if "average" in task.metrics:
        values = {"average": (values["exact_match"] + values["f1"]) / 2, **values}
    texts = {answer.answers(threshold)[0].text for answer in found}
    return Score(values, _loss(questions, outputs), len(found) > 1 and len(texts) == 1)


def _threshold(tuned: Mapping[str, Any]) -> float | None:
    """Return the null odds beyond which there is no answer; ``None``: there always is one."""
    return tuned.get("null_threshold")


def _loss(questions: Questions, outputs: Outputs) -> float:
    """Return the mean of what training minimises over the windows whose answer is known; 0 without any."""
    from scipy.special import log_softmax

    losses = [
        -log_softmax(scores.astype(np.float64), axis=0)[target, [0, 1]].mean()
        for scores, target in zip(outputs, questions.targets, strict=True)
        if target[0] != IGNORED
    ]
    return float(np.mean(losses)) if losses else 0.0


def _answers(
    split: Split, outputs: Outputs, labels: Labels, tuned: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return ``id``, ``text``, ``start``, ``end``, ``probability``, ``null_odds`` and ``candidates``.

    Where gold answers are known, also ``exact_match`` and ``f1``.
    """
    questions, threshold = asked(split), _threshold(tuned)
    results = []
    for question, found in zip(questions.rows.rows, decoded(questions, outputs), strict=True):
        spans = found.answers(threshold)
        candidates = [
            {"text": span.text, "start": span.start, "end": span.end, "probability": share}
            for span, share in zip(spans, shares_of(spans), strict=True)
        ]
        answer = {"id": question.id, **candidates[0], "null_odds": found.null_odds, "candidates": candidates}
        if questions.rule is not None:
            golds = [gold.text for gold in question.golds]
            is_null = threshold is not None and not spans[0].text
            scores = (float(not golds),) * 2 if is_null else questions.rule(spans[0].text, golds)
            answer |= dict(zip(METRICS, scores, strict=True))
        results.append(answer)
    return results


def _baseline(task: Task, split: Split) -> float | None:
    """Return the scores of always saying that there is no answer, where that can be right."""
    nothing = [not golds for golds in split.gold_objects]
    return float(np.mean(nothing)) if RULES[task.name].nullable and any(nothing) else None


def _sample(
    metric: str, gold: Sequence[Any], answers: Sequence[Mapping[str, Any]], labels: Labels
) -> Sample | None:
    """Return the questions' own scores; their mean is the metric."""
    names = METRICS if metric == "average" else (metric,)
    scores = np.array([np.mean([answer[name] for name in names]) for answer in answers])
    return Sample(mean_score, np.zeros(len(scores)), scores)


def _load(bundle: Bundle, num_outputs: int | None) -> nn.Module:
    """Return the encoder with a head for spans.

    Raises:
        InputError: the stored head is asked for and there is none.
    """
    return load_task_model(bundle, lambda config, _: BertForSpans(config), num_outputs, head="span_scores")


SPANS = Kind(
    name="spans",
    verb="answer",
    labels=lambda task, rows: None,
    num_outputs=lambda labels: 2,
    load_model=_load,
    encode=_encode,
    objective=lambda split: SpanObjective(),
    outputs=_outputs,
    score=_score,
    answers=_answers,
    fit=_fit,
    tune=_tune,
    settings=dataclasses.asdict(SpanConfig()),
    truncations=("tail", "head", "error"),
    example='("a question", "its passage")',
    baseline=_baseline,
    sample=_sample,
)
