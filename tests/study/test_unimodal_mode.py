"""The pruner never rejects the mode of an exactly unimodal noiseless sequence, whatever its shape and scale."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules
from tuner.study.unimodal.inference.records import Record, Seen, Standing

AXIS = ParameterAxis(0.0, 100.0)
RUNGS = (1 / 9, 1 / 3, 2 / 3, 1.0)

falls = st.lists(st.floats(0.0, 1.0), min_size=0, max_size=7)
scales = st.sampled_from([0.1, 1.0, 10.0, 100.0, 10_000.0])  # in tolerances


def sequence(left: list[float], right: list[float]) -> list[float]:
    """Falls to either side of a mode of 0."""
    return [*(-np.cumsum(left)[::-1]).tolist(), 0.0, *(-np.cumsum(right)).tolist()]


def seen(places: list[float], scores: list[float]) -> Seen:
    records = [
        Record(place, t, score * t**0.5, number)
        for number, (place, score) in enumerate(zip(places, scores, strict=True))
        for t in RUNGS
    ]
    return Seen.of(records, [Standing(place, number, "complete") for number, place in enumerate(places)])


def excluded(believed: Beliefs, place: float) -> Iterator[bool]:
    return (believed.excluded(place, fraction) for fraction in (0.0, *RUNGS[:-1]))


@pytest.mark.parametrize("strict", [False, True])
@settings(max_examples=60, deadline=None)
@given(left=falls, right=falls, scale=scales, even=st.booleans())
@example(left=[1.0], right=[1.0], scale=10_000.0, even=True)  # a spike between two others
@example(left=[0.0] * 7, right=[1.0], scale=100.0, even=True)  # a plateau, and a cliff
@example(left=[], right=[0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], scale=10_000.0, even=False)
def test_the_mode_is_never_rejected(
    left: list[float], right: list[float], scale: float, even: bool, strict: bool
) -> None:
    scores = [scale * score for score in sequence(left, right)]
    count = len(scores)
    places = np.linspace(0.0, 1.0, count + 2)[1:-1] if even else np.sort(np.random.default_rng(count).random(count))
    believed = Beliefs(seen(places.tolist(), scores), Rules(axis=AXIS, tolerance=1.0, strict=strict))
    assert not any(excluded(believed, float(places[len(left)])))


def test_the_control_what_is_far_below_the_mode_is_rejected() -> None:
    places = np.linspace(0.05, 0.95, 31).tolist()
    scores = [-12.0 * (abs(place - 0.5) > 0.2) for place in places]
    for strict in (False, True):
        believed = Beliefs(seen(places, scores), Rules(axis=AXIS, tolerance=1.0, strict=strict))
        assert any(excluded(believed, 0.05))
        assert not any(excluded(believed, 0.5))
