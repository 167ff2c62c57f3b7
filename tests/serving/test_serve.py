"""The verb as a real process: many clients, all that can go wrong, and the end."""

from __future__ import annotations

import json
import random
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from bertsmith import cli
from bertsmith.errors import InputError
from bertsmith.serving.config import ServeConfig
from bertsmith.serving.serve import read_tokens
from bertsmith.serving.served import load_models
from tests.recipes.tiny import WORDS
from tests.serving.process import Server, server
from tests.serving.running import Client
from tests.test_predictor_kinds import close

CLIENTS, REQUESTS = 32, 50


@pytest.fixture(scope="module")
def copies(directories: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Copies of the models, which may be removed."""
    root = tmp_path_factory.mktemp("copies")
    chosen = ("classification", "spans", "pretrained")
    return {name: Path(shutil.copytree(directories[name], root / name)) for name in chosen}


@pytest.fixture(scope="module")
def running(copies: dict[str, Path]) -> Iterator[Server]:
    with server(copies) as started:
        yield started


def text_of(client: int, turn: int) -> str:
    """Return a text of 1 to 300 words that no other client sends."""
    draw = random.Random(f"{client} {turn}")
    return " ".join(draw.choices(WORDS, k=draw.randint(1, 300)))


def ask_all(client: Client, number: int) -> list[Any]:
    """Ask for every text of a client over one connection."""
    connection = HTTPConnection("127.0.0.1", client.port, timeout=60)
    found = []
    for turn in range(REQUESTS):
        body = json.dumps({"texts": [text_of(number, turn)]})
        connection.request("POST", "/v1/classify", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 200
        found.append(json.loads(answer.read())["results"][0])
    connection.close()
    return found


def test_c055_clients_at_the_same_time_get_the_answers_to_their_own_texts(
    running: Server, directories: dict[str, Path]
) -> None:
    client = running.client
    client.post("/v1/classify", {"texts": [text_of(0, turn) for turn in range(REQUESTS)]})
    before = running.memory
    with ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(lambda number: ask_all(client, number), range(CLIENTS)))
    assert running.memory < 1.1 * before
    model = load_models(ServeConfig([str(directories["classification"])]))[0].predictor
    for number, answers in enumerate(found):
        texts = [text_of(number, turn) for turn in range(REQUESTS)]
        # Of the texts of one client alone; tests/test_predictor_kinds.py has those of each text by itself.
        assert close(answers, [vars(answer) for answer in model.classify(texts)])
    rows = client.figure('bertsmith_batch_rows_sum{model="classification"}')
    batches = client.figure('bertsmith_batch_rows_count{model="classification"}')
    assert rows / batches > 2  # they did share batches


def half_a_request(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(b"POST /v1/classify HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n")
        connection.sendall(b'Content-Length: 100\r\n\r\n{"texts": ["sec')


def leaves(client: Client) -> None:
    """Ask for much and go away."""
    body = json.dumps({"texts": ["secret " * 60] * 500})
    connection = HTTPConnection("127.0.0.1", client.port, timeout=10)
    connection.request(
        "POST", "/v1/embeddings", json.dumps({"input": body}), {"Content-Type": "application/json"}
    )
    connection.close()


def no_http(client: Client) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=10) as connection:
        connection.sendall(b"\x16\x03\x01 secret \r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 400")


def status_of(path: str, body: Any, expected: int) -> Callable[[Client], None]:
    def ask(client: Client) -> None:
        found = client.post(path, body)
        assert found.status == expected, found.body
        assert len(found.error["message"].splitlines()) == 1

    return ask


CHAOS: list[Callable[[Client], None]] = [
    half_a_request,
    leaves,
    no_http,
    status_of("/v1/classify", b'{"texts": ["secret"', 400),
    status_of("/v1/classify", {"texts": [{"secret": 1}]}, 422),
    status_of("/v1/classify", {"texts": ["secret \udc00"]}, 422),
    status_of("/v1/classify", {"texts": []}, 422),
    status_of("/v1/fill", {"texts": ["secret"]}, 422),
    status_of("/v1/answer", {"inputs": [{"question": "secret"}]}, 422),
    status_of("/v1/classify", b"[" * 100_000, 400),
    status_of("/v1/classify", b" " * 10_000_000, 413),
    status_of("/v1/classify", {"texts": "secret", "model": "secret"}, 404),
]


def test_chaos_gets_its_answers_and_others_get_theirs(running: Server, copies: dict[str, Path]) -> None:
    client = running.client
    expected = client.post("/v1/classify", {"texts": ["so good", "bad"]}).json["results"]
    asked = {"question": "so", "passage": "secret " * 400}
    spans = client.post("/v1/answer", {"inputs": [asked]}).json["results"]
    ended = threading.Event()

    def witness() -> int:
        answered = 0
        while not ended.is_set() or answered < 5:
            found = client.post("/v1/classify", {"texts": ["so good", "bad"]})
            assert found.status == 200
            assert close(found.json["results"], expected)
            answered += 1
        return answered

    with ThreadPoolExecutor(4) as pool:
        watching = pool.submit(witness)
        mischief = random.Random(0).sample(CHAOS * 3, 3 * len(CHAOS))
        try:
            for done in [pool.submit(act, client) for act in mischief]:
                done.result(60)
            for place in copies.values():  # the models are in memory
                shutil.rmtree(place)
            assert client.post("/v1/answer", {"inputs": [asked]}).json["results"] == spans
            assert len(client.get("/v1/models").json["data"]) == len(copies)
        finally:
            ended.set()
        assert watching.result(60) >= 5
    assert client.get("/healthz").status == 200
    statuses = {line["status"] for line in running.log if line["event"] == "request"}
    assert statuses >= {200, 400, 404, 413, 422, 499}
    assert 500 not in statuses
    assert "secret" not in json.dumps(running.log)  # no words of a user


def test_work_of_a_client_that_left_is_dropped(running: Server) -> None:
    client = running.client
    counted = 'bertsmith_pieces_total{model="pretrained"}'
    before = client.figure(counted)
    connection = HTTPConnection("127.0.0.1", client.port, timeout=10)
    body = json.dumps({"input": ["good " * 60] * 2000, "model": "pretrained"})
    connection.request("POST", "/v1/embeddings", body, {"Content-Type": "application/json"})
    while client.figure("bertsmith_waiting_pieces") == 0:
        time.sleep(0.005)
    connection.close()
    while client.figure("bertsmith_waiting_pieces") > 0:
        time.sleep(0.01)
    assert client.figure(counted) - before < 2000 * 62
    time.sleep(0.1)
    assert running.log[-1]["event"] == "request"
    assert any(line.get("status") == 499 for line in running.log[-500:])


def test_a_signal_ends_it_when_what_is_under_way_is_answered(
    directories: dict[str, Path], tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("\ufeff# of the tests\r\nsecret\r\n\r\n", encoding="utf-8")
    flags = ("--token-file", str(tokens), "--json", "--batch-tokens", "64")
    with server({"embed": directories["pretrained"]}, *flags) as started:
        client = Client(started.client.port, {"Authorization": "Bearer secret"})
        assert started.client.get("/v1/models").status == 401
        with ThreadPoolExecutor(1) as pool:
            asked = {"input": ["good " * 62] * 300}
            under_way = pool.submit(client.post, "/v1/embeddings", asked)
            while client.figure("bertsmith_waiting_pieces") == 0:
                time.sleep(0.005)
            started.process.send_signal(signal.SIGTERM)
            answer = under_way.result(60)
        assert (answer.status, len(answer.json["data"])) == (200, 300)
        assert started.process.wait(30) == 0
        assert started.process.stdout is not None
        summary = json.loads(started.process.stdout.read())
        assert summary["requests"] >= 3
        assert started.log[-1]["event"] == "stopped"
        with pytest.raises(ConnectionRefusedError):
            client.get("/healthz")


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert cli.run(["serve", *flags]) == cli.WRONG_USAGE
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) == 1
    return said.err


def test_what_cannot_be_served_is_said_at_once(
    capsys: pytest.CaptureFixture[str], directories: dict[str, Path], tmp_path: Path
) -> None:
    model = str(directories["classification"])
    assert "--model" in refused(capsys)
    assert "no such directory" in refused(capsys, "--model", str(tmp_path / "none"), "--port", "0")
    assert "batch_tokens is 0" in refused(capsys, "--model", model, "--batch-tokens", "0")
    odd = ("--precision", "bfloat16", "--quantize", "int8")
    assert "would be ignored with quantize" in refused(capsys, "--model", model, "--port", "0", *odd)
    assert "port is 70000" in refused(capsys, "--model", model, "--port", "70000")
    assert "timeout_seconds is nan" in refused(capsys, "--model", model, "--timeout-seconds", "nan")
    assert "cannot listen at no.such.host" in refused(capsys, "--model", model, "--host", "no.such.host")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"port {port}" in refused(capsys, "--model", model, "--port", port)
    file = tmp_path / "tokens"
    for content, message in (("# none\n", "holds no token"), ("ä\n", "printable ASCII")):
        file.write_text(content, encoding="utf-8")
        assert message in refused(capsys, "--model", model, "--token-file", str(file))
    file.write_bytes(b"\xff\n")
    assert "UTF-8" in refused(capsys, "--model", model, "--token-file", str(file))
    assert "give a file" in refused(capsys, "--model", model, "--token-file", str(tmp_path / "none"))


def test_a_missing_package_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "bertsmith.serving.connection", raising=False)  # imported by other tests
    assert "serve needs the package uvicorn; pip install 'bertsmith[serve]'" in refused(
        capsys, "--model", "x"
    )


def test_c057_a_budget_that_can_never_fit_a_text_is_refused_at_start(directories: dict[str, Path]) -> None:
    with pytest.raises(InputError, match="--batch-tokens 31 is less than 32, the pieces"):
        load_models(ServeConfig([str(directories["classification"])], batch_tokens=31))


def test_names_of_models(directories: dict[str, Path], tmp_path: Path) -> None:
    run = tmp_path / "sst2"
    shutil.copytree(directories["classification"], run / "model")
    odd = Path(shutil.copytree(directories["classification"], tmp_path / "a=b"))
    found = load_models(ServeConfig([str(run / "model"), f"other={run / 'model'}", str(odd)]))
    assert [model.name for model in found] == ["sst2", "other", "a=b"]
    with pytest.raises(InputError, match="both called 'sst2'; give NAME=DIR"):
        load_models(ServeConfig([str(run / "model"), f"sst2={run / 'model'}"]))


def test_tokens_are_lines_but_comments_and_empty_ones(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("# a\n\n one \ntwo\n", encoding="utf-8")
    assert read_tokens(file) == ["one", "two"]


def test_settings_out_of_range_are_refused() -> None:
    for name in ("queue_tokens", "max_requests", "max_body_bytes", "max_texts", "max_text_chars"):
        with pytest.raises(InputError, match=f"{name} is 0; it has to be at least 1"):
            ServeConfig(model=[], **{name: 0})
