"""The app: every endpoint of docs/serving.md."""

# No "from __future__ import annotations": FastAPI reads the annotations of endpoints made in a loop.

import base64
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from bertsmith import answers
from bertsmith.errors import InputError
from bertsmith.serving import asked, schemas
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.gate import Gate
from bertsmith.serving.json_answer import JsonAnswer, error_answer
from bertsmith.serving.refusal import Refusal
from bertsmith.serving.served import ServedModel
from bertsmith.serving.service import Answered, Service

PAGE = Path(__file__).parent / "page"
TRUNCATED_HEADER = "Bertsmith-Truncated"
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_REASONS = {
    "extra_forbidden": "there is no such field; /openapi.json lists them",
    "missing": "is missing; /openapi.json tells what it holds",
}
_Ask = Callable[[Any], asked.Asked]
_VERBS: tuple[tuple[_Ask, type[schemas.Asking], type[Any]], ...] = (
    (asked.fill, schemas.FillRequest, answers.Filled),
    (asked.classify, schemas.TextsRequest, answers.Classification),
    (asked.multilabel, schemas.TextsRequest, answers.Labelled),
    (asked.regress, schemas.TextsRequest, answers.Regression),
    (asked.tag, schemas.TagRequest, answers.Tagging),
    (asked.answer, schemas.AnswerRequest, answers.Answer),
    (asked.choose, schemas.ChooseRequest, answers.Choice),
    (asked.tokenize, schemas.TokenizeRequest, answers.Tokenized),
)
"""From request to rows, the request, and one row's result; the function's name is the verb's."""


def create_app(models: Sequence[ServedModel], settings: ServeConfig, tokens: Sequence[str] = ()) -> FastAPI:
    """Make the app.

    Args:
        models: what is served.
        settings: limits.
        tokens: bearer tokens; none: everybody may ask.
    """
    service = Service(models, settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        with service.working():
            yield

    app = FastAPI(
        title="Bertsmith",
        version=version("bertsmith"),
        summary="BERT models: fill, classify, tag, answer, choose, rerank, embed.",
        redirect_slashes=False,  # what is not listed is not there
        docs_url=None,  # its page would load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
        responses={status: {"model": schemas.FaultAnswer} for status in (400, 401, 404, 413, 422, 429, 504)},
    )
    app.add_middleware(Gate, settings=settings, tokens=tokens, watch=service.watch)
    app.add_exception_handler(InputError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)
    for ask, request, result in _VERBS:
        _add_verb(app, service, ask, request, result)
    _add_rankings(app, service)
    _add_attention(app, service)
    _add_embeddings(app, service)
    _add_state(app, service)
    _add_page(app)
    return app


def _add_verb(
    app: FastAPI, service: Service, ask: _Ask, request_type: type[schemas.Asking], result: type[Any]
) -> None:
    verb = ask.__name__

    async def endpoint(body: request_type, http: Request) -> Response:  # type: ignore[valid-type]
        rows = ask(body)
        model = service.find(body.model, verb)  # type: ignore[attr-defined]
        found = await service.answer(http, model, body, rows)
        return _results(model, found, found.results)

    app.post(
        f"/v1/{verb}",
        name=verb,
        description=ask.__doc__,
        response_model=schemas.Results[result],  # type: ignore[valid-type]
    )(endpoint)


def _results(model: ServedModel, found: Answered, results: Sequence[Any]) -> JsonAnswer:
    content = {"model": model.name, "results": results, "usage": {"pieces": found.pieces}}
    return JsonAnswer(content, headers=_truncated_header(found))


def _truncated_header(*found: Answered) -> dict[str, str]:
    return {TRUNCATED_HEADER: str(sum(part.truncated for part in found))}


def _add_rankings(app: FastAPI, service: Service) -> None:
    @app.post("/v1/rerank", response_model=schemas.Results[answers.Ranked])
    async def rerank(body: schemas.RerankRequest, http: Request) -> Response:
        """Rank texts, the best one for the query first."""
        model = service.find(body.model, "rerank")
        found = await service.answer(http, model, body, asked.rerank(body))
        scored = [
            answers.Ranked(number, row.score, row.truncated) for number, row in enumerate(found.results)
        ]
        ranked = sorted(scored, key=lambda row: (-row.score, row.index))
        return _results(model, found, ranked[: body.top])

    @app.post("/v1/similarity", response_model=schemas.SimilarityAnswer)
    async def similarity(body: schemas.SimilarityRequest, http: Request) -> Response:
        """Return the cosine of every text with every other one."""
        model = service.find(body.model, "similarity")
        rows = asked.embed(body.texts, body.pooling, True, "texts")
        first = second = await service.answer(http, model, body, rows)
        if body.others is not None:
            rows = asked.embed(body.others, body.pooling, True, "others")
            second = await service.answer(http, model, body, rows)
        values = _matrix(first) @ _matrix(second).T
        parts = (first,) if body.others is None else (first, second)
        content = {
            "model": model.name,
            "values": values,
            "truncated": [row.truncated for row in first.results],
            "others_truncated": [row.truncated for row in second.results],
            "usage": {"pieces": sum(part.pieces for part in parts)},
        }
        return JsonAnswer(content, headers=_truncated_header(*parts))


def _matrix(found: Answered) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.stack([row.values for row in found.results])


def _add_attention(app: FastAPI, service: Service) -> None:
    @app.post("/v1/attention", response_model=schemas.Results[schemas.AttentionResult])
    async def attention(body: schemas.AttentionRequest, http: Request) -> Response:
        """Return where each piece looks, in every layer and head."""
        model = service.find(body.model, "attention")
        config = model.predictor.bundle.config
        shape = (config.num_layers, config.num_heads)
        rows = asked.attention(body, *shape)
        pieces = await service.pieces(model, rows, body.truncate)
        asked.require_few_weights(body, shape, pieces)
        found = await service.answer(http, model, body, rows, pieces)
        return _results(model, found, found.results)


def _add_embeddings(app: FastAPI, service: Service) -> None:
    @app.post("/v1/embeddings", response_model=schemas.EmbeddingsAnswer)
    async def embeddings(body: schemas.EmbeddingsRequest, http: Request) -> Response:
        """Return one vector a text, as OpenAI's endpoint does."""
        model = service.find(body.model, "embed")
        width = model.predictor.bundle.config.hidden_size
        if body.dimensions is not None and body.dimensions > width:
            message = f"dimensions is {body.dimensions}; model {model.name} has {width}"
            raise Refusal(422, "invalid_request", message, "dimensions")
        rows = asked.embed(body.input, body.pooling, body.normalize, "input")
        found = await service.answer(http, model, body, rows)
        vectors = _matrix(found)
        if body.dimensions is not None and body.dimensions < width:
            vectors = vectors[:, : body.dimensions]
            lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
            vectors = vectors / np.maximum(lengths, 1e-12)
        data = [
            {
                "object": "embedding",
                "index": number,
                "embedding": _base64(vector)
                if body.encoding_format == "base64"
                else np.ascontiguousarray(vector),
                "truncated": row.truncated,
            }
            for number, (vector, row) in enumerate(zip(vectors, found.results, strict=True))
        ]
        usage = {"prompt_tokens": found.pieces, "total_tokens": found.pieces}
        content = {"object": "list", "model": model.name, "data": data, "usage": usage}
        return JsonAnswer(content, headers=_truncated_header(found))


def _base64(vector: np.ndarray[Any, np.dtype[np.float32]]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")


def _add_state(app: FastAPI, service: Service) -> None:
    @app.get("/v1/models")
    async def models() -> Response:
        """List the models that are loaded."""
        return JsonAnswer({"object": "list", "data": [model.description for model in service.models]})

    @app.get("/v1/models/{name:path}")
    async def model(name: str) -> Response:
        """Describe a model that is loaded."""
        return JsonAnswer(service.find(name, "tokenize").description)

    @app.get("/healthz")
    async def health() -> Response:
        """Say whether the process can work."""
        alive = service.batcher.is_alive
        return JsonAnswer({"status": "ok" if alive else "broken"}, 200 if alive else 503)

    @app.get("/readyz")
    async def ready() -> Response:
        """Say whether requests are taken."""
        is_ready = service.batcher.is_alive and not service.batcher.is_full
        return JsonAnswer({"status": "ready" if is_ready else "busy"}, 200 if is_ready else 503)

    @app.get("/metrics")
    async def metrics() -> Response:
        """Return figures in Prometheus' format."""
        return Response(service.watch.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


class _PageFiles(StaticFiles):
    """The page's files, which load nothing from elsewhere."""

    async def get_response(self, path: str, scope: Any) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_PAGE_HEADERS)
        return response


def _add_page(app: FastAPI) -> None:
    files = _PageFiles(directory=PAGE)

    @app.get("/", include_in_schema=False)
    async def page(http: Request) -> Response:
        return await files.get_response("index.html", http.scope)

    app.mount("/page", files, name="page")


async def _refused(http: Request, error: Exception) -> Response:
    assert isinstance(error, InputError)
    known = error if isinstance(error, Refusal) else Refusal(422, "invalid_request", str(error))
    return error_answer(known)


async def _invalid(http: Request, error: Exception) -> Response:
    """Say what is wrong with a body, in one line."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        message = f"the body is no JSON: {first['ctx']['error']} at character {first['loc'][-1]}"
        return error_answer(Refusal(400, "invalid_json", message))
    path = [str(part) for part in first["loc"] if part != "body"]
    if first["type"] == "extra_forbidden":
        path.append(first["ctx"]["name"])
    if not path:
        return error_answer(Refusal(422, "invalid_request", "the body is no JSON object; send one"))
    reason = _REASONS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    return error_answer(Refusal(422, "invalid_request", f"{'.'.join(path)}: {reason}", path[0]))


async def _http_error(http: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 400:
        message = "the body is no JSON in UTF-8, is nested too deep, or has a number of thousands of digits"
        return error_answer(Refusal(400, "invalid_json", message))
    codes = {404: "not_found", 405: "method_not_allowed"}
    code = codes.get(error.status_code, "invalid_request")
    message = f"{http.method} {http.url.path}: {error.detail}; /openapi.json lists what there is"
    answer = error_answer(Refusal(error.status_code, code, message))
    answer.headers.update(error.headers or {})
    return answer
