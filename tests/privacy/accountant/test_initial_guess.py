"""The guess of a noise on a coarse grid: near the noise that is sought, also from a start without a finite cost."""

from __future__ import annotations

from math import inf

import pytest

from tuner.privacy.accountant.initial_guess import guess_on_coarse_grid


@pytest.mark.parametrize("start", [0.01, 1.0, 40.0])
def test_the_guess_is_near_where_the_cost_is_epsilon(start: float) -> None:
    def cost(noise: float, *, coarser: int) -> float:
        """A cost of 10 / noise², and of infinity where the grid has no answer."""
        return inf if noise < 0.02 else 10 / noise**2

    noise, slope = guess_on_coarse_grid(cost, 2.5, start)
    assert noise == pytest.approx(2.0, rel=0.05)
    assert slope == pytest.approx(-2.0, rel=0.05)
