"""A trial that collapsed says that it is far below, and nothing of the places beside it."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.study.unimodal.inference.axis import ParameterAxis
from tuner.study.unimodal.inference.beliefs import Beliefs, Rules
from tuner.study.unimodal.inference.picture import picture
from tuner.study.unimodal.inference.records import Record, Seen, Standing

AXIS = ParameterAxis(0.0, 100.0)
RADII = (10.0, 30.0, 4.0, 60.0, 20.0, 15.0, 45.0)
NOWHERE = 99


def believed(collapsed: float | None, *, seed: int = 0, at: float = 99.0) -> Beliefs:
    """Accuracies around 0.86, with the top at R = 20, and one trial far to the right."""
    random = np.random.default_rng(seed)
    places = [AXIS.place(radius) for radius in RADII]
    scores = [0.86 - 0.1 * (place - AXIS.place(20.0)) ** 2 + 0.003 * random.standard_normal() for place in places]
    records = [Record(place, 1.0, float(score), n) for n, (place, score) in enumerate(zip(places, scores, strict=True))]
    if collapsed is not None:
        records.append(Record(AXIS.place(at), 1.0, collapsed, NOWHERE))
    standings = [Standing(record.place, record.trial, "complete") for record in records]
    return Beliefs(Seen.of(records, standings), Rules(axis=AXIS, tolerance=0.0032))


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
