"""The index of a corpus: a vector for each text, and the texts, in a directory tied to its model.

index.json      what made it: model, corpus, method, counts
vectors.npy     float32 (texts, hidden), of length 1, memory-mapped
texts.jsonl     one object a text: its id, the text, whether it was cut
starts.npy      int64 (texts + 1,), where each line of texts.jsonl begins
graph.usearch   with the method "approximate"
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bertsmith import files
from bertsmith.data.arrays import RowsFile
from bertsmith.errors import InputError
from bertsmith.predictor import Predictor
from bertsmith.progress import StageProgress
from bertsmith.recipes.search_corpus import Corpus, CorpusText
from bertsmith.tasks.retrieval import nearest

_FORMAT = 1
_FACTS, _VECTORS, _TEXTS, _STARTS = "index.json", "vectors.npy", "texts.jsonl", "starts.npy"
_GRAPH = "graph.usearch"
_AT_ONCE = 4096
_PROBES = 200
_PROBE_DEPTH = 10


@dataclass(frozen=True)
class SearchIndex:
    """An index that can be searched.

    Attributes:
        directory: where it is.
        facts: content of index.json.
        vectors: float32 ``(texts, hidden)``, of length 1.
        starts: int64 ``(texts + 1,)``.
        graph: of usearch; ``None``: every vector is compared.
    """

    directory: Path
    facts: dict[str, Any]
    vectors: NDArray[np.float32]
    starts: NDArray[np.int64]
    graph: Any = None

    def find(
        self, queries: NDArray[np.float32], top: int
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        """Return numbers and cosines of the nearest texts of each query, best first.

        Args:
            queries: float32 ``(queries, hidden)``, of length 1.
            top: how many.
        """
        with _whole(self.directory):
            return self._find(queries, top)

    def _find(
        self, queries: NDArray[np.float32], top: int
    ) -> list[tuple[NDArray[np.int64], NDArray[np.float32]]]:
        if self.graph is None:
            return list(zip(*nearest(queries, self.vectors, top), strict=True))
        self.graph.expansion_search = max(64, 2 * top)
        found = self.graph.search(queries, top, threads=torch.get_num_threads())
        if len(queries) == 1:  # usearch answers a single query in another form
            keys, counts = np.asarray(found.keys)[np.newaxis], [len(found.keys)]
        else:
            keys, counts = found.keys, found.counts
        results = []
        for query, row, count in zip(queries, keys, counts, strict=True):
            numbers = np.sort(row[:count].astype(np.int64))
            cosines = self.vectors[numbers] @ query
            order = np.argsort(-cosines, kind="stable")
            results.append((numbers[order], cosines[order]))
        return results

    def texts(self, numbers: NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return id, text and whether it was cut of some texts."""
        with _whole(self.directory), open(self.directory / _TEXTS, "rb") as file:
            found = []
            for number in numbers.tolist():
                file.seek(self.starts[number])
                found.append(json.loads(file.read(self.starts[number + 1] - self.starts[number])))
        return found


def build_index(directory: Path, model: Predictor, corpus: Corpus, method: str) -> None:
    """Write an index; it is there whole or not at all.

    Args:
        directory: where; it does not exist.
        model: makes the vectors.
        corpus: not read yet.
        method: "exact" or "approximate".

    Raises:
        InputError: there is no text, or the package of the method is not installed.
    """
    usearch = _usearch() if method == "approximate" else None
    facts = {"format": _FORMAT, "method": method, "model": model_facts(model), "corpus": corpus.facts()}
    with files.atomic_directory(directory) as temporary:
        counts = _write_rows(temporary, model, corpus.texts())
        if not counts["texts"]:
            raise InputError(f"{corpus.table.path}: no text in it")
        facts["counts"] = counts | {"missing_texts": corpus.missing_texts}
        if usearch is not None:
            facts["recall_at_10"] = _build_graph(temporary, usearch, facts)
            facts["graph_bytes"] = (temporary / _GRAPH).stat().st_size
        files.write_json(temporary / _FACTS, facts)


def _write_rows(directory: Path, model: Predictor, texts: Iterator[CorpusText]) -> dict[str, int]:
    starts, truncated = [0], 0
    with (
        RowsFile(directory / _VECTORS, model.bundle.config.hidden_size) as vectors,
        open(directory / _TEXTS, "wb") as texts_file,
        StageProgress("search: encode", "characters") as progress,
    ):
        while chunk := list(islice(texts, _AT_ONCE)):
            found = model.embed([one.text for one in chunk], normalize=True)
            vectors.append(found.vectors)
            for one, cut in zip(chunk, found.truncated, strict=True):
                row = {"id": one.id, "text": one.text, "truncated": cut}
                # Half a surrogate pair, which UTF-8 cannot hold, is written as JSON spells it.
                line = json.dumps(row, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
                texts_file.write(line)
                starts.append(starts[-1] + len(line))
                truncated += cut
            progress.add(sum(len(one.text) for one in chunk), None)
    np.save(directory / _STARTS, np.array(starts, dtype=np.int64))
    return {"texts": len(starts) - 1, "truncated_texts": truncated}


def _build_graph(directory: Path, usearch: Any, facts: dict[str, Any]) -> float:
    """Write the graph; return which share of the exact neighbours of some texts it finds."""
    vectors = np.load(directory / _VECTORS, mmap_mode="r")
    graph = usearch.Index(ndim=vectors.shape[1], metric="ip", dtype="f32")
    for start in range(0, len(vectors), _AT_ONCE):
        block = np.ascontiguousarray(vectors[start : start + _AT_ONCE])
        keys = np.arange(start, start + len(block), dtype=np.uint64)
        graph.add(keys, block, threads=torch.get_num_threads())
    graph.save(str(directory / _GRAPH))
    index = SearchIndex(directory, facts, vectors, np.zeros(0, dtype=np.int64), graph)
    probes = np.asarray(vectors[:: max(1, len(vectors) // _PROBES)])
    exact, _ = nearest(probes, vectors, _PROBE_DEPTH)
    pairs = zip(exact, index.find(probes, _PROBE_DEPTH), strict=True)
    return float(np.mean([np.isin(row, found).mean() for row, (found, _) in pairs]))


def open_index(directory: Path, model: Predictor, method: str) -> SearchIndex:
    """Open an index.

    Args:
        directory: an index.
        model: that is to be searched with.
        method: "exact", or "approximate", for which it has to have been built.

    Raises:
        InputError: it is no whole index, or of another model, or has no graph.
    """
    if not (directory / _FACTS).is_file():
        raise InputError(f"--index {directory}: is there, but is no index; name another directory")
    with _whole(directory):
        index = _opened(directory)
    wanted, made_by = model_facts(model), index.facts["model"]
    for name, value in wanted.items():
        if made_by.get(name) != value:
            theirs, ours = (str(one)[:12] for one in (made_by.get(name), value))
            raise InputError(
                f"{directory}: made by another model ({name} is {theirs}, the model's {ours}); name "
                "the one that made it, or build another index"
            )
    if method == "exact":
        return index
    if index.facts["method"] != method:
        raise InputError(f"{directory}: built for exact search; build another with --method {method}")
    path = directory / _GRAPH  # half a graph would be read beyond its end
    if not path.is_file() or path.stat().st_size != index.facts["graph_bytes"]:
        raise InputError(f"{directory}: {_GRAPH} is not whole; delete the index and build it again")
    usearch = _usearch()
    with _whole(directory):
        return replace(index, graph=usearch.Index.restore(str(path), view=True))


@contextlib.contextmanager
def _whole(directory: Path) -> Iterator[None]:
    """Tell what can only come of a damaged file as that.

    Raises:
        InputError: it is met.
    """
    try:
        yield
    except InputError:
        raise
    except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise InputError(f"{directory}: no whole index ({reason}); delete it and build it again") from None


def _opened(directory: Path) -> SearchIndex:
    facts = json.loads((directory / _FACTS).read_text(encoding="utf-8"))
    if facts["format"] != _FORMAT:
        raise ValueError(f"its format is {facts['format']}, expected {_FORMAT}")
    counts, method = facts["counts"], facts["method"]
    _ = (
        facts["model"]["sha256"],
        facts["corpus"]["sha256"],
        counts["truncated_texts"],
        counts["missing_texts"],
    )
    if method == "approximate":
        _ = facts["recall_at_10"], facts["graph_bytes"]
    vectors = np.load(directory / _VECTORS, mmap_mode="r", allow_pickle=False)
    starts = np.load(directory / _STARTS, allow_pickle=False)
    size = (directory / _TEXTS).stat().st_size
    if not len(vectors) == counts["texts"] == len(starts) - 1 or starts[-1] != size:
        raise ValueError("its files do not fit together")
    return SearchIndex(directory, facts, vectors, starts)


def model_facts(model: Predictor) -> dict[str, Any]:
    """Return what of a model its vectors depend on."""
    stored = (model.bundle.task or {}).get("settings") or {}
    return {
        "sha256": model.bundle.identity(),
        "pooling": stored.get("pooling", "mean"),
        "seq_len": model.seq_len,
        "truncation": model.truncation,
    }


def _usearch() -> Any:
    try:
        from usearch import index
    except ImportError:
        raise InputError(
            "--method approximate needs the package usearch: pip install 'bertsmith[search]'"
        ) from None
    return index
