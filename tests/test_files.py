from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bertsmith.errors import InputError
from bertsmith.files import alone_in, atomic_directory, atomic_file, sha256_of, write_json


def test_a_failed_file_leaves_the_old_one(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(RuntimeError), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_directory_leaves_the_old_one(tmp_path):
    path = tmp_path / "model"
    with atomic_directory(path) as temporary:
        (temporary / "one").write_text("1")
    with pytest.raises(RuntimeError), atomic_directory(path) as temporary:
        (temporary / "two").write_text("2")
        raise RuntimeError
    assert [file.name for file in path.iterdir()] == ["one"]
    assert list(tmp_path.iterdir()) == [path]
    with atomic_directory(path) as temporary:
        (temporary / "three").write_text("3")
    assert [file.name for file in path.iterdir()] == ["three"]
    assert list(tmp_path.iterdir()) == [path]


def test_json_and_hash(tmp_path):
    write_json(tmp_path / "deep" / "a.json", {"名": [1, 2]})
    content = (tmp_path / "deep" / "a.json").read_bytes()
    assert json.loads(content) == {"名": [1, 2]}
    assert "名".encode() in content
    assert sha256_of(tmp_path / "deep" / "a.json") == hashlib.sha256(content).hexdigest()


def test_what_killed_processes_left_beside_a_directory_is_cleared(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    dead, alive = process.pid, os.getppid()
    for name in (f".data.{dead}.tmp", f".data.{alive}.tmp", f".database.{dead}.tmp", f".data.{dead}.old"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").write_text(name)
    with pytest.raises(RuntimeError), atomic_directory(tmp_path / "data"):
        # the earlier version, which a killed process had moved out of the way, is back
        assert (tmp_path / "data" / "content").read_text() == f".data.{dead}.old"
        raise RuntimeError
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f".data.{alive}.tmp", f".database.{dead}.tmp", "data"]
    )


def test_a_directory_in_a_files_place_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (
        pytest.raises(InputError, match="is a directory; name the file to write"),
        atomic_file(tmp_path / "out"),
    ):
        pytest.fail("the block must not run")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_stop_between_the_two_renames_keeps_the_old_directory(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old").write_text("")
    replace = os.replace

    def stopped(source, target):
        if str(source).endswith(".tmp"):
            raise KeyboardInterrupt
        replace(source, target)

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt), atomic_directory(path) as temporary:
        (temporary / "new").write_text("")
    assert [file.name for file in path.iterdir()] == ["old"]
    assert list(tmp_path.iterdir()) == [path]


def test_one_process_at_a_time_works_in_a_directory(tmp_path):
    place = tmp_path / "deep" / "run"
    holding = (
        "import sys, pathlib; from bertsmith.files import alone_in\n"
        "with alone_in(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", holding, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout.readline() == "in\n"
    with pytest.raises(InputError, match=r"another process is writing .*run; wait for it"), alone_in(place):
        pass
    other.kill()
    other.communicate()
    with alone_in(place):
        assert list(place.iterdir()) == []
