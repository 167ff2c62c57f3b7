"""The tutorials as they stand: one for every person, commands that parse, every block run on real data."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from bertsmith import cli
from tests.conftest import ROOT

PAGES = {
    page.stem: page for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")) if page.stem != "README"
}
RESULTS = {
    "engineer": ["runs/reviews/model/task.json", "runs/reviews/metrics.json", "report.html", "answer.json"],
    "domain": ["data/manifest.json", "run/model/model.safetensors", "adapted/model/vocab.txt", "report.html"],
    "researcher": ["bert-exact.yaml", "data/manifest.json", "study/masking/table.md", "cola/metrics.json"],
    "old-model": ["imported/conversion-report.json", "onnx/export-report.json", "hf/config.json"],
    "retrieval": ["index", "vectors.npy", "tuned/model/modules.json", "embedding.json", "ranks.json"],
    "learner": ["run/model/model.safetensors", "report.html", "page.html"],
}
"""What each tutorial leaves behind."""
_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: str) -> list[tuple[str, str]]:
    return _BLOCK.findall(PAGES[page].read_text(encoding="utf-8"))


def commands(page: str) -> list[list[str]]:
    """Return the arguments of every call of bertsmith on a page, variables replaced."""
    text = "\n".join(code for language, code in blocks(page) if language == "bash").replace("\\\n", " ")
    lines = re.findall(r"(?:^|\| )bertsmith ([^|&>\n]*)", text, re.MULTILINE)
    return [shlex.split(line.replace("$DATA", "data").replace("$MODEL", "model")) for line in lines]


def test_there_is_a_tutorial_for_every_person() -> None:
    index = (ROOT / "docs" / "tutorials" / "README.md").read_text(encoding="utf-8")
    assert set(PAGES) == set(RESULTS)
    for page in PAGES:
        assert f"]({page}.md)" in index
        assert commands(page)


@pytest.mark.parametrize("page", RESULTS)
def test_every_command_parses(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in commands(page):
        assert cli.run([*arguments, "--print-config"]) == 0, (arguments, capsys.readouterr().err)


@pytest.mark.parametrize("page", RESULTS)
def test_links_lead_somewhere(page: str) -> None:
    for link in re.findall(r"\]\((?!http)([^)#]+)", PAGES[page].read_text(encoding="utf-8")):
        assert (PAGES[page].parent / link).exists(), link


def script_of(page: str) -> str:
    """Return a page as a script; the Python blocks of a page are one program after the other's names."""
    parts, program = ["set -euo pipefail"], ""
    for language, code in blocks(page):
        if language == "bash":
            parts.append(code)
        else:
            program += code
            parts.append(f"python - <<'END_OF_PYTHON'\n{program}\nEND_OF_PYTHON")
    return "\n".join(parts)


@pytest.mark.slow
@pytest.mark.parametrize("page", RESULTS)
def test_the_tutorial_runs(page: str, shared_data: Path, minilm_path: Path, tmp_path: Path) -> None:
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, call in (("bertsmith", "-m bertsmith"), ("python", "")):
        file = commands / name
        file.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n')
        file.chmod(file.stat().st_mode | stat.S_IXUSR)
    work = tmp_path / "work"
    work.mkdir()
    places = {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "DATA": str(shared_data),
        "MODEL": str(minilm_path),
    }
    started = subprocess.Popen(
        ["bash", "-c", script_of(page)],
        cwd=work,
        env={**os.environ, **places},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = started.communicate(timeout=1200)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)  # a server, where a command before its end failed
    assert started.returncode == 0, errors[-3000:]
    missing = [name for name in RESULTS[page] if not (work / name).exists()]
    assert not missing, output[-3000:]
    assert "Traceback" not in errors
