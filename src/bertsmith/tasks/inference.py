"""Running rows through a model for their outputs: every row, its own result, in the order given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.device import pick_device, pick_precision
from bertsmith.tasks.encode import EncodedRow, RowBatch, batch_of, token_batches
from bertsmith.training.loop import autocast


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
    for indices in token_batches([len(row.ids) for row in rows], inference.batch_tokens):
        batch = batch_of(rows, indices).to(inference.device)
        with torch.no_grad(), autocast(inference.device, inference.precision):
            results[batch.rows] = compute(batch).float().cpu().numpy()
    return results


def head_outputs(
    model: nn.Module, num_outputs: int, rows: Sequence[EncodedRow], inference: Inference
) -> NDArray[np.float32]:
    """Return the outputs of a classification or regression head, float32 ``(rows, num_outputs)``.

    The model computes in evaluation mode and is put back into the mode it was in.
    """
    training = model.training
    model.eval()
    outputs = run_rows(rows, lambda batch: model(batch.tokens), num_outputs, inference)
    model.train(training)
    return outputs
