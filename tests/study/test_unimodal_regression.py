"""The projection on unimodal sequences."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.study.unimodal.inference.possible_curves import project

VALUES = st.lists(st.floats(-100, 100, allow_subnormal=False), min_size=1, max_size=25)


def rises_then_falls(values: np.ndarray, slack: float = 1e-9) -> bool:
    mode = int(values.argmax())
    return bool((np.diff(values[: mode + 1]) >= -slack).all() and (np.diff(values[mode:]) <= slack).all())


@given(VALUES, st.integers(0, 24))
def test_what_is_unimodal_already_stays_as_it_is(values: list[float], turn: int) -> None:
    turn = min(turn, len(values))
    known = np.array(sorted(values[:turn]) + sorted(values[turn:], reverse=True))
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
