"""Files behind URLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from bertsmith.errors import InputError
from bertsmith.remote import RemoteFile, exists, file_system, files_below, is_url, upload


@pytest.fixture
def memory() -> Iterator[fsspec.AbstractFileSystem]:
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


def test_files_below_a_url_are_found_and_read(memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe({"/corpus/b.txt": b"bb", "/corpus/a/c.txt.gz": b"c", "/other.txt": b""})
    found = files_below("memory://corpus")
    assert found is not None
    assert [str(file) for file in found] == ["memory:///corpus/a/c.txt.gz", "memory:///corpus/b.txt"]
    assert (found[0].name, found[0].suffix, found[0].suffixes) == ("c.txt.gz", ".gz", [".txt", ".gz"])
    with found[1].open() as file:
        assert file.read() == b"bb"
    assert found[1].num_bytes() == 2
    assert files_below("memory://corpus/b.txt") is None
    with pytest.raises(InputError, match="memory://nothing: no such file or directory"):
        files_below("memory://nothing")


def test_a_changed_file_has_another_stamp(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one")
    file = RemoteFile(f"file://{tmp_path}/a.txt")
    before = file.stamp()
    assert file.stamp() == before
    (tmp_path / "a.txt").write_text("two or three")
    assert file.stamp() != before


def test_a_missing_package_and_an_unknown_protocol_are_named() -> None:
    with pytest.raises(InputError, match=r"s3://bucket/a: needs another package: .*s3fs"):
        file_system("s3://bucket/a")
    with pytest.raises(InputError, match=r"https://host/a: needs another package: .*aiohttp"):
        file_system("https://host/a")
    with pytest.raises(InputError, match="warp://x: cannot be used"):
        file_system("warp://x")


def test_the_manifest_is_uploaded_last(memory: fsspec.AbstractFileSystem, tmp_path: Path) -> None:
    for name in ("manifest.json", "train/ids.npy", "vocab.txt", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert not exists("memory://data")
    upload(tmp_path, "memory://data/set", last="manifest.json")
    assert exists("memory://data/set")
    assert exists("memory://data/set/manifest.json")
    assert memory.cat("/data/set/train/ids.npy") == b"train/ids.npy"
    created = {path: info.created for path, info in memory.store.items()}
    assert max(created, key=lambda path: created[path]) == "/data/set/manifest.json"


def test_urls_are_told_from_paths() -> None:
    assert is_url("s3://bucket/key")
    assert not is_url("books=dir/a.txt")
