"""From a request to its results: the model it means, its limits, the wait for what the batcher computes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Protocol

from starlette.requests import Request

from bertsmith.errors import InputError
from bertsmith.predictor import Predictor, Text
from bertsmith.serving.asked import Asked
from bertsmith.serving.batcher import Batcher, Job
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.refusal import Refusal
from bertsmith.serving.served import ServedModel, find
from bertsmith.serving.watch import Watch
from bertsmith.tasks.cloze import masked_row
from bertsmith.tasks.encode import WINDOWS

_COUNTED_AT_ONCE = 4000
"""Characters whose pieces are counted by the thread that talks to clients: about a millisecond."""

_OF_TEXTS = ("classify", "multilabel", "regress")


class _Limits(Protocol):
    """How a request treats long texts."""

    truncate: bool


@dataclass(frozen=True)
class Answered:
    """What was computed for a request.

    Attributes:
        results: one a row, in their order.
        pieces: that the model read.
        truncated: how many rows were cut.
    """

    results: list[Any]
    pieces: int
    truncated: int


class ClientLeftError(Exception):
    """Nobody waits for the answer."""


class Service:
    """The models and the queue before them.

    Attributes:
        models: that are loaded.
        settings: the limits.
        batcher: computes.
        watch: counts.
    """

    def __init__(self, models: Sequence[ServedModel], settings: ServeConfig) -> None:
        self.models = list(models)
        self.settings = settings
        self.watch = Watch([model.name for model in models], lambda: float(self.batcher.waiting_pieces))
        self.batcher = Batcher(
            settings.batch_tokens, settings.batch_wait_ms / 1000, settings.queue_tokens, self.watch.note
        )
        self._counting = ThreadPoolExecutor(1, "pieces")

    def find(self, name: str | None, verb: str) -> ServedModel:
        """Return the model that a request means; see ``served.find``."""
        return find(self.models, name, verb)

    async def pieces(self, model: ServedModel, asked: Asked, truncate: bool) -> list[int]:
        """Return the length of each row as the model will read it, of all its texts together.

        Raises:
            Refusal: there are too many rows or texts, one is too long, or would be cut although it must not,
                or it took too long.
        """
        self._require_size(asked)
        _require_form(model, asked)
        count = partial(_count, model.predictor, asked)
        if sum(map(_characters, asked.texts)) <= _COUNTED_AT_ONCE:
            lengths = count()
        else:
            counting = asyncio.get_running_loop().run_in_executor(self._counting, count)
            try:
                lengths = await asyncio.wait_for(counting, self.settings.timeout_seconds)
            except asyncio.TimeoutError:
                raise self._too_slow() from None
        if _reads_all(model.predictor, asked.verb):
            return lengths
        limit = model.predictor.seq_len
        pieces = [0] * len(asked.rows)
        for (number, _), length in zip(asked.placed_texts, lengths, strict=True):
            pieces[number] += min(length, limit)
            if length > limit and not truncate:
                raise Refusal(
                    422,
                    "text_too_long",
                    f"{asked.field}: number {number} has {length} pieces, more than the {limit} that model "
                    f'{model.name} takes; shorten it, or have it cut with "truncate": true',
                    asked.field,
                )
        return pieces

    async def answer(
        self,
        http: Request,
        model: ServedModel,
        request: _Limits,
        asked: Asked,
        pieces: list[int] | None = None,
    ) -> Answered:
        """Return the results of a request's rows.

        Args:
            http: where the client is; when it leaves, what is not computed yet is dropped.
            model: that computes.
            request: says whether texts may be cut.
            asked: the rows.
            pieces: their lengths; ``None``: they are counted.

        Raises:
            Refusal: a limit is passed, a row is wrong, too much is waiting, or it took too long.
            ClientLeftError: the client left.
        """
        lengths = await self.pieces(model, asked, request.truncate) if pieces is None else pieces
        job = Job(
            (model.name, asked.verb, asked.options),
            partial(_computed, model, asked),
            asked.rows,
            lengths,
            http.scope["state"]["id"],
        )
        self.batcher.submit(job)
        results = await self._wait(http, job)
        cut = [number for number, result in enumerate(results) if _truncated(result)]
        if cut and not request.truncate:
            message = (
                f"{asked.field}: number {cut[0]} is longer than model {model.name} takes "
                f'({model.predictor.seq_len} pieces); shorten it, or have it cut with "truncate": true'
            )
            raise Refusal(422, "text_too_long", message, asked.field)
        self.watch.truncated.labels(model.name).inc(len(cut))
        noted = http.scope["state"]["served"]
        noted["model"] = model.name
        noted["rows"] = noted.get("rows", 0) + len(results)
        noted["pieces"] = noted.get("pieces", 0) + sum(lengths)
        noted["truncated"] = noted.get("truncated", 0) + len(cut)
        if self.settings.log_texts:
            noted.setdefault("texts", []).extend(asked.texts)
        return Answered(results, sum(lengths), len(cut))

    async def _wait(self, http: Request, job: Job) -> list[Any]:
        future = asyncio.wrap_future(job.future)
        gone = asyncio.ensure_future(_left(http))
        either: set[asyncio.Future[Any]] = {future, gone}
        try:
            await asyncio.wait(
                either, timeout=self.settings.timeout_seconds, return_when=asyncio.FIRST_COMPLETED
            )
            if future.done():
                return future.result()
            if gone.done():
                raise ClientLeftError
        finally:
            gone.cancel()
            future.cancel()
        raise self._too_slow()

    def _too_slow(self) -> Refusal:
        seconds = self.settings.timeout_seconds
        message = f"no answer in {seconds:g} s; send fewer or shorter texts, or ask later"
        return Refusal(504, "timeout", message)

    def _require_size(self, asked: Asked) -> None:
        most = self.settings.max_texts
        if len(asked.texts) > most:
            what = "of them" if len(asked.texts) == len(asked.rows) else "choices in all"
            message = f"{asked.field}: {len(asked.texts)} {what}, more than {most}; send fewer at a time"
            raise Refusal(422, "too_many_texts", message, asked.field)
        longest = self.settings.max_text_chars
        for number, text in asked.placed_texts:
            if _characters(text) > longest:
                message = (
                    f"{asked.field}: number {number} has {_characters(text)} characters, more than "
                    f"{longest}; send it in parts"
                )
                raise Refusal(422, "text_too_long", message, asked.field)

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Compute what is asked until the block ends."""
        self.batcher.start()
        try:
            yield
        finally:
            self.batcher.stop()
            self._counting.shutdown()


def _require_form(model: ServedModel, asked: Asked) -> None:
    """Check that a head gets pairs where it was trained on pairs, and single texts else."""
    if model.reads_pairs is None or asked.verb not in _OF_TEXTS:
        return
    for number, text in enumerate(asked.texts):
        if isinstance(text, tuple) != model.reads_pairs:
            form = "pairs [first, second]" if model.reads_pairs else "single texts"
            message = f"{asked.field}: number {number} is none of the {form} that model {model.name} reads"
            raise Refusal(422, "invalid_request", message, asked.field)


def _computed(model: ServedModel, asked: Asked, rows: list[Any]) -> Sequence[Any]:
    try:
        return asked.compute(model.predictor, rows)
    except InputError as error:  # clients know the model by its name, and not where it lies
        place = str(model.predictor.bundle.directory)
        raise InputError(str(error).replace(place, f"model {model.name}")) from error


def _count(model: Predictor, asked: Asked) -> list[int]:
    """Return the pieces of each text, however long.

    Raises:
        InputError: a text to fill has no [MASK] where the model can read it.
    """
    tokenizer = model.bundle.tokenizer
    encode = tokenizer.encode_with_masks if asked.masks else tokenizer.encode
    pieces_of = cache(lambda part: len(encode(part)))  # a query or a context stands before many texts
    lengths = []
    for number, text in enumerate(asked.texts):
        parts = (text,) if isinstance(text, str) else text
        if asked.verb == "fill":
            masked_row(number, parts[0], tokenizer, model.seq_len)
        between = len(tokenizer.between_ids) * (len(parts) - 1)
        lengths.append(sum(map(pieces_of, parts)) + between + 2)
    return lengths


def _reads_all(model: Predictor, verb: str) -> bool:
    """Whether long texts are read in parts rather than cut."""
    if verb in ("answer", "tag"):
        return True
    return verb in _OF_TEXTS and model.truncation == WINDOWS


def _characters(text: Text) -> int:
    return len(text) if isinstance(text, str) else len(text[0]) + len(text[1])


def _truncated(result: Any) -> bool:
    return bool(result["truncated"] if isinstance(result, dict) else result.truncated)


async def _left(http: Request) -> None:
    """Return when the client has left."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
