from __future__ import annotations

import json
import math
import random

import pytest

from bertsmith.training.diagnosis import (
    LEVEL_STEPS,
    MOST_OF_A_KIND,
    PATIENCE_STEPS,
    Finding,
    Levels,
    Observation,
    Watcher,
    offset,
    place,
)

LEVELS = Levels(uniform=math.log(30522), unigram=7.1, pair_majority=0.54)
STEPS = 600


def healthy(step: int, draw: random.Random) -> Observation:
    """Return a step of a run that falls to the plateau within a tenth and leaves it at a quarter."""
    progress = step / STEPS
    loss = 7.1 + 3.2 * math.exp(-progress / 0.02) - 1.5 * max(0.0, progress - 0.25)
    # A healthy norm rises tenfold while the plateau is left.
    norm = 0.3 + 2.7 * min(1.0, max(0.0, 4 * (progress - 0.2)))
    accuracy = 0.54 if progress < 0.3 else 0.66
    return Observation(
        step,
        progress,
        loss + draw.gauss(0, 0.1),
        norm * draw.lognormvariate(0, 0.3),
        accuracy + draw.gauss(0, 0.08),
    )


def run(change=lambda seen: seen, watcher: Watcher | None = None, start: int = 0) -> list[Finding]:
    """Watch a healthy run with changes."""
    watcher = watcher or Watcher()
    draw = random.Random(3)
    steps = [healthy(step, draw) for step in range(1, STEPS + 1)]
    return [found for seen in steps[start:] for found in watcher.take(change(seen), LEVELS)]


def changed(steps: range, **to):
    """Return a change of some steps."""

    def change(seen: Observation) -> Observation:
        return Observation(**(vars(seen) | to)) if seen.step in steps else seen

    return change


@pytest.mark.parametrize(
    "loss, words",
    [
        (6.41, "6.41: 0.69 below the unigram level 7.10, ln V 10.33"),
        (7.35, "7.35: 0.25 above the unigram level 7.10, ln V 10.33"),
        (11.0, "11.00: 0.67 above ln V 10.33, worse than blind guessing"),
    ],
)
def test_a_loss_is_placed(loss, words):
    assert place(loss, LEVELS) == words
    assert offset(loss, LEVELS) in words


def test_a_healthy_run_has_no_findings():
    watcher = Watcher()
    assert run(watcher=watcher) == []
    assert watcher.suspect_since is None
    assert watcher.unsettled(STEPS) is None


@pytest.mark.parametrize("to", [{"loss": 9.0}, {"gradient_norm": 1e6}])
def test_a_spike_that_comes_back_is_none_of_the_users_business(to):
    watcher = Watcher()
    assert run(changed(range(300, 340), **to), watcher) == []
    assert watcher.suspect_since is None


def test_a_jump_of_the_loss_that_lasts_is_found_with_its_onset():
    (found,) = run(changed(range(300, STEPS + 1), loss=8.7))
    assert (found.kind, found.onset, found.step) == ("loss_jump", 300, 299 + PATIENCE_STEPS)
    assert found.diverged
    assert "since step 300" in found.text


def test_a_few_good_steps_between_do_not_hide_a_jump():
    def mostly(seen: Observation) -> Observation:
        return changed(range(300, STEPS + 1), loss=8.7)(seen) if seen.step % 4 else seen

    assert [found.onset for found in run(mostly)] in ([300], [301])


def test_falling_back_to_the_plateau_is_found_though_it_is_no_large_jump():
    (found,) = run(changed(range(500, STEPS + 1), loss=7.2))
    assert (found.kind, found.onset) == ("loss_jump", 500)


def test_a_loss_that_creeps_up_is_found():
    def creeping(seen: Observation) -> Observation:
        return Observation(**(vars(seen) | {"loss": seen.loss + 0.01 * max(0, seen.step - 300)}))

    (found,) = run(creeping)
    assert found.kind == "loss_jump"


def test_a_run_that_diverges_at_once_is_found():
    found = run(changed(range(2, STEPS + 1), loss=40.0))[0]
    assert (found.kind, found.onset) == ("loss_jump", 2)


def test_a_model_that_starts_worse_than_blind_guessing_has_not_diverged():
    def slow(seen: Observation) -> Observation:
        return Observation(**(vars(seen) | {"loss": max(seen.loss, 12.5 - 0.02 * seen.step)}))

    assert [found.kind for found in run(slow) if found.diverged] == []


def test_an_explosion_of_the_gradients_is_found_once_and_then_usual():
    watcher = Watcher()
    (found,) = run(changed(range(200, STEPS + 1), gradient_norm=50.0), watcher)
    assert (found.kind, found.onset, found.step) == ("gradient_explosion", 200, 199 + PATIENCE_STEPS)
    assert watcher.suspect_since is None


def test_a_jump_under_way_is_suspect_and_is_named_at_the_end_of_the_run():
    watcher = Watcher()
    assert run(changed(range(STEPS - 20, STEPS + 1), loss=9.0), watcher) == []
    assert watcher.suspect_since == STEPS - 20
    found = watcher.unsettled(STEPS)
    assert found is not None
    assert (found.kind, found.onset) == ("unsettled", STEPS - 20)
    assert "21 steps into a jump" in found.text


def test_the_plateau_is_found_after_a_third_of_the_run_and_once():
    (found,) = run(lambda seen: changed(range(60, STEPS + 1), loss=max(seen.loss, 7.08))(seen))
    assert found.kind == "plateau"
    assert not found.diverged
    assert STEPS / 3 <= found.step <= STEPS / 3 + 5
    assert "unigram level 7.10" in found.text
    assert found.text.startswith("33% of the run is over")


def test_a_loss_that_never_reached_the_level_of_frequencies_is_found():
    (found,) = run(changed(range(1, STEPS + 1), loss=9.8))
    assert found.kind == "plateau"
    assert "2.70 above the unigram level" in found.text


def test_a_run_on_its_way_off_the_plateau_is_left_alone():
    def falling(seen: Observation) -> Observation:
        return Observation(**(vars(seen) | {"loss": 7.4 - 0.5 * seen.progress}))

    assert run(falling) == []


def test_a_run_too_short_to_tell_has_no_findings():
    watcher = Watcher()
    for step in range(1, LEVEL_STEPS):
        seen = Observation(step, step / LEVEL_STEPS, 7.1, 1.0, 0.54)
        assert watcher.take(seen, LEVELS) == []


def test_pairs_that_are_not_learned_are_found_after_two_thirds_of_the_run():
    draw = random.Random(5)

    def blind(seen: Observation) -> Observation:
        return Observation(**(vars(seen) | {"pair_accuracy": 0.54 + draw.gauss(0, 0.05)}))

    (found,) = run(blind)
    assert found.kind == "pairs_not_learned"
    assert STEPS * 2 / 3 <= found.step <= STEPS * 2 / 3 + 20
    assert "(0.540)" in found.text


def test_data_without_pairs_has_none_to_learn():
    watcher = Watcher()
    draw = random.Random(3)
    levels = Levels(LEVELS.uniform, LEVELS.unigram)
    for step in range(1, STEPS + 1):
        seen = healthy(step, draw)
        assert watcher.take(Observation(**(vars(seen) | {"pair_accuracy": None})), levels) == []


def test_one_kind_of_finding_is_not_repeated_for_ever():
    jumping = [step for start in range(60, STEPS, 80) for step in range(start, start + 60)]

    def often(seen: Observation) -> Observation:
        return Observation(**(vars(seen) | {"loss": 20.0})) if seen.step in jumping else seen

    found = [found for found in run(often) if found.kind == "loss_jump"]
    assert len(found) == MOST_OF_A_KIND


def test_other_data_starts_with_other_levels():
    watcher = Watcher()
    draw = random.Random(3)
    found = []
    for step in range(1, STEPS + 1):
        if step == 400:
            watcher.forget_levels()
        seen = healthy(step, draw)
        if step >= 400:  # longer sequences: positions that are new to the model
            seen = Observation(**(vars(seen) | {"loss": seen.loss + 1.5, "gradient_norm": 60.0}))
        found += watcher.take(seen, LEVELS)
    assert found == []


@pytest.mark.parametrize("cut", [10, 310, 340])
def test_a_resumed_watcher_finds_what_the_one_that_never_stopped_finds(cut):
    change = changed(range(300, STEPS + 1), loss=8.7, gradient_norm=80.0)
    whole = run(change)
    assert [found.kind for found in whole] == ["loss_jump", "gradient_explosion"]
    watcher = Watcher()
    draw = random.Random(3)
    for step in range(1, cut + 1):
        watcher.take(change(healthy(step, draw)), LEVELS)
    resumed = Watcher(json.loads(json.dumps(watcher.state())))
    assert resumed.state() == watcher.state()
    assert run(change, resumed, start=cut) == whole
