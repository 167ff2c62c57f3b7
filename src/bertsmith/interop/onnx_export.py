"""Our models as ONNX graphs: any batch, any length, inputs and outputs under Hugging Face's names.

Rows are padded at their end, and attention_mask says where; what stands at padding never counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version

import numpy as np
import onnx
from torch import nn

from bertsmith.errors import InputError
from bertsmith.interop.exported import require_known
from bertsmith.interop.onnx_graph import Graph, Name
from bertsmith.interop.sentence_transformers import StoredPooling
from bertsmith.model.attention import SelfAttention
from bertsmith.model.bert import (
    Bert,
    BertForChoice,
    BertForClassification,
    BertForPreTraining,
    BertForSpans,
)
from bertsmith.model.config import BertConfig
from bertsmith.model.encoder import EncoderLayer, PreNormLayer
from bertsmith.model.heads import Pooler, UntiedMlmHead
from bertsmith.model.task_heads import BertForTagging

MINIMUM_OPSET, DEFAULT_OPSET, MAXIMUM_OPSET = 11, 17, 23
"""17 is the first with LayerNormalization; ONNX Runtime has read it since 1.12 (2022)."""
_LARGEST_BYTES = (1 << 31) - 1
"""Of one file, by protobuf's limit."""
_LOWEST = float(np.finfo(np.float32).max) / 2
_HEAD_AXES = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
_MASKED = -10000.0
"""Added to the score of a key at padding, as the original does (modeling.py, attention_layer)."""


@dataclass(frozen=True)
class _Inputs:
    """The graph's inputs.

    Attributes:
        ids: int64 ``(batch, seq)``.
        mask: int64 ``(batch, seq)``, 1 where a piece is.
        segments: int64 ``(batch, seq)``; ``None`` where the model has one segment alone.
        shape: of the inputs as they are given; of choices ``(batch, choices, seq)``.
    """

    ids: Name
    mask: Name
    segments: Name | None
    shape: Name


def check_opset(opset: int) -> None:
    """Refuse a version of the operators that cannot be written.

    Raises:
        InputError: it is too old or too new.
    """
    if not MINIMUM_OPSET <= opset <= MAXIMUM_OPSET:
        raise InputError(
            f"--opset {opset}: the minimum opset is {MINIMUM_OPSET}, the maximum {MAXIMUM_OPSET}; "
            f"leave it out for {DEFAULT_OPSET}"
        )


def to_onnx(
    model: nn.Module, opset: int = DEFAULT_OPSET, pooling: StoredPooling | None = None
) -> onnx.ModelProto:
    """Return a model's graph.

    Args:
        model: an encoder, alone or with a head, float32, on the host.
        opset: version of the operators.
        pooling: of an embedding model: how the vectors of texts are made.

    Raises:
        InputError: the version is out of range, or the model is of a kind that is not exported, or too large
            for one file.
    """
    check_opset(opset)
    require_known(model)
    encoder = model if isinstance(model, Bert) else model.bert
    assert isinstance(encoder, Bert), "every head is on an encoder"
    size = sum(value.numel() * value.element_size() for value in model.parameters())
    if size > _LARGEST_BYTES:
        raise InputError(f"the model has {size / 1e9:.1f} GB; an ONNX file holds 2 GB at most")
    graph = Graph(opset)
    inputs = _inputs(graph, encoder.config, isinstance(model, BertForChoice))
    reads_first = isinstance(model, (BertForClassification, BertForChoice))
    hidden = _encoder(graph, encoder, inputs, reads_first)
    if (head := _HEADS.get(type(model))) is not None:
        head(graph, model, inputs, hidden)
    else:
        width = encoder.config.hidden_size
        graph.output("last_hidden_state", hidden, ("batch", "sequence", width))
        if pooling is not None:
            graph.output(
                "sentence_embedding", _vectors(graph, pooling, inputs, hidden, width), ("batch", width)
            )
    return graph.model("bertsmith", version("bertsmith"))


def _inputs(graph: Graph, config: BertConfig, has_choices: bool) -> _Inputs:
    axes = ("batch", "choices", "sequence") if has_choices else ("batch", "sequence")
    names = ("input_ids", "attention_mask", "token_type_ids")
    given = [graph.input(name, axes) for name in names[: 3 if config.num_segments > 1 else 2]]
    shape = graph.add("Shape", given[0])
    if has_choices:  # each choice is a row
        rows = graph.add("Concat", graph.integers(-1), graph.part(shape, 2, 3), axis=0)
        given = [graph.add("Reshape", value, rows) for value in given]
    return _Inputs(given[0], given[1], given[2] if len(given) > 2 else None, shape)


def _encoder(graph: Graph, encoder: Bert, inputs: _Inputs, reads_first: bool) -> Name:
    """Add the encoder.

    Returns:
        Its output, float32 ``(batch, seq, hidden)``; where heads read nothing else, of [CLS] alone,
        ``(batch, 1, hidden)``.
    """
    embeddings = encoder.embeddings
    segments = embeddings.segment.weight
    positions = embeddings.position.weight if inputs.segments else embeddings.position.weight + segments[0]
    length = graph.part(graph.add("Shape", inputs.ids), 1, 2)
    words = graph.add("Gather", graph.weight("embeddings.word.weight", embeddings.word.weight), inputs.ids)
    placed = graph.add(
        "Slice", graph.weight("embeddings.position.weight", positions), graph.integers(0), length
    )
    if inputs.segments:
        table = graph.weight("embeddings.segment.weight", segments)
        words = graph.add("Add", words, graph.add("Gather", table, inputs.segments))
    hidden = graph.norm("embeddings.norm", graph.add("Add", words, placed), embeddings.norm)
    masked = _masked(graph, inputs.mask)
    for number, layer in enumerate(encoder.layers):
        assert isinstance(layer, EncoderLayer), "an encoder's layer"
        is_last = number == len(encoder.layers) - 1
        hidden = _layer(
            graph, encoder.config, f"layers.{number}", layer, (hidden, masked), reads_first and is_last
        )
    return graph.norm("norm", hidden, encoder.norm) if isinstance(encoder.norm, nn.LayerNorm) else hidden


def _masked(graph: Graph, mask: Name) -> Name:
    """Return what is added to the scores of keys, float32 ``(batch, 1, 1, seq)``."""
    is_token = graph.add("Cast", graph.with_axis(graph.with_axis(mask, 1), 2), to=onnx.TensorProto.FLOAT)
    is_padding = graph.add("Sub", graph.number(1.0), is_token)
    return graph.add("Mul", is_padding, graph.number(_MASKED))


def _layer(
    graph: Graph,
    config: BertConfig,
    name: str,
    layer: EncoderLayer,
    values: tuple[Name, Name],
    reads_first: bool,
) -> Name:
    """Add a layer.

    Args:
        graph: to add to.
        config: of the encoder.
        name: of the layer.
        layer: its weights.
        values: its input, and what is added to the scores of keys.
        reads_first: compute what follows attention for [CLS] alone.
    """
    hidden, masked = values
    is_pre = isinstance(layer, PreNormLayer)
    source = graph.norm(f"{name}.attention_norm", hidden, layer.attention_norm) if is_pre else hidden
    attended = _attention(graph, config, f"{name}.attention", layer.attention, (source, masked))
    if reads_first:
        hidden, attended = _first(graph, hidden), _first(graph, attended)
    projected = graph.linear(f"{name}.attention.output", attended, layer.attention.output)
    hidden = graph.add("Add", projected, hidden)
    if not is_pre:
        hidden = graph.norm(f"{name}.attention_norm", hidden, layer.attention_norm)
    source = graph.norm(f"{name}.output_norm", hidden, layer.output_norm) if is_pre else hidden
    inner = graph.activation(
        config.activation, graph.linear(f"{name}.intermediate", source, layer.intermediate)
    )
    hidden = graph.add("Add", graph.linear(f"{name}.output", inner, layer.output), hidden)
    return hidden if is_pre else graph.norm(f"{name}.output_norm", hidden, layer.output_norm)


def _attention(
    graph: Graph, config: BertConfig, name: str, attention: SelfAttention, values: tuple[Name, Name]
) -> Name:
    """Add attention without its output layer, in the form that programs look for to compute it at once."""
    hidden, masked = values
    weights, biases = attention.qkv.weight.chunk(3), attention.qkv.bias.chunk(3)
    heads = []
    for part, weight, bias, axes in zip(("query", "key", "value"), weights, biases, _HEAD_AXES, strict=True):
        projected = graph.projection(f"{name}.{part}", hidden, weight, bias)
        split = graph.reshape(projected, 0, 0, config.num_heads, config.head_size)
        heads.append(graph.add("Transpose", split, perm=axes))
    query, key, value = heads
    scores = graph.add("Div", graph.add("MatMul", query, key), graph.number(math.sqrt(config.head_size)))
    shares = graph.add("Softmax", graph.add("Add", scores, masked), axis=3)  # (batch, heads, seq, seq)
    attended = graph.add("Transpose", graph.add("MatMul", shares, value), perm=[0, 2, 1, 3])
    return graph.reshape(attended, 0, 0, config.hidden_size)  # (batch, seq, hidden)


def _first(graph: Graph, hidden: Name) -> Name:
    """Return the output at [CLS], ``(batch, 1, hidden)``."""
    return graph.add("Gather", hidden, graph.integers(0), axis=1)


def _vectors(graph: Graph, pooling: StoredPooling, inputs: _Inputs, hidden: Name, width: int) -> Name:
    """Return a vector for each text, float32 ``(batch, width)``."""
    is_token = graph.with_axis(
        graph.add("Cast", inputs.mask, to=onnx.TensorProto.FLOAT), 2
    )  # (batch, seq, 1)
    if pooling.pooling == "cls":
        vectors = _first(graph, hidden)
    elif pooling.pooling == "mean":
        total = graph.reduced("ReduceSum", graph.add("Mul", hidden, is_token), 1)
        vectors = graph.add("Div", total, graph.reduced("ReduceSum", is_token, 1))
    else:
        at_padding = graph.add("Mul", graph.add("Sub", is_token, graph.number(1.0)), graph.number(_LOWEST))
        vectors = graph.reduced("ReduceMax", graph.add("Add", hidden, at_padding), 1)
    vectors = graph.reshape(vectors, 0, width)
    if not pooling.normalize:
        return vectors
    length = graph.add("Max", graph.reduced("ReduceL2", vectors, 1), graph.number(1e-12))
    return graph.add("Div", vectors, length)


def _classification(graph: Graph, model: nn.Module, inputs: _Inputs, hidden: Name) -> None:
    assert isinstance(model, BertForClassification)
    logits = _pooled_scores(graph, model.pooler, model.classifier, hidden)
    graph.output("logits", logits, ("batch", model.num_outputs))


def _choice(graph: Graph, model: nn.Module, inputs: _Inputs, hidden: Name) -> None:
    assert isinstance(model, BertForChoice)
    scores = _pooled_scores(graph, model.pooler, model.classifier, hidden)  # (batch * choices, 1)
    rows = graph.part(inputs.shape, 0, 2)
    graph.output("logits", graph.add("Reshape", scores, rows), ("batch", "choices"))


def _pooled_scores(graph: Graph, pooler: Pooler, scores: nn.Linear, first: Name) -> Name:
    dense = pooler.dense
    row = graph.reshape(first, -1, dense.in_features)
    pooled = graph.add("Tanh", graph.linear("pooler.dense", row, dense))
    return graph.linear("classifier", pooled, scores)


def _spans(graph: Graph, model: nn.Module, inputs: _Inputs, hidden: Name) -> None:
    assert isinstance(model, BertForSpans)
    scores = graph.linear("span_scores", hidden, model.span_scores)  # (batch, seq, 2)
    for number, name in enumerate(("start_logits", "end_logits")):
        one = graph.add("Gather", scores, graph.integers(number), axis=2)
        graph.output(name, graph.reshape(one, 0, -1), ("batch", "sequence"))


def _tagging(graph: Graph, model: nn.Module, inputs: _Inputs, hidden: Name) -> None:
    assert isinstance(model, BertForTagging)
    logits = graph.linear("classifier", hidden, model.classifier)
    graph.output("logits", logits, ("batch", "sequence", model.num_outputs))


def _masked_words(graph: Graph, model: nn.Module, inputs: _Inputs, hidden: Name) -> None:
    assert isinstance(model, BertForPreTraining)
    head, config = model.mlm_head, model.config
    dense = graph.activation(config.activation, graph.linear("mlm_head.dense", hidden, head.dense))
    words = graph.reshape(graph.norm("mlm_head.norm", dense, head.norm), -1, config.hidden_size)
    bias = graph.weight("mlm_head.bias", head.bias)
    decoder = "embeddings.word.weight"
    if isinstance(head, UntiedMlmHead):
        decoder = graph.weight("mlm_head.decoder.weight", head.decoder.weight)
    scores = graph.add("Gemm", words, decoder, bias, transB=1)  # (batch * seq, vocab)
    shape = graph.add("Concat", inputs.shape, graph.integers(config.vocab_size), axis=0)
    logits = graph.add("Reshape", scores, shape)
    graph.output("logits", logits, ("batch", "sequence", config.vocab_size))


_HEADS: Mapping[type[nn.Module], Callable[[Graph, nn.Module, _Inputs, Name], None]] = {
    BertForClassification: _classification,
    BertForChoice: _choice,
    BertForSpans: _spans,
    BertForTagging: _tagging,
    BertForPreTraining: _masked_words,
}
