"""What a predictor answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Classification:
    """The label of one text.

    Attributes:
        label: the most probable label.
        probability: of that label.
        probabilities: of every label, in the model's order.
        truncated: the text was cut.
    """

    label: str
    probability: float
    probabilities: dict[str, float]
    truncated: bool


@dataclass(frozen=True)
class Labelled:
    """The labels of one text, any number of them.

    Attributes:
        labels: those whose probability is at least the threshold stored for them.
        probabilities: of every label by itself, in the model's order.
        truncated: the text was cut.
    """

    labels: list[str]
    probabilities: dict[str, float]
    truncated: bool


@dataclass(frozen=True)
class Choice:
    """The choice for one context.

    Attributes:
        choice: number of the most probable choice, from 0.
        text: that choice.
        probability: of that choice.
        probabilities: of every choice, in the order given.
        truncated: the context or a choice was cut.
    """

    choice: int
    text: str
    probability: float
    probabilities: list[float]
    truncated: bool


@dataclass(frozen=True)
class Regression:
    """The value of one text; ``truncated``: the text was cut."""

    value: float
    truncated: bool


@dataclass(frozen=True)
class AnswerCandidate:
    """A span of a passage that may be the answer.

    Attributes:
        text: the passage's characters ``start`` to ``end``; "" for "no answer".
        start: place of the first character; 0 for "no answer".
        end: place behind the last one; 0 for "no answer".
        probability: among the candidates.
    """

    text: str
    start: int
    end: int
    probability: float


@dataclass(frozen=True)
class Answer(AnswerCandidate):
    """The answer to one question.

    Attributes:
        null_odds: score of "no answer" minus that of the best span; beyond the threshold that is stored with
            a model the answer is "". A model that was not trained on questions without answer gives none.
        candidates: the best ones, the answer first.
        truncated: the question was cut; a passage never is.
    """

    null_odds: float
    candidates: list[AnswerCandidate]
    truncated: bool

    @classmethod
    def of(cls, values: Mapping[str, Any], truncated: bool) -> Answer:
        """Return the answer that a JSON object with these names holds."""
        candidates = [AnswerCandidate(**candidate) for candidate in values["candidates"]]
        rest = {"null_odds": values["null_odds"], "candidates": candidates, "truncated": truncated}
        return cls(**values["candidates"][0], **rest)


@dataclass(frozen=True)
class TaggedEntity:
    """An entity of a text.

    Attributes:
        label: what it is.
        start: its first character.
        end: the character behind its last.
        text: its characters.
        probability: mean probability of its words' tags.
    """

    label: str
    start: int
    end: int
    text: str
    probability: float


@dataclass(frozen=True)
class Tagging:
    """The words of one text with their tags.

    Attributes:
        words: every word of the text.
        tags: one a word, in the scheme the model was trained with (ours: IOB2).
        entities: as places in the text; of words that were given, in these joined by blanks.
        truncated: a word alone was longer than the model takes, and lost pieces; no word is ever left out.
    """

    words: list[str]
    tags: list[str]
    entities: list[TaggedEntity]
    truncated: bool

    @classmethod
    def of(cls, values: Mapping[str, Any], truncated: bool) -> Tagging:
        """Return the answer that a JSON object with these names holds."""
        entities = [TaggedEntity(**entity) for entity in values["entities"]]
        return cls(values["words"], values["tags"], entities, truncated)


@dataclass(frozen=True)
class Candidate:
    """A piece for a [MASK] and its probability over the whole vocabulary."""

    token: str
    probability: float


@dataclass(frozen=True)
class Filled:
    """The candidates for one text.

    Attributes:
        text: the text with the best candidate in each [MASK].
        masks: the candidates of each [MASK], best first.
        truncated: the text was cut (behind its last [MASK]).
    """

    text: str
    masks: list[list[Candidate]]
    truncated: bool


@dataclass(frozen=True)
class Embeddings:
    """Vectors of texts; ``numpy.asarray`` of it gives them.

    Attributes:
        vectors: float32 ``(texts, hidden)``.
        truncated: whether each text was cut.
    """

    vectors: NDArray[np.float32]
    truncated: list[bool]

    def __len__(self) -> int:
        return len(self.vectors)

    def __iter__(self) -> Iterator[NDArray[np.float32]]:
        return iter(self.vectors)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.vectors, dtype=dtype, copy=True if copy is None else copy)


@dataclass(frozen=True)
class TokenVectors:
    """Vectors of the pieces of one text, [CLS] and [SEP] left out.

    Attributes:
        tokens: the pieces.
        offsets: where each starts and ends in the text, in characters.
        vectors: float32 ``(pieces, hidden)``.
        truncated: the text was cut.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]]
    vectors: NDArray[np.float32]
    truncated: bool


@dataclass(frozen=True)
class Similarities:
    """Cosines of every first text with every second text; ``numpy.asarray`` of it gives them.

    Attributes:
        values: float32 ``(first, second)``.
        first_truncated: whether each first text was cut.
        second_truncated: whether each second text was cut.
    """

    values: NDArray[np.float32]
    first_truncated: list[bool]
    second_truncated: list[bool]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.values, dtype=dtype, copy=True if copy is None else copy)


@dataclass(frozen=True)
class Ranked:
    """One text of a ranking.

    Attributes:
        index: its number in the list given, from 0.
        score: more is better: the cosine with the query, the value of a regression, or the probability of a
            classifier's label.
        truncated: the text or the query was cut.
    """

    index: int
    score: float
    truncated: bool


@dataclass(frozen=True)
class Tokenized:
    """The pieces of one text or pair as the model reads them, special tokens included.

    Attributes:
        ids: of the pieces.
        tokens: the pieces.
        offsets: where each starts and ends in its text, in characters; (0, 0) for special tokens.
        truncated: the text was cut.
    """

    ids: list[int]
    tokens: list[str]
    offsets: list[tuple[int, int]]
    truncated: bool


@dataclass(frozen=True)
class Attention:
    """How the pieces of one text or pair attend to one another.

    Attributes:
        tokens: the pieces, special tokens included.
        offsets: where each starts and ends in its text, in characters; (0, 0) for special tokens.
        weights: float32 ``(layers, heads, pieces, pieces)``; ``weights[layer, head, i]`` is where piece ``i``
            looks, and sums to 1.
        truncated: the text was cut.
    """

    tokens: list[str]
    offsets: list[tuple[int, int]]
    weights: NDArray[np.float32]
    truncated: bool
