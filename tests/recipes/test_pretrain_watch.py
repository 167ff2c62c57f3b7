from __future__ import annotations

import dataclasses
import json

import pytest

from bertsmith.errors import RunError
from bertsmith.recipes.config import PrepareConfig
from bertsmith.recipes.prepare import prepare
from bertsmith.recipes.pretrain import pretrain
from bertsmith.text.config import CorpusConfig
from bertsmith.training.config import OptimizerConfig
from tests.recipes.pretraining import WORDS, events, prepared, settings


def findings(run) -> list[dict]:
    return [event for event in events(run) if "finding" in event]


def test_the_log_places_the_held_out_loss(pretraining_data, tmp_path, capsys):
    metrics = pretrain(settings(pretraining_data, tmp_path / "run", steps=3, evaluate_steps=2))
    lines = [line for line in capsys.readouterr().err.splitlines() if "heldout mlm_loss" in line]
    assert len(lines) == 2
    level, uniform = metrics["heldout_unigram_entropy"], metrics["uniform_entropy"]
    loss = metrics["heldout_mlm_loss"]
    side = "below" if loss <= level else "above"
    place = f"{abs(loss - level):.2f} {side} the unigram level {level:.2f}, ln V {uniform:.2f}"
    if loss > uniform:
        place = f"{loss - uniform:.2f} above ln V {uniform:.2f}, worse than blind guessing"
    assert lines[-1].startswith(f"step 3  heldout mlm_loss {loss:.2f}: {place}  nsp_loss ")


def test_a_run_without_findings_says_so(finished_run):
    assert json.loads((finished_run / "metrics.json").read_text())["findings"] == []
    assert findings(finished_run) == []


def test_words_drawn_at_random_leave_the_run_on_the_plateau(pretraining_data, tmp_path, capsys):
    # Nothing but frequencies can be learned of such a corpus, and of its pairs nothing at all.
    quick = OptimizerConfig(learning_rate=3e-3, warmup_fraction=0.05)
    run = settings(pretraining_data, tmp_path / "run", steps=240, log_steps=20, dropout=0.0, optimizer=quick)
    metrics = pretrain(run)
    found = {found["kind"]: found for found in metrics["findings"]}
    assert found.keys() == {"plateau"}  # pairs are learned after words: of them nothing is said yet
    plateau = found["plateau"]
    assert 80 <= plateau["step"] <= 200
    assert f"the unigram level {metrics['heldout_unigram_entropy']:.2f}" in plateau["text"]
    assert "--optimizer.learning-rate is 0.003" in plateau["text"]
    assert "seq-len 64" not in plateau["text"]  # the sequences are shorter
    assert [(event["step"], event["finding"], event["text"]) for event in findings(tmp_path / "run")] == [
        (found["step"], found["kind"], found["text"]) for found in metrics["findings"]
    ]
    assert f"WARNING: {plateau['text']}" in capsys.readouterr().err
    stored = json.loads((tmp_path / "run" / "metrics.json").read_text())
    assert stored["findings"] == metrics["findings"]


def test_the_causes_of_a_plateau_are_those_of_the_data(tmp_path):
    text = "\n\n".join(
        "\n".join(["ba ben bil bor"] * 9 + [f"{WORDS[n % 60]} unheard of {WORDS[n % 7]}"]) for n in range(60)
    )
    (tmp_path / "corpus.txt").write_text(text + "\n")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    (tmp_path / "vocab.txt").write_text("\n".join([*special, *WORDS]) + "\n")
    prepare(
        PrepareConfig(
            corpus=[str(tmp_path / "corpus.txt")],
            vocab=str(tmp_path / "vocab.txt"),
            out=str(tmp_path / "data"),
            seq_len=32,
            heldout=0.1,
            workers=1,
            text=CorpusConfig(sentences="line", prose_only=False),
        )
    )
    run = settings(tmp_path / "data", tmp_path / "run", steps=150)
    # Too low a rate: the loss stays where it starts.
    optimizer = OptimizerConfig(learning_rate=1e-9, warmup_fraction=0.5)
    run = dataclasses.replace(
        run, optimizer=optimizer, masking=dataclasses.replace(run.masking, rate=0.4), evaluate_steps=1000
    )
    text = pretrain(run)["findings"][0]["text"]
    assert "89% of the corpus's lines repeat an earlier one" in text or "90% of the corpus's lines" in text
    assert "of the pieces are [UNK]" in text
    assert "--masking.rate is 0.4" in text
    assert "--optimizer.warmup-fraction is 0.5" in text
    assert "--optimizer.learning-rate is 1e-09" in text


def test_a_loss_that_is_not_finite_is_a_finding_in_the_log(pretraining_data, tmp_path, capsys):
    wild = OptimizerConfig(learning_rate=1e30, max_grad_norm=0.0, warmup_fraction=0.0)
    with pytest.raises(RunError, match="add --resume --on-divergence rollback"):
        pretrain(settings(pretraining_data, tmp_path / "run", optimizer=wild))
    (found,) = findings(tmp_path / "run")
    assert found["finding"] == "not_finite"
    assert "clip at --optimizer.max-grad-norm 1 (now 0, 0 is never)" in found["text"]
    assert found["text"] in capsys.readouterr().err


@pytest.mark.parametrize("heldout", [0.1, 0.0])  # found by the evaluation, and when saving
def test_weights_broken_by_the_last_step_are_not_saved(heldout, tmp_path):
    data = prepared(tmp_path, heldout=heldout)
    wild = OptimizerConfig(learning_rate=1e39, warmup_fraction=0.0)  # infinite in float32
    with pytest.raises(RunError, match=r"step 1: .*(inf|nan)"):
        pretrain(settings(data, tmp_path / "run", steps=1, optimizer=wild))
    assert not (tmp_path / "run" / "model").exists()
    assert not (tmp_path / "run" / "metrics.json").exists()
    assert not list((tmp_path / "run").glob("checkpoints/step-*"))


def test_a_jump_of_the_loss_is_a_warning_when_the_run_is_not_to_go_back(pretraining_data, tmp_path):
    wild = OptimizerConfig(learning_rate=3.0, warmup_fraction=0.0)
    metrics = pretrain(settings(pretraining_data, tmp_path / "run", steps=80, optimizer=wild))
    assert metrics["step"] == 80
    assert "loss_jump" in [found["kind"] for found in metrics["findings"]]
