"""Continued pretraining from a model directory."""

from __future__ import annotations

import gzip
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from bertsmith.bundle import load_bundle
from bertsmith.data.shards import Instances
from bertsmith.errors import InputError
from bertsmith.recipes.config import PrepareConfig, VocabConfig
from bertsmith.recipes.prepare import prepare
from bertsmith.recipes.pretrain import pretrain
from bertsmith.recipes.pretrain_init import extended
from bertsmith.recipes.vocab import vocab
from bertsmith.text.config import CorpusConfig
from bertsmith.text.extension import pieces_of
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.config import OptimizerConfig
from tests.recipes.pretraining import SHAPE, settings


@pytest.fixture(scope="module")
def first_run(pretraining_data, tmp_path_factory):
    out = tmp_path_factory.mktemp("first") / "run"
    return pretrain(settings(pretraining_data, out, steps=30)) | {"out": out}


def test_it_goes_on_from_the_weights_with_the_models_architecture(first_run, pretraining_data, tmp_path):
    still = OptimizerConfig(learning_rate=1e-12, weight_decay=0.0)
    config = settings(
        pretraining_data,
        tmp_path / "run",
        init=first_run["model"],
        steps=1,
        optimizer=still,
        architecture=replace(SHAPE, num_layers=1),
    )
    result = pretrain(config)
    before, after = (load_file(f"{path}/model.safetensors") for path in (first_run["model"], result["model"]))
    assert before.keys() == after.keys()
    assert all((before[name] - after[name]).abs().max() < 1e-6 for name in before)
    assert result["heldout_mlm_loss"] == pytest.approx(first_run["heldout_mlm_loss"], abs=1e-4)
    assert load_bundle(result["model"]).config.num_layers == SHAPE.num_layers


def test_a_word_bias_of_frequencies_starts_at_the_unigram_level(pretraining_data, tmp_path):
    still = OptimizerConfig(learning_rate=1e-12, weight_decay=0.0)
    config = settings(pretraining_data, tmp_path / "run", steps=1, optimizer=still, word_bias="frequency")
    result = pretrain(config)
    bias = load_file(f"{result['model']}/model.safetensors")["cls.predictions.bias"].numpy()
    tokenizer = Tokenizer.load(pretraining_data)
    train = Instances.open(pretraining_data, "train")
    pieces = np.concatenate([train.example(index).ids for index in range(len(train))])
    counts = np.bincount(pieces[pieces > tokenizer.mask_id], minlength=tokenizer.vocab_size) + 1
    np.testing.assert_allclose(bias, np.log(counts / counts.sum()), atol=1e-5)
    assert result["heldout_mlm_loss"] == pytest.approx(result["heldout_unigram_entropy"], abs=0.1)


def test_a_word_bias_that_would_be_ignored_or_is_unknown_is_refused(first_run, pretraining_data, tmp_path):
    config = settings(pretraining_data, tmp_path / "run", init=first_run["model"], word_bias="frequency")
    with pytest.raises(InputError, match="--word-bias frequency would be ignored"):
        pretrain(config)
    with pytest.raises(InputError, match="word-bias is 'log'; take one of zero, frequency"):
        pretrain(replace(config, word_bias="log"))


def test_dropout_overrides_the_models(first_run, pretraining_data, tmp_path):
    config = settings(pretraining_data, tmp_path / "run", init=first_run["model"], steps=1, dropout=0.25)
    assert load_bundle(pretrain(config)["model"]).config.hidden_dropout == 0.25


def test_a_resumed_run_does_not_start_from_the_model_again(first_run, pretraining_data, tmp_path):
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    for out in (whole, cut):
        pretrain(
            settings(
                pretraining_data,
                out,
                init=first_run["model"],
                steps=6,
                checkpoint_steps=3,
                keep_checkpoints=9,
            )
        )
    shutil.rmtree(cut / "checkpoints" / "step-00000006")
    pretrain(
        settings(pretraining_data, cut, init=first_run["model"], steps=6, checkpoint_steps=3, resume=True)
    )
    files = [path / "model" / "model.safetensors" for path in (whole, cut)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_model_of_another_vocabulary_is_refused(first_run, pretraining_data, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(first_run["model"], model)
    lines = (model / "vocab.txt").read_text().splitlines()
    (model / "vocab.txt").write_text("\n".join([*lines[:5], *reversed(lines[5:])]) + "\n")
    with pytest.raises(InputError, match=f"prepare it with --vocab {model}"):
        pretrain(settings(pretraining_data, tmp_path / "run", init=str(model)))
    assert not (tmp_path / "run").exists()


def test_a_directory_that_is_no_model_is_refused(pretraining_data, tmp_path):
    with pytest.raises(InputError, match="nowhere"):
        pretrain(settings(pretraining_data, tmp_path / "run", init=str(tmp_path / "nowhere")))
    assert not (tmp_path / "run").exists()


# --- extended vocabularies ------------------------------------------------------------------------

OLD_SIZE, NEW_SIZE = 400, 480
QUIET = CorpusConfig(prose_only=False)


@pytest.fixture(scope="module")
def pieces_model(tmp_path_factory, shared_data):
    """The folder of a real text and its data in a small vocabulary (v) and a longer one (w); a model of v."""
    folder = tmp_path_factory.mktemp("pieces")
    text = gzip.decompress((shared_data / "corpus" / "wiki-en" / "heldout.txt.gz").read_bytes()).decode()
    (folder / "corpus.txt").write_text(text[:150_000], encoding="utf-8")
    corpus = [str(folder / "corpus.txt")]
    vocab(VocabConfig(corpus, str(folder / "v" / "vocab.txt"), size=OLD_SIZE, limit_alphabet=60, text=QUIET))
    data = encoded(folder, "v")
    faster = OptimizerConfig(learning_rate=5e-3)
    model = pretrain(settings(data, folder / "run", steps=150, dropout=0.0, optimizer=faster))["model"]
    vocab(VocabConfig(corpus, str(folder / "w" / "vocab.txt"), extend=model, size=NEW_SIZE, text=QUIET))
    encoded(folder, "w")
    return folder, model


def encoded(folder, vocabulary):
    prepare(
        PrepareConfig(
            corpus=[str(folder / "corpus.txt")],
            vocab=str(folder / vocabulary),
            out=str(folder / f"data-{vocabulary}"),
            seq_len=48,
            heldout=0.2,
            workers=1,
            text=QUIET,
        )
    )
    return folder / f"data-{vocabulary}"


def test_an_extended_vocabulary_starts_from_the_means_and_below_random_rows(pieces_model, tmp_path, caplog):
    folder, model = pieces_model
    old, new = Tokenizer.load(model), Tokenizer.load(folder / "w")
    assert (old.vocab_size, new.vocab_size) == (OLD_SIZE, NEW_SIZE)
    assert new.vocab[:OLD_SIZE] == old.vocab
    still = OptimizerConfig(learning_rate=1e-12, weight_decay=0.0)
    one = {"steps": 1, "optimizer": still, "evaluate_examples": 0}
    result = pretrain(settings(folder / "data-w", tmp_path / "run", init=model, **one))
    assert "80 new pieces: 72 start as the mean of their old pieces, 8 that could not be" in caplog.text
    before, after = load_bundle(model), load_bundle(result["model"])
    assert after.config.vocab_size == after.tokenizer.vocab_size == NEW_SIZE
    for name in ("bert.embeddings.word.weight", "mlm_head.bias"):
        torch.testing.assert_close(after.state[name][:OLD_SIZE], before.state[name], rtol=0, atol=1e-6)
    rows = [bundle.state["bert.embeddings.word.weight"] for bundle in (before, after)]
    for id in range(OLD_SIZE, NEW_SIZE):
        mean = rows[0][pieces_of(new.token(id), old) or range(5, OLD_SIZE)].mean(dim=0)
        torch.testing.assert_close(rows[1][id], mean, rtol=0, atol=1e-6)

    # The same model with random rows for the new pieces.
    random = tmp_path / "random"
    shutil.copytree(result["model"], random)
    stored = load_file(random / "model.safetensors")
    torch.manual_seed(1)
    drawn = 0.02 * torch.randn(NEW_SIZE - OLD_SIZE, SHAPE.hidden_size)
    stored["bert.embeddings.word_embeddings.weight"][OLD_SIZE:] = drawn
    stored["cls.predictions.bias"][OLD_SIZE:] = 0.0
    save_file(stored, random / "model.safetensors")
    other = pretrain(settings(folder / "data-w", tmp_path / "other", init=str(random), **one))
    assert result["heldout_mlm_loss"] < other["heldout_mlm_loss"] - 0.02


def test_a_new_piece_is_expected_as_much_more_seldom_as_it_is_rarer(pieces_model):
    """A model that knows frequencies alone knows those of the new pieces too."""
    bundle = load_bundle(pieces_model[1])
    old = bundle.tokenizer
    before = np.arange(OLD_SIZE) * 100 + 50
    bundle.state["mlm_head.bias"] = torch.from_numpy(np.log(before + 1)).float()
    new = Tokenizer([*old.vocab, "zygote", "##yrinth"], old.config)
    counts = np.array([*before, 30, 7])
    for piece, count in (("zygote", 30), ("##yrinth", 7)):
        for id in pieces_of(piece, old):
            counts[id] -= count
    bias = extended(bundle, new, counts).state["mlm_head.bias"]
    assert bias[:OLD_SIZE].tolist() == bundle.state["mlm_head.bias"].tolist()
    assert bias[OLD_SIZE:].exp().tolist() == pytest.approx([31, 8], rel=1e-4)


def test_a_decoder_of_its_own_is_extended_like_the_embeddings(pieces_model):
    bundle = load_bundle(pieces_model[1])
    words = bundle.state["bert.embeddings.word.weight"]
    bundle.state["mlm_head.decoder.weight"] = words + 1
    new = Tokenizer([*bundle.tokenizer.vocab, "zygote"], bundle.tokenizer.config)
    state = extended(bundle, new, np.ones(OLD_SIZE + 1, np.int64)).state
    longer = state["bert.embeddings.word.weight"]
    assert len(longer) == OLD_SIZE + 1
    torch.testing.assert_close(state["mlm_head.decoder.weight"], longer + 1)


def test_a_shorter_vocabulary_is_refused(pieces_model, tmp_path):
    folder, model = pieces_model
    longer = pretrain(settings(folder / "data-w", tmp_path / "run", init=model, steps=2))["model"]
    with pytest.raises(InputError, match="or with an extension of it"):
        pretrain(settings(folder / "data-v", tmp_path / "back", init=longer, steps=2))
