"""Questions on passages as inputs of a model: windows, limits, targets.

Source: run_squad.py, convert_examples_to_features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.data.batch import IGNORED, tokens_of
from bertsmith.errors import InputError
from bertsmith.layout import Tokens, moved
from bertsmith.tasks.config import SpanConfig
from bertsmith.tasks.decoding import windows_by_row
from bertsmith.tasks.encode import EncodedRow
from bertsmith.tasks.kind import Encoding
from bertsmith.tasks.source import RowSet
from bertsmith.tasks.squad import Question
from bertsmith.tasks.squad_metrics import Rule
from bertsmith.tasks.windows import Passage, Window, cut, passage_of
from bertsmith.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class SpanBatch:
    """Windows for one forward pass.

    Attributes:
        tokens: the unpadded inputs.
        labels: first and last place of the answer, int64 ``(batch, 2)``; IGNORED where it is not known.
        num_targets: inputs whose answer is known.
        rows: int64 ``(batch,)``, which inputs of the split these are.
    """

    tokens: Tokens
    labels: torch.Tensor
    num_targets: int
    rows: NDArray[np.int64]

    def to(self, device: torch.device | str) -> SpanBatch:
        """Return the same batch on another device."""
        return replace(self, tokens=self.tokens.to(device), labels=moved(self.labels, device))


@dataclass(frozen=True)
class Questions:
    """A split of questions, whose passages are read in windows.

    Attributes:
        rows: what was read.
        encoded: one a window: [CLS] question [SEP] window [SEP].
        windows: what of a passage each input holds; those of a question are neighbours.
        passages: of each question.
        targets: first and last place of the answer in each input, int64 ``(windows, 2)``; both 0, the place
            of [CLS], where the window does not hold it whole; IGNORED where the answer is not known.
        config: how passages were cut and answers are chosen.
        rule: how an answer is scored; ``None`` where no gold answers are known.
    """

    rows: RowSet[Question]
    encoded: list[EncodedRow]
    windows: list[Window]
    passages: list[Passage]
    targets: NDArray[np.int64]
    config: SpanConfig
    rule: Rule | None = None

    @property
    def truncated(self) -> list[bool]:
        """Whether each question lost pieces; a passage never does."""
        return [self.encoded[numbers[0]].truncated for numbers in windows_by_row(self.windows)]

    @property
    def gold_objects(self) -> list[Any]:
        """The texts of the gold answers of each question."""
        return [[gold.text for gold in question.golds] for question in self.rows.rows]

    @property
    def num_units(self) -> int:
        """Windows."""
        return len(self.encoded)

    def batch(self, units: Sequence[int]) -> SpanBatch:
        """Return windows as one batch, sorted by length so that equal lengths are neighbours."""
        order = sorted(units, key=lambda unit: (len(self.encoded[unit].ids), unit))
        chosen = [self.encoded[unit] for unit in order]
        labels = self.targets[order]
        return SpanBatch(
            tokens_of([row.ids for row in chosen], [row.second_start for row in chosen]),
            torch.from_numpy(labels),
            int(np.count_nonzero(labels[:, 0] != IGNORED)),
            np.array(order, dtype=np.int64),
        )


def check_spans(config: SpanConfig, tokenizer: Tokenizer, seq_len: int) -> None:
    """Refuse settings under which some question would leave its passage no room.

    Raises:
        InputError: a setting is out of range.
    """
    for name in ("window_step", "max_query_len", "max_answer_len", "n_best"):
        value = getattr(config, name)
        if value is not None and value < 1:
            raise InputError(f"{name.replace('_', '-')} is {value}; it has to be at least 1")
    most = seq_len - 2 - len(tokenizer.between_ids)
    room = most - config.max_query_len
    if room < 1:
        raise InputError(
            f"max-query-len is {config.max_query_len}, but seq-len {seq_len} has {most} places for question "
            f"and passage; lower it to at most {most - 1}, or raise --seq-len"
        )
    if config.window_step is not None and config.window_overlap is not None:
        raise InputError("window-step and window-overlap say the same in two ways; leave one of them out")
    if not 0 <= (config.window_overlap or 0) < room:
        raise InputError(
            f"window-overlap is {config.window_overlap}; it has to be 0 to {room - 1}, less than what the "
            f"longest question leaves of seq-len {seq_len} for a window"
        )


def encode_questions(rows: RowSet[Question], encoding: Encoding) -> Questions:
    """Encode questions with their passages in windows; every question has at least one.

    Raises:
        InputError: a setting leaves a passage no room, or a question is too long under "error".
    """
    config = SpanConfig.of(encoding.settings)
    tokenizer = encoding.tokenizer
    check_spans(config, tokenizer, encoding.seq_len)
    known: dict[str, Passage] = {}
    encoded, windows, passages, targets = [], [], [], []
    for number, question in enumerate(rows.rows):
        pieces = tokenizer.encode(question.question)
        cut_off = len(pieces) > config.max_query_len
        if cut_off and encoding.truncation == "error":
            raise InputError(
                f"{rows.where(number)} the question has {len(pieces)} pieces, more than max-query-len "
                f"{config.max_query_len}; raise --max-query-len or choose --truncation tail or head"
            )
        kept = (
            pieces[-config.max_query_len :]
            if encoding.truncation == "head"
            else pieces[: config.max_query_len]
        )
        head = np.array([tokenizer.cls_id, *kept, *tokenizer.between_ids], dtype=np.int64)
        if question.passage not in known:
            known[question.passage] = passage_of(question.passage, tokenizer)
        passage = known[question.passage]
        passages.append(passage)
        space = encoding.seq_len - len(head) - 1
        for first, size in cut(len(passage.ids), space, config.step(space)):
            window = Window(number, first, size, len(head))
            ids = np.concatenate([head, passage.ids[first : first + size], [tokenizer.sep_id]])
            encoded.append(EncodedRow(ids, len(head), cut_off))
            windows.append(window)
            targets.append(_target(question, passage, window))
    return Questions(rows, encoded, windows, passages, np.array(targets, dtype=np.int64), config)


def _target(question: Question, passage: Passage, window: Window) -> tuple[int, int]:
    """Return first and last place of a question's answer in one of its windows."""
    if question.impossible:
        return 0, 0
    places = (passage.pieces_of(gold.start, gold.end) for gold in question.golds if gold.start is not None)
    pieces = next((place for place in places if place is not None), None)
    if pieces is None:
        return IGNORED, IGNORED
    first, last = (piece - window.first for piece in pieces)
    if first < 0 or last >= window.pieces:
        return 0, 0
    return window.place + first, window.place + last
