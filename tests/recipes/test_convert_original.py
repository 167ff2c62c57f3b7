"""The verb ``convert`` on checkpoints of google-research/bert.

``tests/interop/original`` was written by the original's own code in real TensorFlow, with what its model
computes; the slow test writes such a checkpoint anew.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.bundle import load_bundle, load_encoder, load_pretraining_model
from bertsmith.cli import run
from bertsmith.layout import Tokens, unpadded
from bertsmith.recipes.convert import convert
from bertsmith.recipes.convert_config import ConvertConfig
from bertsmith.tasks.spans import SPANS
from tests.interop.tensor_bundle_writer import write_checkpoint

ORIGINAL = Path(__file__).parent.parent / "interop" / "original"
SCRIPT = ORIGINAL.parent / "original_bert.py"
SIZES = json.loads((ORIGINAL / "bert_config.json").read_text())


def tokens_and_real(outputs) -> tuple[Tokens, torch.Tensor]:
    """The rows without padding, and which places of the padded rectangle they are."""
    real = torch.arange(outputs["ids"].shape[1]) < torch.from_numpy(outputs["lengths"])[:, None]
    lengths = outputs["lengths"].tolist()
    ids, segments = (torch.from_numpy(outputs[name]).long()[real] for name in ("ids", "segments"))
    return Tokens(ids, segments, torch.cat([torch.arange(n) for n in lengths]), unpadded(lengths)), real


def worst(ours: torch.Tensor, theirs: np.ndarray, real: torch.Tensor | None = None) -> float:
    expected = torch.from_numpy(theirs)
    if real is not None:
        expected = expected.reshape(*real.shape, -1)[real]
    return (ours - expected).abs().max().item()


def check_against_the_original(directory: Path, tmp_path: Path) -> None:
    """Hold every output to what the original computed with the same weights."""
    outputs = np.load(directory / "outputs.npz")
    tokens, real = tokens_and_real(outputs)
    everywhere = torch.arange(tokens.layout.places)
    found = ConvertConfig(str(directory), str(tmp_path / "words"), activation="gelu_tanh")
    assert convert(found)["architecture"] == "BertForPreTraining"
    bundle = load_bundle(tmp_path / "words")
    with torch.no_grad():
        assert worst(load_encoder(bundle)(tokens), outputs["hidden"], real) < 1e-5
        scores, following = load_pretraining_model(bundle)(tokens, everywhere)
        assert worst(scores, outputs["scores"], real) < 1e-5
        assert worst(following, outputs["next_scores"]) < 1e-5
    beside = {"architecture": str(directory / "bert_config.json"), "vocab": str(directory / "vocab.txt")}
    squad = replace(found, input=str(directory / "squad"), out=str(tmp_path / "answers"), **beside)
    assert convert(squad)["architecture"] == "BertForQuestionAnswering"
    with torch.no_grad():
        answers = SPANS.load_model(load_bundle(tmp_path / "answers"), None)(tokens)
        assert worst(answers, outputs["spans"], real) < 1e-5


def test_c051_the_originals_own_checkpoint_gives_its_hidden_states_and_spans(tmp_path):
    check_against_the_original(ORIGINAL, tmp_path)


@pytest.mark.slow
def test_c051_a_checkpoint_written_now_by_tensorflow_gives_the_same(tmp_path):
    """Needs BERTSMITH_TENSORFLOW_PYTHON, a Python with tensorflow and bert-tensorflow (docs/convert.md)."""
    python = os.environ.get("BERTSMITH_TENSORFLOW_PYTHON")
    if python is None:
        pytest.skip("BERTSMITH_TENSORFLOW_PYTHON names no Python with tensorflow")
    quiet = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"}
    subprocess.run([python, SCRIPT, tmp_path / "made", "3", "16"], check=True, env=quiet, timeout=600)
    shutil.copy(ORIGINAL / "vocab.txt", tmp_path / "made")
    check_against_the_original(tmp_path / "made", tmp_path)


def originals_name(name: str) -> str:
    """The original's name of a weight of transformers, from its modeling.py."""
    special = {
        "cls.predictions.bias": "cls/predictions/output_bias",
        "cls.seq_relationship.weight": "cls/seq_relationship/output_weights",
        "cls.seq_relationship.bias": "cls/seq_relationship/output_bias",
        "classifier.weight": "output_weights",
        "classifier.bias": "output_bias",
    }
    if name in special:
        return special[name]
    module, kind = name.replace("encoder.layer.", "encoder.layer_").rsplit(".", 1)
    if module.endswith("_embeddings"):
        return module.replace(".", "/")
    norm = {"weight": "gamma", "bias": "beta"}
    other = {"weight": "kernel", "bias": "bias"}
    return f"{module.replace('.', '/')}/{(norm if module.endswith('LayerNorm') else other)[kind]}"


def write_peer(directory: Path, peer, extra=()) -> None:
    """Write a model of transformers as the original would have, with the optimiser's slots."""
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {"global_step": np.array(7, np.int64), "good_steps": np.array(1, np.int32), **dict(extra)}
    for name, value in peer.named_parameters():
        theirs = originals_name(name)
        values = value.detach().numpy()
        tensors[theirs] = np.ascontiguousarray(values.T) if theirs.endswith("/kernel") else values
        for slot in ("adam_m", "adam_v", "AdamWeightDecayOptimizer", "LAMBOptimizer_1"):
            tensors[f"{theirs}/{slot}"] = np.zeros_like(tensors[theirs])
    write_checkpoint(directory / "model.ckpt-343", tensors, shards=2)
    (directory / "bert_config.json").write_text(json.dumps(SIZES))
    shutil.copy(ORIGINAL / "vocab.txt", directory)


def peer_of(name: str, **more):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    peer = getattr(transformers, name)(transformers.BertConfig(**SIZES, **more))
    for parameter in peer.parameters():
        torch.nn.init.normal_(parameter, mean=0.3 if parameter.ndim == 1 else 0.0, std=0.2)
    return peer.eval()


def test_c051_every_way_to_name_a_checkpoint(tmp_path, capsys):
    """The heads of pretraining from any of its paths, with erf, as transformers reads "gelu"."""
    peer = peer_of("BertForPreTraining")
    write_peer(tmp_path / "tf", peer, [("strange/kernel_of", np.zeros(3, np.float32))])
    outputs = np.load(ORIGINAL / "outputs.npz")
    tokens, real = tokens_and_real(outputs)
    with torch.no_grad():
        theirs = peer(
            torch.from_numpy(outputs["ids"]).long(),
            attention_mask=real.long(),
            token_type_ids=torch.from_numpy(outputs["segments"]).long(),
        )
    endings = ("", ".index", ".data-00000-of-00002", ".data-00001-of-00002")
    paths = [tmp_path / "tf", *(tmp_path / "tf" / f"model.ckpt-343{ending}" for ending in endings)]
    for path in paths:
        report = convert(ConvertConfig(str(path), str(tmp_path / "ours")))
        assert report["format"] == "tf1"
        assert report["architecture"] == "BertForPreTraining"
        assert not report["weights"]["missing"]
        assert any("gelu is read as erf" in note for note in report["notes"])
    unused = report["weights"]["unused"]
    assert unused.pop("strange/kernel_of") == "unknown name"
    assert set(unused.values()) == {"state of the training"}
    assert len(unused) == 4 * len(list(peer.parameters())) + 2
    assert len(report["weights"]["renamed"]) == len(list(peer.parameters()))
    model = load_pretraining_model(load_bundle(tmp_path / "ours"))
    with torch.no_grad():
        scores, following = model(tokens, torch.arange(tokens.layout.places))
        assert worst(scores, theirs.prediction_logits.numpy(), real) < 1e-5
        assert worst(following, theirs.seq_relationship_logits.numpy()) < 1e-5
    for missing in ("gone", "tf/model.ckpt-344", "tf/model.ckpt-343.index.gone"):
        words = ["convert", "--input", str(tmp_path / missing), "--out", str(tmp_path / "new")]
        assert run(words) == 2
        assert "no such file" in capsys.readouterr().err
        assert run([*words, "--from", "tf1"]) == 2
        assert "no such file" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_a_fine_tuned_classifier_with_settings_elsewhere(tmp_path):
    """A run of run_classifier.py has neither bert_config.json nor vocab.txt; its labels have no names."""
    peer = peer_of("BertForSequenceClassification", num_labels=3)
    write_peer(tmp_path / "pretrained", peer)
    shutil.copytree(tmp_path / "pretrained", tmp_path / "run")
    for name in ("bert_config.json", "vocab.txt"):
        (tmp_path / "run" / name).unlink()
    words = ["convert", "--input", str(tmp_path / "run"), "--out", str(tmp_path / "ours")]
    assert run(words) == 2
    words += ["--architecture", str(tmp_path / "pretrained" / "bert_config.json")]
    assert run(words) == 2
    words += ["--vocab", str(tmp_path / "pretrained" / "vocab.txt"), "--labels", "no", "yes", "so"]
    assert run(words) == 0
    bundle = load_bundle(tmp_path / "ours")
    assert bundle.task == {"task": "classify", "head": "classification", "labels": ["no", "yes", "so"]}
    assert torch.equal(bundle.state["classifier.weight"], peer.classifier.weight)


def test_a_checkpoint_of_another_kind_says_what_it_is(tmp_path, capsys):
    pairs = {"model/layer/kernel/.ATTRIBUTES/VARIABLE_VALUE": np.zeros((2, 2), np.float32)}
    (tmp_path / "new").mkdir()
    write_checkpoint(tmp_path / "new" / "ckpt-1", pairs)
    (tmp_path / "new" / "bert_config.json").write_text(json.dumps(SIZES))
    shutil.copy(ORIGINAL / "vocab.txt", tmp_path / "new")
    assert run(["convert", "--input", str(tmp_path / "new"), "--out", str(tmp_path / "out")]) == 2
    assert "a checkpoint of TensorFlow 2 objects" in capsys.readouterr().err
    (tmp_path / "old").mkdir()
    shutil.copy(ORIGINAL / "bert_model.ckpt.index", tmp_path / "old" / "model.ckpt")
    words = ["convert", "--input", str(tmp_path / "old" / "model.ckpt"), "--out", str(tmp_path / "out")]
    assert run(words) == 2
    assert "a checkpoint of TensorFlow before 0.12" in capsys.readouterr().err


def test_another_verb_says_that_a_checkpoint_has_to_be_converted(capsys):
    assert run(["fill", "a [MASK]", "--model", str(ORIGINAL)]) == 2
    assert "google-research/bert: bertsmith convert makes a model of it" in capsys.readouterr().err


def test_a_broken_settings_file_is_named_as_it_is_called(tmp_path, capsys):
    shutil.copytree(ORIGINAL, tmp_path / "tf")
    (tmp_path / "tf" / "bert_config.json").write_text(json.dumps(SIZES | {"hidden_size": 9}))
    assert run(["convert", "--input", str(tmp_path / "tf"), "--out", str(tmp_path / "out")]) == 2
    assert "bert_config.json: hidden_size 9 is not a multiple" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
