"""The standard error of an accuracy against its definition, and the number of validation records behind it."""

from __future__ import annotations

from math import hypot, sqrt

import pytest
from scipy.stats import beta

from trainables.data import DatasetRequest, public_train_size, public_validation_size
from trainables.score_error import ScoreError


@pytest.mark.parametrize(("right", "records"), [(0, 10), (10, 10), (3, 10), (893, 1000), (1, 1)])
def test_the_error_is_the_spread_of_the_posterior_and_never_zero(right: int, records: int) -> None:
    found = ScoreError(records).of(right / records)
    assert found == pytest.approx(beta(right + 1, records - right + 1).std())
    assert found > 0
    noisy = ScoreError(records, noise=0.07)
    assert noisy.of(right / records) == pytest.approx(hypot(found, 0.07))


def test_many_records_give_the_usual_formula_and_noise_may_leave_the_range() -> None:
    error = ScoreError(10_000)
    assert error.of(0.893) == pytest.approx(sqrt(0.893 * 0.107 / 10_000), rel=1e-3)
    assert (error.of(1.2), error.of(-0.1)) == (error.of(1.0), error.of(0.0))
    assert error.of_difference(0.5, 0.5) == pytest.approx(sqrt(2) * error.of(0.5))


@pytest.mark.parametrize("name", ["digits", "mnist", "adult"])
@pytest.mark.parametrize("fraction", [0.05, 0.1, 1 / 3])
def test_the_split_has_the_public_number_of_validation_records(name: str, fraction: float) -> None:
    request = DatasetRequest(name=name, validation_fraction=fraction)
    error = ScoreError.of_split(public_train_size(request), fraction, noise=7.0)
    assert error is not None
    assert abs(error.records - public_validation_size(request)) <= 1
    assert error.noise == pytest.approx(7.0 / error.records)
    assert ScoreError.of_split(100, 0.0) is None
