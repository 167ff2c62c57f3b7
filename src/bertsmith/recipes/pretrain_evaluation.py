"""Evaluation while a model is pretrained: held-out losses and probes, when they are due, what is shown."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor, nn

from bertsmith import distributed
from bertsmith.data.batch import PretrainingBatch
from bertsmith.data.shards import Instances
from bertsmith.objectives import PretrainingObjective
from bertsmith.recipes.pretrain_probes import probe
from bertsmith.recipes.pretrain_run import Parts, Standing
from bertsmith.recipes.pretrain_saving import whole_model
from bertsmith.runlog import RunLog
from bertsmith.tasks.inference import Inference
from bertsmith.training.diagnosis import place
from bertsmith.training.loop import NonFiniteLoss, Step, evaluate

_OF_EACH_SOURCE = ("mlm_loss", "mlm_accuracy")
_EVALUATION_SHARE = 0.1  # of the time, when evaluations are placed automatically within a time budget
_FORWARD_SHARE = 1 / 3  # of a training step's time: the backward pass takes two thirds

_Value = TypeVar("_Value")


def evaluate_if_due(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Evaluate and probe, each every so many steps or about ten times in a run; its end has its own."""
    config = parts.config
    progress = parts.budget.progress(standing.step)
    if progress >= 1.0:
        return
    before, standing.tenths = standing.tenths, int(10 * progress)
    is_tenth = standing.tenths > before
    used = standing.evaluations_seconds + standing.evaluation_seconds
    if len(parts.heldout) and _is_due(parts, standing, config.evaluate_steps, is_tenth, used):
        evaluate_heldout(parts, standing, log)
    used = standing.evaluations_seconds + standing.probes_seconds + standing.probe_seconds
    if parts.probes and _is_due(parts, standing, config.probe_steps, is_tenth, used):
        run_probes(parts, standing, log)


def _is_due(parts: Parts, standing: Standing, every_steps: int, is_tenth: bool, used_seconds: float) -> bool:
    if every_steps:
        return standing.step % every_steps == 0
    allowed = _EVALUATION_SHARE * parts.budget.elapsed_seconds
    return is_tenth and (parts.budget.seconds is None or used_seconds <= allowed)


def expect_evaluation(parts: Parts, standing: Standing, step: Step) -> None:
    """Under a time budget, keep back what the first evaluation will take, as the training's speed has it."""
    if parts.budget.seconds is None or standing.heldout or not len(parts.heldout):
        return
    examples = min(parts.config.evaluate_examples or len(parts.heldout), len(parts.heldout))
    batches = examples / min(parts.config.batch_size, parts.phases.loader.num_examples)
    # The ranks' clocks differ, and all have to keep the same time back.
    expected = distributed.from_main(lambda: batches * step.seconds * _FORWARD_SHARE)
    standing.evaluation_seconds = min(expected, standing.evaluation_seconds or expected)
    standing.keep_time_back(parts.budget)


def evaluate_heldout(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Log the held-out losses and accuracies, always of the same instances with the same masks.

    Raises:
        NonFiniteLoss: the last step has broken the weights.
    """
    begun = parts.clock()
    objective = _BySource(parts.objective, parts.heldout)
    values = evaluate(parts.model, objective, parts.heldout_batches(distributed.ranks()), parts.settings)
    values = {"loss": sum(values.get(name, 0.0) for name in ("mlm_loss", "nsp_loss"))} | values
    named = {f"heldout_{name}": value for name, value in values.items()}
    long = evaluate(parts.model, parts.objective, parts.long_heldout_batches(standing.step), parts.settings)
    named |= {f"heldout_long_{name}": value for name, value in long.items()}
    if not all(map(math.isfinite, named.values())):
        raise NonFiniteLoss(standing.step - 1, named)
    standing.heldout = {"step": standing.step} | named
    log.log(standing.heldout)
    others = [
        f"  {name.removeprefix('heldout_')} {value:.4g}"
        for name, value in named.items()
        if name not in ("heldout_loss", "heldout_mlm_loss")
    ]
    where = place(values["mlm_loss"], parts.levels)
    log.note(f"step {standing.step}  heldout mlm_loss {where}{''.join(others)}")
    parts.clock.agree()
    standing.evaluation_seconds = parts.clock() - begun
    standing.evaluations_seconds += standing.evaluation_seconds
    standing.keep_time_back(parts.budget)


@dataclass(frozen=True)
class _BySource:
    """The objective, and of masked words the same sums of each source alone, if there are several.

    A batch holds instances of one source (``fixed_batches``), so its sums are those of that source.
    """

    objective: PretrainingObjective
    heldout: Instances

    def counts(self, batch: PretrainingBatch) -> dict[str, int]:
        """Return the numbers of targets, those of each source included."""
        counts = self.objective.counts(batch)
        return counts | self._by_source(counts, batch, 0)

    def sums(self, model: nn.Module, batch: PretrainingBatch) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Return the objective's sums, those of each source among the monitors."""
        losses, monitors = self.objective.sums(model, batch)
        none = losses["mlm_loss"].new_zeros(())
        return losses, monitors | self._by_source(losses | monitors, batch, none)

    def _by_source(
        self, values: Mapping[str, _Value], batch: PretrainingBatch, none: _Value
    ) -> dict[str, _Value]:
        names = self.heldout.source_names
        if len(names) == 1:
            return {}
        here = set(self.heldout.sources(batch.example_ids).tolist())
        return {
            f"{kind}_{name}": values[kind] if number in here else none
            for number, name in enumerate(names)
            for kind in _OF_EACH_SOURCE
        }


def run_probes(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Log how well a linear model reads each probed task off the encoder as it is."""
    begun = parts.clock()
    inference = Inference(parts.settings.device, parts.settings.precision)
    model = whole_model(parts)
    found = distributed.from_main(
        lambda: probe(parts.probes, model.bert.to(parts.settings.device), inference)
    )
    standing.probed = {"step": standing.step} | found
    log.log(standing.probed)
    log.note("  ".join(f"{name} {value:.4g}" for name, value in standing.probed.items()))
    parts.clock.agree()
    standing.probe_seconds = parts.clock() - begun
    standing.probes_seconds += standing.probe_seconds
    standing.keep_time_back(parts.budget)


def probe_the_start(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Probe a new encoder: what later probes compare with, and how long one takes."""
    if parts.probes and not standing.probed:
        run_probes(parts, standing, log)


def evaluate_the_end(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Evaluate and probe the finished model, unless its last step was already."""
    if len(parts.heldout) and standing.heldout.get("step") != standing.step:
        seconds, expected = parts.budget.seconds, standing.evaluation_seconds
        if seconds is not None and expected > max(1.0, seconds - parts.budget.elapsed_seconds):
            log.note(
                f"the last evaluation takes about {expected:.0f} s, longer than is left of --budget "
                f"{parts.config.budget}; it takes less with fewer --evaluate-examples"
            )
        evaluate_heldout(parts, standing, log)
    if parts.probes and standing.probed.get("step") != standing.step:
        run_probes(parts, standing, log)
