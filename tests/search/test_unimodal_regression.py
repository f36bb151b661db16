"""Unimodal regression against brute force over every mode."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from tuner.search.unimodal import project, unimodal_fit

VALUES = st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=1, max_size=25)


def naive(values: np.ndarray, weights: np.ndarray) -> float:
    """The least error over every place of the turn, each with two isotonic regressions of its own."""
    errors = []
    for turn in range(values.size):
        up = isotonic_regression(values[: turn + 1], weights=weights[: turn + 1]).x
        down = isotonic_regression(values[turn:], weights=weights[turn:], increasing=False).x
        if turn + 1 < values.size:
            down = isotonic_regression(values[turn + 1 :], weights=weights[turn + 1 :], increasing=False).x
            errors.append(float(weights @ (values - np.concatenate([up, down])) ** 2))
        else:
            errors.append(float(weights @ (values - up) ** 2))
    return min(errors)


def rises_then_falls(values: np.ndarray, slack: float = 1e-9) -> bool:
    mode = int(values.argmax())
    return bool((np.diff(values[: mode + 1]) >= -slack).all() and (np.diff(values[mode:]) <= slack).all())


@given(VALUES, st.randoms(use_true_random=False))
def test_the_fit_is_unimodal_and_no_other_turn_is_nearer(values: list[float], random: object) -> None:
    known = np.array(values)
    weights = np.array([0.1 + random.random() for _ in values])  # type: ignore[attr-defined]
    found = unimodal_fit(known, weights)
    assert rises_then_falls(found.values)
    assert found.error == pytest.approx(naive(known, weights), rel=1e-6, abs=1e-6)
    assert found.values[found.mode] == found.values.max()


@given(VALUES, st.integers(0, 24))
def test_what_is_unimodal_already_stays_as_it_is(values: list[float], turn: int) -> None:
    turn = min(turn, len(values))
    known = np.array(sorted(values[:turn]) + sorted(values[turn:], reverse=True))
    found = unimodal_fit(known)
    np.testing.assert_allclose(found.values, known, atol=1e-9)
    assert known[found.mode] == pytest.approx(known.max(), abs=1e-9)
    np.testing.assert_allclose(project(known[None])[0], known)


@given(st.lists(VALUES, min_size=1, max_size=3))
def test_a_projected_row_is_unimodal_with_its_own_mode_and_no_monotone_pair_is_nearer(rows: list[list[float]]) -> None:
    width = min(map(len, rows))
    draws = np.array([row[:width] for row in rows])
    for draw, found in zip(draws, project(draws), strict=True):
        mode = int(draw.argmax())
        assert found[mode] == draw[mode] == found.max()
        assert rises_then_falls(found)
        # Two values in the wrong order cannot both be nearer than half of what is between them.
        wrong = [draw[i] - draw[j] for i in range(mode) for j in range(i, mode)]
        wrong += [draw[j] - draw[i] for i in range(mode, width) for j in range(i, width)]
        assert np.abs(found - draw).max() == pytest.approx(max([0.0, *wrong]) / 2, abs=1e-9)


def test_two_peaks_are_not_taken_for_one() -> None:
    """The control: the error of what is not unimodal is above 0, and the higher peak is kept."""
    found = unimodal_fit([0.0, 3.0, 1.0, 4.0, 0.0])
    assert found.error == pytest.approx(2.0)
    assert found.mode == 3


@pytest.mark.parametrize(("values", "weights"), [([], None), ([1.0, 2.0], [1.0]), ([1.0], [0.0]), ([[1.0]], None)])
def test_values_that_are_none_are_refused(values: list[float], weights: list[float] | None) -> None:
    with pytest.raises(ValueError, match="at least one number"):
        unimodal_fit(values, weights)
