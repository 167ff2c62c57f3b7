from __future__ import annotations

import dataclasses
import json
import math
import shutil
import signal
from pathlib import Path

import pytest
import torch
import yaml

from bertsmith.bundle import load_bundle, load_pretraining_model
from bertsmith.config import overlay
from bertsmith.errors import InputError, RunError
from bertsmith.model.config import BertConfig
from bertsmith.recipes import pretrain as recipe
from bertsmith.recipes.config import PretrainConfig
from bertsmith.recipes.pretrain import pretrain
from bertsmith.training import checkpoint
from bertsmith.training.config import OptimizerConfig
from tests.recipes import pretraining
from tests.recipes.pretraining import events, settings, start, timeless, weights

LOGGED = [
    "step",
    "loss",
    "mlm_loss",
    "nsp_loss",
    "mlm_accuracy",
    "nsp_accuracy",
    "learning_rate",
    "grad_norm",
    "tokens",
    "tokens_per_second",
    "seconds",
]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return pretraining.prepared(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory) -> Path:
    """A run that never stopped."""
    out = tmp_path_factory.mktemp("run") / "whole"
    pretrain(settings(data, out, checkpoint_steps=5))
    return out


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

    monkeypatch.setattr(recipe.checkpoint, "save", save_and_die)


def test_the_run_directory_holds_everything(finished):
    names = {path.name for path in finished.iterdir() if not path.name.startswith("events.out")}
    assert names == {
        "checkpoints",
        "config.yaml",
        "environment.json",
        "metrics.json",
        "metrics.jsonl",
        "model",
    }
    assert sorted(path.name for path in (finished / "checkpoints").iterdir()) == [
        "step-00000010",
        "step-00000012",
    ]
    assert json.loads((finished / "environment.json").read_text())["precision"] == "torch.float32"


def test_metrics_have_the_promised_keys(finished):
    trained = [event for event in events(finished) if "loss" in event]
    assert [event["step"] for event in trained] == list(range(1, 13))
    assert all(list(event) == LOGGED for event in trained)
    assert trained[0]["mlm_loss"] == pytest.approx(math.log(66), abs=0.3)
    assert trained[0]["nsp_loss"] == pytest.approx(math.log(2), abs=0.2)
    assert all(event["loss"] == pytest.approx(event["mlm_loss"] + event["nsp_loss"]) for event in trained)
    assert trained[0]["learning_rate"] == 0.0
    heldout = [event for event in events(finished) if "heldout_loss" in event]
    assert heldout[-1]["step"] == 12
    losses = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy")
    assert heldout[-1].keys() == {"step", *(f"heldout_{name}" for name in losses)}


def test_final_metrics_place_the_loss(finished):
    metrics = json.loads((finished / "metrics.json").read_text())
    assert metrics["step"] == 12
    assert metrics["uniform_entropy"] == pytest.approx(math.log(66))
    # All words are drawn alike, so that frequencies tell almost nothing beyond "." (one piece in six).
    assert 3.0 < metrics["heldout_unigram_entropy"] < metrics["uniform_entropy"]
    last = [event for event in events(finished) if "heldout_loss" in event][-1]
    assert metrics["heldout_mlm_loss"] == last["heldout_mlm_loss"]
    assert metrics["tokens"] == events(finished)[-2]["tokens"]


def test_the_model_directory_holds_the_trained_weights(finished):
    bundle = load_bundle(finished / "model")
    model = load_pretraining_model(bundle)
    stored = checkpoint.latest(finished)
    assert stored is not None
    other = recipe.BertForPreTraining(bundle.config)
    checkpoint.restore(stored, other, recipe.build_optimizer(other, OptimizerConfig()))
    for (name, value), trained in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(value, trained), name
    assert bundle.task is not None
    assert (bundle.task["head"], bundle.task["seq_len"]) == ("pretraining", 32)


def test_the_written_settings_can_be_used_again(finished, data):
    stored = yaml.safe_load((finished / "config.yaml").read_text())
    again = overlay(PretrainConfig(data="", out=""), stored, "config.yaml")
    assert again == settings(data, finished, checkpoint_steps=5)


def test_a_resumed_run_is_the_run_never_stopped(finished, data, tmp_path, monkeypatch):
    out = tmp_path / "run"
    for stop in (5, 10):
        with monkeypatch.context() as patch:
            dying_after(stop, patch)
            with pytest.raises(Died):
                pretrain(settings(data, out, checkpoint_steps=5, resume=stop > 5))
        torch.manual_seed(stop)
    # A line and an evaluation that the dead run still wrote are made again, not twice.
    with open(out / "metrics.jsonl", "a") as file:
        file.write('{"step": 11, "loss": 0.0}\n{"step": 11, "heldo')
    pretrain(settings(data, out, checkpoint_steps=5, resume=True))
    assert weights(out) == weights(finished)
    assert timeless(out) == timeless(finished)


def test_resuming_is_exact_in_bfloat16_on_two_threads(data, tmp_path, monkeypatch):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.setattr(recipe, "limit_threads", lambda: 2)
    try:
        for name, stop in (("whole", 0), ("cut", 3)):
            run = settings(
                data,
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


def test_a_resumed_run_goes_on_with_the_means_of_its_log(data, tmp_path, monkeypatch):
    for name, stops in (("whole", []), ("cut", [5])):
        for stop in stops:
            with monkeypatch.context() as patch:
                dying_after(stop, patch)
                with pytest.raises(Died):
                    pretrain(settings(data, tmp_path / name, checkpoint_steps=5, log_steps=4))
        pretrain(settings(data, tmp_path / name, checkpoint_steps=5, log_steps=4, resume=True))
    logged = [event["step"] for event in events(tmp_path / "cut") if "loss" in event]
    assert logged == [4, 8, 12]
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")


def test_resuming_a_finished_run_changes_nothing(finished, data, tmp_path):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    metrics = pretrain(settings(data, out, checkpoint_steps=5, resume=True))
    assert weights(out) == weights(finished)
    assert timeless(out) == timeless(finished)
    assert metrics["heldout_loss"] == json.loads((finished / "metrics.json").read_text())["heldout_loss"]


def test_a_damaged_checkpoint_costs_only_the_steps_since_the_one_before(finished, data, tmp_path, caplog):
    out = tmp_path / "run"
    shutil.copytree(finished, out)
    (out / "checkpoints/step-00000012/model.safetensors").write_bytes(b"torn")
    pretrain(settings(data, out, checkpoint_steps=5, resume=True))
    assert "step-00000012 is damaged" in caplog.text
    assert weights(out) == weights(finished)
    assert timeless(out) == timeless(finished)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"seed": 1}, "seed was 0, is now 1"),
        ({"steps": 20}, "steps was 12, is now 20"),
        ({"steps": None, "budget": "10m"}, "budget was None, is now '10m'"),
        ({"batch_size": 4}, "batch_size was 8, is now 4"),
        ({"micro_batch_size": 4}, "micro_batch_size was 0, is now 4"),
        ({"precision": "bfloat16"}, "precision was 'torch.float32'"),
        ({"dropout": 0.0}, "architecture.hidden_dropout was 0.1, is now 0.0"),
        ({"optimizer": OptimizerConfig(learning_rate=5e-4)}, "optimizer.learning_rate was 0.001"),
    ],
)
def test_settings_that_make_another_run_are_refused(changes, named, finished, data, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    with pytest.raises(InputError, match=named):
        pretrain(settings(data, tmp_path / "run", checkpoint_steps=5, resume=True, **changes))


def test_other_data_is_refused_and_the_same_data_elsewhere_is_not(finished, data, tmp_path):
    shutil.copytree(finished, tmp_path / "run")
    other = tmp_path / "other"
    shutil.copytree(data, other)
    pretrain(settings(other, tmp_path / "run", checkpoint_steps=5, resume=True))
    pretraining.keep_instances(other, 10)
    with pytest.raises(InputError, match="data was '"):
        pretrain(settings(other, tmp_path / "run", checkpoint_steps=5, resume=True))


def test_log_evaluation_and_checkpoint_settings_may_change(finished, data, tmp_path, monkeypatch):
    out = tmp_path / "run"
    with monkeypatch.context() as patch:
        dying_after(5, patch)
        with pytest.raises(Died):
            pretrain(settings(data, out, checkpoint_steps=5))
    changed = settings(
        data,
        out,
        resume=True,
        log_steps=3,
        checkpoint_steps=2,
        keep_checkpoints=1,
        evaluate_steps=4,
        evaluate_examples=8,
    )
    pretrain(changed)
    assert weights(out) == weights(finished)
    assert [path.name for path in (out / "checkpoints").iterdir()] == ["step-00000012"]


def test_a_directory_in_use_is_not_overwritten(finished, data, tmp_path):
    with pytest.raises(InputError, match="not empty; add --resume"):
        pretrain(settings(data, finished))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mother.txt").write_text("dear")
    with pytest.raises(InputError, match=r"no config\.yaml"):
        pretrain(settings(data, tmp_path / "letters", resume=True))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        pretrain(settings(data, tmp_path / "file"))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"steps": None}, "either --steps or --budget, not neither"),
        ({"budget": "1m"}, "either --steps or --budget, not both"),
        ({"steps": None, "budget": "soon"}, "'soon' is no duration"),
        ({"steps": 0}, "--steps is 0"),
        ({"log_steps": 0}, "--log-steps is 0"),
        ({"keep_checkpoints": 0}, "--keep-checkpoints is 0"),
        ({"precision": "float8"}, "precision 'float8' is unknown"),
        (
            {"architecture": dataclasses.replace(pretraining.SHAPE, max_positions=16)},
            "max_positions is 16, but .* with --seq-len 32",
        ),
        ({"architecture": dataclasses.replace(pretraining.SHAPE, vocab_size=7)}, "vocab_size is 7, but"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(changes, message, data, tmp_path):
    with pytest.raises(InputError, match=message):
        pretrain(settings(data, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_data_that_is_no_data_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"manifest\.json"):
        pretrain(settings(tmp_path, tmp_path / "run"))


def test_a_loss_that_is_not_finite_names_the_last_checkpoint(data, tmp_path):
    out = tmp_path / "run"
    wild = OptimizerConfig(learning_rate=1e30, max_grad_norm=0.0, warmup_fraction=0.0)
    with pytest.raises(RunError, match=r"step \d+: .* is nan|inf.*checkpoints/step-0000000\d.*--precision"):
        pretrain(settings(data, out, optimizer=wild, checkpoint_steps=1))
    assert not (out / "model").exists()


def test_instances_without_pairs_have_no_nsp(tmp_path):
    data = pretraining.prepared(tmp_path, pairing="full-sentences")
    metrics = pretrain(settings(data, tmp_path / "run", steps=3))
    assert not [name for event in events(tmp_path / "run") for name in event if "nsp" in name]
    assert not [name for name in metrics if "nsp" in name]
    assert metrics["heldout_loss"] == metrics["heldout_mlm_loss"]


def test_without_held_out_instances_nothing_is_evaluated(tmp_path):
    data = pretraining.prepared(tmp_path, heldout=0.0)
    metrics = pretrain(settings(data, tmp_path / "run", steps=3))
    assert not [name for name in metrics if name.startswith("heldout")]
    assert metrics["uniform_entropy"] > 4


def test_micro_batches_give_the_same_run_without_dropout(data, tmp_path):
    for size in (0, 3):
        pretrain(settings(data, tmp_path / str(size), micro_batch_size=size, dropout=0.0, steps=4))
    for one, other in zip(timeless(tmp_path / "0"), timeless(tmp_path / "3"), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_a_time_budget_is_kept_and_drives_the_schedule(data, tmp_path):
    import time

    begun = time.monotonic()
    metrics = pretrain(
        settings(data, tmp_path / "run", steps=None, budget="3s", checkpoint_seconds=1, keep_checkpoints=1)
    )
    seconds = time.monotonic() - begun
    assert 2.0 < seconds < 4.0
    assert metrics["seconds"] <= seconds
    rates = [event["learning_rate"] for event in events(tmp_path / "run") if "loss" in event]
    assert max(rates) > 0.9e-3
    assert rates[-1] < 0.1e-3
    resumed = pretrain(
        settings(data, tmp_path / "run", steps=None, budget="3s", checkpoint_seconds=1, resume=True)
    )
    assert resumed["step"] == metrics["step"]  # the time is used up


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
def test_a_signal_saves_and_says_how_to_go_on(name, finished, data, tmp_path):
    out = tmp_path / "a run"  # the command has to quote it
    recipe.write_config(tmp_path, settings(data, out, checkpoint_steps=5))
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
    pretrain(settings(data, out, checkpoint_steps=5, resume=True))
    assert weights(out) == weights(finished)
    assert timeless(out) == timeless(finished)


RECORDED = """
import os, signal, sys, yaml
from bertsmith.config import overlay
from bertsmith.recipes import pretrain as recipe
from bertsmith.recipes.config import PretrainConfig
from bertsmith.recipes.pretrain_run import Parts
config, ids, stop = sys.argv[1:]
batches, save = Parts.batches, recipe.checkpoint.save
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
Parts.batches, recipe.checkpoint.save = record, save_and_die
recipe.pretrain(overlay(PretrainConfig("", ""), yaml.safe_load(open(config)) | {"resume": True}, config))
"""


def test_c019_resumed_in_new_processes_in_mid_epoch_and_at_an_epoch_end(data, tmp_path):
    few = tmp_path / "data"
    shutil.copytree(data, few)
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


def test_c026a_two_documents_are_learned_by_heart(tmp_path):
    sentences = [
        [
            "the red fox ran over a hill",
            "it saw seven white geese",
            "they flew away at once",
            "so it slept hungry",
        ],
        [
            "our ship left port by night",
            "cold rain fell on deck",
            "no star was to be found",
            "we sang until dawn came",
        ],
    ]
    words = sorted({word for document in sentences for sentence in document for word in sentence.split()})
    (tmp_path / "corpus.txt").write_text("\n\n".join("\n".join(document) for document in sentences) + "\n")
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]) + "\n"
    )
    pretraining.prepare(
        pretraining.PrepareConfig(
            corpus=[str(tmp_path / "corpus.txt")],
            vocab=str(tmp_path / "vocab.txt"),
            out=str(tmp_path / "data"),
            seq_len=32,
            passes=10,
            heldout=0.0,
            workers=1,
            text=pretraining.CorpusConfig(sentences="line", prose_only=False),
        )
    )
    pretrain(
        settings(
            tmp_path / "data",
            tmp_path / "run",
            steps=300,
            batch_size=32,
            dropout=0.0,
            log_steps=10,
            architecture=BertConfig(hidden_size=64, num_layers=2, num_heads=2, intermediate_size=256),
            optimizer=OptimizerConfig(name="bert-adam", learning_rate=1e-3),
        )
    )
    log = events(tmp_path / "run")
    assert log[0]["mlm_loss"] > 0.8 * math.log(len(words) + 5)
    assert sum(event["mlm_loss"] for event in log[-3:]) / 3 < 1.0
    assert sum(event["nsp_accuracy"] for event in log[-3:]) / 3 > 0.95


@pytest.mark.gpu
def test_pretraining_runs_on_a_gpu(data, tmp_path):
    if not torch.cuda.is_available():
        pytest.fail("no CUDA device")
    metrics = pretrain(settings(data, tmp_path / "run", precision="auto", steps=30))
    assert metrics["heldout_mlm_loss"] < math.log(66)
