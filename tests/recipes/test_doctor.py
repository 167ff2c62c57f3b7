"""The verb doctor as a user meets it: exit codes, output, and settings that do not fit."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bertsmith.cli import run
from bertsmith.errors import InputError
from bertsmith.recipes.config import DoctorConfig
from bertsmith.recipes.doctor import doctor
from tests.checkup.texts import prose, write


@pytest.fixture
def healthy(tmp_path: Path) -> Path:
    return write(tmp_path / "healthy.txt", prose())


@pytest.fixture
def spoilt(tmp_path: Path) -> Path:
    return write(tmp_path / "spoilt.txt", [*prose(), *prose(), *prose()])


def test_exit_codes_say_whether_to_train(healthy: Path, spoilt: Path, capsys) -> None:
    assert run(["doctor", "--corpus", str(healthy)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("ready for training (0 errors, ")
    assert run(["doctor", "--corpus", str(spoilt)]) == 1
    out = capsys.readouterr().out
    assert out.splitlines()[-1].startswith("mend this first (2 errors, ")
    assert "\x1b" not in out, "no colours where nobody sees them"


def test_the_worst_comes_first_with_cost_remedy_and_reason(spoilt: Path, capsys) -> None:
    run(["doctor", "--corpus", str(spoilt)])
    lines = capsys.readouterr().out.splitlines()
    levels = [line.split()[0] for line in lines if not line.startswith(" ")][:-1]
    assert levels == sorted(levels, key=["error", "warning", "note"].index)
    assert levels[0] == "error"
    starts = [line.split()[0] for line in lines[:6]]
    assert [starts[0], *starts[3:]] == ["error", "costs:", "mend:", "an"]
    assert all(start.startswith(f"{spoilt}:") for start in starts[1:3])


def test_json_says_the_same(spoilt: Path, capsys) -> None:
    assert run(["doctor", "--corpus", str(spoilt), "--json"]) == 1
    summary = json.loads(capsys.readouterr().out)
    assert summary["failed"] is True
    assert [summary["errors"], summary["warnings"]] == [2, 1]
    found = {finding["name"]: finding for finding in summary["findings"]}
    assert set(found) == {"repeated_documents", "repeated_lines", "little_text"}
    assert found["repeated_lines"]["share"] == pytest.approx(2 / 3, abs=1e-6)
    assert found["repeated_lines"]["error_from"] == 0.3
    assert summary["corpus"]["documents"] == 120


def test_a_terminal_gets_colours(spoilt: Path) -> None:
    from io import StringIO

    from rich.console import Console

    from bertsmith.checkup.show import show_findings

    screen = StringIO()
    console = Console(file=screen, force_terminal=True, color_system="standard")
    show_findings(doctor(DoctorConfig(corpus=[str(spoilt)])), console)
    assert "\x1b[1;31merror" in screen.getvalue()


def test_square_brackets_in_text_are_shown_as_they_are(tmp_path: Path, capsys) -> None:
    documents = prose()
    documents[0][0] = "The [MASK] slept [bold]in the old[/bold] garden chair until the evening came."
    run(["doctor", "--corpus", str(write(tmp_path / "a.txt", documents))])
    assert documents[0][0] in capsys.readouterr().out


def test_standard_input(healthy: Path) -> None:
    command = [sys.executable, "-m", "bertsmith", "doctor", "--corpus", "-", "--json"]
    text = healthy.read_text()
    done = subprocess.run(command, input=text + "\n" + text, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    found = {finding["name"]: finding for finding in json.loads(done.stdout)["findings"]}
    assert found["repeated_documents"]["examples"][0]["place"].startswith("standard input:")


@pytest.mark.parametrize(
    "settings, words",
    [
        ({}, "either --corpus"),
        ({"corpus": ["a.txt"], "data": "b"}, "either --corpus"),
        ({"data": "nowhere"}, "no manifest.json"),
        ({"corpus": ["nowhere.txt"]}, "no such file"),
        ({"corpus": ["nowhere.txt"], "pairing": "nps"}, "pairing 'nps' is unknown"),
        ({"corpus": ["nowhere.txt"], "vocab": "nowhere"}, "no such vocabulary"),
        ({"data": "nowhere", "vocab": "v"}, "--vocab would be ignored"),
        ({"data": "nowhere", "against": ["v"]}, "--against would be ignored"),
        ({"data": "nowhere", "ngram_words": 8}, "--ngram-words would be ignored"),
        ({"data": "nowhere", "seq_len": 64}, "--seq-len would be ignored"),
        ({"data": "nowhere", "task": "sst2", "pairing": "sop"}, "--pairing would be ignored"),
        ({"data": "nowhere", "task": "sst2", "seq_len": 64}, "without --vocab"),
        ({"data": "nowhere", "task": "colaa"}, "did you mean 'cola'"),
        ({"corpus": ["nowhere.txt"], "ngram_words": 8}, "without --against"),
        ({"corpus": ["nowhere.txt"], "task": "sst2"}, "a corpus has no task"),
        ({"corpus": ["nowhere.txt"], "dev": "d.csv"}, "--dev would be ignored"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        doctor(DoctorConfig(**settings))


def test_an_empty_corpus_is_wrong_input(tmp_path: Path, capsys) -> None:
    (tmp_path / "a.txt").write_text("\n\n")
    assert run(["doctor", "--corpus", str(tmp_path / "a.txt")]) == 2
    assert "holds no text" in capsys.readouterr().err
