"""Exporting: what is written answers the same, or nothing is written."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bertsmith
from bertsmith import cli
from bertsmith.bundle import save_bundle
from bertsmith.errors import InputError, RunError
from bertsmith.model.bert import BertForEmbedding, BertForPreTraining
from bertsmith.recipes import export as recipe
from bertsmith.recipes.config import EvaluateConfig
from bertsmith.recipes.evaluate import evaluate
from bertsmith.recipes.export import export
from bertsmith.recipes.export_config import ExportConfig
from bertsmith.recipes.finetune import finetune
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer
from tests.recipes import tiny

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a classifier and forty labelled rows."""
    path = tmp_path_factory.mktemp("export")
    start = tiny.save_model(path / "start")
    train = tiny.write_csv(path / "train.csv", tiny.make_rows(160))
    finetune(tiny.config(start, train, path / "run", epochs=4))
    tiny.write_csv(path / "forty.csv", tiny.make_rows(40, seed=9))
    return path


def settings(folder: Path, out: Path, **changes: object) -> ExportConfig:
    config = ExportConfig(str(folder / "run" / "model"), str(out), data=str(folder / "forty.csv"))
    return dataclasses.replace(config, **changes)  # type: ignore[arg-type]


def test_each_variant_is_measured_by_the_tasks_metric(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    out = tmp_path / "ein Modell, 模型"
    out.mkdir()
    result = export(settings(folder, out, variants=["bf16", "int8"]))
    assert json.loads((out / "export-report.json").read_text()) == {
        name: value for name, value in result.items() if name != "out"
    }
    ours = evaluate(EvaluateConfig(str(folder / "run" / "model"), str(folder / "forty.csv")))
    assert result["ours"] == ours["metrics"]
    assert (result["metric"], result["examples"], result["opset"]) == ("accuracy", 40, 17)
    assert list(result["variants"]) == ["fp32", "bf16", "int8"]
    for name, found in result["variants"].items():
        assert (out / found["file"]).stat().st_size > 1000
        assert found["loss"] == ours["metrics"]["accuracy"] - found["metrics"]["accuracy"] <= 0.01
        assert 0 < found["largest_difference"] < (1e-4 if name == "fp32" else 1.0)
    assert result["variants"]["fp32"]["megabytes"] < result["variants"]["bf16"]["megabytes"] + 0.2


def test_the_code_of_the_card_runs(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    for to in ("onnx", "hf"):
        out = tmp_path / to
        found = export(settings(folder, out, to=to))["variants"]
        card = (out / "README.md").read_text()
        assert all(f"| {name} | " in card for name in found)
        _, code, _ = card.split("```")
        monkeypatch.chdir(out)
        names: dict[str, object] = {}
        exec(code.removeprefix("python"), names)
        assert names["outputs"][0].shape[0] == 1  # type: ignore[index]


def test_onnx_runtime_alone_gives_the_predictors_probabilities(folder: Path, tmp_path: Path) -> None:
    """With tokenizer.json and the graph, as the card says; nothing of ours."""
    import tokenizers

    out = tmp_path / "out"
    export(settings(folder, out, data=None))
    texts = [text for text, _ in tiny.make_rows(12, seed=3)]
    engine = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    engine.enable_padding()
    encodings = engine.encode_batch(texts)
    inputs = {
        "input_ids": np.array([encoding.ids for encoding in encodings]),
        "attention_mask": np.array([encoding.attention_mask for encoding in encodings]),
        "token_type_ids": np.array([encoding.type_ids for encoding in encodings]),
    }
    (logits,) = onnxruntime.InferenceSession(out / "onnx" / "model.onnx").run(["logits"], inputs)
    temperature = json.loads((out / "task.json").read_text())["tuned"]["temperature"]
    shares = np.exp(logits / temperature)
    shares /= shares.sum(axis=1, keepdims=True)
    answers = bertsmith.load(folder / "run" / "model").classify(texts)
    labels = json.loads((out / "config.json").read_text())["id2label"]
    for share, answer in zip(shares, answers, strict=True):
        assert labels[str(share.argmax())] == answer.label
        assert share.max() == pytest.approx(answer.probability, abs=1e-5)


@pytest.fixture(scope="module")
def embedder(folder: Path) -> dict[str, str]:
    """An embedding model, and rows of texts that belong together."""
    torch.manual_seed(0)
    settings = {"pooling": "mean", "normalize": True}
    task = {"task": "embed", "head": "embedding", "labels": None, "seq_len": 32, "settings": settings}
    tokenizer = Tokenizer(tiny.VOCABULARY, TokenizerConfig())
    save_bundle(folder / "embedder", BertForEmbedding(tiny.SHAPE).eval(), tokenizer, task, "card")
    rows = [(text, f"{text} so") for text, _ in tiny.make_rows(40, seed=2)]
    data = tiny.write_csv(folder / "pairs.csv", list(dict.fromkeys(rows)), ("anchor", "positive"))
    return {"model": str(folder / "embedder"), "data": str(data)}


@pytest.mark.parametrize(
    "kind, metric, spoiled",
    [("classifier", "accuracy", "classifier."), ("embedder", "ndcg_at_10", "layers.1.")],
)
def test_a_variant_that_loses_too_much_is_refused_and_nothing_is_left(
    folder: Path,
    embedder: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    metric: str,
    spoiled: str,
) -> None:
    """A quantiser that sets weights to 0, so that all texts get one label, or one vector."""
    import onnx

    from bertsmith.interop import variants

    def spoil(source: Path, target: Path) -> None:
        graph = onnx.load(source)
        for tensor in graph.graph.initializer:
            if tensor.name.startswith(spoiled):
                tensor.raw_data = bytes(len(tensor.raw_data))
        onnx.save(graph, target)

    spoiler = dataclasses.replace(variants.VARIANTS["int8"], write=spoil)
    monkeypatch.setattr(variants, "VARIANTS", variants.VARIANTS | {"int8": spoiler})
    out = tmp_path / "out"
    config = settings(folder, out, variants=["int8"], **(embedder if kind == "embedder" else {}))
    with pytest.raises(
        RunError, match=rf"int8: {metric} is 0\.\d+, the model's .* more than --max-loss 0.01"
    ):
        export(config)
    assert list(tmp_path.iterdir()) == []
    arguments = ["export", "--model", config.model, "--out", str(out), "--variants", "int8"]
    assert cli.run([*arguments, "--data", str(config.data)]) == 1
    assert list(tmp_path.iterdir()) == []
    found = export(dataclasses.replace(config, max_loss=1.0))["variants"]
    assert found["int8"]["loss"] > 0.2
    assert found["fp32"]["loss"] == 0.0


def test_a_float32_graph_that_is_not_equal_is_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bertsmith.interop import onnx_export

    monkeypatch.setattr(onnx_export, "_MASKED", -1.0)  # padding counts
    with pytest.raises(RunError, match=r"fp32: its outputs differ from the model's by .* nothing is written"):
        export(settings(folder, tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("opset", [11, 12, 13, 14, 17, None])
def test_c054_each_opset_exports_and_is_printed(
    folder: Path, tmp_path: Path, opset: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", str(folder / "run" / "model"), "--out", str(tmp_path / "out")]
    assert cli.run(["export", *flags, *([] if opset is None else ["--opset", str(opset)])]) == 0
    assert f"opset: {opset or 17}\n" in capsys.readouterr().out
    report = json.loads((tmp_path / "out" / "export-report.json").read_text())
    assert report["variants"]["fp32"]["largest_difference"] < 1e-4


def test_c054_an_old_opset_is_refused_before_anything_is_written(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--model", str(folder / "run" / "model"), "--out", str(tmp_path / "out"), "--opset", "10"]
    assert cli.run(["export", *flags]) == 2
    assert "the minimum opset is 11" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_directory_for_transformers_is_proved_by_transformers(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    transformers = pytest.importorskip("transformers")
    transformers.logging.enable_progress_bar()
    out = tmp_path / "out"
    result = export(settings(folder, out, to="hf"))
    assert "Loading weights" not in capsys.readouterr().err
    assert transformers.logging.is_progress_bar_enabled(), "as the caller had it"
    found = result["variants"]["hf"]
    assert found["loss"] == 0.0
    assert found["largest_difference"] < 1e-5
    assert found["computed_by"].startswith("transformers ")
    pipeline = transformers.pipeline("text-classification", model=str(out), device="cpu")
    answers = bertsmith.load(out).classify(["so good worda", "poor wordb"])
    assert [answer["label"] for answer in pipeline(["so good worda", "poor wordb"])] == [
        answer.label for answer in answers
    ]


@pytest.mark.parametrize("to", ["onnx", "hf"])
@pytest.mark.parametrize("family", ["roberta", "pre", "untied"])
def test_models_of_other_shapes_are_exported(tmp_path: Path, to: str, family: str) -> None:
    changes: dict[str, dict[str, Any]] = {
        "roberta": {"family": "roberta", "num_segments": 1},
        "pre": {"norm": "pre"},
        "untied": {"tied_decoder": False},
    }
    shape = dataclasses.replace(tiny.SHAPE, **changes[family])
    tokenizer = Tokenizer(tiny.VOCABULARY, TokenizerConfig())
    save_bundle(tmp_path / "model", BertForPreTraining(shape).eval(), tokenizer, None, "card")
    result = export(ExportConfig(str(tmp_path / "model"), str(tmp_path / "out"), to=to))
    (found,) = result["variants"].values()
    assert 0 < found["largest_difference"] < 1e-4


@pytest.mark.parametrize("to", ["onnx", "hf"])
def test_a_pretrained_model_is_held_to_ours_on_random_rows(folder: Path, tmp_path: Path, to: str) -> None:
    if to == "hf":
        pytest.importorskip("transformers")
    result = export(ExportConfig(str(folder / "start"), str(tmp_path / "out"), to=to))
    (found,) = result["variants"].values()
    assert 0 < found["largest_difference"] < 1e-4
    assert "metrics" not in found
    with pytest.raises(InputError, match="stores no task to evaluate"):
        export(settings(folder, tmp_path / "other", model=str(folder / "start")))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"to": "tf"}, "--to tf is unknown; take one of onnx, hf"),
        ({"to": "hf", "opset": 17}, "--opset 17 would be ignored"),
        ({"to": "hf", "variants": ["int8"]}, "--variants would be ignored"),
        ({"variants": ["int9"]}, "--variants int9 is unknown; .*int8"),
        ({"data": None, "variants": ["fp32", "int8"]}, "--variants int8 needs --data"),
        ({"data": None, "max_loss": 0.1}, "--max-loss 0.1 would be ignored without --data"),
        ({"data": None, "split": "test"}, "--split test would be ignored without --data"),
        ({"data": None, "batch_tokens": 9}, "--batch-tokens 9 would be ignored without --data"),
        ({"max_loss": -1.0}, "--max-loss is -1.0"),
        ({"max_loss": float("nan")}, "--max-loss is nan"),
        ({"task": "stsb"}, "needs a regression head"),
        ({"model": "nowhere"}, "nowhere: no such directory"),
    ],
)
def test_wrong_settings_are_one_clear_error(
    folder: Path, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        export(settings(folder, tmp_path / "out", **changes))
    assert list(tmp_path.iterdir()) == []


def test_a_missing_package_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"--to onnx needs onnx: pip install 'bertsmith\[onnx\]'"):
        export(settings(folder, tmp_path / "out"))
    monkeypatch.undo()
    monkeypatch.setattr(
        "bertsmith.interop.variants.find_spec", lambda name: None if name == "openvino" else 1
    )
    with pytest.raises(
        InputError, match=r"--variants bf16 needs openvino: pip install 'bertsmith\[openvino\]'"
    ):
        export(settings(folder, tmp_path / "out", variants=["bf16"]))


def test_only_an_earlier_export_is_replaced(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is there already and is no export"):
        export(settings(folder, out))
    assert (out / "notes.txt").read_text() == "mine"
    export(settings(folder, tmp_path / "second", data=None))
    export(settings(folder, tmp_path / "second", data=None, opset=11))
    assert json.loads((tmp_path / "second" / "export-report.json").read_text())["opset"] == 11


def test_an_embedding_model_gives_its_vectors(minilm_path: Path, tmp_path: Path) -> None:
    """MiniLM: vectors of ONNX Runtime alone against ours, which are sentence-transformers'."""
    import tokenizers

    out = tmp_path / "out"
    result = export(ExportConfig(str(minilm_path), str(out)))
    assert result["outputs"] == ["last_hidden_state", "sentence_embedding"]
    assert result["variants"]["fp32"]["largest_difference"] < 1e-4
    texts = [
        "A plane is taking off.",
        "你好，世界",
        "",
        "word " * 300,
        'He said: "It is what it is", and left.',
    ]
    engine = tokenizers.Tokenizer.from_file(str(out / "tokenizer.json"))
    engine.enable_padding()
    engine.enable_truncation(json.loads((out / "sentence_bert_config.json").read_text())["max_seq_length"])
    encodings = engine.encode_batch(texts)
    inputs = {
        "input_ids": np.array([encoding.ids for encoding in encodings]),
        "attention_mask": np.array([encoding.attention_mask for encoding in encodings]),
        "token_type_ids": np.array([encoding.type_ids for encoding in encodings]),
    }
    session = onnxruntime.InferenceSession(out / "onnx" / "model.onnx")
    (vectors,) = session.run(["sentence_embedding"], inputs)
    np.testing.assert_allclose(vectors, bertsmith.load(minilm_path).embed(texts, normalize=True), atol=1e-5)


def test_an_embedding_model_is_exported_for_transformers(embedder: dict[str, str], tmp_path: Path) -> None:
    report = export(ExportConfig(embedder["model"], str(tmp_path / "out"), to="hf"))
    assert report["variants"]["hf"]["largest_difference"] < 1e-5
    assert (tmp_path / "out" / "modules.json").is_file()
