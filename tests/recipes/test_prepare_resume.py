"""prepare killed, stopped and gone on with: the result is that of a run that nobody disturbed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from bertsmith.data.shards import Instances
from bertsmith.errors import InputError, RunError
from bertsmith.recipes.config import PrepareConfig
from bertsmith.recipes.prepare import prepare
from tests.recipes.preparing import contents, real_settings, settings, write_vocab


@pytest.fixture(scope="module")
def real(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> PrepareConfig:
    """Settings of seconds of work in both stages."""
    config = real_settings(shared_data, tmp_path_factory.mktemp("real"))
    return replace(config, passes=6, shard_size="512K", workers=2, encoder="tokenizers")


@pytest.fixture(scope="module")
def undisturbed(real: PrepareConfig) -> dict[str, str]:
    prepare(real)
    return contents(Path(real.out))


def start(config: PrepareConfig, *flags: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bertsmith", "prepare", "--corpus", *config.corpus]
    command += ["--vocab", config.vocab, "--out", config.out, "--workers", "2", "--heldout", "0.05"]
    command += ["--passes", "6", "--shard-size", "512K", "--encoder", "tokenizers", *flags]
    # A shell's background job ignores Ctrl-C, and so would its children: a handler is reset when they start.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
    finally:
        signal.signal(signal.SIGINT, before)


def wait_for(process: subprocess.Popen[bytes], is_reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_reached():
        assert process.poll() is None, "it ended too early to be stopped"
        assert time.monotonic() < deadline, "no work was seen"
        time.sleep(0.002)


def count(build: Path, pattern: str) -> int:
    return len(list(build.glob(pattern)))


MOMENTS: dict[str, Callable[[Path], bool]] = {
    "some blocks are encoded": lambda build: count(build, "encoded/*/*.npz") >= 2,
    "the flat files are being made": lambda build: count(build, "flat*") >= 1,
    "the first shard is whole": lambda build: count(build, "journal/train/*.json") >= 1,
    "the fourth shard is being written": lambda build: count(build, "data/train/ids-00003.npy") >= 1,
    "train is whole": lambda build: count(build, "data/heldout/*.npy") >= 1,
}


def test_a_build_killed_again_and_again_ends_as_if_undisturbed(real, undisturbed, tmp_path) -> None:
    config = replace(real, out=str(tmp_path / "data"))
    build = tmp_path / ".data.build"
    for moment, is_reached in MOMENTS.items():
        process = start(config, "--resume")
        wait_for(process, lambda is_reached=is_reached: is_reached(build))
        children = psutil.Process(process.pid).children(recursive=True)
        process.kill()
        process.communicate()
        _, alive = psutil.wait_procs(children, timeout=10)
        assert alive == []
        assert os.listdir(tmp_path) == [".data.build"], moment
    shards = {path: path.stat().st_mtime_ns for path in (build / "data" / "train").iterdir()}
    assert count(build, "journal/train/*.json") >= 10
    process = start(config, "--resume")
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert os.listdir(tmp_path) == ["data"]
    assert contents(tmp_path / "data") == undisturbed
    for path, written in shards.items():
        assert (tmp_path / "data" / "train" / path.name).stat().st_mtime_ns == written  # not made again
    Instances.open(tmp_path / "data", "train", verify=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_build_says_how_to_go_on(real, undisturbed, tmp_path, number) -> None:
    process = start(replace(real, out=str(tmp_path / "data")))
    wait_for(process, lambda: count(tmp_path / ".data.build", "journal/train/*.json") >= 1)
    children = psutil.Process(process.pid).children(recursive=True)
    if number == signal.SIGINT:  # as a terminal does: to every process of the command
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"interrupted" in errors
    assert b"the same command with --resume goes on" in errors
    assert b"Traceback" not in errors
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    config = replace(real, out=str(tmp_path / "data"), workers=1)
    with pytest.raises(InputError, match="add --resume to go on with it, or remove"):
        prepare(config)
    prepare(replace(config, resume=True))
    assert os.listdir(tmp_path) == ["data"]
    assert contents(tmp_path / "data") == undisturbed


@pytest.fixture
def stopped(tmp_path: Path) -> PrepareConfig:
    """Settings of a small build that was stopped after stage one."""
    vocab = write_vocab(tmp_path / "vocab.txt", ["red", "blue", "one", "two", "three", "."])
    (tmp_path / "texts").mkdir()
    for name, colour in (("a", "red"), ("b", "blue")):
        (tmp_path / "texts" / f"{name}.txt").write_text(f"{colour} one\n{colour} two\n{colour} three\n\n" * 9)
    config = replace(settings(tmp_path, "", vocab), corpus=[str(tmp_path / "texts")], seq_len=16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertsmith.recipes.prepare.pair_tasks", interrupt)
        with pytest.raises(KeyboardInterrupt):
            prepare(config)
    assert (tmp_path / ".data.build" / "flat").is_dir()
    return replace(config, resume=True)


def interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def test_changed_inputs_and_settings_are_refused_by_name(stopped: PrepareConfig, tmp_path: Path) -> None:
    def message(**changes: Any) -> str:
        with pytest.raises(InputError) as caught:
            prepare(replace(stopped, **changes))
        assert "cannot be resumed" in str(caught.value)
        return str(caught.value)

    assert "seq_len was 16, is 32" in message(seq_len=32)
    assert "shard_size was '64M', is '32M'" in message(shard_size="32M")
    other = write_vocab(tmp_path / "other" / "vocab.txt", ["red"])
    assert "vocabulary was" in message(vocab=str(other))
    assert "b.txt is missing" in message(corpus=[str(tmp_path / "texts" / "a.txt")])
    text = tmp_path / "texts" / "b.txt"
    before = text.read_text()
    text.write_text(before.replace("blue", "reds"))
    assert "b.txt has changed" in message()
    (tmp_path / "texts" / "c.txt").write_text("red\n")
    assert "c.txt is new" in message()
    assert (tmp_path / ".data.build" / "flat").is_dir()


def test_workers_and_encoder_may_differ_when_a_build_goes_on(stopped: PrepareConfig, tmp_path: Path) -> None:
    prepare(replace(stopped, workers=2, encoder="tokenizers"))
    prepare(replace(stopped, out=str(tmp_path / "whole"), workers=1, encoder="auto"))
    assert contents(tmp_path / "data") == contents(tmp_path / "whole")


def test_a_pipe_cannot_be_gone_on_with(tmp_path: Path) -> None:
    vocab = write_vocab(tmp_path / "vocab.txt", ["red", "one"])
    (tmp_path / "data").mkdir()
    command = [sys.executable, "-m", "bertsmith", "prepare", "--corpus", "-", "--vocab", str(vocab)]
    command += ["--out", str(tmp_path / "data"), "--workers", "1"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"red one.\n\n" * 1000)
    wait_for(process, lambda: (tmp_path / ".data.build" / "encoded").is_dir())
    process.kill()
    process.communicate()
    again = subprocess.run([*command, "--resume"], input=b"red one.\n\n", capture_output=True, timeout=60)
    assert again.returncode == 2
    assert b"cannot be read again" in again.stderr
    assert not (tmp_path / ".data.build").exists()


def test_bad_text_leaves_nothing(tmp_path: Path) -> None:
    vocab = write_vocab(tmp_path / "vocab.txt", ["red", "one"])
    config = settings(tmp_path, "", vocab)
    (tmp_path / "a.jsonl").write_text('{"text": "red one"}\nno json\n')
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(InputError, match="line 2: not JSON"):
        prepare(replace(config, corpus=[str(tmp_path / "a.jsonl")]))
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("leave", [60_000, 400_000])
def test_a_build_that_filled_the_disk_is_gone_on_with(tmp_path: Path, small_disk: Path, leave: int) -> None:
    vocab = write_vocab(tmp_path / "vocab.txt", ["red", "blue", "one", "two", "three", "."])
    text = "red one two three .\nblue two . three\nred red . one\n\n" * 5000
    config = settings(tmp_path, text, vocab, seq_len=16, shard_size="64K")
    prepare(replace(config, out=str(tmp_path / "whole")))
    ballast = small_disk / "ballast"
    state = os.statvfs(small_disk)
    ballast.write_bytes(bytes(state.f_bavail * state.f_frsize - leave))
    full = replace(config, out=str(small_disk / "data"))
    with pytest.raises(OSError, match="No space left"):
        prepare(full)
    assert not (small_disk / "data").exists()
    ballast.unlink()
    assert not list((small_disk / ".data.build").rglob(".*.tmp"))
    prepare(replace(full, resume=True))
    assert os.listdir(small_disk) == ["data"]
    assert contents(small_disk / "data") == contents(tmp_path / "whole")


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file whose reading fails")
def test_a_disk_that_fails_leaves_what_is_whole(tmp_path: Path) -> None:
    vocab = write_vocab(tmp_path / "vocab" / "vocab.txt", ["a", "b"])
    config = settings(tmp_path, "a b\na\n\nb a\n", vocab)
    (tmp_path / "z.txt").symlink_to("/proc/self/mem")  # it opens, and reading it is an error
    with pytest.raises(RunError, match=r"z\.txt: reading it failed"):
        prepare(replace(config, corpus=[*config.corpus, str(tmp_path / "z.txt")]))
    assert count(tmp_path / ".data.build", "encoded/000000/*.npz") == 1
