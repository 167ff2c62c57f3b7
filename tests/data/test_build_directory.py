"""The unfinished build: begun, gone on with, refused, removed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertsmith.data.build_directory import locked_build
from bertsmith.errors import InputError, RunError

ENTRY = {"file": "a.txt", "source": "books", "bytes": 3, "stamp": 5}
PLAN: dict[str, Any] = {
    "bertsmith_version": "1",
    "vocabulary": "v",
    "settings": {"seq_len": 128, "text": {"sentences": "split"}},
    "inputs": [ENTRY, {**ENTRY, "file": "b.txt"}],
}


def interrupt(out: Path) -> None:
    with pytest.raises(KeyboardInterrupt), locked_build(out, PLAN, resume=False) as build:
        (build.root / "encoded").mkdir()
        (build.root / "encoded" / "work").write_text("of hours")
        raise KeyboardInterrupt


def test_a_stopped_build_stays_and_is_gone_on_with(tmp_path: Path, caplog: Any) -> None:
    out = tmp_path / "some" / "data"
    interrupt(out)
    assert "the same command with --resume goes on" in caplog.text
    with pytest.raises(InputError, match=r"unfinished build of .*data is there: add --resume"):
        locked_build(out, PLAN, resume=False).__enter__()
    with locked_build(out, PLAN, resume=True) as build:
        assert build.was_there
        assert (build.encoded / "work").read_text() == "of hours"
        build.data.mkdir()
        (build.data / "manifest.json").write_text("{}")
        build.finish(out)
    assert os.listdir(out.parent) == ["data"]
    assert os.listdir(out) == ["manifest.json"]


def test_resume_begins_when_there_is_nothing(tmp_path: Path) -> None:
    with locked_build(tmp_path / "data", PLAN, resume=True) as build:
        assert not build.was_there
        assert build.plan.is_file()


def test_wrong_input_removes_the_build_and_a_failure_keeps_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="bad"), locked_build(tmp_path / "data", PLAN, resume=False):
        raise InputError("bad")
    assert os.listdir(tmp_path) == []
    with pytest.raises(RunError), locked_build(tmp_path / "data", PLAN, resume=False):
        raise RunError("bad luck")
    assert os.listdir(tmp_path) == [".data.build"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"settings": {**PLAN["settings"], "seq_len": 64}}, "seq_len was 128, is 64"),
        (
            {"settings": {**PLAN["settings"], "text": {"sentences": "line"}}},
            "text.sentences was 'split', is 'line'",
        ),
        ({"vocabulary": "w"}, "vocabulary was 'v', is 'w'"),
        ({"bertsmith_version": "2"}, "bertsmith_version was '1', is '2'"),
        ({"inputs": PLAN["inputs"][:1]}, r"b\.txt is missing"),
        ({"inputs": [*PLAN["inputs"], {**ENTRY, "file": "c.txt"}]}, r"c\.txt is new"),
        ({"inputs": PLAN["inputs"][::-1]}, "the files of the corpus have another order"),
        ({"inputs": [{**ENTRY, "stamp": 6}, PLAN["inputs"][1]]}, r"a\.txt has changed"),
        ({"inputs": [{**ENTRY, "source": "wiki"}, PLAN["inputs"][1]]}, r"a\.txt has changed"),
    ],
)
def test_other_inputs_or_settings_are_refused_by_name(tmp_path: Path, change: Any, message: str) -> None:
    interrupt(tmp_path / "data")
    with pytest.raises(InputError, match=rf"cannot be resumed: {message}; restore") as caught:
        locked_build(tmp_path / "data", {**PLAN, **change}, resume=True).__enter__()
    assert "\n" not in str(caught.value)
    assert (tmp_path / ".data.build" / "encoded" / "work").is_file()


def test_two_processes_do_not_build_in_one_place(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from bertsmith.data.build_directory import locked_build\n"
        "with locked_build(Path(sys.argv[1]), {'settings': {}, 'inputs': []}, False):\n"
        "    print('locked', flush=True); sys.stdin.read()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "data")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert other.stdout is not None
    assert other.stdout.readline() == b"locked\n"
    with pytest.raises(InputError, match="another prepare is writing"):
        locked_build(tmp_path / "data", PLAN, resume=True).__enter__()
    other.kill()
    other.communicate()
    with locked_build(tmp_path / "data", {"settings": {}, "inputs": []}, resume=True) as build:
        assert build.was_there
