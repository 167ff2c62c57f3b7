"""The plain training loop over a model of transformers that our fine-tuning is compared with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any


def train_epochs(
    model: Any, number: int, loss_of: Callable[[list[int]], Any], settings: Mapping[str, Any]
) -> Iterator[int]:
    """Train; yield the epoch after each, with the model in evaluation mode.

    AdamW with eps 1e-6 and decay 0.01 except on biases and LayerNorm, gradient norm 1, linear warm-up over a
    tenth of the steps and linear decay to 0.

    Args:
        model: of transformers.
        number: of training rows.
        loss_of: from numbers of rows to their mean loss.
        settings: epochs, each in another order of the rows; batch_size; rate, the highest one.
    """
    import torch
    from transformers import get_linear_schedule_with_warmup

    no_decay = ("bias", "LayerNorm.weight")
    named = list(model.named_parameters())
    groups = [
        {"params": [value for name, value in named if not name.endswith(no_decay)], "weight_decay": 0.01},
        {"params": [value for name, value in named if name.endswith(no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings["rate"], eps=1e-6)
    batch_size = settings["batch_size"]
    steps = settings["epochs"] * math.ceil(number / batch_size)
    scheduler = get_linear_schedule_with_warmup(optimizer, math.ceil(0.1 * steps), steps)
    for epoch in range(settings["epochs"]):
        model.train()
        order = torch.randperm(number).tolist()
        for start in range(0, number, batch_size):
            loss_of(order[start : start + batch_size]).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        model.eval()
        yield epoch
