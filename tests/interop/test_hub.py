"""Models by their names on the hub: from a hub on this machine, and from the cache when there is none."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from bertsmith.bundle import load_bundle
from bertsmith.cli import run
from bertsmith.errors import InputError
from bertsmith.interop.hub import local_directory
from tests.recipes.tiny import save_model

constants = pytest.importorskip("huggingface_hub.constants")
NAME, COMMIT = "someone/tiny-bert", "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """One model under one name, as the hub serves it."""

    directory: Path
    asked: list[str]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0].strip("/")
        type(self).asked.append(path)
        files = {file.relative_to(self.directory).as_posix(): file for file in self.directory.rglob("*.*")}
        if path == f"api/models/{NAME}/revision/main":
            body = {"id": NAME, "sha": COMMIT, "siblings": [{"rfilename": name} for name in files]}
        elif path == f"api/models/{NAME}/tree/{COMMIT}":
            body = [
                {"type": "file", "path": name, "size": file.stat().st_size, "oid": self.etag(file)}
                for name, file in files.items()
            ]
        elif (name := path.removeprefix(f"{NAME}/resolve/{COMMIT}/")) in files:
            self.reply(200, files[name].read_bytes(), self.etag(files[name]))
            return
        else:
            self.reply(404, b"{}", "", {"X-Error-Code": "RepoNotFound"})
            return
        self.reply(200, json.dumps(body).encode(), "")

    do_HEAD = do_GET

    @staticmethod
    def etag(file: Path) -> str:
        return hashlib.sha1(file.read_bytes()).hexdigest()

    def reply(self, status: int, body: bytes, etag: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        given = {
            "Content-Length": str(len(body)),
            "X-Repo-Commit": COMMIT,
            "ETag": f'"{etag}"',
            **(more or {}),
        }
        for name, value in given.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


NOBODY = "http://127.0.0.1:9"


def set_endpoint(monkeypatch, url: str) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", url)
    monkeypatch.setattr(
        constants, "HUGGINGFACE_CO_URL_TEMPLATE", url + "/{repo_id}/resolve/{revision}/{filename}"
    )


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache, and no hub that answers."""
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
        monkeypatch.delenv(variable.lower(), raising=False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    set_endpoint(monkeypatch, NOBODY)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache"


@pytest.fixture
def hub(tmp_path, cache, monkeypatch):
    handler = type("OneHub", (Hub,), {"directory": save_model(tmp_path / "served"), "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    set_endpoint(monkeypatch, f"http://127.0.0.1:{server.server_port}")
    yield handler
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_model_is_fetched_by_its_name_and_kept(hub, cache, monkeypatch, tmp_path):
    (hub.directory / "tf_model.h5").write_bytes(b"not wanted")
    assert run(["convert", "--input", NAME, "--out", str(tmp_path / "ours")]) == 0
    expected = load_bundle(hub.directory).state
    for found in (load_bundle(tmp_path / "ours").state, load_bundle(NAME).state):
        assert found.keys() == expected.keys()
        assert all(value.equal(expected[name]) for name, value in found.items())
    assert not any(path.endswith("tf_model.h5") for path in hub.asked)
    set_endpoint(monkeypatch, NOBODY)  # and now there is no hub
    assert load_bundle(NAME).directory == local_directory(f"{NAME}@main")
    assert local_directory(NAME).is_relative_to(cache)


def test_a_bin_is_fetched_where_there_is_nothing_better(hub):
    (hub.directory / "model.safetensors").rename(hub.directory / "pytorch_model.bin")
    assert (local_directory(NAME) / "pytorch_model.bin").is_file()


def test_what_another_program_cached_is_found_without_a_hub(cache, tmp_path):
    """It fetched no README.md, and of some files no list."""
    folder = cache / "models--someone--tiny-bert"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(COMMIT)
    save_model(folder / "snapshots" / COMMIT)
    (folder / "snapshots" / COMMIT / "README.md").unlink()
    assert load_bundle(NAME).config == load_bundle(folder / "snapshots" / COMMIT).config
    with pytest.raises(InputError, match="someone/other-bert: no such directory, and the Hugging Face hub"):
        local_directory("someone/other-bert")


def test_a_name_that_nobody_has_is_one_line_and_code_2(hub, capsys, tmp_path):
    for words in (
        ["convert", "--input", "someone/else", "--out", "o"],
        ["fill", "a [MASK]", "--model", "a/b"],
    ):
        assert run(words) == 2
        message = capsys.readouterr().err
        assert "no such directory, and the Hugging Face hub does not give a model of that name" in message
        assert message.count("\n") == 1
    assert not (tmp_path / "o").exists()


@pytest.mark.parametrize("name", ["runs/model", "./a/b", "/a/b", "a", "a/b/c", "a/../b"])
def test_a_path_is_never_asked_for(hub, name, tmp_path):
    (tmp_path / "runs").mkdir()
    assert local_directory(name) == Path(name)
    assert hub.asked == []
