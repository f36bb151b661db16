"""The moving average of the weights: against its formula written out, and its limits."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainables.engine.average import WeightAverage


def walk(steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(steps)
    return list(torch.randn(steps + 1, 5, generator=generator, dtype=torch.float64).cumsum(0))


@given(st.integers(0, 40), st.floats(0, 1, exclude_max=True))
def test_it_is_the_weighted_sum_of_the_weights(steps: int, decay: float) -> None:
    """Every θ_t enters with (1 - d_t) and is multiplied by each d that follows; the weights add up to one."""
    weights = walk(steps)
    average = WeightAverage(weights[0], decay=decay, steps=steps)
    for theta in weights[1:]:
        average.update(theta)
    decays = [min(decay, (1 + t) / (10 + t)) for t in range(steps)]
    shares = [math.prod(decays), *((1 - d) * math.prod(decays[t + 1 :]) for t, d in enumerate(decays))]
    assert sum(shares) == pytest.approx(1)
    expected = sum(share * theta for share, theta in zip(shares, weights, strict=True))
    torch.testing.assert_close(average.value(), expected, rtol=1e-12, atol=1e-12)
    half = WeightAverage(weights[0], decay=decay, steps=0)
    for theta in weights[1 : 1 + steps // 2]:
        half.update(theta)
    further = average.value() + 0.7 * (average.value() - half.value())
    torch.testing.assert_close(average.value(0.7), further, rtol=1e-12, atol=1e-12)
    assert decay > 0 or torch.equal(average.value(), weights[-1])


def test_small_steps_of_float32_weights_are_not_rounded_away() -> None:
    """At a decay of 0.9999 a difference of one part in a thousand enters as one in ten million."""
    average = WeightAverage(torch.ones(1), decay=0.9999, steps=10**6)
    average.load_state_dict({"updates": 10**6, "average": torch.ones(1), "half": torch.ones(1)})
    in_float32 = torch.ones(1)
    moved = torch.full((1,), 1.0001)
    for _ in range(1000):
        average.update(moved)
        in_float32 = 0.9999 * in_float32 + (1 - 0.9999) * moved
    expected = 1 + 1e-4 * (1 - 0.9999**1000)
    assert average.value().dtype == torch.float32
    assert float(average.value()) == pytest.approx(expected, abs=1e-7)
    assert float(in_float32) != pytest.approx(expected, abs=1e-6)  # the control
