"""What a request asks of a model: rows, and how they are computed.

Rows of different requests are computed together where their keys are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.predictor import Predictor, Text
from bertsmith.serving import schemas
from bertsmith.serving.refusal import Refusal

MOST_WEIGHTS = 4_000_000
"""Of the attention that a request may ask for; as JSON, some 30 MB."""


@dataclass(frozen=True)
class Asked:
    """The rows of a request.

    Attributes:
        verb: what is asked for, as in ``Predictor.can``.
        options: what else rows must have in common to be computed together.
        rows: what ``compute`` takes.
        texts: that the model reads: their lengths count.
        compute: from a predictor and rows to one result a row, each with ``truncated``.
        field: where the rows stand in the request.
        masks: "[MASK]" in a text is the mask.
        row_of: the row that each text is of; ``None``: each is of one.
    """

    verb: str
    options: Hashable
    rows: list[Any]
    texts: list[Text]
    compute: Callable[[Predictor, list[Any]], Sequence[Any]]
    field: str = "texts"
    masks: bool = False
    row_of: Sequence[int] | None = None

    @property
    def placed_texts(self) -> Iterator[tuple[int, Text]]:
        """Each text behind the number of its row."""
        return zip(range(len(self.rows)) if self.row_of is None else self.row_of, self.texts, strict=True)


@dataclass(frozen=True)
class Vector:
    """One text's vector, float32 ``(hidden,)``, and whether the text was cut."""

    values: NDArray[np.float32]
    truncated: bool


def fill(request: schemas.FillRequest) -> Asked:
    """Return the texts whose [MASK]s are to be filled."""
    top = request.top
    texts = request.texts
    return Asked("fill", top, texts, texts, lambda model, rows: model.fill(rows, top), masks=True)


def classify(request: schemas.TextsRequest) -> Asked:
    """Return the texts to classify."""
    return Asked("classify", None, request.texts, request.texts, Predictor.classify)


def multilabel(request: schemas.TextsRequest) -> Asked:
    """Return the texts to label."""
    return Asked("multilabel", None, request.texts, request.texts, Predictor.multilabel)


def regress(request: schemas.TextsRequest) -> Asked:
    """Return the texts whose values are wanted."""
    return Asked("regress", None, request.texts, request.texts, Predictor.regress)


def tag(request: schemas.TagRequest) -> Asked:
    """Return the texts whose words are to be tagged."""
    texts: list[Text] = [row if isinstance(row, str) else " ".join(row) for row in request.texts]
    return Asked("tag", None, request.texts, texts, Predictor.tag)


def answer(request: schemas.AnswerRequest) -> Asked:
    """Return the questions with their passages."""
    pairs: list[Any] = [(row.question, row.passage) for row in request.inputs]
    return Asked("answer", None, pairs, pairs, Predictor.answer, "inputs")


def choose(request: schemas.ChooseRequest) -> Asked:
    """Return the contexts with their choices."""
    rows: list[Any] = [(row.context, row.choices) for row in request.inputs]
    placed = [(row, (context, choice)) for row, (context, choices) in enumerate(rows) for choice in choices]
    texts: list[Text] = [text for _, text in placed]
    row_of = [row for row, _ in placed]
    return Asked("choose", None, rows, texts, Predictor.choose, "inputs", row_of=row_of)


def rerank(request: schemas.RerankRequest) -> Asked:
    """Return the texts to rank; those of one query alone can be computed together."""
    query, label = request.query, request.label

    def ranked(model: Predictor, rows: list[Any]) -> list[Any]:
        return sorted(model.rerank(query, rows, label), key=lambda found: found.index)

    pairs: list[Text] = [(query, text) for text in request.texts]
    return Asked("rerank", (query, label), request.texts, pairs, ranked)


def embed(texts: list[Any], pooling: str | None, normalize: bool, field: str) -> Asked:
    """Return the texts whose vectors are wanted."""

    def vectors(model: Predictor, rows: list[Any]) -> list[Vector]:
        found = model.embed(rows, pooling, normalize=normalize)
        return [Vector(*row) for row in zip(found.vectors, found.truncated, strict=True)]

    return Asked("embed", (pooling, normalize), texts, texts, vectors, field)


def tokenize(request: schemas.TokenizeRequest) -> Asked:
    """Return the texts to cut into pieces."""
    texts, masks = request.texts, request.masks
    return Asked(
        "tokenize", masks, texts, texts, lambda model, rows: model.tokenize(rows, masks), masks=masks
    )


def attention(request: schemas.AttentionRequest, num_layers: int, num_heads: int) -> Asked:
    """Return the texts whose attention is wanted; only the layers and heads that are asked for are kept.

    Raises:
        Refusal: there is no such layer or head.
    """
    masks = request.masks
    layers = _numbers("layers", request.layers, num_layers)
    heads = _numbers("heads", request.heads, num_heads)

    def weights(model: Predictor, rows: list[Any]) -> list[dict[str, Any]]:
        return [
            {
                "tokens": found.tokens,
                "offsets": found.offsets,
                "layers": layers,
                "heads": heads,
                "weights": np.ascontiguousarray(found.weights[np.ix_(layers, heads)].round(5)),
                "truncated": found.truncated,
            }
            for row in rows  # one by one: all weights of all layers are held meanwhile
            for found in model.attention([row], masks)
        ]

    options = (masks, tuple(layers), tuple(heads))
    return Asked("attention", options, request.texts, request.texts, weights, masks=masks)


def require_few_weights(request: schemas.AttentionRequest, shape: tuple[int, int], pieces: list[int]) -> None:
    """Check that an answer of attention has a size that programs can read.

    Args:
        request: what is asked for.
        shape: layers and heads of the model.
        pieces: length of each text.

    Raises:
        Refusal: it has not.
    """
    layers = shape[0] if request.layers is None else len(request.layers)
    heads = shape[1] if request.heads is None else len(request.heads)
    weights = layers * heads * sum(length * length for length in pieces)
    if weights > MOST_WEIGHTS:
        raise Refusal(
            422,
            "too_many_weights",
            f"{weights} attention weights, more than {MOST_WEIGHTS}; ask for fewer layers, heads or texts, "
            "or shorter ones",
            "texts",
        )


def _numbers(field: str, asked: list[int] | None, available: int) -> list[int]:
    numbers = list(range(available)) if asked is None else asked
    for number in numbers[: available + 1]:  # of more, one is there twice
        if not 0 <= number < available:
            message = f"{field}: {number} does not exist; the model has 0 to {available - 1}"
            raise Refusal(422, "invalid_request", message, field)
    if not numbers or len(set(numbers)) < len(numbers):
        message = f"{field}: expected different numbers, at least one"
        raise Refusal(422, "invalid_request", message, field)
    return numbers
