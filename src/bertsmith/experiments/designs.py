"""The experiments as records: which rows a table has, what they are judged by, what the paper found.

Numbers of the paper are of BERT-base on 3.3 billion words, on dev sets; they stand beside ours to compare
directions, not values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bertsmith.config import duration_seconds, nearest
from bertsmith.errors import InputError
from bertsmith.recipes.pretrain_config import PretrainConfig

_SHARES = ("mask_share", "same_share", "random_share")
Changes = Mapping[str, Any]
"""Settings by name, nested, as a settings file holds them."""


@dataclass(frozen=True)
class Column:
    """What rows are judged by.

    Attributes:
        name: its heading.
        task: that models are fine-tuned on.
        metric: of the task.
        changes: settings of that fine-tuning.
    """

    name: str
    task: str
    metric: str
    changes: Changes = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One kind of model.

    Attributes:
        name: in the table.
        pretraining: what its pretraining has other than the preset.
        finetuning: what its fine-tuning has other than the columns say.
        pairing: of its data; ``None``: the study's.
        step: completed steps of the checkpoint that is judged; ``None``: the end.
        published: the paper's numbers, by column.
        paper_name: of the paper's row, where it has another name.
        reads_left: predicts neighbouring pieces, so that its loss is not that of masked pieces.
    """

    name: str
    pretraining: Changes = field(default_factory=dict)
    finetuning: Changes = field(default_factory=dict)
    pairing: str | None = None
    step: int | None = None
    published: Mapping[str, float] = field(default_factory=dict)
    paper_name: str | None = None
    reads_left: bool = False

    def predicts_as(self, other: Row) -> bool:
        """Whether both predict the same pieces from the same inputs, so that their losses can be compared."""
        return self.reads_left == other.reads_left and self._mixture == other._mixture

    @property
    def _mixture(self) -> Changes:
        masking = self.pretraining.get("masking", {})
        return {name: value for name, value in masking.items() if name in _SHARES}


@dataclass(frozen=True)
class Design:
    """An experiment.

    Attributes:
        name: on the command line.
        title: what it asks.
        source: where the paper has it.
        rows: from the preset's settings to the rows; the first is the one that others are compared with.
        columns: names in ``COLUMNS``.
    """

    name: str
    title: str
    source: str
    rows: Callable[[PretrainConfig], list[Row]]
    columns: tuple[str, ...]


COLUMNS: Mapping[str, Column] = {
    "mnli": Column("MNLI-m", "mnli", "accuracy"),
    "qnli": Column("QNLI", "qnli", "accuracy"),
    "mrpc": Column("MRPC", "mrpc", "accuracy"),
    "sst2": Column("SST-2", "sst2", "accuracy"),
    "cola": Column("CoLA", "cola", "matthews"),
    "stsb": Column("STS-B", "stsb", "spearman"),
    "qqp": Column("QQP", "qqp", "accuracy"),
    "rte": Column("RTE", "rte", "accuracy"),
    "squad1": Column("SQuAD F1", "squad1", "f1"),
    "conll": Column("NER", "conll", "f1"),
    "conll-features": Column("NER, features", "conll", "f1", {"features": "concat-last-4"}),
}
_FEWER_LAYERS = "last"  # of features, where the model has fewer than four layers


def _published(columns: tuple[str, ...], *values: float) -> dict[str, float]:
    return dict(zip(columns, values, strict=True))


_TABLE_8 = ("mnli", "conll", "conll-features")
_TABLE_5 = ("mnli", "qnli", "mrpc", "sst2", "squad1")
_TABLE_6 = ("mnli", "mrpc", "sst2")
_MIXTURES: Mapping[str, tuple[float, ...]] = {
    "80/10/10": (84.2, 95.4, 94.9),
    "100/0/0": (84.3, 94.9, 94.0),
    "80/0/20": (84.1, 95.2, 94.6),
    "80/20/0": (84.4, 95.2, 94.7),
    "0/20/80": (83.7, 94.8, 94.6),
    "0/0/100": (83.6, 94.9, 94.6),
}


def mixture_row(name: str) -> Row:
    """Return the row of a mixture such as 80/10/10: percent masked, the same, random.

    Raises:
        InputError: it is none.
    """
    try:
        shares = [float(part) / 100 for part in name.split("/")]
    except ValueError:
        shares = []
    if len(shares) != 3 or min(shares) < 0 or abs(sum(shares) - 1) > 1e-6:
        raise InputError(
            f"--mixtures {name!r} is no mixture; write percent masked/same/random, such as 80/10/10"
        )
    masking = dict(zip(_SHARES, shares, strict=True))
    published = _published(_TABLE_8, *_MIXTURES[name]) if name in _MIXTURES else {}
    return Row(name, {"masking": masking}, published=published)


def _masking(base: PretrainConfig) -> list[Row]:
    return [mixture_row(name) for name in _MIXTURES]


_LEFT: Changes = {"next_sentence": False, "architecture": {"context": "left"}}
# In ELMo's place; a preset with LayerNorm before its layers says nothing of LSTMs.
_LSTM: Changes = {"architecture": {"mixing": "lstm", "norm": "post"}}


def _objective(base: PretrainConfig) -> list[Row]:
    return [
        Row("BERT", published=_published(_TABLE_5, 84.4, 88.4, 86.7, 92.7, 88.5)),
        Row("no NSP", {"next_sentence": False}, published=_published(_TABLE_5, 83.9, 84.9, 86.5, 92.6, 87.9)),
        Row(
            "left-to-right, no NSP",
            _LEFT,
            published=_published(_TABLE_5, 82.1, 84.3, 77.5, 92.1, 77.8),
            reads_left=True,
        ),
        Row(
            "left-to-right + BiLSTM",
            _LEFT,
            {"bilstm": True},
            published=_published(_TABLE_5, 82.1, 84.1, 75.7, 91.6, 84.9),
            reads_left=True,
        ),
        Row("SOP", pairing="sop"),
        Row("full sentences", pairing="full-sentences"),
        # Of table 1, whose figures are of the test sets, partly in other metrics: none stands beside ours.
        Row(
            "BiLSTM + ELMo + attention",
            _LSTM,
            {"features": "weighted-all", "lstm_size": base.architecture.hidden_size},
            paper_name="BiLSTM+ELMo+Attn",
            reads_left=True,
        ),
    ]


_TABLE_6_ROWS: Mapping[str, tuple[float, ...]] = {
    "12/768/12": (84.4, 86.7, 92.9),
    "3/768/12": (77.9, 79.8, 88.4),
    "6/768/3": (80.6, 82.2, 90.7),
    "6/768/12": (81.9, 84.8, 91.3),
    "12/1024/16": (85.7, 86.9, 93.3),
    "24/1024/16": (86.6, 87.8, 93.7),
}
_HEAD_SIZE = 64


def _size(base: PretrainConfig) -> list[Row]:
    """Return the rows of table 6 in the proportions of the preset, each shape once."""
    shape = base.architecture
    layers, width, heads = shape.num_layers, shape.hidden_size, shape.num_heads
    wide = max(_HEAD_SIZE, round(width * 4 / 3 / _HEAD_SIZE) * _HEAD_SIZE)
    shapes = {
        "12/768/12": (layers, width, heads),
        "3/768/12": (max(1, layers // 4), width, heads),
        "6/768/3": (max(1, layers // 2), width, max(1, heads // 4)),
        "6/768/12": (max(1, layers // 2), width, heads),
        "12/1024/16": (layers, wide, wide // _HEAD_SIZE),
        "24/1024/16": (2 * layers, wide, wide // _HEAD_SIZE),
    }
    rows: dict[tuple[int, int, int], Row] = {}
    for paper_name, (num_layers, hidden_size, num_heads) in shapes.items():
        name = f"{num_layers}/{hidden_size}/{num_heads}"
        architecture = {
            "num_layers": num_layers,
            "hidden_size": hidden_size,
            "num_heads": num_heads,
            "intermediate_size": 4 * hidden_size,
        }
        published = _published(_TABLE_6, *_TABLE_6_ROWS[paper_name])
        row = Row(name, {"architecture": architecture}, published=published, paper_name=paper_name)
        rows.setdefault((num_layers, hidden_size, num_heads), row)
    return list(rows.values())


STEP_POINTS = 5


def _steps(base: PretrainConfig) -> list[Row]:
    if base.steps is None:
        raise InputError("ablate steps looks at fractions of the steps; give --steps instead of --budget")
    if base.steps < STEP_POINTS:
        raise InputError(f"--steps is {base.steps}; ablate steps needs at least {STEP_POINTS}")
    every = base.steps // STEP_POINTS
    kept = {"checkpoint_steps": every, "keep_checkpoints": STEP_POINTS + 1}
    rows = []
    for point in range(STEP_POINTS, 0, -1):
        step = every * point
        rows.append(Row(f"masked, {step} steps", {**kept}, step=step))
        rows.append(Row(f"left-to-right, {step} steps", {**kept, **_LEFT}, step=step, reads_left=True))
    return rows


_TABLE_7: Mapping[str, float] = {
    "embeddings": 91.0,
    "second-to-last": 95.6,
    "last": 94.9,
    "weighted-last-4": 95.9,
    "concat-last-4": 96.1,
    "weighted-all": 95.5,
}


def _features(base: PretrainConfig) -> list[Row]:
    fewest = {"weighted-last-4": 4, "concat-last-4": 4, "second-to-last": 2}
    return [
        Row("fine-tuned", published={"conll": 96.4}),
        *(
            Row(name, finetuning={"features": name}, published={"conll": value})
            for name, value in _TABLE_7.items()
            if base.architecture.num_layers >= fewest.get(name, 1)
        ),
        Row(
            "two-direction LSTM",
            _LSTM,
            {"features": "weighted-all"},
            published={"conll": 95.7},
            paper_name="ELMo",
            reads_left=True,
        ),
    ]


def _recipe(base: PretrainConfig) -> list[Row]:
    """Return BERT's recipe and RoBERTa's changes to it, each on top of those before."""
    plain = {"next_sentence": False}
    large = {"batch_size": 4 * base.batch_size}
    steps = {} if base.steps is None else {"steps": -(-base.steps // 4)}  # as many instances as before
    twice = {"steps": 2 * steps["steps"]} if steps else {"budget": _twice(str(base.budget))}
    return [
        Row("BERT: static masks", {"masking": {"dynamic": False}}),
        Row("+ dynamic masks"),
        Row("+ no NSP", plain),
        Row("+ full sentences", pairing="full-sentences"),
        Row("+ batch x 4", {**large, **steps}, pairing="full-sentences"),
        Row("+ twice as long", {**large, **steps, **twice}, pairing="full-sentences"),
    ]


def _twice(budget: str) -> str:
    return f"{2 * duration_seconds(budget):g}s"


DESIGNS: Mapping[str, Design] = {
    design.name: design
    for design in (
        Design("masking", "What stands in the place of a chosen piece", "table 8", _masking, _TABLE_8),
        Design("objective", "What is predicted", "table 5", _objective, _TABLE_5),
        Design("size", "Layers, width and heads", "table 6", _size, _TABLE_6),
        Design("steps", "How long it is trained", "figure 5", _steps, ("mnli",)),
        Design(
            "features", "Which layers are read when the encoder is frozen", "table 7", _features, ("conll",)
        ),
        Design(
            "recipe",
            "From BERT to RoBERTa, one change at a time",
            "RoBERTa, arXiv 1907.11692, section 4",
            _recipe,
            ("mnli", "sst2", "squad1"),
        ),
    )
}


def column_of(name: str, num_layers: int) -> Column:
    """Return a column for a model with so many layers; features of fewer than four are those of the last.

    Raises:
        InputError: there is none of that name.
    """
    if name not in COLUMNS:
        raise InputError(f"--tasks {name!r} is unknown; {nearest(name, list(COLUMNS))}")
    column = COLUMNS[name]
    if column.changes.get("features") == "concat-last-4" and num_layers < 4:
        return replace(column, changes={"features": _FEWER_LAYERS})
    return column
