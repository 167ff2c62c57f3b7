"""What is written about serving is so: commands of the files in deploy/, and docs/serving.md."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from pathlib import Path

import pytest
import yaml

from bertsmith import cli
from bertsmith.serving.config import ServeConfig
from tests.serving.running import Client

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
DOCS = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")


def settings_of(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert cli.run([*words, "--print-config"]) == cli.DONE
    found: dict[str, object] = yaml.safe_load(capsys.readouterr().out)
    return found


def test_the_containers_command_reaches_it_from_outside(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (DEPLOY / "Dockerfile").read_text(encoding="utf-8").splitlines()
    command = next(json.loads(line.removeprefix("CMD ")) for line in lines if line.startswith("CMD "))
    found = settings_of(command, capsys)
    assert (found["host"], found["port"]) == ("0.0.0.0", 8000)
    assert "STOPSIGNAL SIGTERM" in lines


def test_the_units_command_gives_tokens_and_time_to_stop(capsys: pytest.CaptureFixture[str]) -> None:
    unit = (DEPLOY / "bertsmith@.service").read_text(encoding="utf-8")
    start = re.search(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    longest = re.search(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert start is not None
    assert longest is not None
    found = settings_of(shlex.split(start[1].replace("%i", "8001"))[1:], capsys)
    assert (found["host"], found["port"]) == ("127.0.0.1", 8001)
    assert found["token_file"] == "%d/tokens"
    assert int(longest[1]) > int(str(found["stop_seconds"]))


def test_the_proxy_lets_through_what_the_server_takes() -> None:
    proxy = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert f"client_max_body_size {ServeConfig.max_body_bytes >> 20}m;" in proxy
    assert f"proxy_read_timeout {ServeConfig.timeout_seconds + 5:g}s;" in proxy


def test_the_docs_tell_every_endpoint_code_and_default(client: Client) -> None:
    for path in client.get("/openapi.json").json["paths"]:
        assert path.replace("{name}", "NAME") in DOCS, path
    for file in (ROOT / "src" / "bertsmith" / "serving").glob("*.py"):
        for status, code in re.findall(r'Refusal\(\s*(\d{3}),\s*"(\w+)"', file.read_text(encoding="utf-8")):
            assert re.search(rf"\| {status} \|[^|]*`{code}`", DOCS), (status, code)
    defaults = {field.name: field.default for field in dataclasses.fields(ServeConfig)}
    told = re.findall(r"^\| `--([a-z-]+)` \| (\S+)( MiB)? \|", DOCS, re.MULTILINE)
    assert len(told) > 8
    for name, value, mebi in told:
        expected = defaults[name.replace("-", "_")]
        if isinstance(expected, (int, float)):
            assert float(value) * (1 << 20 if mebi else 1) == expected, name
        else:
            assert value == str(expected).lower()
