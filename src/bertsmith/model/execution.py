"""How the layers are run: recomputed in the backward pass, compiled, with weights in bfloat16. Names stay."""

from __future__ import annotations

import logging
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from bertsmith.model.encoder import EncoderLayer

logger = logging.getLogger(__name__)


def prepare_layers(model: nn.Module, device: torch.device, compiled: bool, recomputed: bool) -> None:
    """Let the layers of a model on a device run as the settings say; names of weights do not change."""
    if compiled:
        compile_layers(model, device)
    if recomputed:
        recompute_activations(model)


def recompute_activations(model: nn.Module) -> None:
    """Let each layer keep its input alone and compute the rest again in the backward pass.

    Memory of activations falls to one layer's, for a third more arithmetic. Dropout draws the same numbers
    again, so gradients are the same, bit for bit.
    """
    for layer in _layers(model):
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)  # type: ignore[method-assign]


def compile_layers(model: nn.Module, device: torch.device) -> None:
    """Compile what follows attention in each layer: chains of elementwise work become one pass.

    Attention stays as it is: its kernels are fused, and its Python depends on the lengths of the rows, of
    which each step has others. Compiled for any number of tokens, and once for all layers. Where PyTorch
    finds no compiler, a warning says so and the layers run uncompiled.
    """
    reason = _obstacle(device)
    if reason is not None:
        logger.warning("the layers are not compiled: no working compiler for %s (%s)", device.type, reason)
        return
    for layer in _layers(model):
        layer.transform = torch.compile(layer.transform, dynamic=True)  # type: ignore[method-assign]


def keep_weights_in_bfloat16(model: nn.Module) -> None:
    """Round the weights of the layers' products once, for inference that computes in bfloat16.

    Results are those of rounding them in every forward pass, bit for bit; a single short text takes a
    fraction of the time, and the weights half the memory. Embeddings, LayerNorm and heads stay as they are.
    """
    for layer in _layers(model):
        for module in layer.modules():
            if isinstance(module, nn.Linear):
                module.to(torch.bfloat16)


def _layers(model: nn.Module) -> list[EncoderLayer]:
    return [module for module in model.modules() if isinstance(module, EncoderLayer)]


def _obstacle(device: torch.device) -> str | None:
    """Return why nothing can be compiled for a device, as one line; ``None``: it can.

    The compiler is only looked for when something is compiled, which would be in the first step.
    """
    compiled = torch.compile(_successor, options={"fx_graph_cache": False})
    try:
        compiled(torch.zeros(8, device=device))
    except RuntimeError as error:  # what dynamo and inductor raise are subclasses
        return str(error).strip().split("\n")[0]
    return None


def _successor(values: Tensor) -> Tensor:
    return values + 1.0
