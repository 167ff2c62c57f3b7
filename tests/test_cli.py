"""The command line as a user meets it: real processes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import yaml

from bertsmith.cli import VERBS, run

COMMAND = [sys.executable, "-m", "bertsmith"]


def bertsmith(*words, **options):
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, **options)


def test_help_names_every_verb():
    done = bertsmith("--help")
    assert done.returncode == 0
    assert all(verb in done.stdout for verb in VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_each_verb_shows_flags_and_loads_no_torch(verb):
    code = (
        f"import sys, bertsmith.cli; bertsmith.cli.run(['{verb}', '-h']); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "--config" in done.stdout
    assert "--json" in done.stdout


def test_help_is_quick():
    seconds = []
    for _ in range(3):
        before = os.times()
        assert bertsmith("pretrain", "--help").returncode == 0
        after = os.times()
        spent = [now - then for now, then in zip(after[2:4], before[2:4], strict=True)]
        seconds.append(sum(spent))
    # User and system time of the children, not the clock: other programs may hold the processor.
    assert min(seconds) < 0.5, seconds


@pytest.mark.parametrize(
    "words, expected",
    [
        (["pretain"], "did you mean 'pretrain'?"),
        (["pretrain", "--data", "x"], "--out"),
        (["pretrain", "--data", "x", "--out", "y", "--batc-size", "3"], "--batch-size"),
        (["pretrain", "--data", "x", "--out", "y", "--batch-size", "three"], "--batch-size"),
        (["pretrain", "--data", "x", "--out", "y", "--preset", "bert-min"], "did you mean 'bert-mini'?"),
        (["pretrain", "--data", "x", "--out", "y", "--masking.rate", "7"], "masking rate is 7"),
        (
            [
                "pretrain",
                "--data",
                "x",
                "--out",
                "y",
                "--steps",
                "1",
                "--init",
                "m",
                "--architecture.num-layers",
                "3",
            ],
            "--architecture is given with --init m",
        ),
        (["pretrain", "--config", "/nowhere.yaml"], "no such file"),
        (["pretrain", "--config"], "expected one argument"),
        (["vocab", "--corpus", "/nowhere.txt", "--out", "v.txt"], "/nowhere.txt"),
        (["fill", "no mask", "--model", "/nowhere"], "/nowhere"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(words, expected, tmp_path):
    done = bertsmith(*words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("seed", ["-1", str(1 << 63)])
@pytest.mark.parametrize("verb", ["prepare", "pretrain", "finetune", "demo", "ablate"])
def test_a_seed_that_draws_as_another_is_refused(verb, seed, capsys):
    needed = {
        "prepare": ["--corpus", "c", "--vocab", "v", "--out", "o"],
        "pretrain": ["--data", "d", "--out", "o"],
        "finetune": ["--task", "sst2", "--data", "d", "--model", "m", "--out", "o"],
        "demo": ["--out", "o"],
        "ablate": ["masking", "--out", "o"],
    }
    assert run([verb, *needed[verb], "--seed", seed]) == 2
    assert f"--seed is {seed}; it has to be from 0 to" in capsys.readouterr().err


@pytest.mark.parametrize(
    "content, expected",
    [
        ("1: 2", "unknown setting '1'"),
        ("preset: [bert-mini]", "unknown preset ['bert-mini']"),
        ("batch_size: many", "expected int"),
        ("- a", "expected settings as 'name: value' lines"),
        ("optimizer: 3", "expected OptimizerConfig"),
        ("optimizer: {beta2: 2}", "beta2 is 2"),
        ("optimizer: {beta2: 1" + "0" * 400 + "}", "expected float"),
    ],
)
def test_a_wrong_settings_file_is_one_line_and_code_2(content, expected, tmp_path, capsys):
    (tmp_path / "run.yaml").write_text(content)
    assert run(["pretrain", "--config", str(tmp_path / "run.yaml"), "--data", "d", "--out", "o"]) == 2
    message = capsys.readouterr().err
    assert expected in message
    assert len(message.strip().splitlines()) == 1


@pytest.mark.parametrize("file", ["", "/"])
def test_a_settings_file_that_cannot_be_read_is_wrong_usage(file, capsys):
    assert run(["vocab", "--config", file, "--corpus", "a", "--out", "v.txt"]) == 2
    assert f"--config {file}: " in capsys.readouterr().err


def test_an_output_where_none_can_be_is_wrong_usage(tmp_path, capsys):
    (tmp_path / "a.txt").write_text("A line of text that is long enough to be taken for prose.\n")
    words = ["vocab", "--corpus", str(tmp_path / "a.txt"), "--size", "60"]
    assert run([*words, "--out", str(tmp_path / "a.txt" / "vocab.txt")]) == 2
    assert "a.txt" in capsys.readouterr().err.splitlines()[-1]


def test_verbs_of_one_process_refuse_torchrun(capsys, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(["fill", "a [MASK]", "--model", "nowhere"]) == 2
    assert "fill is done by one process; start it without torchrun" in capsys.readouterr().err


def test_hyphens_and_underscores_alike(capsys):
    for flag in ("--seq-len", "--seq_len"):
        assert (
            run(["prepare", "--corpus", "a", "--vocab", "v", "--out", "o", flag, "64", "--print-config"]) == 0
        )
        assert yaml.safe_load(capsys.readouterr().out)["seq_len"] == 64


def test_flags_win_over_the_file_and_the_file_over_the_preset(tmp_path, capsys):
    (tmp_path / "run.yaml").write_text("data: d\nout: o\npreset: bert-tiny\nbatch_size: 5\nseed: 1\n")
    assert run(["pretrain", "--config", str(tmp_path / "run.yaml"), "--seed", "2", "--print-config"]) == 0
    settings = yaml.safe_load(capsys.readouterr().out)
    assert settings["architecture"]["num_layers"] == 2
    assert (settings["batch_size"], settings["seed"]) == (5, 2)


def test_printed_settings_can_be_read_back(tmp_path, capsys):
    words = ["pretrain", "--data", "d", "--out", "o", "--architecture.num-layers", "3"]
    assert run([*words, "--print-config"]) == 0
    first = capsys.readouterr().out
    (tmp_path / "run.yaml").write_text(first)
    assert run(["pretrain", "--config", str(tmp_path / "run.yaml"), "--print-config"]) == 0
    assert capsys.readouterr().out == first


def test_a_recipe_is_below_the_file_and_the_flags(tmp_path, capsys):
    words = ["finetune", "--task", "rte", "--model", "m", "--data", "d", "--out", "o", "--print-config"]
    assert run([*words, "--recipe", "stable"]) == 0
    stable = yaml.safe_load(capsys.readouterr().out)
    assert (stable["recipe"], stable["epochs"], stable["optimizer"]["learning_rate"]) == ("stable", 20, 2e-5)
    (tmp_path / "run.yaml").write_text("recipe: original\nbatch_size: 8\noptimizer:\n  beta2: 0.98\n")
    assert run([*words, "--config", str(tmp_path / "run.yaml"), "--epochs", "5"]) == 0
    found = yaml.safe_load(capsys.readouterr().out)
    assert (found["recipe"], found["epochs"], found["batch_size"]) == ("original", 5, 8)
    optimizer = found["optimizer"]
    assert (optimizer["name"], optimizer["learning_rate"], optimizer["beta2"]) == ("bert-adam", 5e-5, 0.98)
    assert run([*words, "--grid", "paper", "dropout=0,0.1"]) == 0
    assert yaml.safe_load(capsys.readouterr().out)["grid"] == ["paper", "dropout=0,0.1"]
    assert run([*words, "--recipe", "stabel"]) == 2
    assert "unknown recipe 'stabel'; did you mean 'stable'?" in capsys.readouterr().err


def test_defaults_of_finetune_are_those_of_its_task(tmp_path, capsys):
    def found(*more: str) -> tuple[int, float]:
        words = ["finetune", "--model", "m", "--data", "d", "--out", "o", "--print-config", *more]
        assert run(words) == 0
        settings = yaml.safe_load(capsys.readouterr().out)
        return settings["seq_len"], settings["optimizer"]["learning_rate"]

    assert found("--task", "rte") == (128, 2e-5)
    assert found("--task", "squad2") == (384, 2e-5)
    assert found("--task", "squad2", "--seq-len", "128") == (128, 2e-5)
    assert found("--task=answer", "--recipe", "original") == (384, 5e-5)
    assert found("--task", "conll", "--features", "last") == (128, 1e-3)
    assert found("--task", "conll", "--features", "last", "--optimizer.learning-rate", "1e-2") == (128, 1e-2)
    (tmp_path / "run.yaml").write_text("task: conll\nfeatures: last\nseq_len: 512\n")
    assert found("--config", str(tmp_path / "run.yaml")) == (512, 1e-3)
    (tmp_path / "run.yaml").write_text("task: cmrc2018\n")
    assert found("--config", str(tmp_path / "run.yaml")) == (384, 2e-5)


def test_a_value_that_settings_refuse_is_one_line_without_rules(capsys):
    words = ["finetune", "--task", "sst2", "--model", "m", "--data", "d", "--out", "o"]
    assert run([*words, "--optimizer.learning-rate", "nan"]) == 2
    message = capsys.readouterr().err
    assert "learning_rate is nan; it has to be above 0 and finite" in message
    assert "-----" not in message
    assert message.count("\n") == 1
