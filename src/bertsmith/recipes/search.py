"""Find the texts of a corpus that are nearest to queries."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from bertsmith import files, predictor
from bertsmith.errors import InputError
from bertsmith.recipes.search_config import METHODS, SearchConfig
from bertsmith.recipes.search_corpus import Corpus, read_queries
from bertsmith.recipes.search_index import SearchIndex, build_index, open_index
from bertsmith.tasks.rows import MISSING_POLICIES

_QUERIES_AT_ONCE = 512
_SHOWN = 160


def search(config: SearchConfig) -> dict[str, Any]:
    """Search, after the index is built if there is none.

    Returns:
        How many texts and queries there are and were cut, and the results, or where they were written.

    Raises:
        InputError: a setting is wrong or would be ignored, a file is broken, or the index belongs to another
            model or corpus.
    """
    _check(config)
    model = predictor.load(config.model, config.precision, config.batch_tokens)
    counts = {"queries": 0, "truncated_queries": 0, "queries_without_text": 0}
    if config.queries is None:
        queries = iter([(0, text) for text in config.query])
    else:  # opened before the index is built, which may take hours
        queries = read_queries(config.queries, config.query_text)
    with _index_directory(config) as directory:
        is_new = not directory.exists()
        if is_new:
            assert config.corpus is not None, "the settings were checked"
            corpus = Corpus.open(config.corpus, config.text, config.id, config.missing)
            build_index(directory, model, corpus, config.method)
        index = open_index(directory, model, config.method)
        if not is_new and config.corpus is not None:
            _check_corpus(config.corpus, index)
        answers = _answers(queries, config.top, model, index, counts)
        if config.out is None:
            found: dict[str, Any] = {"results": list(answers)}
        else:
            _write(config.out, answers)
            found = {"out": config.out}
    facts = {name: index.facts["counts"][name] for name in ("truncated_texts", "missing_texts")}
    recall = {"recall_at_10": index.facts["recall_at_10"]} if config.method == "approximate" else {}
    return {"texts": len(index.vectors), **facts, **recall, **counts, "index": config.index, **found}


def show(summary: dict[str, Any]) -> None:
    """Print results for people; where they went to a file or to standard output, the counts."""
    for answer in summary.get("results", []):
        print(f"{answer['text']}{'  (cut)' if answer['truncated'] else ''}")
        for rank, found in enumerate(answer["results"], start=1):
            text = " ".join(found["text"].split())
            text = text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
            print(f"{rank:>4}  {found['score']:.4f}  {found['id']}  {text}")
    if "results" not in summary:
        stream = sys.stderr if summary["out"] == "-" else sys.stdout
        print("\n".join(f"{name}: {value}" for name, value in summary.items()), file=stream)


def _check(config: SearchConfig) -> None:
    """Refuse settings that are wrong, contradict each other or would be ignored."""
    for name, known in (("method", METHODS), ("missing", MISSING_POLICIES)):
        if getattr(config, name) not in known:
            raise InputError(f"{name} is {getattr(config, name)!r}; take one of {', '.join(known)}")
    if config.top < 1:
        raise InputError(f"top is {config.top}; it has to be at least 1")
    _check_queries(config)
    has_index = config.index is not None and Path(config.index).exists()
    if config.corpus is None and not has_index:
        needed = "search needs --corpus, or --index with one that was built before"
        raise InputError(
            f"--index {config.index}: not there; name a --corpus to build it" if config.index else needed
        )
    if config.corpus == "-":
        raise InputError("--corpus - cannot be read twice; write the texts into a file")
    default = SearchConfig(config.model)
    for name in ("text", "id", "missing") if has_index else ():
        if getattr(config, name) != getattr(default, name):
            raise InputError(
                f"--{name} {getattr(config, name)} would be ignored: the index {config.index} is there; "
                "leave the flag out, or build another"
            )


def _check_queries(config: SearchConfig) -> None:
    if bool(config.query) == (config.queries is not None):
        raise InputError('give either texts to look for (search "a text"), or --queries with a file of them')
    if not all(config.query):
        raise InputError("a text to look for is empty; leave it out")
    if (config.queries is None) != (config.out is None):
        raise InputError("--queries and --out belong together: a file of queries, and where results go")
    if config.queries is None and config.query_text is not None:
        raise InputError(f"--query-text {config.query_text} would be ignored without --queries; leave it out")
    if config.out is not None and config.out != "-":
        out = Path(config.out)
        files.require_no_directory(out)
        if out.resolve() in {Path(str(path)).resolve() for path in (config.queries, config.corpus)}:
            raise InputError(f"--out {out} is a file that is read, which would be lost; choose another")
        if config.index is not None and Path(config.index).resolve() in out.resolve().parents:
            raise InputError(f"--out {out} lies in the index, whose files are its own; choose another place")


@contextlib.contextmanager
def _index_directory(config: SearchConfig) -> Iterator[Path]:
    """Yield the place of the index; without --index it is gone afterwards."""
    if config.index is not None:
        yield Path(config.index)
        return
    with tempfile.TemporaryDirectory(prefix="bertsmith-search-") as directory:
        yield Path(directory) / "index"


def _check_corpus(corpus: str, index: SearchIndex) -> None:
    """Refuse an index of another corpus.

    Raises:
        InputError: the file that is named is not what it was built from.
    """
    built_from = index.facts["corpus"]
    if files.sha256_of(Path(corpus)) != built_from["sha256"]:
        raise InputError(
            f"{index.directory}: built from another corpus ({built_from['path']}) than {corpus} is now; "
            "leave --corpus out to search it, or build another index"
        )


def _answers(
    queries: Iterator[tuple[int, str]],
    top: int,
    model: predictor.Predictor,
    index: SearchIndex,
    counts: dict[str, int],
) -> Iterator[dict[str, Any]]:
    """Yield the results of each query, or its error, in the order of the queries; count them."""
    while chunk := list(islice(queries, _QUERIES_AT_ONCE)):
        whole = [text for _, text in chunk if text]
        embedded = model.embed(whole, normalize=True)
        found = zip(index.find(embedded.vectors, top), embedded.truncated, strict=True)
        for line, text in chunk:
            counts["queries"] += 1
            if not text:
                counts["queries_without_text"] += 1
                yield {"query": counts["queries"] - 1, "error": f"line {line}: no text"}
                continue
            (numbers, scores), cut = next(found)
            counts["truncated_queries"] += cut
            texts = zip(scores.tolist(), index.texts(numbers), strict=True)
            results = [{"score": score, **one} for score, one in texts]
            yield {"query": counts["queries"] - 1, "text": text, "truncated": cut, "results": results}


def _write(out: str, answers: Iterator[dict[str, Any]]) -> None:
    """Write one line a query; the file appears whole or not at all."""
    lines = (json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
    if out == "-":
        sys.stdout.writelines(lines)
        sys.stdout.flush()
        return
    with (
        files.atomic_file(Path(out)) as temporary,
        open(temporary, "w", encoding="utf-8", errors="backslashreplace") as file,
    ):
        file.writelines(lines)
