"""Rows of text as batches of pieces: truncation, order, lengths."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith.data.batch import tokens_of
from bertsmith.errors import InputError
from bertsmith.layout import Tokens, moved
from bertsmith.randomness import generator
from bertsmith.text.tokenizer import Tokenizer

_SHORTEST_SEQ_LEN = 8


def _keep_beginning(ids: list[int], keep: int) -> list[int]:
    return ids[:keep]


def _keep_end(ids: list[int], keep: int) -> list[int]:
    return ids[len(ids) - keep :]


def _keep_both(ids: list[int], keep: int) -> list[int]:
    """Keep a quarter at the beginning and three at the end: 128 and 382 of 510.

    Source: Sun et al., How to Fine-Tune BERT for Text Classification, section 5.3.1.
    """
    first = round(keep / 4)
    return ids[:first] + ids[len(ids) - (keep - first) :]


# "tail" and "head" say what is cut off; "head+tail" is the literature's name for what is kept.
_CUTS: Mapping[str, Callable[[list[int], int], list[int]]] = {
    "tail": _keep_beginning,
    "head": _keep_end,
    "head+tail": _keep_both,
    "error": _keep_beginning,
}
CUTS = tuple(_CUTS)
WINDOWS = "windows"
TRUNCATIONS = (*CUTS, WINDOWS)

Texts = tuple[str, "str | None"]


@dataclass(frozen=True)
class EncodedRow:
    """[CLS] A [SEP], or [CLS] A [SEP] B [SEP]; with byte-level BPE <s> A </s>, or <s> A </s></s> B </s>.

    Attributes:
        ids: int64 ``(n,)``.
        second_start: place of the second text's first piece; ``n`` when there is none.
        truncated: pieces were cut off.
    """

    ids: NDArray[np.int64]
    second_start: int
    truncated: bool


@dataclass(frozen=True)
class RowBatch:
    """Rows for one forward pass.

    Attributes:
        tokens: the unpadded rows.
        labels: int64 ``(batch,)`` label numbers, float32 ``(batch,)`` values, or int64 ``(batch, labels)`` 0
            or 1.
        rows: int64 ``(batch,)``, which inputs of the split these are.
        weights: float32 of the shape of the labels, how much each counts in training; ``None``: all the same.
    """

    tokens: Tokens
    labels: torch.Tensor
    rows: NDArray[np.int64]
    weights: torch.Tensor | None = None

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What a model with a head for whole rows takes."""
        return (self.tokens,)

    def to(self, device: torch.device | str) -> Self:
        """Return the same batch on another device."""
        return replace(
            self,
            tokens=self.tokens.to(device),
            labels=moved(self.labels, device),
            weights=None if self.weights is None else moved(self.weights, device),
        )


def check_seq_len(seq_len: int, max_positions: int, truncation: str) -> None:
    """Refuse lengths the model has no positions for.

    Raises:
        InputError: the length or the policy is out of range.
    """
    if not _SHORTEST_SEQ_LEN <= seq_len <= max_positions:
        raise InputError(
            f"seq-len is {seq_len}; it has to be at least {_SHORTEST_SEQ_LEN} and "
            f"at most the model's {max_positions} positions"
        )
    if truncation not in TRUNCATIONS:
        raise InputError(f"truncation is {truncation!r}; take one of {', '.join(TRUNCATIONS)}")


def listed(items: Any) -> list[Any]:
    """Return the items that a caller gave.

    Raises:
        InputError: it is a single text, or nothing with an order.
    """
    if isinstance(items, str):
        raise InputError(f"expected a list of texts, got one text {items[:40]!r}; write [text]")
    if isinstance(items, (bytes, Mapping, Set)) or not isinstance(items, Iterable):
        raise InputError(f"expected a list, got a {type(items).__name__}; write [item]")
    return list(items)


def checked_texts(texts: Any) -> list[Texts]:
    """Return texts as pairs whose second may be ``None``.

    Raises:
        InputError: it is no list, or an item is neither a text nor a pair.
    """
    pairs: list[Texts] = []
    for number, text in enumerate(listed(texts)):
        if isinstance(text, str):
            pairs.append((text, None))
        elif (
            isinstance(text, (tuple, list)) and len(text) == 2 and all(isinstance(part, str) for part in text)
        ):
            pairs.append((text[0], text[1]))
        else:
            raise InputError(
                f"text number {number} is a {type(text).__name__}; expected a text or a pair of texts"
            )
    return pairs


def encode_rows(
    texts: Sequence[Texts],
    tokenizer: Tokenizer,
    seq_len: int,
    truncation: str = "tail",
    where: Callable[[int], str] = "text number {}".format,
) -> list[EncodedRow]:
    """Encode single texts and pairs; a text without any piece still gives [CLS] [SEP].

    Too long a pair loses one piece at a time from the longer text, from the second if both are equally long.

    Args:
        texts: (text, second text or ``None``) of each row.
        tokenizer: of the model.
        seq_len: pieces of the longest row, special tokens counted.
        truncation: "tail" cuts ends, "head" beginnings, "head+tail" middles, "error" refuses.
        where: says where a row stands, for messages; takes the row's number from 0.

    Raises:
        InputError: a row is too long under "error"; where it stands is named.

    Source: run_classifier.py, convert_single_example and _truncate_seq_pair.
    """
    firsts = tokenizer.encode_batch([first for first, _ in texts])
    seconds = iter(tokenizer.encode_batch([second for _, second in texts if second is not None]))
    encoded = []
    for index, (first, (_, second_text)) in enumerate(zip(firsts, texts, strict=True)):
        second = None if second_text is None else next(seconds)
        row = _assemble(first, second, tokenizer, seq_len, truncation)
        if row.truncated and truncation == "error":
            between = 0 if second is None else len(tokenizer.between_ids)
            pieces = len(first) + 2 + between + len(second or ())
            raise InputError(
                f"{where(index)} has {pieces} pieces, more than seq-len {seq_len}; raise --seq-len or choose "
                "another --truncation"
            )
        encoded.append(row)
    return encoded


def _assemble(
    first: list[int], second: list[int] | None, tokenizer: Tokenizer, seq_len: int, truncation: str
) -> EncodedRow:
    space = seq_len - 2 - (0 if second is None else len(tokenizer.between_ids))
    keep_first, keep_second = longest_first(len(first), len(second or ()), space)
    truncated = keep_first < len(first) or keep_second < len(second or ())
    cut = _CUTS[truncation]
    kept = None if second is None else cut(second, keep_second)
    return assembled(cut(first, keep_first), kept, tokenizer, truncated)


def kept_pieces(
    lengths: Sequence[int], tokenizer: Tokenizer, seq_len: int, truncation: str
) -> list[list[int]]:
    """Return which pieces of one or two texts ``encode_rows`` keeps, as places; "error" cuts the end.

    Args:
        lengths: pieces of each text.
        tokenizer: of the model.
        seq_len: pieces of the longest row, special tokens counted.
        truncation: one of ``CUTS``.
    """
    space = seq_len - 2 - (len(tokenizer.between_ids) if len(lengths) == 2 else 0)
    keep = longest_first(lengths[0], sum(lengths[1:]), space)
    cut = _CUTS[truncation]
    return [cut(list(range(length)), most) for length, most in zip(lengths, keep, strict=False)]


def assembled(
    first: list[int], second: list[int] | None, tokenizer: Tokenizer, truncated: bool
) -> EncodedRow:
    """Return the row of one or two texts whose pieces fit."""
    head = [tokenizer.cls_id, *first, *([] if second is None else tokenizer.between_ids)]
    tail = [*(second or ()), tokenizer.sep_id]
    second_start = len(head) + (len(tail) if second is None else 0)
    return EncodedRow(np.array(head + tail, dtype=np.int64), second_start, truncated)


def longest_first(first: int, second: int, space: int) -> tuple[int, int]:
    """Return how many pieces of both texts stay when the longer one gives way, the second if equal."""
    over = max(0, first + second - space)
    from_longer = min(over, abs(first - second))
    if first > second:
        first -= from_longer
    else:
        second -= from_longer
    rest = over - from_longer  # both are equally long now and lose in turn, the second text first
    return first - rest // 2, second - (rest + 1) // 2


def count_truncated(rows: Sequence[EncodedRow]) -> int:
    """Return how many rows lost pieces."""
    return sum(row.truncated for row in rows)


def batch_of(
    rows: Sequence[EncodedRow],
    indices: Sequence[int],
    labels: NDArray[Any] | None = None,
    weights: NDArray[Any] | None = None,
) -> RowBatch:
    """Return rows as one batch, sorted by length so that equal lengths are neighbours.

    Args:
        rows: all rows of the split.
        indices: which of them.
        labels: label numbers or values of all rows; ``None``: zeros (prediction).
        weights: of the shape of the labels; ``None``: all count the same.
    """
    order = np.array(sorted(indices, key=lambda index: (len(rows[index].ids), index)), dtype=np.int64)
    chosen = [rows[index] for index in order]
    tokens = tokens_of([row.ids for row in chosen], [row.second_start for row in chosen])
    values = np.zeros(len(order), dtype=np.int64) if labels is None else labels[order]
    tensor = torch.from_numpy(values)
    return RowBatch(
        tokens,
        tensor if values.dtype == np.int64 else tensor.float(),
        order,
        None if weights is None else torch.from_numpy(weights[order]).float(),
    )


@lru_cache(maxsize=2)
def _permutation(seed: int, epoch: int, size: int) -> NDArray[np.int64]:
    return generator(seed, "order", epoch).permutation(size)


class _Batch(Protocol):
    @property
    def tokens(self) -> Tokens: ...


BatchT = TypeVar("BatchT", bound=_Batch)


@dataclass(frozen=True)
class TrainingRows(Generic[BatchT]):
    """The batches of a training run as a pure function of the step.

    Each epoch is a permutation drawn from (seed, epoch); the last batch of an epoch may be short.

    Attributes:
        num_units: rows, or what else a batch size counts.
        make: from units to a batch.
        batch_size: units a step.
        seed: of the order.
    """

    num_units: int
    make: Callable[[Sequence[int]], BatchT]
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Batches of one epoch."""
        return -(-self.num_units // self.batch_size)

    def indices(self, step: int) -> NDArray[np.int64]:
        """Return the units of a step, counted from 0, in the order drawn."""
        epoch, batch = divmod(step, self.steps_per_epoch)
        order = _permutation(self.seed, epoch, self.num_units)
        return order[batch * self.batch_size : (batch + 1) * self.batch_size]

    def batch(self, step: int) -> list[BatchT]:
        """Return the micro-batches of a step: always one."""
        return [self.make(list(self.indices(step)))]


def token_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield every row once, in batches of similar length and at most ``batch_tokens`` pieces (or one row).

    Raises:
        InputError: ``batch_tokens`` is below 1.
    """
    if batch_tokens < 1:
        raise InputError(f"batch-tokens is {batch_tokens}; it has to be at least 1")
    batch: list[int] = []
    total = 0
    for index in sorted(range(len(lengths)), key=lambda row: (lengths[row], row)):
        if batch and total + lengths[index] > batch_tokens:
            yield batch
            batch, total = [], 0
        batch.append(index)
        total += lengths[index]
    if batch:
        yield batch
