"""What happens to a pretraining run that diverges: it ends, or goes back to its last good checkpoint."""

from __future__ import annotations

from typing import Any

from bertsmith import distributed
from bertsmith.errors import InputError, RunDivergedError
from bertsmith.recipes.pretrain_config import PretrainConfig
from bertsmith.recipes.pretrain_ranks import restore
from bertsmith.recipes.pretrain_run import Parts, Standing
from bertsmith.recipes.pretrain_saving import finish_checkpoint
from bertsmith.recipes.pretrain_watch import remedies, report
from bertsmith.runlog import RunLog
from bertsmith.training import checkpoint
from bertsmith.training.checkpoint import Checkpoint
from bertsmith.training.diagnosis import NOT_FINITE, Diverged, Finding
from bertsmith.training.loop import NonFiniteLoss

ON_DIVERGENCE = ("stop", "rollback")
_FEWEST_CHECKPOINTS = 2  # the newest may hold the damage that the next step shows


def check_rollback(config: PretrainConfig) -> None:
    """Refuse settings of the rollback that cannot be meant.

    Raises:
        InputError: naming the setting.
    """
    if config.on_divergence not in ON_DIVERGENCE:
        raise InputError(
            f"--on-divergence {config.on_divergence!r} is unknown; take one of {', '.join(ON_DIVERGENCE)}"
        )
    if config.on_divergence == "stop":
        for name in ("max_rollbacks", "rollback_rate_factor", "rollback_skips_batches"):
            if getattr(config, name) != getattr(PretrainConfig, name):
                raise InputError(
                    f"--{name.replace('_', '-')} {getattr(config, name)} would be ignored; "
                    "add --on-divergence rollback, or leave it out"
                )
        return
    if config.max_rollbacks < 1:
        raise InputError(f"--max-rollbacks is {config.max_rollbacks}; it has to be at least 1")
    if not 0.0 < config.rollback_rate_factor <= 1.0:
        raise InputError(
            f"--rollback-rate-factor is {config.rollback_rate_factor}; it has to be above 0 and at most 1"
        )
    if config.rollback_rate_factor == 1.0 and not config.rollback_skips_batches:
        raise InputError(
            "--rollback-rate-factor 1 with --no-rollback-skips-batches would diverge again in the same way; "
            "change one of them"
        )
    if config.keep_checkpoints < _FEWEST_CHECKPOINTS:
        raise InputError(
            f"--keep-checkpoints is {config.keep_checkpoints}; --on-divergence rollback needs at least "
            f"{_FEWEST_CHECKPOINTS}, for the newest may hold the damage"
        )


def go_back(parts: Parts, standing: Standing, error: NonFiniteLoss | Diverged, log: RunLog) -> None:
    """Take a diverged run back to its last good checkpoint; it goes on with other batches or a lower rate.

    A checkpoint is good if the step after it was still normal: a loss shows the weights of the step before.
    What was logged since is dropped, as on a resume; the finding stays.

    Args:
        parts: model and optimiser are filled from the checkpoint.
        standing: becomes that of the checkpoint, with the batches to skip and the factor of the rate.
        error: what was found.
        log: is taken back to the checkpoint.

    Raises:
        RunDivergedError: the settings say so, it happened too often, or there is no good checkpoint.

    Source: PaLM (arXiv 2204.02311), section 5.1: back to a checkpoint before the spike, skipping the batches
        seen meanwhile; OPT (arXiv 2205.01068), section 2.5: going on from it with a lower rate.
    """
    finding = error.finding if isinstance(error, Diverged) else _not_finite(error)
    onset = min(finding.onset, standing.watcher.suspect_since or finding.onset)
    config = parts.config
    if config.on_divergence == "stop":
        raise _last_words(finding, _advice(finding, standing), parts, standing, log) from error
    finish_checkpoint(parts, standing, log)
    good = distributed.from_main(lambda: checkpoint.latest(parts.out, up_to=max(0, onset - 2)))
    if good is None or standing.rollbacks >= config.max_rollbacks:
        advice = _advice_after_rollbacks(finding, parts, standing, good)
        raise _last_words(finding, advice, parts, standing, log) from error
    restore(good, parts.model, parts.optimizer)
    parts.clock.agree()  # all ranks have read it
    skipped = parts.phases.skipped_batches + finding.step - good.step
    parts.phases.restore(good.state)
    standing.return_to(good, parts.budget)
    standing.rollbacks += 1
    standing.rate_factor *= config.rollback_rate_factor
    if config.rollback_skips_batches:
        parts.phases.skipped_batches = skipped
    standing.findings.append(_entry(finding, good, parts, standing))
    log.rewind(good.step)
    for entry in standing.findings:
        if entry.get("back_to", -1) >= good.step:  # new, or its line has just been dropped
            _log_entry(entry, log)
    log.note(f"WARNING: {standing.findings[-1]['text']}")
    if distributed.ranks().is_main:
        checkpoint.discard_after(parts.out, good.step)


def _not_finite(error: NonFiniteLoss) -> Finding:
    broken = error.step + 1
    return Finding(NOT_FINITE, broken, broken, str(error))


def _entry(finding: Finding, good: Checkpoint, parts: Parts, standing: Standing) -> dict[str, Any]:
    text = (
        f"{finding.text}; back to {good.directory.name} (rollback {standing.rollbacks}), from there the rate "
        f"is multiplied by {standing.rate_factor:g}, and {parts.phases.skipped_batches} batches are skipped "
        "in all"
    )
    return {"step": finding.step, "kind": finding.kind, "text": text, "back_to": good.step}


def _log_entry(entry: dict[str, Any], log: RunLog) -> None:
    # As of the step after the checkpoint, so that a run resumed from it drops the line and writes it anew.
    log.log({"step": entry["back_to"] + 1, "finding": entry["kind"], "text": entry["text"]})


def _last_words(
    finding: Finding, advice: str, parts: Parts, standing: Standing, log: RunLog
) -> RunDivergedError:
    """Report a finding, and that the run is over."""
    report(parts, standing, finding, log)
    message = f"{finding.text}; {advice}"
    log.log({"step": finding.step, "diverged": message})
    return RunDivergedError(message)


def _advice(finding: Finding, standing: Standing) -> str:
    return (
        f"the last checkpoint: {standing.checkpoint or 'none yet'}; going on from it would "
        "fail again at the same step: add --resume --on-divergence rollback, or start anew with a lower "
        "--optimizer.learning-rate or with --precision float32"
    )


def _advice_after_rollbacks(
    finding: Finding, parts: Parts, standing: Standing, good: Checkpoint | None
) -> str:
    if good is None:
        return (
            f"no checkpoint from before step {finding.onset} is left to go back to: start "
            f"anew with another --out; {remedies(finding, parts)}"
        )
    return (
        f"and that after {standing.rollbacks} rollbacks (the rate is multiplied by "
        f"{standing.rate_factor:g}, {parts.phases.skipped_batches} batches were skipped); the last good "
        f"checkpoint: {good.directory}; start anew: {remedies(finding, parts)}"
    )
