from __future__ import annotations

import dataclasses
import json
import shutil
import signal

import pytest
import torch

from bertsmith.errors import InputError
from bertsmith.recipes import pretrain as recipe
from bertsmith.recipes.pretrain import pretrain
from bertsmith.training import checkpoint
from bertsmith.training.config import OptimizerConfig
from tests.recipes import pretraining
from tests.recipes.pretraining import events, settings, start, timeless, weights


class Died(Exception):
    pass


def dying_after(step: int, monkeypatch) -> None:
    """Let the next run die as soon as it has saved that step."""
    save = checkpoint.save

    def save_and_die(run, saved_step, *rest):
        path = save(run, saved_step, *rest)
        if saved_step == step:
            raise Died
        return path

    monkeypatch.setattr(checkpoint, "save", save_and_die)


def test_a_resumed_run_is_the_run_never_stopped(finished_run, pretraining_data, tmp_path, monkeypatch):
    out = tmp_path / "run"
    for stop in (5, 10):
        with monkeypatch.context() as patch:
            dying_after(stop, patch)
            with pytest.raises(Died):
                pretrain(settings(pretraining_data, out, checkpoint_steps=5, resume=stop > 5))
        torch.manual_seed(stop)
    # A line and an evaluation that the dead run still wrote are made again, not twice.
    with open(out / "metrics.jsonl", "a") as file:
        file.write('{"step": 11, "loss": 0.0}\n{"step": 11, "heldo')
    pretrain(settings(pretraining_data, out, checkpoint_steps=5, resume=True))
    assert weights(out) == weights(finished_run)
    assert timeless(out) == timeless(finished_run)


def test_resuming_is_exact_in_bfloat16_on_two_threads(pretraining_data, tmp_path, monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(recipe, "limit_threads", lambda: 2)
    try:
        for name, stop in (("whole", 0), ("cut", 3)):
            run = settings(
                pretraining_data,
                tmp_path / name,
                steps=6,
                checkpoint_steps=3,
                precision="bfloat16",
                batch_size=32,
                micro_batch_size=12,
                optimizer=OptimizerConfig(name="bert-adam", learning_rate=1e-3),
            )
            if stop:
                with monkeypatch.context() as patch:
                    dying_after(stop, patch)
                    with pytest.raises(Died):
                        pretrain(run)
            pretrain(dataclasses.replace(run, resume=True))
    finally:
        torch.set_num_threads(threads)
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")


def test_a_resumed_run_goes_on_with_the_means_of_its_log(pretraining_data, tmp_path, monkeypatch):
    for name, stops in (("whole", []), ("cut", [5])):
        for stop in stops:
            with monkeypatch.context() as patch:
                dying_after(stop, patch)
                with pytest.raises(Died):
                    pretrain(settings(pretraining_data, tmp_path / name, checkpoint_steps=5, log_steps=4))
        pretrain(settings(pretraining_data, tmp_path / name, checkpoint_steps=5, log_steps=4, resume=True))
    logged = [event["step"] for event in events(tmp_path / "cut") if "loss" in event]
    assert logged == [4, 8, 12]
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")


def test_resuming_a_finished_run_changes_nothing(finished_run, pretraining_data, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(finished_run, out)
    metrics = pretrain(settings(pretraining_data, out, checkpoint_steps=5, resume=True))
    assert weights(out) == weights(finished_run)
    assert timeless(out) == timeless(finished_run)
    assert metrics["heldout_loss"] == json.loads((finished_run / "metrics.json").read_text())["heldout_loss"]


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(
    finished_run, pretraining_data, tmp_path, caplog
):
    out = tmp_path / "run"
    shutil.copytree(finished_run, out)
    (out / "checkpoints/step-00000012/model.safetensors").write_bytes(b"torn")
    pretrain(settings(pretraining_data, out, checkpoint_steps=5, resume=True))
    assert "step-00000012 is damaged" in caplog.text
    assert weights(out) == weights(finished_run)
    assert timeless(out) == timeless(finished_run)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"seed": 1}, "seed was 0, is now 1"),
        ({"steps": 20}, "steps was 12, is now 20"),
        ({"steps": None, "budget": "10m"}, "budget was None, is now '10m'"),
        ({"batch_size": 4}, "batch_size was 8, is now 4"),
        ({"precision": "bfloat16"}, "precision was 'torch.float32'"),
        ({"dropout": 0.0}, "architecture.hidden_dropout was 0.1, is now 0.0"),
        ({"optimizer": OptimizerConfig(learning_rate=5e-4)}, "optimizer.learning_rate was 0.001"),
    ],
)
def test_settings_that_make_another_run_are_refused(changes, named, finished_run, pretraining_data, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    with pytest.raises(InputError, match=named):
        pretrain(settings(pretraining_data, tmp_path / "run", checkpoint_steps=5, resume=True, **changes))


def test_a_run_of_an_earlier_version_that_knew_fewer_settings_goes_on(
    finished_run, pretraining_data, tmp_path, caplog
):
    shutil.copytree(finished_run, tmp_path / "run")
    for path in (tmp_path / "run" / "checkpoints").glob("*/state.json"):
        content = json.loads(path.read_text())
        stored = content["state"]["settings"]
        del stored["compile"], stored["architecture"]["norm"], stored["optimizer"]["schedule"]
        stored["micro_batch_size"] = 0  # counted then
        del content["state"]["machine"]["ranks"]
        path.write_text(json.dumps(content))
    run = settings(pretraining_data, tmp_path / "run", checkpoint_steps=5, resume=True)
    assert pretrain(run)["step"] == 12
    assert "can differ" not in caplog.text
    with pytest.raises(InputError, match=r"optimizer\.schedule was 'linear', is now 'cosine'"):
        pretrain(dataclasses.replace(run, optimizer=dataclasses.replace(run.optimizer, schedule="cosine")))


def test_other_micro_batches_go_on_and_it_is_said(
    finished_run, pretraining_data, tmp_path, caplog, monkeypatch
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        dying_after(5, patch)
        with pytest.raises(Died):
            pretrain(settings(pretraining_data, out, checkpoint_steps=5))
    pretrain(settings(pretraining_data, out, checkpoint_steps=5, resume=True, micro_batch_size=3))
    assert (
        "in what dropout drops; examples and masks are the same: micro_batch_size was 0, is 3" in caplog.text
    )
    last, whole = (events(run)[-2] for run in (out, finished_run))
    assert (last["step"], last["tokens"]) == (12, whole["tokens"])


def test_other_data_is_refused_and_the_same_data_elsewhere_is_not(finished_run, pretraining_data, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    other = tmp_path / "other"
    shutil.copytree(pretraining_data, other)
    pretrain(settings(other, tmp_path / "run", checkpoint_steps=5, resume=True))
    pretraining.keep_instances(other, 10)
    with pytest.raises(InputError, match="data was '"):
        pretrain(settings(other, tmp_path / "run", checkpoint_steps=5, resume=True))


def test_log_evaluation_and_checkpoint_settings_may_change(
    finished_run, pretraining_data, tmp_path, monkeypatch
):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        dying_after(5, patch)
        with pytest.raises(Died):
            pretrain(settings(pretraining_data, out, checkpoint_steps=5))
    changed = settings(
        pretraining_data,
        out,
        resume=True,
        log_steps=3,
        checkpoint_steps=2,
        keep_checkpoints=1,
        evaluate_steps=4,
        evaluate_examples=8,
    )
    pretrain(changed)
    assert weights(out) == weights(finished_run)
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000012"]


STOPPED = """
import os, signal, sys
from bertsmith.recipes import pretrain as recipe
from bertsmith.cli import run
take = recipe._take
def take_and_signal(parts, standing, step, log):
    if step.step == 6:
        os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    take(parts, standing, step, log)
recipe._take = take_and_signal
sys.exit(run(sys.argv[2:]))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_saves_and_says_how_to_go_on(name, finished_run, pretraining_data, tmp_path):
    out = tmp_path / "a run"  # the command has to quote it
    recipe.write_config(tmp_path, settings(pretraining_data, out, checkpoint_steps=5))
    process = start(STOPPED, name, "pretrain", "--config", str(tmp_path / "config.yaml"), "--json")
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 1, errors
    summary = json.loads(output)
    assert summary["interrupted"]
    assert summary["step"] == 6
    assert summary["checkpoint"].endswith("step-00000006")
    assert summary["resume"] == f"bertsmith pretrain --config '{out}/config.yaml' --resume"
    assert summary["resume"] in errors
    assert "Traceback" not in errors
    pretrain(settings(pretraining_data, out, checkpoint_steps=5, resume=True))
    assert weights(out) == weights(finished_run)
    assert timeless(out) == timeless(finished_run)


RECORDED = """
import os, signal, sys, yaml
from bertsmith.config import overlay
from bertsmith.recipes import pretrain as recipe
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_run import Parts
config, ids, stop = sys.argv[1:]
from bertsmith.training import checkpoint
batches, save = Parts.batches, checkpoint.save
def record(parts, step):
    found = batches(parts, step)
    with open(ids, "a") as file:
        print(step, [batch.example_ids.tolist() for batch in found], file=file)
    return found
def save_and_die(run, step, *rest):
    path = save(run, step, *rest)
    if step == int(stop):
        os.kill(os.getpid(), signal.SIGKILL)
    return path
Parts.batches, checkpoint.save = record, save_and_die
recipe.pretrain(overlay(PretrainConfig("", ""), yaml.safe_load(open(config)) | {"resume": True}, config))
"""


def test_c019_resumed_in_new_processes_in_mid_epoch_and_at_an_epoch_end(pretraining_data, tmp_path):
    few = tmp_path / "data"
    shutil.copytree(pretraining_data, few)
    pretraining.keep_instances(few, 37)
    # Accumulation 3 of batches of 4; an epoch is 3 whole groups and one of a single example.
    for name, stops in (("whole", [0]), ("cut", [5, 8, 0])):
        (tmp_path / name).mkdir()
        run = settings(
            few,
            tmp_path / name / "run",
            batch_size=12,
            micro_batch_size=4,
            steps=16,
            checkpoint_steps=1,
            dropout=0.1,
            evaluate_examples=4,
        )
        recipe.write_config(tmp_path / name, run)
        for stop in stops:
            arguments = [str(tmp_path / name / "config.yaml"), str(tmp_path / name / "ids"), str(stop)]
            process = start(RECORDED, *arguments)
            _, errors = process.communicate(timeout=120)
            assert process.returncode == (-signal.SIGKILL if stop else 0), errors
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert timeless(cut / "run") == timeless(whole / "run")
    assert weights(cut / "run") == weights(whole / "run")
    ids = (whole / "ids").read_text()
    assert (cut / "ids").read_text() == ids
    steps = [json.loads(line.split(maxsplit=1)[1]) for line in ids.splitlines()]
    assert [[len(batch) for batch in step] for step in steps] == [[4, 4, 4]] * 3 + [[1]] + (
        [[4, 4, 4]] * 3 + [[1]]
    ) * 3
    for epoch in range(4):
        seen = [example for step in steps[4 * epoch : 4 * epoch + 4] for batch in step for example in batch]
        assert sorted(seen) == list(range(37))
