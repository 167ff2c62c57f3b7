"""prepare from and to URLs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from bertsmith.errors import InputError
from bertsmith.recipes.prepare import prepare
from tests.recipes.preparing import PLAIN, contents, settings, write_vocab

TEXTS = {"books": "red one\nred two\n\n" * 30, "wiki": "blue one\nblue two\n\n" * 30}


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture
def vocab(tmp_path: Path) -> Path:
    return write_vocab(tmp_path / "vocab" / "vocab.txt", ["red", "blue", "one", "two"])


def test_memory_to_memory_gives_the_local_shards(memory, vocab, tmp_path, monkeypatch) -> None:
    for name, text in TEXTS.items():
        memory.pipe(f"/corpus/{name}/a.txt", text.encode())
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(text)
    config = settings(tmp_path, "", vocab, text=PLAIN)
    prepare(replace(config, corpus=[str(tmp_path / name) for name in TEXTS]))
    (tmp_path / "here" / "data" / "other").mkdir(parents=True)  # of the same name, and left alone
    monkeypatch.chdir(tmp_path / "here")
    urls = ["memory://corpus/books", "wiki=memory://corpus/wiki/a.txt"]
    summary = prepare(replace(config, corpus=urls, out="memory://made/data"))
    assert summary["out"] == "memory://made/data"
    assert os.listdir(tmp_path / "here") == ["data"]
    memory.get("/made/data", str(tmp_path / "fetched"), recursive=True)
    local, fetched = contents(tmp_path / "data"), contents(tmp_path / "fetched")
    manifests = [json.loads((tmp_path / name / "manifest.json").read_text()) for name in ("data", "fetched")]
    assert [entry["file"] for entry in manifests[1]["inputs"]] == [
        "memory:///corpus/books/a.txt",
        "memory://corpus/wiki/a.txt",
    ]
    for manifest in manifests:
        for entry in manifest["inputs"]:
            del entry["file"]
    assert manifests[0] == manifests[1]
    assert {**local, "manifest.json": ""} == {**fetched, "manifest.json": ""}
    with pytest.raises(InputError, match="out memory://made/data exists already"):
        prepare(replace(config, corpus=urls, out="memory://made/data"))


def test_a_failed_upload_is_gone_on_with(memory, vocab, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "data").write_text("in the way")
    config = replace(
        settings(tmp_path, TEXTS["books"], vocab), out=f"file://{tmp_path}/target/data/set", workers=1
    )
    with pytest.raises(OSError):
        prepare(config)
    assert (tmp_path / ".set.build" / "data" / "manifest.json").is_file()
    (tmp_path / "target" / "data").unlink()
    prepare(replace(config, resume=True))
    assert (tmp_path / "target" / "data" / "set" / "manifest.json").is_file()
    assert not (tmp_path / ".set.build").exists()


def test_a_store_without_its_package_is_refused_before_any_work(vocab, tmp_path) -> None:
    config = settings(tmp_path, TEXTS["books"], vocab)
    for changes in ({"out": "s3://bucket/data"}, {"corpus": ["s3://bucket/books"]}):
        with pytest.raises(InputError, match="Install s3fs"):
            prepare(replace(config, **changes))
