"""The files of a corpus and their sources."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.text.corpus_files import list_files, list_sources


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def test_directories_are_searched_in_sorted_order(tmp_path: Path) -> None:
    for name in (
        "b/x.txt",
        "a/y.jsonl.gz",
        "a/b/z.txt.zst",
        "c.TXT",
        "a/index.tsv.gz",
        ".hidden/h.txt",
        "n.md",
    ):
        write(tmp_path / name, b"")
    names = [str(path.relative_to(tmp_path)) for path in list_files([str(tmp_path)])]
    assert names == ["a/b/z.txt.zst", "a/y.jsonl.gz", "b/x.txt", "c.TXT"]


def test_the_order_of_the_arguments_is_kept(tmp_path: Path) -> None:
    first, second = write(tmp_path / "z.txt", "z"), write(tmp_path / "a.txt", "a")
    assert list_files([str(first), str(second)]) == [first, second]


def test_wrong_paths_are_input_errors(tmp_path: Path) -> None:
    write(tmp_path / "data.csv", "a,b")
    path = write(tmp_path / "a.txt", "a")
    with pytest.raises(InputError, match="no corpus is named"):
        list_files([])
    with pytest.raises(InputError, match=r"missing\.txt: no such file"):
        list_files([str(tmp_path / "missing.txt")])
    with pytest.raises(InputError, match=r"data\.csv: not a text file"):
        list_files([str(tmp_path / "data.csv")])
    with pytest.raises(InputError, match="named twice"):
        list_files([str(tmp_path), str(path)])
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty: no \.txt or \.jsonl"):
        list_files([str(tmp_path / "empty")])


def test_a_folder_that_cannot_be_listed_stops_instead_of_being_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "a.txt", "a")
    (tmp_path / "locked").mkdir()
    scan = os.scandir

    def refuse(path: str | Path) -> Iterator[os.DirEntry[str]]:
        if str(path).endswith("locked"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match=r"locked: cannot be read \(Permission denied\)"):
        list_files([str(tmp_path)])


def test_each_file_has_the_source_of_its_directory_or_a_given_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("books/a.txt", "books/more/b.txt", "wiki/c.txt", "other/d.txt", "x=y/e.txt", "f=g.txt"):
        write(tmp_path / name, "text")
    monkeypatch.chdir(tmp_path / "other")
    found = list_sources(
        ["../books", f"web={tmp_path / 'wiki'}", "d.txt", "-", "../x=y", f"news={tmp_path / 'f=g.txt'}"]
    )
    assert [(file.path.name, file.source) for file in found] == [
        ("a.txt", "books"),
        ("b.txt", "books"),
        ("c.txt", "web"),
        ("d.txt", "other"),
        ("-", "standard-input"),
        ("e.txt", "x=y"),
        ("f=g.txt", "news"),
    ]
    monkeypatch.chdir(tmp_path)
    assert [file.source for file in list_sources(["x=y"])] == ["x=y"]  # the path is there: no name
    assert [file.source for file in list_sources(["."])] == [tmp_path.name] * 6
    with pytest.raises(InputError, match=r"corpus missing: no such file"):
        list_sources(["name=missing"])
