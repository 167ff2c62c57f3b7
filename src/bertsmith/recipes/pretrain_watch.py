"""Findings while a model is pretrained: what is shown of them, their likely causes and remedies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bertsmith.recipes.pretrain_run import Parts, Standing
from bertsmith.runlog import RunLog
from bertsmith.training.diagnosis import (
    LEVEL_STEPS,
    PAIRS_NOT_LEARNED,
    PLATEAU,
    UNSETTLED,
    Diverged,
    Finding,
    Observation,
    offset,
)
from bertsmith.training.loop import Step

_MANY_REPEATED_LINES = 0.1
_MANY_UNKNOWN_PIECES = 0.05
_LONG_SEQUENCE = 128
_USUAL_MASK_RATE = 0.2


def watch(parts: Parts, standing: Standing, step: Step, log: RunLog) -> None:
    """Let the watcher see a completed step; show and keep what it finds.

    Raises:
        Diverged: the run is to go back to an earlier checkpoint.
    """
    if step.step - 1 == parts.phases.long_start:  # the first step on long instances
        standing.watcher.forget_levels()
    if "mlm_loss" not in step.losses:
        return
    seen = Observation(
        step.step,
        parts.budget.progress(step.step),
        step.losses["mlm_loss"],
        step.grad_norm,
        step.monitors.get("nsp_accuracy"),
    )
    for finding in standing.watcher.take(seen, parts.levels):
        if finding.diverged and parts.config.on_divergence == "rollback":
            raise Diverged(finding)
        report(parts, standing, finding, log)


def watch_the_end(parts: Parts, standing: Standing, log: RunLog) -> None:
    """Report a divergence that the run ends in before it is certain; and a budget that held few steps."""
    if parts.config.budget is not None and standing.step < LEVEL_STEPS:
        log.note(
            f"WARNING: the budget of {parts.config.budget} was over after step {standing.step}: too few to "
            "learn anything; take a smaller --preset or --batch-size, or a longer --budget (bertsmith plan "
            "says what this machine can do)"
        )
    finding = standing.watcher.unsettled(standing.step)
    known = any((entry["kind"], entry["step"]) == (UNSETTLED, standing.step) for entry in standing.findings)
    if finding is not None and not known:  # known: a finished run was resumed
        report(parts, standing, finding, log)


def progress_line(parts: Parts, step: Step) -> str:
    """Return what is shown beside the bar after a step."""
    mlm_loss = step.losses.get("mlm_loss")
    where = "" if mlm_loss is None else f" (mlm {offset(mlm_loss, parts.levels)})"
    return f"step {step.step}  loss {step.loss:.3f}{where}  {step.tokens / step.seconds:,.0f} tokens/s"


def report(parts: Parts, standing: Standing, finding: Finding, log: RunLog) -> None:
    """Show a finding with its remedies, and keep it for the summary."""
    text = f"{finding.text}; {remedies(finding, parts)}"
    standing.findings.append({"step": finding.step, "kind": finding.kind, "text": text})
    log.log({"step": finding.step, "finding": finding.kind, "text": text})
    log.note(f"WARNING: {text}")


def summary(parts: Parts, standing: Standing) -> dict[str, Any]:
    """Return what metrics.json says of findings and rollbacks."""
    result: dict[str, Any] = {"findings": standing.findings}
    if parts.config.on_divergence == "rollback":
        result["rollbacks"] = standing.rollbacks
        result["skipped_batches"] = parts.phases.skipped_batches
        result["rate_factor"] = standing.rate_factor
    return result


def remedies(finding: Finding, parts: Parts) -> str:
    """Return the likely causes of a finding in this run, each with what to do, most likely first."""
    if finding.kind == PLATEAU:
        return "likely causes: " + ", ".join(_of_the_plateau(parts))
    if finding.kind == PAIRS_NOT_LEARNED:
        return (
            "short runs are over before pairs are learned; otherwise look at the documents (one topic for "
            "all, or a sentence each), or leave pairs out: prepare --pairing full-sentences"
        )
    return "; ".join(_of_divergence(parts))


def _of_the_plateau(parts: Parts) -> list[str]:
    """Return the causes for which this run gives reason; a wrong rate is always possible."""
    config, facts = parts.config, DataFacts.of(parts)
    optimizer = config.optimizer
    causes = []
    if facts.unknown_share > _MANY_UNKNOWN_PIECES:
        causes.append(
            f"{facts.unknown_share:.0%} of the pieces are [UNK]: the vocabulary does not fit the text "
            "(train one with bertsmith vocab)"
        )
    if facts.repeated_lines_share > _MANY_REPEATED_LINES:
        causes.append(
            f"{facts.repeated_lines_share:.0%} of the corpus's lines repeat an earlier one (remove them)"
        )
    causes.append(
        f"the rate (--optimizer.learning-rate is {optimizer.learning_rate:g}: try a half and the double)"
    )
    if parts.instances.seq_len >= _LONG_SEQUENCE:
        causes.append(
            f"sequences of {parts.instances.seq_len} pieces (prepare with --seq-len 64 to begin with: short "
            "ones leave the plateau sooner)"
        )
    if config.masking.rate > _USUAL_MASK_RATE:
        causes.append(f"the mask rate (--masking.rate is {config.masking.rate:g}, usual is 0.15)")
    if optimizer.warmup_fraction > 0.2:
        causes.append(
            f"the warm-up (--optimizer.warmup-fraction is {optimizer.warmup_fraction:g}, usual is 0.1)"
        )
    causes.append("a run that is too short for its model (more --steps, a smaller --preset)")
    return causes


def _of_divergence(parts: Parts) -> list[str]:
    optimizer = parts.config.optimizer
    found = [f"lower --optimizer.learning-rate (now {optimizer.learning_rate:g})"]
    if optimizer.warmup_fraction < 0.1:
        found.append(f"lengthen --optimizer.warmup-fraction (now {optimizer.warmup_fraction:g})")
    if not 0.0 < optimizer.max_grad_norm <= 1.0:
        found.append(f"clip at --optimizer.max-grad-norm 1 (now {optimizer.max_grad_norm:g}, 0 is never)")
    if "bfloat16" in str(parts.settings.precision):
        found.append("try --precision float32")
    return found


@dataclass(frozen=True)
class DataFacts:
    """What the data says about why nothing is learned from it.

    Attributes:
        unknown_share: of the training pieces, [UNK].
        repeated_lines_share: of the corpus's lines, equal to an earlier one.
    """

    unknown_share: float
    repeated_lines_share: float

    @classmethod
    def of(cls, parts: Parts) -> DataFacts:
        """Return the facts of a run's data."""
        counts = parts.piece_counts
        corpus = parts.instances.manifest.get("corpus", {})
        unknown = float(counts[parts.tokenizer.unk_id] / counts.sum())
        return cls(unknown, float(corpus.get("repeated_lines_share", 0.0)))
