"""Our loss distributions are those of dp_accounting: the same grid, the same masses, the same ε."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Any

import numpy as np
import pytest
import scipy.fft
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as library
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st

from tuner.privacy.accountant import loss_distribution as ours
from tuner.privacy.accountant.loss_distribution import GridMasses, LossDistribution
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import interval

RATES = st.one_of(st.sampled_from([1.0, 0.999, 0.5]), st.floats(-5, 0).map(lambda power: float(10**power)))
NOISES = st.floats(-1.3, 2.5).map(lambda power: float(10**power))
STEPS = st.floats(0, 4.5).map(lambda power: int(10**power))
COARSER = 16  # the library takes seconds on a grid for claims
DELTAS = (1e-9, 1e-5, 1e-2, 0.5)
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)  # shrinking would take minutes
ULPS = 1e-13
"""Relative difference that is allowed. The two are equal to the last bit where numpy's exp is that of libm."""


@pytest.fixture(autouse=True, scope="module")
def same_length_of_transforms() -> Iterator[None]:
    """Let the library transform as many points as we do. Another length moves the last bits of the masses."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scipy.fft, "next_fast_len", lambda size, real=False: ours._transform_length(size))
        yield


def test_transforms_are_long_enough_and_have_few_lengths() -> None:
    lengths = {size: ours._transform_length(size) for size in range(1, 5000)}
    assert all(size <= length <= max(1.25 * size, 1) for size, length in lengths.items())
    assert len(set(lengths.values())) <= 4 * (5000).bit_length()


def pair_of_steps(rate: float, noise: float, grid: float) -> tuple[LossDistribution, Any]:
    theirs = library.from_gaussian_mechanism(noise, sampling_prob=rate, value_discretization_interval=grid)
    return LossDistribution.of_step(sample_rate=rate, noise=noise, grid=grid), theirs


def assert_same(found: LossDistribution, theirs: Any, *, masses: float) -> None:  # noqa: ANN401 - untyped library
    for one, other in ((found.remove, theirs._pmf_remove.to_dense_pmf()), (found.add, theirs._pmf_add.to_dense_pmf())):
        assert (one.lowest, one.masses.size, one.grid) == (other._lower_loss, other.size, other._discretization)
        np.testing.assert_allclose(one.masses, other._probs, rtol=0, atol=masses)
        assert one.infinite == pytest.approx(other._infinity_mass, rel=1e-12)


def assert_same_epsilon(
    found: LossDistribution,
    theirs: Any,  # noqa: ANN401 - untyped library
    *,
    relative: float = 1e-11,
) -> None:
    for delta in DELTAS:
        try:
            with np.errstate(over="ignore"):  # of a quotient that is infinite
                wanted = theirs.get_epsilon_for_delta(delta)
        except OverflowError:  # e^-loss overflows
            wanted = inf
        assert found.epsilon(delta) == pytest.approx(wanted, rel=relative, abs=1e-13)
    for epsilon in (-0.3, 0.0, 0.7, 5.0):
        assert found.delta(epsilon) == pytest.approx(theirs.get_delta_for_epsilon(epsilon), rel=relative, abs=1e-15)


@settings(max_examples=30, phases=PHASES)
@given(RATES, NOISES, STEPS)
def test_a_step_and_its_composition_are_the_librarys(rate: float, noise: float, steps: int) -> None:
    grid = COARSER * interval(SampledGaussian(rate, noise), steps)
    assume(grid < inf)
    found, theirs = pair_of_steps(rate, noise, grid)
    assert_same(found, theirs, masses=ULPS)
    assert_same_epsilon(found, theirs)
    # Of a few points, the library sums the products one by one.
    assume(steps > 1 and min(found.remove.masses.size, found.add.masses.size) ** min(steps, 9) > 1000)
    assert_same(found.self_compose(steps), theirs.self_compose(steps), masses=1e-17)
    assert_same_epsilon(found.self_compose(steps), theirs.self_compose(steps))


@settings(max_examples=15, phases=PHASES)
@given(st.lists(st.tuples(RATES, NOISES, st.integers(1, 300)), min_size=2, max_size=3), st.floats(0, 3), st.booleans())
def test_unlike_steps_and_claims_compose_as_the_librarys(
    parts: list[tuple[float, float, int]], claim: float, with_claim: bool
) -> None:
    grid = COARSER * max(interval(SampledGaussian(rate, noise), steps) for rate, noise, steps in parts)
    assume(grid < inf)
    found, theirs = pair_of_steps(*parts[0][:2], grid)
    for rate, noise, steps in parts[1:]:
        mine, other = pair_of_steps(rate, noise, grid)
        found, theirs = found.compose(mine.self_compose(steps)), theirs.compose(other.self_compose(steps))
    if with_claim:
        found = found.compose(LossDistribution.of_claim(claim, 1e-6, grid=grid))
        theirs = theirs.compose(
            library.from_privacy_parameters(common.DifferentialPrivacyParameters(claim, 1e-6), grid)
        )
    assume(min(theirs._pmf_remove.size, theirs._pmf_add.size) > 1000)
    # A tail is cut where its sum passes 5e-16, and rounding may move that point by one.
    for one, other in ((found.remove, theirs._pmf_remove), (found.add, theirs._pmf_add)):
        assert abs(one.lowest - other._lower_loss) <= 2
        assert abs(one.masses.size - other.size) <= 4
    assert_same_epsilon(found, theirs, relative=1e-6)


@pytest.mark.parametrize("noise", [1e3, 1e6, 1e100])
def test_with_much_noise_there_are_few_points_and_the_same_epsilon(noise: float) -> None:
    found, theirs = pair_of_steps(0.1, noise, 2.0**-24)
    assert_same(found, theirs, masses=1e-16)
    for steps in (2, 3, 1000):
        composed, other = found.self_compose(steps), theirs.self_compose(steps)
        for delta in DELTAS:
            assert composed.epsilon(delta) == pytest.approx(other.get_epsilon_for_delta(delta), abs=1e-9)


def test_a_planted_fault_in_the_step_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a tail that is cut, and not counted as infinite loss, changes what the library finds."""
    monkeypatch.setattr(ours, "_STEP_TAIL", -20.0)
    found, theirs = pair_of_steps(0.01, 1.0, 2.0**-12)
    with pytest.raises(AssertionError):
        assert_same(found, theirs, masses=ULPS)


def test_a_loss_whose_exponential_overflows_has_no_bound() -> None:
    low = GridMasses(grid=1.0, lowest=-800, masses=np.array([0.9, *[0.0] * 900, 0.1]), infinite=0.0)
    assert low.epsilon(0.2) == inf
    assert low.epsilon(0.05) < 102
