"""What is believed of a curve: where a new trial goes, and that a collapsed trial says nothing of its neighbours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from radius_studies import beliefs_of

from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules
from tuner.study.unimodal.inference.picture import picture
from tuner.study.unimodal.inference.records import ALONE, Context, Record, Seen, Standing

AXIS = ParameterAxis(0.0, 100.0)
RULES = Rules(axis=AXIS, tolerance=0.2, sure=0.99, widest=1.0)
OTHER = Context((("a", 0.3),))
RADII = (10.0, 30.0, 22.0, 50.0, 28.0, 0.0, 100.0)


def beliefs(rules: Rules = RULES, *, running: tuple[float, ...] = ()) -> Beliefs:
    """After complete trials of a noisy curve whose top is near R = 30, and some that have said nothing."""
    random = np.random.default_rng(2)
    records, trials = [], []
    for number, radius in enumerate(RADII):
        place = AXIS.place(radius)
        luck = float(random.normal(0, 0.2))
        for fraction in (0.2, 0.6, 1.0):
            score = 90.0 - 20.0 * (place - AXIS.place(30.0)) ** 2 + luck + float(random.normal(0, 0.1))
            records.append(Record(place, fraction, score, number))
        trials.append(Standing(place, number, "complete"))
    trials += [Standing(AXIS.place(radius), len(RADII) + i, "running") for i, radius in enumerate(running)]
    return Beliefs(Seen.of(records, trials), rules)


def nearly_best(found: Beliefs) -> np.ndarray:
    """Curve by curve, the points of the grid that are within the tolerance of its top."""
    return found.curves >= found.curves.max(1, keepdims=True) - RULES.tolerance


def point(place: float) -> int:
    return int(np.abs(AXIS.grid - place).argmin())


@pytest.mark.parametrize("running", [(), (45.0,)])
def test_a_new_trial_goes_where_the_best_is_if_no_trial_is_near_it_yet(running: tuple[float, ...]) -> None:
    found = beliefs(running=running)
    best = found.best()
    assert best is not None
    assert not found.surely_found()
    near = nearly_best(found)
    missed = ~near[:, [point(AXIS.place(radius)) for radius in (RADII[best], *running)]].any(1)
    worth = near.mean(0) >= RULES.risk
    expected = AXIS.grid[worth][near[missed][:, worth].mean(0).argmax()]
    place = found.propose(np.random.default_rng(0))
    assert place == pytest.approx(expected)
    greedy = AXIS.grid[near.mean(0).argmax()]
    assert abs(greedy - AXIS.place(RADII[best])) < 0.05, "what is most likely near the best is where it is believed"
    assert abs(place - greedy) > 0.05


def test_a_search_is_not_sure_before_it_has_looked_into_every_wide_gap() -> None:
    """A second top may be where there is no score."""
    rules = Rules(axis=AXIS, tolerance=1.0, sure=0.9)
    found, bold = beliefs(rules), beliefs(replace(rules, widest=1.0))
    gap = AXIS.place(10.0) / 2  # between R = 0 and 10
    assert bold.surely_found(), "the control"
    assert not found.surely_found()
    assert found.propose(np.random.default_rng(0)) == pytest.approx(gap)
    assert not found.excluded(gap), "though it is far from the top"
    assert found.excluded(gap, 0.2), "once it has a score"
    assert bold.excluded(gap)


def test_a_trial_that_runs_fills_no_gap_until_it_has_ended() -> None:
    """Two searches of 80 ended while a trial on the higher of two tops had its first score."""
    rules = Rules(axis=AXIS, tolerance=1.0, sure=0.9, widest=0.3)
    seen = beliefs(rules).seen
    gap = AXIS.place(10.0) / 2
    for state, sure in (("running", False), ("pruned", True)):
        records = (*seen.records, Record(gap, 0.2, 87.0, 99))
        found = Beliefs(Seen.of(records, (*seen.trials, Standing(gap, 99, state))), rules)
        assert found.surely_found() is sure, state
        assert found.propose(np.random.default_rng(0)) != pytest.approx(gap), "one trial is enough"


def test_the_next_value_follows_one_top_and_the_belief_keeps_its_doubt() -> None:
    """The score falls from 0.1 on. Only a curve with a second top rises again where there is no trial."""
    places, scores = [0.0, 0.1, 0.2, 0.3, 1.0], [89.5, 90.0, 89.5, 89.3, 89.0]
    bold, doubting = (
        beliefs_of(places, scores, replace(RULES, searching_doubt=doubt)) for doubt in (RULES.searching_doubt, 0.3)
    )
    assert bold.propose(np.random.default_rng(0)) < 0.3 < doubting.propose(np.random.default_rng(0))
    assert bold.near(0.9) == doubting.near(0.9) > 0, "what is believed does not depend on how the search is done"


@pytest.mark.parametrize(("doubt", "least", "most"), [(0.3, 0.8, 1.0), (0.0, 0.0, 0.05)])
def test_scores_that_fall_and_rise_again_are_believed_unless_one_top_is_certain(
    doubt: float, least: float, most: float
) -> None:
    valley = beliefs_of([0.1, 0.3, 0.5, 0.7, 0.9], [0.0, 2.0, -2.0, 2.0, 0.0], replace(RULES, doubt=doubt)).curves
    left, low, right = (valley[:, point(place)] for place in (0.3, 0.5, 0.7))
    assert least <= float(np.mean(np.minimum(left, right) > low + RULES.tolerance)) <= most


def test_a_trial_of_another_context_looks_after_its_own() -> None:
    found = beliefs()
    assert found._covered_places(ALONE)
    assert found._covered_places(OTHER) == []
    assert found.propose(np.random.default_rng(0), OTHER) != found.propose(np.random.default_rng(0))


def test_a_place_where_a_trial_would_be_stopped_at_once_is_not_proposed() -> None:
    """However sure the search is: under the few curves that are left, the best is anywhere."""
    for tolerance in (0.2, 1.0, 4.0):
        found = beliefs(Rules(axis=AXIS, tolerance=tolerance))
        for seed in range(5):
            assert not found.excluded(found.propose(np.random.default_rng(seed)), 0.0), tolerance


# -- a trial that collapsed is far below the others -------------------------------------------------------------------

SPREAD = (10.0, 30.0, 4.0, 60.0, 20.0, 15.0, 45.0)


def believed(collapsed: float, *, seed: int = 0) -> Beliefs:
    """Accuracies around 0.86, with the top at R = 20, and one trial far to the right."""
    random = np.random.default_rng(seed)
    places = [AXIS.place(radius) for radius in SPREAD]
    scores = [0.86 - 0.1 * (place - AXIS.place(20.0)) ** 2 + 0.003 * random.standard_normal() for place in places]
    return beliefs_of([*places, AXIS.place(99.0)], [*scores, collapsed], Rules(axis=AXIS, tolerance=0.0032))


@pytest.mark.parametrize("collapsed", [0.8, 0.5, 0.1])
def test_the_best_is_not_excluded_because_another_trial_collapsed(collapsed: float) -> None:
    """R = 20 and 30 were excluded in more than half of the searches, and R = 10 in nine of ten."""
    for seed in range(5):
        known = believed(collapsed, seed=seed)
        assert known.excluded(AXIS.place(99.0))
        for radius in (10.0, 20.0, 30.0):
            assert not known.excluded(AXIS.place(radius)), (seed, radius)


def test_how_far_it_collapsed_changes_nothing() -> None:
    """Not even where squares of scores are no numbers any more."""
    one, other = believed(0.1), believed(-1e300)
    assert other.posterior is not None
    assert np.abs(one.curves - other.curves).max() < 1e-9
    assert one.ranked() == other.ranked()
    assert other.unimodal


def test_the_picture_keeps_its_height() -> None:
    """The curve goes through the trials beside the top, not through the mean of them and a collapse."""
    shown = picture(believed(0.1), "smoothing_radius")
    top = max(shown.mean)
    assert 0.85 < top < 0.87
