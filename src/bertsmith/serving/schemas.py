"""The shapes of requests and answers; docs/serving.md tells them to people."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

ResultT = TypeVar("ResultT")

_STRING = {"type": "string"}
_TEXT = {"anyOf": [_STRING, {"type": "array", "items": _STRING, "minItems": 2, "maxItems": 2}]}


def _checked(text: Any, where: str) -> str:
    if not isinstance(text, str):
        raise ValueError(f"{where} is {_kind(text)}; expected a text")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{where} has half a surrogate pair at character {error.start}") from None
    return text


def _kind(value: Any) -> str:
    names = {bool: "a boolean", type(None): "null", dict: "an object", list: "a list", str: "a text"}
    return names.get(type(value), "a number")


def _listed(value: Any) -> list[Any]:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise ValueError(f"{_kind(value)}; expected a list of texts, or a text")
    if not items:
        raise ValueError("an empty list; give at least one text")
    return items


def _text(value: Any) -> str:
    return _checked(value, "it")


def _texts(value: Any) -> list[str]:
    return [_checked(item, f"number {number}") for number, item in enumerate(_listed(value))]


def _texts_or_pairs(value: Any) -> list[str | tuple[str, str]]:
    found: list[str | tuple[str, str]] = []
    for number, item in enumerate(_listed(value)):
        where = f"number {number}"
        if isinstance(item, list):
            if len(item) != 2:
                raise ValueError(f"{where} is a list of {len(item)}; expected a text or a pair of texts")
            found.append((_checked(item[0], where), _checked(item[1], where)))
        else:
            found.append(_checked(item, where))
    return found


def _texts_or_words(value: Any) -> list[str | list[str]]:
    found: list[str | list[str]] = []
    for number, item in enumerate(_listed(value)):
        where = f"number {number}"
        if isinstance(item, list):
            if not item:
                raise ValueError(f"{where} is an empty list of words")
            found.append([_checked(word, where) for word in item])
        else:
            found.append(_checked(item, where))
    return found


def _choices(value: Any) -> list[str]:
    if not isinstance(value, list) or len(value) < 2:
        raise ValueError("expected a list of two or more texts")
    return _texts(value)


def _inputs(value: Any) -> Any:
    if isinstance(value, list) and not value:
        raise ValueError("an empty list; give at least one input")
    return value


def _list_schema(item: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"anyOf": [{"type": "array", "items": item, "minItems": 1}, _STRING]})


OneText = Annotated[str, BeforeValidator(_text)]
Texts = Annotated[list[Any], BeforeValidator(_texts), _list_schema(_STRING)]
TextsOrPairs = Annotated[list[Any], BeforeValidator(_texts_or_pairs), _list_schema(_TEXT)]
TextsOrWords = Annotated[
    list[Any],
    BeforeValidator(_texts_or_words),
    _list_schema({"anyOf": [_STRING, {"type": "array", "items": _STRING}]}),
]
Choices = Annotated[list[str], BeforeValidator(_choices)]
Pooling = Literal["mean", "max", "cls"]


class _Strict(BaseModel):
    """An object of known names.

    Only the first that is wrong is looked for, here and in lists (``fail_fast``): a body of some megabytes
    may have a million, and to tell them all would keep the server from everybody else.
    """

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _know(cls, values: Any) -> Any:
        if isinstance(values, dict):
            for name in values:
                if name not in cls.model_fields:
                    spelt = name.encode("utf-8", "backslashreplace").decode()
                    raise PydanticCustomError("extra_forbidden", "there is no such field", {"name": spelt})
        return values


def _example(**values: Any) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [values]})


class Asking(_Strict):
    """What every request may say."""

    model: str | None = Field(None, description="name of a loaded model; default: the first that can do it")
    truncate: bool = Field(True, description="cut longer texts; else such a request is refused")


class FillRequest(Asking):
    """Texts with [MASK]s."""

    model_config = _example(texts=["Paris is the [MASK] of France."], top=3)
    texts: Texts
    top: int = Field(5, ge=1, description="candidates for each [MASK]")


class TextsRequest(Asking):
    """Texts, or pairs where the model was trained on pairs."""

    model_config = _example(texts=["a fine film", "dull from beginning to end"])
    texts: TextsOrPairs


class TagRequest(Asking):
    """Texts, or lists of words."""

    model_config = _example(texts=["Angela Merkel visited Paris.", ["John", "lives", "in", "London"]])
    texts: TextsOrWords


class Question(_Strict):
    """A question and the passage to answer it from."""

    question: OneText
    passage: OneText


class AnswerRequest(Asking):
    """Questions with passages of any length."""

    model_config = _example(inputs=[{"question": "Who came?", "passage": "Only Anna came to the party."}])
    inputs: Annotated[list[Question], BeforeValidator(_inputs)] = Field(fail_fast=True)


class Alternatives(_Strict):
    """A context and what may follow it."""

    context: OneText
    choices: Choices


class ChooseRequest(Asking):
    """Contexts with choices."""

    model_config = _example(
        inputs=[{"context": "She opens the door", "choices": ["and goes in.", "of soup."]}]
    )
    inputs: Annotated[list[Alternatives], BeforeValidator(_inputs)] = Field(fail_fast=True)


class RerankRequest(Asking):
    """A query and texts to rank."""

    model_config = _example(query="capital of France", texts=["Berlin is in Germany.", "Paris is in France."])
    query: OneText
    texts: Texts
    top: int | None = Field(None, ge=1, description="how many to answer; default: all")
    label: str | None = Field(None, description="whose probability is the score, of a classifier of pairs")


class SimilarityRequest(Asking):
    """Texts to compare with others, or among themselves."""

    model_config = _example(texts=["a fine film"], others=["a good movie", "rain tomorrow"])
    texts: TextsOrPairs
    others: TextsOrPairs | None = None
    pooling: Pooling | None = Field(None, description="default: the model's own, else mean")


class TokenizeRequest(Asking):
    """Texts or pairs to cut into pieces."""

    model_config = _example(texts=["unaffable"])
    texts: TextsOrPairs
    masks: bool = Field(False, description="read [MASK] as the mask; else it is text like any other")


class AttentionRequest(TokenizeRequest):
    """Texts or pairs whose pieces look at each other."""

    model_config = _example(texts=["The cat sat because it was tired."], layers=[0])
    layers: list[int] | None = Field(None, fail_fast=True, description="numbers from 0; default: all")
    heads: list[int] | None = Field(None, fail_fast=True, description="numbers from 0; default: all")


def _openai_input(value: Any) -> list[str]:
    if isinstance(value, list) and value and not isinstance(value[0], str):
        raise ValueError("lists of token ids are of another vocabulary; send texts")
    return _texts(value)


class EmbeddingsRequest(Asking):
    """OpenAI's request for embeddings."""

    model_config = _example(input=["a fine film", "a good movie"])
    input: Annotated[list[str], BeforeValidator(_openai_input), _list_schema(_STRING)]
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = Field(None, ge=1, description="keep the first so many, scaled to length 1")
    user: str | None = Field(None, description="not used")
    pooling: Pooling | None = Field(None, description="default: the model's own, else mean")
    normalize: bool = Field(True, description="vectors of length 1")


class Usage(BaseModel):
    """What a request took."""

    pieces: int


class Results(BaseModel, Generic[ResultT]):
    """One result a row, in their order."""

    model: str
    results: list[ResultT]
    usage: Usage


class AttentionResult(BaseModel):
    """weights[l][h][i][j]: how much piece i looks at piece j in layer layers[l], head heads[h]."""

    tokens: list[str]
    offsets: list[tuple[int, int]]
    layers: list[int]
    heads: list[int]
    weights: list[list[list[list[float]]]]
    truncated: bool


class SimilarityAnswer(BaseModel):
    """Cosines of every text with every other one."""

    model: str
    values: list[list[float]]
    truncated: list[bool]
    others_truncated: list[bool]
    usage: Usage


class Embedding(BaseModel):
    """A vector; as base64: little-endian float32."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    truncated: bool


class EmbeddingUsage(BaseModel):
    """What a request took, in OpenAI's words."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsAnswer(BaseModel):
    """OpenAI's answer."""

    object: Literal["list"]
    model: str
    data: list[Embedding]
    usage: EmbeddingUsage


class Fault(BaseModel):
    """Why there is no answer."""

    message: str
    type: str
    code: str
    param: str | None


class FaultAnswer(BaseModel):
    """OpenAI's shape of an error."""

    error: Fault
