"""What the numbers of a run say: where its loss stands, what has gone wrong, since when.

Numbers in, findings out. The numbers are those of the whole step, over all its micro-batches (and ranks), so
whoever looks finds the same.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from bertsmith.errors import RunError

LEVEL_STEPS = 50
"""Steps whose median is the level of the loss: the loss of one batch scatters by tenths of a nat."""
NORM_STEPS = 100
"""Steps whose median gradient norm is the usual one."""
FEWEST_NORMS = 20
"""Below so many steps nobody knows what is usual."""
PATIENCE_STEPS = 50
"""A jump that is undone within so many steps is not worth a word: healthy runs have such spikes."""
RETURN_STEPS = 5
"""So many steps in a row have to be normal again before a jump counts as undone."""
JUMP_SHARE = 0.1
"""Of ln V, how far above its lowest level the loss jumps: 1.03 nats with 30,522 pieces. The loss of a batch
never scatters so far, and the scale has to follow the vocabulary: four letters have only 1.4 nats."""
BELOW_PLATEAU = 0.3
"""Nats below the unigram level at which a run has left the plateau; back on it, it has collapsed."""
EXPLOSION_FACTOR = 20.0
"""Times the usual gradient norm: healthy ones rise tenfold while the plateau is left, but slowly."""
PLATEAU_PROGRESS = 1 / 3
"""Share of the run after which the plateau is worth a word: at a tenth every run is still on it."""
PLATEAU_MARGIN = 0.1
"""Nats below the unigram level that still count as the plateau (runs that never left it ended 0.04 above to
0.1 below, those that did 0.6 to 2 below)."""
PLATEAU_FALL = 0.05
"""Nats by which a loss that moves falls while the done share of the run doubles."""
PAIRS_PROGRESS = 2 / 3
"""Share of the run after which pairs are to be told apart: they are learned later than words (by bert-mini
in half an hour: from 40 % on)."""
PAIRS_MARGIN = 0.02
"""Above the share of the more frequent class; below it nothing has been learned."""
FEWEST_PAIR_STEPS = 50
"""Steps over which the accuracy on pairs is averaged at least."""
MOST_OF_A_KIND = 3
"""Findings of one kind that are reported; more would only repeat the remedy."""
_HISTORY_STEP = 0.02  # share of the run between two notes of the level: at most fifty are kept

NOT_FINITE, LOSS_JUMP, GRADIENT_EXPLOSION = "not_finite", "loss_jump", "gradient_explosion"
PLATEAU, PAIRS_NOT_LEARNED, UNSETTLED = "plateau", "pairs_not_learned", "unsettled"
DIVERGENCES = (NOT_FINITE, LOSS_JUMP, GRADIENT_EXPLOSION)


@dataclass(frozen=True)
class Levels:
    """What a loss is measured against, in nats.

    Attributes:
        uniform: the loss of blind guessing, ln V.
        unigram: the loss of guessing by word frequency alone: the plateau that a run has to leave.
        pair_majority: share of the more frequent class of pairs; ``None``: there are no pairs.
    """

    uniform: float
    unigram: float
    pair_majority: float | None = None


@dataclass(frozen=True)
class Observation:
    """The numbers of one step.

    Attributes:
        step: completed steps, this one included.
        progress: share of the run that is done.
        loss: of the masked words, in nats.
        gradient_norm: before clipping.
        pair_accuracy: of the pairs; ``None``: there were none.
    """

    step: int
    progress: float
    loss: float
    gradient_norm: float
    pair_accuracy: float | None = None


@dataclass(frozen=True)
class Finding:
    """Something that the user should know.

    Attributes:
        kind: what it is, one word.
        step: at which it was found.
        onset: the first step that showed it.
        text: what was seen, with numbers.
    """

    kind: str
    step: int
    onset: int
    text: str

    @property
    def diverged(self) -> bool:
        """The weights are lost if the run just goes on."""
        return self.kind in DIVERGENCES


class Diverged(RunError):
    """A finding that ends the run or takes it back to an earlier state of it."""

    def __init__(self, finding: Finding) -> None:
        self.finding = finding
        super().__init__(finding.text)


def offset(loss: float, levels: Levels) -> str:
    """Return in words how far a loss of masked words is from the level of word frequencies."""
    if loss > levels.uniform:
        return f"{loss - levels.uniform:.2f} above ln V"
    side = "below" if loss <= levels.unigram else "above"
    return f"{abs(loss - levels.unigram):.2f} {side} the unigram level"


def place(loss: float, levels: Levels) -> str:
    """Return in words where a loss of masked words stands, with the levels."""
    if loss > levels.uniform:
        return f"{loss:.2f}: {offset(loss, levels)} {levels.uniform:.2f}, worse than blind guessing"
    return f"{loss:.2f}: {offset(loss, levels)} {levels.unigram:.2f}, ln V {levels.uniform:.2f}"


@dataclass
class _Excursion:
    """A number that has left its usual range: since which step, and whether it is coming back."""

    since: int | None = None
    normal_steps: int = 0
    reported: bool = False

    def take(self, step: int, is_out: bool) -> bool:
        """Note a step; return whether, with this one, it has stayed away too long (once only)."""
        if self.since is None:
            if not is_out:
                return False
            self.since, self.normal_steps, self.reported = step, 0, False
        self.normal_steps = 0 if is_out else self.normal_steps + 1
        if self.normal_steps >= RETURN_STEPS:
            self.since = None
            return False
        if self.reported or step - self.since + 1 < PATIENCE_STEPS:
            return False
        self.reported = True
        return True


class Watcher:
    """Watches a run step by step; a checkpoint keeps what it knows.

    Args:
        state: what ``state`` returned before a resume.
    """

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        kept: Mapping[str, Any] = state or {}
        self._losses: list[float] = list(kept.get("losses", ()))
        self._norms: list[float] = list(kept.get("norms", ()))
        self._lowest: float | None = kept.get("lowest")
        self._left_plateau: bool = kept.get("left_plateau", False)
        self._jump = _Excursion(**kept.get("jump", {}))
        self._explosion = _Excursion(**kept.get("explosion", {}))
        self._pairs: list[float] = list(kept.get("pairs", (0.0, 0)))  # summed accuracy, steps
        # At growing shares of the run: (progress, level of the loss, summed accuracy on pairs, its steps).
        self._history: list[list[float]] = [list(entry) for entry in kept.get("history", ())]
        self._reported: dict[str, int] = dict(kept.get("reported", {}))

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps, JSON types."""
        return {
            "losses": list(self._losses),
            "norms": list(self._norms),
            "lowest": self._lowest,
            "left_plateau": self._left_plateau,
            "jump": asdict(self._jump),
            "explosion": asdict(self._explosion),
            "pairs": list(self._pairs),
            "history": [list(entry) for entry in self._history],
            "reported": dict(self._reported),
        }

    @property
    def suspect_since(self) -> int | None:
        """The first step of what may become a divergence; ``None``: all is well."""
        steps = [found.since for found in (self._jump, self._explosion) if found.since is not None]
        return min(steps, default=None)

    def take(self, seen: Observation, levels: Levels) -> list[Finding]:
        """Note a step; return what it shows."""
        self._losses = [*self._losses[1 - LEVEL_STEPS :], seen.loss]
        if seen.pair_accuracy is not None:
            self._pairs = [self._pairs[0] + seen.pair_accuracy, self._pairs[1] + 1]
        level = statistics.median(self._losses)
        if not self._history or seen.progress >= self._history[-1][0] + _HISTORY_STEP:
            self._history.append([seen.progress, level, *self._pairs])
        findings = (
            self._find_jump(seen, level, levels),
            self._find_explosion(seen),
            self._find_plateau(seen, level, levels),
            self._find_blind_pairs(seen, levels),
        )
        return [found for found in findings if found is not None and self._is_news(found.kind)]

    def unsettled(self, step: int) -> Finding | None:
        """Return the jump, if any, in which a run ends before it is certain that it lasts."""
        since = self.suspect_since
        if since is None or step - since < RETURN_STEPS or self._jump.reported:
            return None
        text = (
            f"the run ended {step - since + 1} steps into a jump of the loss or of the gradients: the model "
            f"may be worse than it was at step {since - 1}"
        )
        return Finding(UNSETTLED, step, since, text)

    def forget_levels(self) -> None:
        """Start anew with what is usual: from now on the run sees other data."""
        self._losses, self._norms, self._lowest = [], [], None
        self._jump, self._explosion = _Excursion(), _Excursion()

    def _is_news(self, kind: str) -> bool:
        self._reported[kind] = self._reported.get(kind, 0) + 1
        return self._reported[kind] <= MOST_OF_A_KIND

    def _find_jump(self, seen: Observation, level: float, levels: Levels) -> Finding | None:
        """The loss is far above the lowest level it had, or back on the plateau, and stays there."""
        if self._lowest is None:  # the weights of a new model guess blindly, or a little worse
            self._lowest = max(levels.uniform, seen.loss)
        if len(self._losses) == LEVEL_STEPS:
            self._lowest = min(self._lowest, level)
        limit = self._lowest + JUMP_SHARE * levels.uniform
        if self._lowest < levels.unigram - BELOW_PLATEAU:
            self._left_plateau = True
            limit = min(limit, levels.unigram)
        if not self._jump.take(seen.step, seen.loss > limit):
            return None
        onset = self._jump.since
        assert onset is not None
        text = (
            f"mlm_loss {level:.2f} has been above {limit:.2f} since step {onset} and does not come back; "
            f"its lowest level was {self._lowest:.2f}"
        )
        return Finding(LOSS_JUMP, seen.step, onset, text)

    def _find_explosion(self, seen: Observation) -> Finding | None:
        """The gradient norm is many times the usual one and stays there."""
        usual = statistics.median(self._norms) if len(self._norms) >= FEWEST_NORMS else None
        is_out = usual is not None and seen.gradient_norm > EXPLOSION_FACTOR * usual
        lasted = self._explosion.take(seen.step, is_out)
        onset = self._explosion.since
        if onset is None:
            self._norms = [*self._norms[1 - NORM_STEPS :], seen.gradient_norm]
        if not lasted:
            return None
        assert onset is not None
        # If the run goes on all the same, this is the usual norm from now on.
        self._norms, self._explosion = [], _Excursion()
        text = (
            f"the gradient norm {seen.gradient_norm:.3g} has been over {EXPLOSION_FACTOR:.0f} times its "
            f"usual {usual:.3g} since step {onset}"
        )
        return Finding(GRADIENT_EXPLOSION, seen.step, onset, text)

    def _find_plateau(self, seen: Observation, level: float, levels: Levels) -> Finding | None:
        """A good part of the run is over, the loss is still that of word frequencies and does not fall."""
        too_early = seen.progress < PLATEAU_PROGRESS or len(self._losses) < LEVEL_STEPS
        if too_early or self._left_plateau or PLATEAU in self._reported:
            return None
        before = self._at(seen.progress / 2)
        if before is None or level < levels.unigram - PLATEAU_MARGIN or before[1] - level > PLATEAU_FALL:
            return None
        text = (
            f"{seen.progress:.0%} of the run is over and mlm_loss is still {place(level, levels)}; it fell "
            f"by {max(0.0, before[1] - level):.2f} since {before[0]:.0%}"
        )
        return Finding(PLATEAU, seen.step, seen.step, text)

    def _find_blind_pairs(self, seen: Observation, levels: Levels) -> Finding | None:
        """Most of the run is over, words are learned, and pairs no better than by naming the frequent class.

        Pairs are learned after words: of a run on the plateau this is no news.
        """
        majority = levels.pair_majority
        if not self._left_plateau:
            return None
        if PAIRS_NOT_LEARNED in self._reported or seen.progress < PAIRS_PROGRESS or majority is None:
            return None
        before = self._at(seen.progress / 2)
        if before is None or self._pairs[1] - before[3] < FEWEST_PAIR_STEPS:
            return None
        accuracy = (self._pairs[0] - before[2]) / (self._pairs[1] - before[3])
        if accuracy > majority + PAIRS_MARGIN:
            return None
        text = (
            f"nsp_accuracy was {accuracy:.3f} between {before[0]:.0%} and {seen.progress:.0%} of the run: no "
            f"better than always naming the more frequent class ({majority:.3f})"
        )
        return Finding(PAIRS_NOT_LEARNED, seen.step, seen.step, text)

    def _at(self, progress: float) -> list[float] | None:
        """Return the last note of the history up to a share of the run."""
        return next((entry for entry in reversed(self._history) if entry[0] <= progress), None)
