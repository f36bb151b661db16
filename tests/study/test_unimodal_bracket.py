"""The bracket never excludes the mode of what is exactly unimodal, and seldom that of what is noisy."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from critical_values import critical_value
from hypothesis import given
from hypothesis import strategies as st

from tuner.study.unimodal.inference.bracket import (
    _MADE,
    ModeBracket,
    bracket,
    deviation_of_neighbours,
    threshold,
)

PLACES = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=2, max_size=30, unique=True)


@given(PLACES, st.integers(0, 29), st.floats(0, 5), st.randoms(use_true_random=False))
def test_the_mode_of_an_exactly_unimodal_sequence_is_never_excluded(
    places: list[float], at: int, step: float, random: object
) -> None:
    places = sorted(places)
    mode = at % len(places)
    gaps = [random.random() for _ in places]  # type: ignore[attr-defined]
    scores = [-sum(gaps[min(i, mode) : max(i, mode)]) for i in range(len(places))]
    assert bracket(places, scores, step=step).holds(places[mode])


@given(PLACES, st.randoms(use_true_random=False))
def test_the_order_in_which_scores_came_does_not_matter(places: list[float], random: object) -> None:
    scores = [random.random() for _ in places]  # type: ignore[attr-defined]
    both = list(zip(places, scores, strict=True))
    random.shuffle(both)  # type: ignore[attr-defined]
    shuffled = bracket([place for place, _ in both], [score for _, score in both], step=0.3)
    assert shuffled == bracket(places, scores, step=0.3)


def test_what_is_clear_is_excluded() -> None:
    """The control of the two above: a bracket that never says anything would pass them."""
    found = bracket([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 9.0, 10.0, 9.0, 0.0], step=0.5)
    assert found.low >= 0.2
    assert found.high <= 1.0
    assert found.holds(0.6)
    assert not found.holds(0.1)


def test_two_peaks_leave_no_place() -> None:
    assert bracket([0.1, 0.3, 0.5, 0.7, 0.9], [0.0, 9.0, 0.0, 9.0, 0.0], step=1.0).empty
    assert not bracket([0.1, 0.3, 0.5, 0.7, 0.9], [0.0, 4.0, 9.0, 4.0, 0.0], step=1.0).empty


def test_scores_at_one_place_say_nothing_of_a_direction() -> None:
    assert bracket([0.5] * 4, [0.0, 9.0, 0.0, 9.0], step=0.1) == ModeBracket(-inf, inf)


def misses(alpha: float, *, known: bool, runs: int, looks: int = 40, factor: float = 1.0) -> float:
    """How often the left end, where the mode of a constant curve is put, is excluded at any look."""
    random = np.random.default_rng(3)
    count = 0
    for _ in range(runs):
        places, scores = random.random(looks), random.standard_normal(looks)
        places[0] = 0.0
        for values in range(2, looks + 1):
            spread = 1.0 if known else deviation_of_neighbours(places[:values], scores[:values])
            step = factor * threshold(alpha, looks, values=values, known=known) * spread
            if not bracket(places[:values], scores[:values], step=step).holds(0.0):
                count += 1
                break
    return count / runs


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_over_all_looks_the_mode_is_missed_with_the_probability_that_is_claimed(known: bool) -> None:
    runs = 300
    # Three standard errors of a share of 5 % in so many runs.
    assert misses(0.05, known=known, runs=runs) <= 0.05 + 3 * (0.05 * 0.95 / runs) ** 0.5


@pytest.mark.parametrize("known", [True, False])
def test_a_critical_value_for_one_look_would_miss_far_too_often(known: bool) -> None:
    """The negative control: two thirds of the value, about that of a single contrast."""
    assert misses(0.05, known=known, runs=50, factor=0.6) > 0.2


@pytest.mark.parametrize(("alpha", "looks"), [key for key in _MADE if key[1] <= 20])
def test_the_values_that_were_made_are_made_again(alpha: float, looks: int) -> None:
    assert critical_value(alpha, looks) == pytest.approx(_MADE[alpha, looks][0], abs=5e-4)
    assert critical_value(alpha, looks, known=False) == pytest.approx(_MADE[alpha, looks][1], abs=5e-4)
    assert threshold(alpha, looks - 1, values=looks - 1, known=True) == _MADE[alpha, looks][0]


def test_with_few_scores_nothing_is_excluded() -> None:
    assert threshold(0.05, 40, values=4) == inf
    assert threshold(0.05, 40, values=5) > threshold(0.05, 40, values=40) > threshold(0.05, 40, values=40, known=True)
