"""ONNX graphs: ONNX Runtime computes what our models compute, for every head, version and shape."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from bertsmith.bundle import save_bundle
from bertsmith.data.batch import tokens_of
from bertsmith.errors import InputError
from bertsmith.features import POOLINGS, pool
from bertsmith.interop.exported import computed_by, rectangles
from bertsmith.interop.sentence_transformers import StoredPooling
from bertsmith.model.bert import (
    Bert,
    BertForChoice,
    BertForClassification,
    BertForEmbedding,
    BertForPreTraining,
    BertForSpans,
)
from bertsmith.model.config import BertConfig
from bertsmith.model.task_heads import BertForTagging, FeatureTagger
from bertsmith.text.config import TokenizerConfig
from bertsmith.text.tokenizer import SPECIAL_TOKENS, Tokenizer

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
from bertsmith.interop.exported import onnxruntime_run  # noqa: E402
from bertsmith.interop.onnx_export import DEFAULT_OPSET, MAXIMUM_OPSET, MINIMUM_OPSET, to_onnx  # noqa: E402

CONFIG = BertConfig(60, 24, 2, 3, 48, 40)
OPSETS = range(MINIMUM_OPSET, MAXIMUM_OPSET + 1)
HEADS = {
    "encoder": Bert,
    "embedding": BertForEmbedding,
    "pretraining": BertForPreTraining,
    "classification": lambda config: BertForClassification(config, 3),
    "choice": BertForChoice,
    "spans": BertForSpans,
    "tagging": lambda config: BertForTagging(config, 5),
}
SHAPES = {
    "bert": CONFIG,
    "tanh": BertConfig(60, 24, 2, 3, 48, 40, activation="gelu_tanh"),
    "relu": BertConfig(60, 24, 2, 3, 48, 40, activation="relu"),
    "roberta": BertConfig(60, 24, 2, 3, 48, 40, num_segments=1, family="roberta"),
    "untied": BertConfig(60, 24, 1, 3, 48, 40, tied_decoder=False),
    "pre": BertConfig(60, 24, 1, 3, 48, 40, norm="pre"),
}


def made(head: str, config: BertConfig = CONFIG):
    torch.manual_seed(1)
    model = HEADS[head](config)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.3 if parameter.ndim == 1 else 0.0, std=0.2)
    return model.eval()


def rows(*lengths: int):
    draw = np.random.default_rng(sum(lengths))
    ids = [draw.integers(60, size=length) for length in lengths]
    return tokens_of(ids, [-(-2 * length // 3) for length in lengths])


def written(model, tmp_path, opset=DEFAULT_OPSET, pooling=None):
    path = tmp_path / f"{opset}.onnx"
    onnx.save(to_onnx(model, opset, pooling), path)
    return onnxruntime_run(path)


def outputs(model, tokens):
    with torch.no_grad():
        if isinstance(model, (BertForPreTraining, BertForTagging)):
            found = model(tokens, torch.arange(tokens.layout.places))
            return (found[0] if isinstance(found, tuple) else found).numpy()
        return model(tokens).numpy()


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("shape", SHAPES)
def test_onnx_runtime_gives_the_outputs_of_every_head_and_shape(tmp_path, head, shape):
    model = made(head, SHAPES[shape])
    exported = computed_by(written(model, tmp_path), model)
    assert not exported.state_dict()
    for lengths in ((1,), (5, 1, 40, 17), (8, 8)):
        tokens = rows(*lengths)
        np.testing.assert_allclose(outputs(exported, tokens), outputs(model, tokens), atol=2e-5, rtol=2e-5)


@pytest.mark.parametrize("opset", OPSETS)
def test_c054_every_version_of_the_operators_gives_the_same_outputs(tmp_path, opset):
    tokens = rows(5, 1, 40, 17)
    for head, shape in (("classification", "bert"), ("embedding", "tanh"), ("spans", "pre")):
        model = made(head, SHAPES[shape])
        pooling = StoredPooling("mean", True, 40) if head == "embedding" else None
        run = written(model, tmp_path, opset, pooling)
        np.testing.assert_allclose(
            outputs(computed_by(run, model), tokens), outputs(model, tokens), atol=1e-4
        )
        (stored,) = onnx.load(tmp_path / f"{opset}.onnx").opset_import
        assert (stored.domain, stored.version) == ("", opset)


@pytest.mark.parametrize("opset", [MINIMUM_OPSET - 1, 1, MAXIMUM_OPSET + 1])
def test_c054_other_versions_are_refused_with_the_minimum(opset):
    with pytest.raises(InputError, match=f"--opset {opset}: the minimum opset is {MINIMUM_OPSET}"):
        to_onnx(made("encoder"), opset)


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("opset", [MINIMUM_OPSET, DEFAULT_OPSET, MAXIMUM_OPSET])
def test_vectors_of_texts_are_pooled_in_the_graph(tmp_path, pooling, normalize, opset):
    model = made("embedding")
    with torch.no_grad():  # every value below 0: padding must not be the largest
        model.bert.layers[-1].output_norm.bias.fill_(-30.0)
    run = written(model, tmp_path, opset, StoredPooling(pooling, normalize, None))
    tokens = rows(5, 1, 40, 17)
    expected = pool(torch.from_numpy(outputs(model, tokens)), tokens.layout, pooling)
    if normalize:
        expected = torch.nn.functional.normalize(expected, dim=1)
    found = run(rectangles(tokens, 2)[1])["sentence_embedding"]
    np.testing.assert_allclose(found, expected, atol=2e-5, rtol=2e-5)


def test_padding_of_any_amount_and_content_changes_nothing(tmp_path):
    model = made("classification")
    run = written(model, tmp_path)
    _, inputs = rectangles(rows(5, 9), 2)
    expected = run(inputs)["logits"]
    wider = {name: np.pad(values, ((0, 0), (0, 11)), constant_values=0) for name, values in inputs.items()}
    wider["input_ids"][:, 9:] = 7
    wider["token_type_ids"][:, 9:] = 1
    np.testing.assert_allclose(run(wider)["logits"], expected, atol=1e-5)


@pytest.mark.parametrize("head", ["encoder", "classification", "spans", "tagging", "choice", "pretraining"])
def test_names_are_those_of_transformers_and_so_are_the_outputs(tmp_path, head):
    """The exported graph against transformers' class, loaded from our directory, on its own inputs."""
    transformers = pytest.importorskip("transformers")
    model = made(head)
    tokenizer = Tokenizer([*SPECIAL_TOKENS, *(f"w{n}" for n in range(55))], TokenizerConfig())
    stored_head = {"classification": "classification", "tagging": "tagging"}.get(head, head)
    labels = [f"l{n}" for n in range(getattr(model, "num_outputs", 0))] or None
    task = {"task": "x", "head": stored_head, "labels": labels}
    save_bundle(tmp_path / "model", model, tokenizer, task, "")
    name = transformers.AutoConfig.from_pretrained(tmp_path / "model").architectures[0]
    peer = getattr(transformers, name).from_pretrained(tmp_path / "model").eval()
    run = written(model, tmp_path)
    draw = np.random.default_rng(0)
    shape = (3, 2, 7) if head == "choice" else (3, 7)
    inputs = {name: np.ones(shape, np.int64) for name in ("input_ids", "token_type_ids", "attention_mask")}
    inputs["input_ids"] = draw.integers(60, size=shape)
    inputs["attention_mask"][0, ..., 4:] = 0
    session = onnxruntime.InferenceSession(tmp_path / f"{DEFAULT_OPSET}.onnx")
    assert {value.name for value in session.get_inputs()} == inputs.keys()
    with torch.no_grad():
        theirs = peer(**{name: torch.from_numpy(values) for name, values in inputs.items()})
    found = run(inputs)
    is_token = inputs["attention_mask"].astype(bool)
    for name, values in found.items():
        expected = theirs["prediction_logits" if head == "pretraining" else name].numpy()
        if values.shape[:2] == is_token.shape:
            values, expected = values[is_token], expected[is_token]
        np.testing.assert_allclose(values, expected, atol=2e-5, rtol=2e-5)
    assert set(found) <= {"logits", "start_logits", "end_logits", "last_hidden_state"}


def test_models_that_other_programs_do_not_know_are_refused():
    for model in (
        FeatureTagger(CONFIG, 3, layers=(2,), weighted=False),
        Bert(BertConfig(60, 24, 1, 3, 48, 40, context="left")),
        Bert(BertConfig(60, 24, 1, 3, 48, 40, mixing="lstm")),
        BertForSpans(BertConfig(60, 24, 1, 3, 48, 40, recurrent_top=True)),
    ):
        with pytest.raises(InputError, match="with LSTMs and left-to-right ones are not exported"):
            to_onnx(model)


def test_weights_are_stored_once():
    model = made("pretraining")
    size = sum(value.numel() for value in model.parameters()) * 4
    pooler_and_next = sum(p.numel() for part in (model.pooler, model.nsp_head) for p in part.parameters()) * 4
    stored = sum(math.prod(tensor.dims) * 4 for tensor in to_onnx(model).graph.initializer)
    assert stored == pytest.approx(size - pooler_and_next, abs=600)  # numbers and shapes besides


def test_what_is_quantised_is_close_and_smaller(tmp_path):
    from bertsmith.interop.variants import VARIANTS, write_variant

    model = made("classification", BertConfig(60, 96, 2, 3, 384, 40))
    graph = to_onnx(model)
    full = write_variant(VARIANTS["fp32"], graph, tmp_path)
    small = write_variant(VARIANTS["int8"], graph, tmp_path)
    assert small.stat().st_size < full.stat().st_size / 2.5
    tokens = rows(5, 1, 40, 17)
    found = outputs(computed_by(VARIANTS["int8"].run(small), model), tokens)
    expected = outputs(model, tokens)
    assert 0 < np.abs(found - expected).max() < 0.2 * np.ptp(expected)


def test_openvino_computes_in_bfloat16_as_its_file_says(tmp_path):
    openvino = pytest.importorskip("openvino")
    from bertsmith.interop.variants import VARIANTS, write_variant

    model = made("classification")
    path = write_variant(VARIANTS["bf16"], to_onnx(model), tmp_path)
    compiled = openvino.Core().compile_model(path, "CPU")
    wanted = "bf16" if "BF16" in openvino.Core().get_property("CPU", "OPTIMIZATION_CAPABILITIES") else "f32"
    assert compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name() == wanted
    tokens = rows(5, 1, 40, 17)
    found = outputs(computed_by(VARIANTS["bf16"].run(path), model), tokens)
    np.testing.assert_allclose(found, outputs(model, tokens), atol=0.05, rtol=0.05)
