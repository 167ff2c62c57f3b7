from __future__ import annotations

import io
import json
import resource
import time

import pytest
import yaml
from rich.console import Console

from bertsmith import runlog
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.runlog import Means, RunLog, source_commit, truncate_metrics, write_config, write_environment


def events(directory) -> list[dict]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def plain() -> Console:
    return Console(file=io.StringIO(), width=200)


def terminal() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100)


def test_events_are_lines_of_json(tmp_path):
    with RunLog(tmp_path, console=plain()) as log:
        log.log({"step": 1, "loss": 2.5})
        assert events(tmp_path) == [{"step": 1, "loss": 2.5}]  # readable while the run goes on
        log.log({"step": 1, "heldout_loss": 3.0})
    assert len(events(tmp_path)) == 2


def test_a_resumed_log_drops_what_came_after_the_checkpoint(tmp_path):
    with RunLog(tmp_path, console=plain()) as log:
        for step in range(1, 6):
            log.log({"step": step, "loss": float(step)})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 6, "lo')  # killed in the middle of a line
    with RunLog(tmp_path, last_step=3, console=plain()) as log:
        log.log({"step": 4, "loss": 40.0})
    assert [(event["step"], event["loss"]) for event in events(tmp_path)] == [(1, 1), (2, 2), (3, 3), (4, 40)]


def test_truncating_nothing_is_no_error(tmp_path):
    truncate_metrics(tmp_path / "metrics.jsonl", 5)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_tensorboard_events_hold_the_values(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with RunLog(tmp_path, console=plain()) as log:
        log.log({"step": 3, "loss": 2.5, "note": "text is left out"})
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert accumulator.Tags()["scalars"] == ["loss"]
    (scalar,) = accumulator.Scalars("loss")
    assert (scalar.step, scalar.value) == (3, 2.5)


def test_without_a_terminal_there_are_plain_lines(tmp_path, monkeypatch):
    now = iter([0.0, 1.0, 11.0, 100.0])
    monkeypatch.setattr(runlog.time, "monotonic", lambda: next(now))
    console = plain()
    with RunLog(tmp_path, console=console, title="pretraining") as log:
        for fraction in (0.1, 0.2, 0.3, 1.0):
            log.progress(fraction, f"loss {fraction} [x]")
        log.note("done [bold]")
    text = console.file.getvalue()
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0].startswith("pretraining  10%  loss 0.1 [x]")
    assert "loss 0.2" not in text  # too soon after the first
    assert lines[1] == "pretraining  30%  0:00:38 left  loss 0.3 [x]"  # 0.7 to go at 0.2 in 11 s
    assert lines[-1] == "done [bold]"


def test_on_a_terminal_there_is_a_bar(tmp_path):
    console = terminal()
    with RunLog(tmp_path, console=console) as log:
        log.progress(0.5, "loss 1.0  7 tokens/s")
        log.note("a line that stays")
    text = console.file.getvalue()
    assert "50%" in text
    assert "7 tokens/s" in text
    assert "a line that stays" in text


def test_everything_goes_to_standard_error(tmp_path, capsys):
    with RunLog(tmp_path) as log:
        log.progress(0.5, "half")
        log.note("note")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "half" in captured.err


def test_means_survive_a_checkpoint_exactly():
    values = [0.1, 0.7, 0.30000000000000004]
    whole, cut = Means(), Means()
    for value in values:
        whole.add({"loss": value})
    cut.add({"loss": values[0]})
    cut = Means(json.loads(json.dumps(cut.state())))
    cut.add({"loss": values[1]})
    cut.add({"loss": values[2], "rare": 4.0})
    assert cut.take() == {"loss": whole.take()["loss"], "rare": 4.0}
    assert not cut


def test_config_yaml_is_readable_and_complete(tmp_path):
    settings = PretrainConfig(data="daten/ü", out="run", steps=3)
    write_config(tmp_path, settings)
    stored = yaml.safe_load((tmp_path / "config.yaml").read_text())
    assert stored["data"] == "daten/ü"
    assert stored["steps"] == 3
    assert stored["optimizer"]["beta2"] == 0.999


def test_environment_names_versions_and_the_facts_given(tmp_path):
    write_environment(tmp_path, device="a processor")
    environment = json.loads((tmp_path / "environment.json").read_text())
    assert environment["versions"]["torch"]
    assert environment["device"] == "a processor"
    assert environment["commit"] == source_commit()


@pytest.mark.parametrize("line", ["7", "{}", "[1]", '{"step": null}', "\udcff"])
def test_a_line_that_is_no_event_ends_what_is_kept(line, tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n' + line + '\n{"step": 2}\n', errors="surrogateescape")
    truncate_metrics(path, 5)
    assert path.read_text() == '{"step": 1}\n'


def test_tensorboard_drops_what_a_run_killed_before_its_first_checkpoint_wrote(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for last in (3, 1):
        with RunLog(tmp_path, console=plain()) as log:
            for step in range(1, last + 1):
                log.log({"step": step, "loss": float(last)})
        time.sleep(1.1)  # the names of the event files hold the second
    accumulator = EventAccumulator(str(tmp_path))
    accumulator.Reload()
    assert [(scalar.step, scalar.value) for scalar in accumulator.Scalars("loss")] == [(1, 1.0)]


def test_a_log_goes_back_and_on(tmp_path):
    with RunLog(tmp_path, console=plain()) as log:
        for step in range(1, 6):
            log.log({"step": step, "loss": float(step)})
        log.rewind(3)
        log.log({"step": 4, "loss": 40.0})
        assert [event["loss"] for event in events(tmp_path)] == [1, 2, 3, 40]
        log.sync()


def test_lines_that_find_no_room_wait_and_none_is_cut(tmp_path):
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    console = plain()
    with RunLog(tmp_path, console=console) as log:
        log.log({"step": 1, "text": "x" * 5000})
        size = (tmp_path / "metrics.jsonl").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))  # room for half a line
        try:
            for step in (2, 3):
                log.log({"step": step, "text": "waits"})
                assert [event["step"] for event in events(tmp_path)] == [1]
            with pytest.raises(OSError):
                log.sync()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        log.log({"step": 4, "text": "room"})
        assert [event["step"] for event in events(tmp_path)] == [1, 2, 3, 4]
        log.sync()
    assert console.file.getvalue().count("the log waits in memory until there is room") == 1
