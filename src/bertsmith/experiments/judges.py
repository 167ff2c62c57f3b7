"""From a line of predictions-dev.jsonl to what was right and what was wrong, one function a kind of task."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bertsmith.tasks import squad_metrics

_FACTS = ("line", "gold", "truncated", "pieces", "texts")  # every line may hold them

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Judged:
    """One row of dev.

    Attributes:
        line: of the file.
        texts: its texts; empty where the run does not hold them.
        gold: what the data says.
        predicted: what the model says.
        right: both are the same; ``None`` where a row is more or less right.
        badness: what errors are ordered by, the worst first.
        note: how sure the model was, or how far off.
        pieces: that the model read; ``None`` where the run does not say.
        truncated: the row was cut.
        items: labels or entities of the data and of the model, where a row has several; each begins with
            its label.
    """

    line: int
    texts: tuple[str, ...]
    gold: str
    predicted: str
    right: bool | None
    badness: float
    note: str
    pieces: int | None = None
    truncated: bool = False
    items: tuple[Sequence[tuple[Any, ...]], Sequence[tuple[Any, ...]]] | None = None


def _judge_label(line: Line) -> Judged:
    gold, label = str(line["gold"]), str(line["label"])
    shares = line["probabilities"]
    sure, of_gold = float(shares[line["label"]]), float(shares.get(line["gold"], 0.0))
    note = f"{sure:.1%} sure; {of_gold:.1%} for {gold}" if gold != label else f"{sure:.1%} sure"
    return Judged(0, (), gold, label, gold == label, sure - of_gold, note)


def _judge_value(line: Line) -> Judged:
    gold, value = float(line["gold"]), float(line["value"])
    return Judged(
        0, (), f"{gold:.6g}", f"{value:.6g}", None, abs(value - gold), f"off by {value - gold:+.4g}"
    )


def judge_any(line: Line) -> Judged:
    """Judge a row of a kind that this page does not know: the same answer or not."""
    gold = line["gold"]
    answer = next(value for name, value in line.items() if name not in _FACTS)
    right = answer == gold or (isinstance(gold, list) and answer in gold)
    return Judged(0, (), _as_text(gold), _as_text(answer), right, float(not right), "")


def _judge_labels(line: Line) -> Judged:
    """Judge a row of any number of labels: right if all are, and no other."""
    gold, given = ([(str(label),) for label in line[key]] for key in ("gold", "labels"))
    note = _differences([name for (name,) in gold], [name for (name,) in given])
    shares = line["probabilities"]
    sure = [1 - shares[name] for (name,) in gold] + [shares[name] for name in shares if (name,) not in gold]
    of_data, of_model = (", ".join(name for (name,) in some) or "none" for some in (gold, given))
    is_right = set(gold) == set(given)
    return Judged(0, (), of_data, of_model, is_right, max(sure, default=0.0), note, items=(gold, given))


def _judge_entities(line: Line) -> Judged:
    """Judge a row of entities: right if all are, and no other; an entity has a label and a place."""
    sides = [line["gold"], line["entities"]]
    gold, given = ([(str(one["label"]), one["start"], one["end"]) for one in side] for side in sides)
    names = [[f"{one['label']} {one['text']}" for one in side] for side in sides]
    of_data, of_model = (", ".join(some) or "none" for some in names)
    wrong = len(set(gold) ^ set(given))
    note = _differences(*names)
    return Judged(0, (), of_data, of_model, not wrong, float(wrong), note, items=(gold, given))


def _differences(gold: Sequence[str], given: Sequence[str]) -> str:
    missed, added = (
        [name for name in some if name not in other] for some, other in ((gold, given), (given, gold))
    )
    parts = [f"missed: {', '.join(missed)}"] if missed else []
    return "; ".join([*parts, *([f"not there: {', '.join(added)}"] if added else [])])


def _judge_span(line: Line) -> Judged:
    """Judge an answer out of a passage by the rules for English and Chinese; the worst share no word."""
    golds, answer = [str(gold) for gold in line["gold"]], str(line["text"])
    exact, f1 = squad_metrics.own(answer, golds)
    sure = float(line["probability"])
    shown = " / ".join(dict.fromkeys(golds)) or "no answer"
    note = f"{sure:.1%} sure; F1 {f1:.2f}"
    return Judged(0, (), shown, answer or "no answer", exact == 1.0, sure * (1 - f1), note)


def _judge_choice(line: Line) -> Judged:
    gold, choice, shares = line["gold"], line["choice"], line["probabilities"]
    note = f"{shares[choice]:.1%} sure; {shares[gold]:.1%} for the right one"
    return Judged(0, (), str(gold), str(choice), gold == choice, shares[choice] - shares[gold], note)


def _judge_texts(line: Line) -> Judged:
    """Judge how near two texts are: by rank where one is looked for, else by the score of the data."""
    gold, cosine = line["gold"], float(line["cosine"])
    if "rank" not in line:
        meant = float(line["meant"])
        note = f"a cosine of {meant:.2f} is meant"
        return Judged(0, (), f"{float(gold):.6g}", f"{cosine:.2f}", None, abs(cosine - meant), note)
    rank = int(line["rank"])
    note = f"rank {rank}, cosine {cosine:.4f}"
    return Judged(0, (), str(gold), str(line["best"]), rank == 1, float(rank - 1), note)


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


JUDGES: Mapping[str, Callable[[Line], Judged]] = {
    "classification": _judge_label,
    "regression": _judge_value,
    "multi-label": _judge_labels,
    "tagging": _judge_entities,
    "spans": _judge_span,
    "choice": _judge_choice,
    "embedding": _judge_texts,
}
