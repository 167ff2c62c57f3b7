"""Search: the nearest texts of a corpus, kept in an index that knows its model and corpus."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import predictor
from bertsmith.cli import run
from bertsmith.errors import InputError
from bertsmith.recipes import search_index
from bertsmith.recipes.search import search
from bertsmith.recipes.search_config import SearchConfig
from tests.recipes import tiny


def corpus_rows(number: int, seed: int = 0) -> list[dict[str, Any]]:
    draw = random.Random(seed)
    return [
        {"id": f"d{place}", "text": " ".join(draw.choices(tiny.WORDS, k=draw.randint(1, 12)))}
        for place in range(number)
    ]


def write_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.save_model(tmp_path_factory.mktemp("model") / "model")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_json(tmp_path_factory.mktemp("corpus") / "corpus.jsonl", corpus_rows(150))


def config(model: Path, *query: str, **settings: Any) -> SearchConfig:
    values = {name: str(value) if isinstance(value, Path) else value for name, value in settings.items()}
    return SearchConfig(str(model), list(query), **values)


def expected(model: Path, rows: list[dict[str, Any]], query: str, top: int) -> list[tuple[str, float]]:
    """The nearest texts, by float64 cosines of the predictor's plain vectors."""
    net = predictor.load(model)
    vectors = np.asarray(net.embed([row["text"] for row in rows])).astype(np.float64)
    wanted = np.asarray(net.embed([query])).astype(np.float64)[0]
    cosines = vectors @ wanted / np.linalg.norm(vectors, axis=1) / np.linalg.norm(wanted)
    order = np.argsort(-cosines.round(6), kind="stable")[:top]
    return [(rows[place]["id"], cosines[place]) for place in order.tolist()]


def test_the_nearest_texts_with_and_without_a_kept_index(
    model: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_index, "_AT_ONCE", 40)
    query, rows = "good wordb wordc", corpus_rows(150)
    found = search(config(model, query, corpus=corpus, top=7))
    assert (found["texts"], found["queries"], found["truncated_texts"]) == (150, 1, 0)
    (answer,) = found["results"]
    assert answer["text"] == query
    wanted = expected(model, rows, query, 7)
    assert [one["id"] for one in answer["results"]] == [id for id, _ in wanted]
    assert [one["score"] for one in answer["results"]] == pytest.approx([s for _, s in wanted], abs=1e-5)
    texts = {row["id"]: row["text"] for row in rows}
    assert all(one["text"] == texts[one["id"]] for one in answer["results"])
    index = tmp_path / "index"
    built = search(config(model, query, corpus=corpus, index=index, top=7))
    assert built["results"] == found["results"]
    # The corpus is not needed again, and no vector of it is computed.
    again = search(config(model, query, index=index, top=7))
    assert again["results"] == found["results"]
    vectors = np.load(index / "vectors.npy")
    assert vectors.shape == (150, 32)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1.0, abs=1e-6)
    assert search(config(model, query, index=index, top=999))["results"][0]["results"][149]["score"] < 1


def test_a_file_of_queries_has_a_line_for_each(model: Path, corpus: Path, tmp_path: Path) -> None:
    queries, out = tmp_path / "queries.txt", tmp_path / "out.jsonl"
    queries.write_bytes("\ufeffgood\r\n\r\nwordb \U0001f600 wordc\r\n".encode())
    index = tmp_path / "index"
    done = search(config(model, corpus=corpus, index=index, queries=queries, out=out, top=3))
    assert (done["queries"], done["queries_without_text"], done["out"]) == (3, 1, str(out))
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["query"] for line in lines] == [0, 1, 2]
    assert lines[1] == {"query": 1, "error": "line 2: no text"}
    for line in (lines[0], lines[2]):
        alone = search(config(model, line["text"], index=index, top=3))["results"][0]
        assert [one["id"] for one in alone["results"]] == [one["id"] for one in line["results"]]
        scores = [one["score"] for one in alone["results"]]
        assert [one["score"] for one in line["results"]] == pytest.approx(scores, abs=1e-5)


def test_what_is_cut_is_said(model: Path, tmp_path: Path) -> None:
    rows = [{"text": "so " * 100}, {"text": "good"}]
    corpus = write_json(tmp_path / "a.jsonl", rows)
    found = search(config(model, "so", "bad " * 100, corpus=corpus))
    assert (found["truncated_texts"], found["truncated_queries"]) == (1, 1)
    first, second = found["results"]
    assert (first["truncated"], second["truncated"]) == (False, True)
    assert {one["id"]: one["truncated"] for one in first["results"]} == {1: True, 2: False}


def test_approximate_search_finds_nearly_all_and_says_how_many(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    pytest.importorskip("usearch")
    index, query = tmp_path / "index", "fine worda wordd"
    found = search(config(model, query, "poor", corpus=corpus, index=index, method="approximate", top=5))
    assert found["recall_at_10"] > 0.95
    exact = search(config(model, query, "poor", index=index, top=5))
    assert "recall_at_10" not in exact
    for ours, theirs in zip(found["results"], exact["results"], strict=True):
        assert [one["id"] for one in ours["results"]] == [one["id"] for one in theirs["results"]]
        scores = [one["score"] for one in theirs["results"]]
        assert [one["score"] for one in ours["results"]] == pytest.approx(scores, abs=1e-5)
    one = search(config(model, query, index=index, method="approximate", top=999))["results"][0]["results"]
    assert len(one) == 150
    graph = index / "graph.usearch"
    graph.write_bytes(b"x" * graph.stat().st_size)
    with pytest.raises(InputError, match=r"no whole index .*delete it and build it again"):
        search(config(model, query, index=index, method="approximate"))
    graph.write_bytes(b"broken")
    with pytest.raises(InputError, match="not whole; delete the index"):
        search(config(model, query, index=index, method="approximate"))


def test_an_index_belongs_to_its_model_and_its_corpus(model: Path, corpus: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    search(config(model, "so", corpus=corpus, index=index))
    search(config(model, "so", corpus=corpus, index=index))
    other = write_json(tmp_path / "other.jsonl", corpus_rows(150, seed=1))
    with pytest.raises(InputError, match="built from another corpus"):
        search(config(model, "so", corpus=other, index=index))
    changed = tmp_path / "changed"
    changed.mkdir()
    for file in model.iterdir():
        (changed / file.name).write_bytes(file.read_bytes())
    task = json.loads((changed / "task.json").read_text()) | {"seq_len": 32}
    (changed / "task.json").write_text(json.dumps(task))
    with pytest.raises(InputError, match=r"made by another model \(seq_len is 64, the model's 32\)"):
        search(config(changed, "so", index=index))
    another = tiny.save_model(tmp_path / "another")
    from safetensors.torch import load_file, save_file

    weights = load_file(another / "model.safetensors")
    weights["bert.embeddings.LayerNorm.bias"] += 0.1
    save_file(weights, another / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(InputError, match=r"made by another model \(sha256"):
        search(config(another, "so", index=index))
    with pytest.raises(InputError, match="built for exact search"):
        search(config(model, "so", index=index, method="approximate"))
    (index / "starts.npy").write_bytes(b"")
    with pytest.raises(InputError, match="no whole index"):
        search(config(model, "so", index=index))
    with pytest.raises(InputError, match="is no index; name another"):
        search(config(model, "so", index=model))


def test_a_damaged_index_is_told_as_one(model: Path, corpus: Path, tmp_path: Path) -> None:
    index = tmp_path / "index"
    search(config(model, "so", corpus=corpus, index=index))
    vectors, starts = np.load(index / "vectors.npy"), np.load(index / "starts.npy")
    damages: list[tuple[str, Callable[[Path], None]]] = [
        ("vectors.npy", lambda path: np.save(path, vectors[:, :16])),
        ("vectors.npy", lambda path: np.save(path, np.full_like(vectors, np.nan))),
        ("starts.npy", lambda path: np.save(path, np.append(np.full(len(starts) - 1, 10**9), starts[-1]))),
        ("texts.jsonl", lambda path: path.write_bytes(b"x" * path.stat().st_size)),
        ("index.json", lambda path: path.write_text(path.read_text().replace("truncated_texts", "cut"))),
    ]
    for name, damage in damages:
        path = index / name
        whole = path.read_bytes()
        damage(path)
        with pytest.raises(InputError, match=r"no whole index .*delete it and build it again"):
            search(config(model, "so", index=index))
        path.unlink()  # a new file: NumPy may still have the old one mapped
        path.write_bytes(whole)


@pytest.mark.parametrize(
    "rows, message",
    [
        ([{"id": 1, "body_text": "a"}], "no column is known to be the text; name it with --text"),
        ([{"id": 1, "text": "a"}, {"id": 1, "text": "b"}], "line 2: 'id' is 1, as in line 1"),
        ([{"id": 1, "text": "a"}, {"text": "b"}], "line 2: 'id' is null"),
        ([{"text": "a"}, {"text": ""}], "line 2: no text; mend it, or --missing skip"),
        ([{"text": 3}], "line 1: 'text' is 3, a text has to be a string"),
    ],
)
def test_a_broken_corpus_leaves_no_index(
    rows: list[dict[str, Any]], message: str, model: Path, tmp_path: Path
) -> None:
    corpus = write_json(tmp_path / "a.jsonl", rows)
    with pytest.raises(InputError, match=message):
        search(config(model, "so", corpus=corpus, index=tmp_path / "index"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_other_forms_of_a_corpus(model: Path, tmp_path: Path) -> None:
    tsv = tmp_path / "a.tsv.gz"
    tsv.write_bytes(gzip.compress('\ufeffname\tbody\r\nx\tgood "so\r\ny\t\r\nz\tbad\r\n'.encode()))
    found = search(config(model, "good so", corpus=tsv, id="name", missing="skip"))
    assert (found["texts"], found["missing_texts"]) == (2, 1)
    assert found["results"][0]["results"][0] | {"score": 0} == {
        "score": 0, "id": "x", "text": 'good "so', "truncated": False,
    }  # fmt: skip
    text = tmp_path / "a.txt"
    text.write_text("bad\nvery \u4f60\u597d\u2028good\n", encoding="utf-8")
    lines = search(config(model, "good", corpus=text))["results"][0]["results"]
    assert {one["id"]: one["text"] for one in lines} == {1: "bad", 2: "very \u4f60\u597d\u2028good"}
    lone = write_json(tmp_path / "b.jsonl", [{"text": "good \udc80 so"}])
    assert search(config(model, "good", corpus=lone))["results"][0]["results"][0]["text"] == "good \udc80 so"


@pytest.mark.parametrize(
    "settings, message",
    [
        ({}, "search needs --corpus, or --index"),
        ({"index": "nowhere"}, "not there; name a --corpus"),
        ({"corpus": "a.jsonl", "queries": "q.txt"}, "give either texts to look for"),
        ({"corpus": "a.jsonl", "out": "o.jsonl"}, "--queries and --out belong together"),
        ({"corpus": "a.jsonl", "query_text": "q"}, "--query-text q would be ignored"),
        ({"corpus": "a.jsonl", "top": 0}, "top is 0"),
        ({"corpus": "a.jsonl", "method": "fast"}, "method is 'fast'"),
        ({"corpus": "a.jsonl", "missing": "keep"}, "missing is 'keep'"),
        ({"corpus": "-"}, "--corpus - cannot be read twice"),
        ({"corpus": "nowhere.jsonl"}, "no such file"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str, model: Path) -> None:
    with pytest.raises(InputError, match=message):
        search(config(model, "so", **settings))


def test_settings_of_an_index_that_is_there_would_be_ignored(
    model: Path, corpus: Path, tmp_path: Path
) -> None:
    search(config(model, "so", corpus=corpus, index=tmp_path / "index"))
    base = config(model, "so", corpus=corpus, index=tmp_path / "index")
    for name, value in (("text", "text"), ("id", "id"), ("missing", "skip")):
        with pytest.raises(InputError, match=f"--{name} {value} would be ignored"):
            search(dataclasses.replace(base, **{name: value}))
    with pytest.raises(InputError, match="a file that is read"):
        search(config(model, corpus=corpus, queries=corpus, out=corpus))


def test_the_command_line(
    model: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["search", "good so", "--model", str(model), "--corpus", str(corpus), "--top", "2"]
    assert run(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "good so"
    assert [line.split()[0] for line in lines[1:]] == ["1", "2"]
    assert run([*words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["results"][0]["results"]) == 2
    assert run([*words, "--method", "none"]) == 2


def test_queries_are_opened_before_an_index_is_built(model: Path, corpus: Path, tmp_path: Path) -> None:
    queries = write_json(tmp_path / "queries.jsonl", [{"query": "so"}])
    index, out = tmp_path / "index", tmp_path / "found.jsonl"
    for wrong in ({"queries": tmp_path / "none.jsonl"}, {"queries": queries, "query_text": "other"}):
        with pytest.raises(InputError, match=r"no such file|no column"):
            search(config(model, corpus=corpus, index=index, out=out, **wrong))
        assert not index.exists()
        assert not out.exists()


def test_results_are_not_written_into_the_index(model: Path, corpus: Path, tmp_path: Path) -> None:
    queries, index = write_json(tmp_path / "queries.jsonl", [{"query": "so"}]), tmp_path / "index"
    search(config(model, "so", corpus=corpus, index=index))
    before = (index / "index.json").read_bytes()
    with pytest.raises(InputError, match="lies in the index"):
        search(config(model, index=index, queries=queries, out=index / "index.json"))
    assert (index / "index.json").read_bytes() == before


def test_a_directory_of_something_else_is_not_called_a_broken_index(model: Path, tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for place in (tmp_path / "photos", write_json(tmp_path / "file", [])):
        with pytest.raises(InputError, match="is no index; name another"):
            search(config(model, "so", index=place))
