"""Running rows through a model for their outputs: every row, its own result, in the order given."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.device import multiplies_int8, pick_device, pick_precision
from bertsmith.errors import InputError
from bertsmith.model import quantized
from bertsmith.model.bert import Bert
from bertsmith.model.execution import keep_weights_in_bfloat16
from bertsmith.tasks.encode import EncodedRow, RowBatch, batch_of, token_batches
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.training.loop import autocast

logger = logging.getLogger(__name__)


class _Movable(Protocol):
    def to(self, device: torch.device | str) -> Self: ...


BatchT = TypeVar("BatchT", bound=_Movable)
ResultT = TypeVar("ResultT")


@dataclass(frozen=True)
class Inference:
    """How rows are computed; none of it changes a float32 result by more than rounding (1e-5).

    Attributes:
        device: where the model is.
        precision: ``torch.float32`` or ``torch.bfloat16``.
        batch_tokens: pieces of a forward pass, [CLS] and [SEP] included.
    """

    device: torch.device
    precision: torch.dtype
    batch_tokens: int = 4096


def inference_settings(precision: str, batch_tokens: int) -> Inference:
    """Return the settings for this machine.

    Raises:
        InputError: the precision is unknown.
    """
    device = pick_device()
    return Inference(device, pick_precision(precision, device), batch_tokens)


def prepared_model(
    model: nn.Module, tokenizer: Tokenizer, inference: Inference, quantize: str | None
) -> nn.Module:
    """Return the model as it computes fastest under the settings, changed in place.

    Args:
        model: float32, in evaluation mode.
        tokenizer: of the model.
        inference: device and precision.
        quantize: "int8" or ``None``.

    Raises:
        InputError: there is no such quantisation, or not of this model or on this device.
    """
    if quantize is None:
        if inference.precision == torch.bfloat16:
            keep_weights_in_bfloat16(model)
        return model
    encoder = encoder_of(model)
    if quantize != "int8":
        raise InputError(f"quantize is {quantize!r}; take int8, or leave it out")
    if inference.device.type != "cpu" or encoder.config.mixing != "attention":
        raise InputError("quantize int8 is for Transformers on a processor; leave it out")
    if not multiplies_int8(inference.device):
        logger.warning(
            "quantize int8: this processor has no instructions for 8-bit products (AVX512-VNNI, AVX-VNNI, "
            "AMX), so int8 is many times slower than float32 here"
        )
    quantized.quantize(encoder, tokenizer.cls_id, tokenizer.sep_id)
    return model


def encoder_of(model: nn.Module) -> Bert:
    """Return the encoder that a model with a head has, or is."""
    encoder = model if isinstance(model, Bert) else model.bert
    assert isinstance(encoder, Bert), "every head is on an encoder"
    return encoder


@contextlib.contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Have the model in evaluation mode, and put it back into the mode it was in."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def in_batches(
    lengths: Sequence[int],
    make: Callable[[list[int]], BatchT],
    compute: Callable[[BatchT], ResultT],
    inference: Inference,
) -> Iterator[tuple[BatchT, ResultT]]:
    """Yield batches of similar length with what is computed of them, without gradients.

    Args:
        lengths: pieces of each input.
        make: from numbers of inputs to a batch; each input is in one batch.
        compute: from a batch on the device, in the precision wanted.
        inference: device, precision and size of batches.

    Raises:
        InputError: the size of batches is below 1.
    """
    for numbers in token_batches(lengths, inference.batch_tokens):
        batch = make(numbers).to(inference.device)
        with torch.no_grad(), autocast(inference.device, inference.precision):
            result = compute(batch)
        yield batch, result


def lengths_of(rows: Sequence[EncodedRow]) -> list[int]:
    """Return the number of pieces of each row."""
    return [len(row.ids) for row in rows]


def rows_in_batches(
    rows: Sequence[EncodedRow], compute: Callable[[RowBatch], ResultT], inference: Inference
) -> Iterator[tuple[RowBatch, ResultT]]:
    """Yield batches of rows with what is computed of them; see ``in_batches``."""
    return in_batches(lengths_of(rows), partial(batch_of, rows), compute, inference)


def run_rows(
    rows: Sequence[EncodedRow], compute: Callable[[RowBatch], Tensor], width: int, inference: Inference
) -> NDArray[np.float32]:
    """Compute one vector a row, in batches of similar length without padding.

    Args:
        rows: encoded rows.
        compute: from a batch to float ``(batch, width)``, in the batch's order.
        width: length of a vector.
        inference: device, precision and size of batches.

    Returns:
        float32 ``(rows, width)``, in the order of ``rows``.
    """
    results = np.zeros((len(rows), width), dtype=np.float32)
    for batch, vectors in rows_in_batches(rows, compute, inference):
        results[batch.rows] = vectors.float().cpu().numpy()
    return results


def head_outputs(
    model: nn.Module, num_outputs: int, rows: Sequence[EncodedRow], inference: Inference
) -> NDArray[np.float32]:
    """Return the outputs of a classification or regression head, float32 ``(rows, num_outputs)``.

    The model computes in evaluation mode and is put back into the mode it was in.
    """
    with evaluation_mode(model):
        return run_rows(rows, lambda batch: model(batch.tokens), num_outputs, inference)
