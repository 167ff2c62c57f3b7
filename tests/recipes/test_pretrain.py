from __future__ import annotations

import dataclasses
import json
import math
import shutil
import sys

import numpy as np
import pytest
import torch
import yaml

import bertsmith
from bertsmith.bundle import load_bundle, load_pretraining_model
from bertsmith.config import overlay
from bertsmith.data.config import MaskingConfig
from bertsmith.errors import InputError, RunError
from bertsmith.model.bert import BertForPreTraining
from bertsmith.model.config import BertConfig
from bertsmith.recipes import pretrain as recipe
from bertsmith.recipes.pretrain import pretrain
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.training import checkpoint
from bertsmith.training.config import OptimizerConfig
from tests.recipes import pretraining
from tests.recipes.pretraining import events, settings, timeless

LEFT = dataclasses.replace(pretraining.SHAPE, context="left")
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


def test_the_run_directory_holds_everything(finished_run):
    names = {path.name for path in finished_run.iterdir() if not path.name.startswith("events.out")}
    assert names == {
        "checkpoints",
        "config.yaml",
        "environment.json",
        "metrics.json",
        "metrics.jsonl",
        "model",
    }
    assert sorted(path.name for path in (finished_run / "checkpoints").iterdir()) == [
        "step-00000010",
        "step-00000012",
    ]
    assert json.loads((finished_run / "environment.json").read_text())["precision"] == "torch.float32"


def test_metrics_have_the_promised_keys(finished_run):
    trained = [event for event in events(finished_run) if "loss" in event]
    assert [event["step"] for event in trained] == list(range(1, 13))
    assert all(list(event) == LOGGED for event in trained)
    assert trained[0]["mlm_loss"] == pytest.approx(math.log(66), abs=0.3)
    assert trained[0]["nsp_loss"] == pytest.approx(math.log(2), abs=0.2)
    assert all(event["loss"] == pytest.approx(event["mlm_loss"] + event["nsp_loss"]) for event in trained)
    assert trained[0]["learning_rate"] == 0.0
    heldout = [event for event in events(finished_run) if "heldout_loss" in event]
    assert heldout[-1]["step"] == 12
    losses = ("loss", "mlm_loss", "nsp_loss", "mlm_accuracy", "nsp_accuracy")
    assert heldout[-1].keys() == {"step", *(f"heldout_{name}" for name in losses)}


def test_final_metrics_place_the_loss(finished_run):
    metrics = json.loads((finished_run / "metrics.json").read_text())
    assert metrics["step"] == 12
    assert metrics["uniform_entropy"] == pytest.approx(math.log(66))
    # All words are drawn alike, so that frequencies tell almost nothing beyond "." (one piece in six).
    assert 3.0 < metrics["heldout_unigram_entropy"] < metrics["uniform_entropy"]
    last = [event for event in events(finished_run) if "heldout_loss" in event][-1]
    assert metrics["heldout_mlm_loss"] == last["heldout_mlm_loss"]
    assert metrics["tokens"] == events(finished_run)[-2]["tokens"]


def test_the_model_directory_holds_the_trained_weights(finished_run):
    bundle = load_bundle(finished_run / "model")
    model = load_pretraining_model(bundle)
    stored = checkpoint.latest(finished_run)
    assert stored is not None
    other = BertForPreTraining(bundle.config)
    checkpoint.restore(stored, other, recipe.build_optimizer(other, OptimizerConfig()))
    for (name, value), trained in zip(model.state_dict().items(), other.state_dict().values(), strict=True):
        assert torch.equal(value, trained), name
    assert bundle.task is not None
    assert (bundle.task["head"], bundle.task["seq_len"]) == ("pretraining", 32)


def test_the_written_settings_can_be_used_again(finished_run, pretraining_data):
    stored = yaml.safe_load((finished_run / "config.yaml").read_text())
    again = overlay(PretrainConfig(data="", out=""), stored, "config.yaml")
    assert again == settings(pretraining_data, finished_run, checkpoint_steps=5)


def test_a_directory_in_use_is_not_overwritten(finished_run, pretraining_data, tmp_path):
    with pytest.raises(InputError, match="not empty; add --resume"):
        pretrain(settings(pretraining_data, finished_run))
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "mother.txt").write_text("dear")
    with pytest.raises(InputError, match=r"no config\.yaml"):
        pretrain(settings(pretraining_data, tmp_path / "letters", resume=True))
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file"):
        pretrain(settings(pretraining_data, tmp_path / "file"))


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
        ({"batch_warmup_fraction": 1.0}, "--batch-warmup-fraction is 1.0"),
        ({"batch_warmup_start": 4}, "--batch-warmup-start is 4 without a use"),
        ({"batch_warmup_fraction": 0.5, "batch_warmup_start": 8}, "below --batch-size 8"),
        (
            {"batch_warmup_fraction": 0.5, "steps": None, "budget": "1m"},
            "--batch-warmup-fraction needs --steps",
        ),
        ({"batch_warmup_fraction": 0.95, "long_data": "long"}, "the first phase is 0.9 of the run"),
        (
            {"architecture": dataclasses.replace(pretraining.SHAPE, max_positions=16)},
            "max_positions is 16, but .* with --seq-len 32",
        ),
        ({"architecture": dataclasses.replace(pretraining.SHAPE, vocab_size=7)}, "vocab_size is 7, but"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_written(changes, message, pretraining_data, tmp_path):
    with pytest.raises(InputError, match=message):
        pretrain(settings(pretraining_data, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_data_that_is_no_data_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"manifest\.json"):
        pretrain(settings(tmp_path, tmp_path / "run"))


def test_a_loss_that_is_not_finite_names_the_last_checkpoint(pretraining_data, tmp_path):
    out = tmp_path / "run"
    wild = OptimizerConfig(learning_rate=1e30, max_grad_norm=0.0, warmup_fraction=0.0)
    with pytest.raises(RunError, match=r"step \d+: .* is nan|inf.*checkpoints/step-0000000\d.*--precision"):
        pretrain(settings(pretraining_data, out, optimizer=wild, checkpoint_steps=1))
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


def test_micro_batches_give_the_same_run_without_dropout(pretraining_data, tmp_path):
    for size in (0, 3):
        pretrain(
            settings(pretraining_data, tmp_path / str(size), micro_batch_size=size, dropout=0.0, steps=4)
        )
    for one, other in zip(timeless(tmp_path / "0"), timeless(tmp_path / "3"), strict=True):
        assert one == pytest.approx(other, rel=1e-4)


def test_a_time_budget_is_kept_and_drives_the_schedule(pretraining_data, tmp_path):
    import time

    begun = time.monotonic()
    metrics = pretrain(
        settings(
            pretraining_data,
            tmp_path / "run",
            steps=None,
            budget="3s",
            checkpoint_seconds=1,
            keep_checkpoints=1,
        )
    )
    seconds = time.monotonic() - begun
    assert 2.0 < seconds < 4.0
    assert metrics["seconds"] <= seconds
    rates = [event["learning_rate"] for event in events(tmp_path / "run") if "loss" in event]
    assert max(rates) > 0.9e-3
    assert rates[-1] < 0.1e-3
    resumed = pretrain(
        settings(
            pretraining_data, tmp_path / "run", steps=None, budget="3s", checkpoint_seconds=1, resume=True
        )
    )
    assert resumed["step"] == metrics["step"]  # the time is used up


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
def test_pretraining_runs_on_a_gpu(pretraining_data, tmp_path):
    if not torch.cuda.is_available():
        pytest.fail("no CUDA device")
    metrics = pretrain(settings(pretraining_data, tmp_path / "run", precision="auto", steps=30))
    assert metrics["heldout_mlm_loss"] < math.log(66)


def test_a_vocabulary_that_is_not_the_datas_is_refused(pretraining_data, tmp_path):
    data = tmp_path / "data"
    shutil.copytree(pretraining_data, data)
    lines = (data / "vocab.txt").read_text().splitlines()
    (data / "vocab.txt").write_text("\n".join([*lines[:5], *reversed(lines[5:])]) + "\n")
    with pytest.raises(InputError, match="not those that the data was prepared with"):
        pretrain(settings(data, tmp_path / "run"))


def test_the_level_of_word_frequencies_knows_how_frequent_unknown_words_are(tmp_path):
    data = pretraining.prepared(tmp_path)
    # The same data, but most words are unknown, as with a vocabulary that does not fit the text.
    for split in ("train", "heldout"):
        path = data / split / "ids-00000.npy"
        ids = np.load(path)
        np.save(path, np.where(ids > 5, 1, ids).astype(ids.dtype))
    metrics = pretrain(settings(data, tmp_path / "run", steps=1))
    assert metrics["heldout_unigram_entropy"] < math.log(2)  # one of two kinds: [UNK] or a full stop


def test_a_budget_that_ends_before_the_first_step_fails(pretraining_data, tmp_path):
    run = settings(pretraining_data, tmp_path / "run", steps=None, budget="0.001s")
    with pytest.raises(RunError, match=r"0\.001s was over before the first step"):
        pretrain(run)
    assert not (tmp_path / "run" / "model").exists()


def test_the_last_steps_are_logged_though_the_clock_runs_out_between_two_looks(
    pretraining_data, tmp_path, monkeypatch
):
    progress = recipe.Budget.progress

    def late(budget, step):
        """Only the loop's own look after step 7 finds the time over."""
        caller = sys._getframe(1).f_code.co_name
        return 1.0 if step >= 7 and caller == "train" else min(0.5, progress(budget, step))

    monkeypatch.setattr(recipe.Budget, "progress", late)
    pretrain(settings(pretraining_data, tmp_path / "run", steps=None, budget="1h", log_steps=5))
    trained = [event for event in events(tmp_path / "run") if "loss" in event]
    assert [event["step"] for event in trained] == [5, 7]
    assert all(list(event) == LOGGED for event in trained)


def test_a_run_killed_while_it_wrote_its_first_file_can_be_started_again(pretraining_data, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".config.yaml.4194304.tmp").write_text("data: d")
    metrics = pretrain(settings(pretraining_data, tmp_path / "run", steps=2, resume=True))
    assert metrics["step"] == 2


def test_a_left_to_right_model_learns_what_follows_what(pretraining_data, tmp_path):
    """Next pieces are predicted instead of masks; the model that is written knows what it sees."""
    summary = pretrain(settings(pretraining_data, tmp_path / "run", architecture=LEFT, next_sentence=False))
    assert summary["heldout_mlm_loss"] < math.log(71)
    assert "heldout_nsp_loss" not in summary
    assert not any("nsp_loss" in event for event in events(tmp_path / "run"))
    assert load_bundle(tmp_path / "run" / "model").config.context == "left"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"masking": MaskingConfig(rate=0.3), "architecture": LEFT}, "masks none; leave masking out"),
        ({"next_sentence": False, "data": "text"}, "--no-next-sentence would be ignored"),
    ],
    ids=["masks", "pairs"],
)
def test_settings_of_what_is_predicted_that_nothing_reads_are_refused(
    pretraining_data, tmp_path, tmp_path_factory, changes, message
):
    data = pretraining_data
    if changes.pop("data", None):
        data = pretraining.prepared(tmp_path_factory.mktemp("text"), pairing="full-sentences")
    with pytest.raises(InputError, match=message):
        pretrain(settings(data, tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


def test_lstms_in_two_directions_learn_their_neighbours_and_are_read_again(pretraining_data, tmp_path):
    """ELMo's role; other programs do not take the directory for a BERT."""
    lstm = dataclasses.replace(pretraining.SHAPE, mixing="lstm")
    summary = pretrain(settings(pretraining_data, tmp_path / "run", architecture=lstm))
    assert summary["heldout_mlm_loss"] < math.log(71)
    bundle = load_bundle(tmp_path / "run" / "model")
    assert bundle.config.mixing == "lstm"
    model = load_pretraining_model(bundle)
    assert set(model.state_dict()) == set(bundle.state)
    predictor = bertsmith.load(tmp_path / "run" / "model")
    assert not {"fill", "attention"} & set(predictor.can)
    with pytest.raises(InputError, match="no place of it sees both sides"):
        predictor.fill(["ba [MASK]"])
    transformers = pytest.importorskip("transformers")
    with pytest.raises(ValueError, match="bertsmith-lstm"):
        transformers.AutoConfig.from_pretrained(tmp_path / "run" / "model")
