"""The settings of the verb search. No heavy imports."""

from __future__ import annotations

from dataclasses import dataclass, field

import tyro

METHODS = ("exact", "approximate")


@dataclass(frozen=True)
class SearchConfig:
    """Find the texts of a corpus that are nearest to queries, by the cosine of their vectors.

    Attributes:
        query: texts to look for.
        model: a model directory, best one that was trained to embed.
        corpus: the texts: a CSV, TSV, JSONL or text file.
        index: a directory that keeps the vectors: read if it is there, else written. It holds the texts, too,
            so that the corpus is not needed again, and it is tied to the model.
        queries: instead of query, a file of queries (CSV, TSV, JSONL or text lines).
        out: with queries, the .jsonl file to write, or - for standard output: one line a query.
        top: texts a query.
        method: "exact" compares with every vector; "approximate" builds a graph, which is faster from some
            hundred thousand texts on and misses a few (needs bertsmith[search]).
        text: column of the corpus's text; default: found in the header.
        id: column of the corpus's names of texts; default: id, _id or doc_id, or else the line.
        query_text: column of the text in the file of queries; default: found in the header.
        missing: a text of the corpus that is empty: "error" stops, "skip" leaves it out and counts it.
        batch_tokens: pieces a forward pass.
        precision: "auto", "float32" or "bfloat16".
    """

    model: str
    query: tyro.conf.Positional[list[str]] = field(default_factory=list)
    corpus: str | None = None
    index: str | None = None
    queries: str | None = None
    out: str | None = None
    top: int = 10
    method: str = "exact"
    text: str | None = None
    id: str | None = None
    query_text: str | None = None
    missing: str = "error"
    batch_tokens: int = 4096
    precision: str = "float32"
