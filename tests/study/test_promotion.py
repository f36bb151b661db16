"""At which rungs K rises: the rule by a table, its laws, and what an export needs to rise at the same steps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from errors_helper import raises_code
from hypothesis import assume, given
from hypothesis import strategies as st

from search_spaces import SearchSpace, parse_space
from tuner.errors import InputError
from tuner.plan.shapes import rung_steps
from tuner.study.promotion import (
    check_promotion,
    each_level,
    full_fidelity_from,
    level_steps,
    rungs_of_levels,
    with_steps,
)

FRACTIONS = st.lists(st.floats(0.01, 0.99), unique=True, max_size=8).map(lambda each: [*sorted(each), 1.0])
RUNGS = st.one_of(st.integers(1, 30), FRACTIONS)


def space_of(*levels: int) -> SearchSpace:
    return parse_space({"K": {"promote": list(levels)}, "R": "default"}, method="dplis")


@pytest.mark.parametrize(
    ("levels", "rungs", "expected"),
    [
        # equal rungs: the first at or after i/n
        (2, (50, 100), (0, 50)),
        (3, (20, 40, 60, 80, 100), (0, 40, 80)),
        (3, (33, 67, 100), (0, 33, 67)),
        (3, (17, 33, 50, 67, 83, 100), (0, 33, 67)),
        (4, (20, 40, 60, 80, 100), (0, 40, 60, 80)),
        # a fraction that lies on no rung is reached at the next one
        (2, (30, 60, 80, 100), (0, 60)),
        # a level before the last rung, although its fraction is not reached
        (2, (10, 100), (0, 10)),
        (3, (10, 20, 100), (0, 10, 20)),
        (2, (10, 20, 100), (0, 20)),
        # no two levels at one rung, although both fractions are reached
        (3, (70, 80, 90, 100), (0, 70, 80)),
        (3, (80, 90, 100), (0, 80, 90)),
    ],
)
def test_the_rule(levels: int, rungs: tuple[int, ...], expected: tuple[int, ...]) -> None:
    assert level_steps(levels, rungs) == expected


@given(st.integers(2, 6), RUNGS, st.integers(1, 5000))
def test_every_level_begins_at_a_rung_of_its_own_and_the_last_before_the_end(
    levels: int, rungs: int | Sequence[float], steps: int
) -> None:
    reports = rung_steps(rungs, steps)
    if len(reports) < levels:
        with raises_code(InputError, "promotion-rungs"):
            level_steps(levels, reports)
        return
    starts = level_steps(levels, reports)
    assert starts[0] == 0
    assert len(starts) == levels
    assert all(low < high for low, high in pairwise(starts))
    assert set(starts[1:]) <= set(reports)
    assert starts[-1] <= reports[-2]


def test_full_fidelity_is_what_comes_after_the_last_rise() -> None:
    rungs = (20, 40, 60, 80, 100)
    assert full_fidelity_from(space_of(1, 3, 10), rungs) == 0.8
    assert full_fidelity_from(space_of(1, 10), rungs) == 0.6
    assert full_fidelity_from(parse_space({"K": 10}, method="dplis"), rungs) == 0.0
    with raises_code(InputError, "promotion-rungs"):
        full_fidelity_from(space_of(1, 10), (100,))


def test_a_trial_is_told_its_own_steps() -> None:
    parameters = {"smoothing_samples": {"promote": [1, 3, 10]}, "learning_rate": 0.5}
    told = with_steps(parameters, rungs=(20, 40, 60, 80, 100), steps=50)
    assert told == {"smoothing_samples": {"promote": [1, 3, 10], "from_step": [0, 20, 40]}, "learning_rate": 0.5}
    assert parameters["smoothing_samples"] == {"promote": [1, 3, 10]}, "the trial's own are as they were"
    assert with_steps({"smoothing_samples": 3}, rungs=(100,), steps=50) == {"smoothing_samples": 3}
    assert rungs_of_levels({"smoothing_samples": 3}, rungs=(50, 100), steps=50) is None


@given(st.integers(2, 5), RUNGS, st.integers(1, 3000), st.integers(1, 3000))
def test_an_export_of_any_length_rises_at_the_very_same_steps(
    levels: int, rungs: int | Sequence[float], nominal: int, steps: int
) -> None:
    """Fractions of another length are other steps, by rounding; the exported file must come back to those trained."""
    reports = rung_steps(rungs, nominal)
    space = space_of(*range(1, levels + 1))
    assume(len(reports) >= levels and steps <= nominal)
    try:
        check_promotion(space, reports, shortest=steps)
    except InputError:
        assume(False)
    parameters = {"smoothing_samples": {"promote": list(range(1, levels + 1))}}
    trained = with_steps(parameters, rungs=reports, steps=steps)
    fractions = rungs_of_levels(parameters, rungs=reports, steps=steps)
    assert fractions is not None
    assert with_steps(parameters, rungs=rung_steps(fractions, steps), steps=steps) == trained
    starts = trained["smoothing_samples"]["from_step"]  # type: ignore[index]
    assert all(low < high for low, high in pairwise([*starts, steps])), "no level is lost to rounding"


def test_the_parts_of_a_trial_make_up_its_work() -> None:
    parameters = {"smoothing_samples": {"promote": [1, 3, 10]}, "learning_rate": 0.5}
    parts = each_level(parameters, rungs=(20, 40, 60, 80, 100))
    assert [share for share, _ in parts] == [pytest.approx(0.4), pytest.approx(0.4), pytest.approx(0.2)]
    assert [each["smoothing_samples"] for _, each in parts] == [1, 3, 10]
    assert all(each["learning_rate"] == 0.5 for _, each in parts)
    assert each_level({"smoothing_samples": 3}, rungs=(100,)) == [(1.0, {"smoothing_samples": 3})]


def test_a_level_of_one_step_is_refused_and_one_of_two_is_not() -> None:
    with raises_code(InputError, "promotion-steps"):
        check_promotion(space_of(1, 3, 10), (1, 2, 3), shortest=3)
    check_promotion(space_of(1, 3, 10), (2, 4, 6), shortest=6)
    check_promotion(parse_space({"K": 3}, method="dplis"), (1,), shortest=1)
