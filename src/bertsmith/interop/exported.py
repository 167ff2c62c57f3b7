"""Exported models, computed by other programs: what they take, what they give, and ours in their place."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.errors import InputError
from bertsmith.layout import Tokens
from bertsmith.model.bert import (
    Bert,
    BertForChoice,
    BertForClassification,
    BertForEmbedding,
    BertForPreTraining,
    BertForSpans,
)
from bertsmith.model.config import BertConfig
from bertsmith.model.task_heads import BertForTagging, OnFrozenEncoder

Run = Callable[[Mapping[str, NDArray[np.int64]]], Mapping[str, NDArray[np.float32]]]
"""From inputs to outputs, both under Hugging Face's names."""
ModelT = TypeVar("ModelT", bound=nn.Module)


def onnxruntime_run(path: Path) -> Run:
    """Return an ONNX file computed by ONNX Runtime, with as many threads as torch has."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # what it finds to be better in a graph is no matter for a user
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def openvino_run(path: Path) -> Run:
    """Return an OpenVINO model computed as its file says, with as many threads as torch has."""
    import openvino

    compiled = openvino.Core().compile_model(path, "CPU", {"INFERENCE_NUM_THREADS": torch.get_num_threads()})
    return lambda inputs: compiled(dict(inputs))  # what it returns knows every name of an output


def require_known(model: nn.Module) -> None:
    """Refuse a model of a kind that other programs do not know.

    Raises:
        InputError: there is an LSTM in it, or it reads from left to right.
    """
    encoder = model if isinstance(model, Bert) else model.bert
    assert isinstance(encoder, Bert), "every head is on an encoder"
    has_lstm = isinstance(model, OnFrozenEncoder) or encoder.top is not None
    if has_lstm or not encoder.config.sees_both:
        raise InputError(
            "models with LSTMs and left-to-right ones are not exported, other programs do not know them; "
            "export one that was fine-tuned as a whole"
        )


def computed_by(run: Run, model: ModelT) -> ModelT:
    """Return a model that is ours to whoever asks, and whose outputs another program computes.

    So what scores our models scores exported ones. It has no weights: nothing else can answer for it.

    Args:
        run: of the exported model.
        model: ours that it was made of.
    """
    forward = partial(_forward, run, model)
    other = _hollow(model, forward)
    if isinstance(model, BertForEmbedding):  # vectors are read from the encoder in it
        other.bert = _hollow(model.bert, forward)
    return other


def _hollow(model: ModelT, forward: Callable[..., Tensor]) -> ModelT:
    other = copy.copy(model)
    other._parameters, other._modules = {}, {}
    other.forward = forward
    return other


def _forward(run: Run, model: nn.Module, tokens: Tokens, picks: Tensor | None = None) -> Tensor:
    """Return what the model's ``forward`` returns (of a pretrained one the scores of words alone)."""
    assert isinstance(model.config, BertConfig), "a model of this package"
    is_token, inputs = rectangles(tokens, model.config.num_segments)
    if isinstance(model, BertForChoice):
        one_choice = {name: values[:, np.newaxis] for name, values in inputs.items()}  # (batch, 1, seq)
        return torch.from_numpy(run(one_choice)["logits"])
    found = run(inputs)
    if isinstance(model, BertForClassification):
        return torch.from_numpy(found["logits"])
    if isinstance(model, BertForSpans):
        values = np.stack([found["start_logits"], found["end_logits"]], axis=-1)  # (batch, seq, 2)
    elif isinstance(model, (BertForTagging, BertForPreTraining)):
        values = found["logits"]
    else:
        values = found["last_hidden_state"]
    places = torch.from_numpy(values[is_token])  # (places, outputs)
    return places if picks is None else places.index_select(0, picks)


def rectangles(tokens: Tokens, num_segments: int) -> tuple[NDArray[np.bool_], dict[str, NDArray[np.int64]]]:
    """Return where pieces are, and unpadded rows as other programs take them, each ``(batch, seq)``.

    Args:
        tokens: unpadded rows.
        num_segments: of the model; with a single one there are no token_type_ids.
    """
    layout = tokens.layout
    assert layout.row_tokens is None, "rows lie end to end"
    is_token = np.arange(max(layout.lengths)) < np.array(layout.lengths)[:, np.newaxis]  # (batch, seq)
    names = {"input_ids": tokens.input_ids, "token_type_ids": tokens.segment_ids}
    inputs = {"attention_mask": is_token.astype(np.int64)}
    for name, values in list(names.items())[: 2 if num_segments > 1 else 1]:
        inputs[name] = np.zeros(is_token.shape, dtype=np.int64)
        inputs[name][is_token] = values.numpy()
    return is_token, inputs


def transformers_run(directory: Path) -> Run:
    """Return a model directory computed by transformers, with the class that its config.json names."""
    import transformers

    (architecture,) = transformers.AutoConfig.from_pretrained(directory).architectures
    showed = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        model = getattr(transformers, architecture).from_pretrained(directory).eval()
    finally:
        if showed:
            transformers.logging.enable_progress_bar()

    def run(inputs: Mapping[str, NDArray[np.int64]]) -> Mapping[str, NDArray[np.float32]]:
        with torch.no_grad():
            found = model(**{name: torch.from_numpy(values) for name, values in inputs.items()})
        return {name.removeprefix("prediction_"): values.numpy() for name, values in found.items()}

    return run
