"""The accountant against other accountants, at its edges, and on input that must be refused."""

from __future__ import annotations

from math import inf, isfinite, nan

import dp_accounting
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy import accounting
from tuner.privacy.accounting import calibrate_noise, epsilon, epsilon_composed, epsilon_curve, max_steps
from tuner.privacy.events import SampledGaussian
from tuner.privacy.verify import _gaussian_epsilon, _lower

CIFAR = SampledGaussian(256 / 50_000, 1.1)
MECHANISMS = [
    (CIFAR, 7006, 1e-5),
    (SampledGaussian(256 / 50_000, 30.0), 100, 1e-5),
    (SampledGaussian(256 / 50_000, 0.5), 1000, 1e-5),
    (SampledGaussian(0.08, 8.0), 120, 1e-5),
    (SampledGaussian(0.01, 5.0), 1000, 1e-6),
    (SampledGaussian(0.1, 1.0), 1, 1e-5),
]


@pytest.mark.parametrize(("steps", "published"), [(7006, 2.0), (36_424, 5.0), (117_577, 10.0)])
def test_published_steps_cost_the_published_epsilon(steps: int, published: float) -> None:
    # privacy.md §2, first column, rounded there to three figures.
    assert epsilon(CIFAR, steps, 1e-5) == pytest.approx(published, rel=2e-3)


@pytest.mark.parametrize(("mechanism", "steps", "delta"), MECHANISMS)
def test_agrees_with_the_librarys_own_accountant_on_a_finer_grid(
    mechanism: SampledGaussian, steps: int, delta: float
) -> None:
    accountant = PLDAccountant(value_discretization_interval=accounting.interval(mechanism, steps) / 4)
    independent = accountant.compose(mechanism.event(steps)).get_epsilon(delta)
    claimed = epsilon(mechanism, steps, delta)
    assert (
        independent - 1e-6 <= claimed <= independent + accounting.discretisation_error(mechanism, steps, delta) + 1e-6
    )
    assert claimed <= independent * 1.001 + 1e-9


@pytest.mark.parametrize(("mechanism", "steps", "delta"), MECHANISMS)
def test_lies_between_prv_lower_estimate_and_rdp(mechanism: SampledGaussian, steps: int, delta: float) -> None:
    claimed = epsilon(mechanism, steps, delta)
    rdp = RdpAccountant().compose(mechanism.event(steps)).get_epsilon(delta)
    assert claimed <= rdp
    check = _lower(mechanism, steps, delta, claimed)
    assert check.ok, check.detail


def test_prv_notices_a_claim_that_is_too_low() -> None:
    truth = epsilon(CIFAR, 7006, 1e-5)
    assert not _lower(CIFAR, 7006, 1e-5, truth * 0.97).ok


def test_full_batch_is_the_analytic_gaussian() -> None:
    mechanism = SampledGaussian(1.0, 10.0)
    exact = _gaussian_epsilon(100**0.5 / 10.0, 1e-5)
    assert exact <= epsilon(mechanism, 100, 1e-5) <= exact + 1e-4


def test_zero_only_for_no_steps() -> None:
    assert epsilon(CIFAR, 0, 1e-5) == 0.0
    hidden = SampledGaussian(1e-6, 1000.0)  # δ alone covers it
    assert epsilon(hidden, 1, 1e-2) == accounting.EPSILON_FLOOR


def test_hopeless_is_infinite_not_small() -> None:
    assert epsilon(SampledGaussian(1.0, 0.01), 1000, 1e-5) == inf
    assert epsilon(CIFAR, 7006, 1e-14) == inf
    assert max_steps(SampledGaussian(1.0, 0.01), epsilon=1.0, delta=1e-5) == 0


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    rate=st.floats(1e-3, 1.0),
    noise=st.floats(1.0, 40.0),
    steps=st.integers(1, 2000),
    more=st.integers(1, 2000),
    factor=st.floats(1.01, 3.0),
)
def test_monotone_in_steps_noise_and_rate(rate: float, noise: float, steps: int, more: int, factor: float) -> None:
    here = epsilon(SampledGaussian(rate, noise), steps, 1e-5)
    assert epsilon(SampledGaussian(rate, noise), steps + more, 1e-5) >= here * (1 - 1e-7)
    assert epsilon(SampledGaussian(rate, noise * factor), steps, 1e-5) <= here * (1 + 1e-7)
    assert epsilon(SampledGaussian(rate / factor, noise), steps, 1e-5) <= here * (1 + 1e-7)


@pytest.mark.parametrize(
    ("mechanism", "cap"),
    [
        (CIFAR, 2.0),
        (SampledGaussian(0.07, 9.42), 0.3),
        (SampledGaussian(0.2, 3.0), 8.0),
        (SampledGaussian(0.01, 60.0), 0.01),
    ],
)
def test_max_steps_is_exact_at_the_edge(mechanism: SampledGaussian, cap: float) -> None:
    steps = max_steps(mechanism, epsilon=cap, delta=1e-5)
    assert epsilon(mechanism, steps, 1e-5) <= cap < epsilon(mechanism, steps + 1, 1e-5)


def test_max_steps_at_a_cost_is_that_many_steps() -> None:
    mechanism = SampledGaussian(0.05, 2.0)
    assert max_steps(mechanism, epsilon=epsilon(mechanism, 123, 1e-5), delta=1e-5) == 123


@pytest.mark.parametrize(
    ("rate", "steps", "cap"), [(4096 / 60_000, 146, 0.3), (4096 / 60_000, 146, 0.1), (0.1, 500, 8.0), (1.0, 10, 1.0)]
)
def test_calibrated_noise_is_the_smallest_of_five_digits(rate: float, steps: int, cap: float) -> None:
    noise = calibrate_noise(sample_rate=rate, steps=steps, epsilon=cap, delta=1e-5)
    assert float(f"{noise:.4e}") == noise
    assert epsilon(SampledGaussian(rate, noise), steps, 1e-5) <= cap
    less = float(accounting._previous(accounting.Decimal(f"{noise:.4e}")))
    assert epsilon(SampledGaussian(rate, less), steps, 1e-5) > cap


def test_rounding_is_up_and_to_five_digits() -> None:
    assert float(accounting._round_up(1.234501)) == 1.2346
    assert float(accounting._round_up(0.999991)) == 1.0
    assert float(accounting._previous(accounting.Decimal("1.0000"))) == 0.99999


def test_calibration_says_no_where_no_noise_helps() -> None:
    with pytest.raises(BudgetRefusedError, match="any noise_multiplier"):
        calibrate_noise(sample_rate=1.0, steps=1000, epsilon=1e-7, delta=1e-9)


def test_composition_of_equal_parts_is_one_composition() -> None:
    assert epsilon_composed([(CIFAR, 100), (CIFAR, 200)], 1e-5) == epsilon(CIFAR, 300, 1e-5)
    assert epsilon_composed([], 1e-5) == 0.0
    assert epsilon_composed([(CIFAR, 0)], 1e-5) == 0.0


def test_composition_of_different_parts_is_between_its_largest_part_and_their_sum() -> None:
    other = SampledGaussian(0.05, 4.0)
    parts = [(CIFAR, 500), (other, 300)]
    alone = [epsilon(mechanism, steps, 1e-5) for mechanism, steps in parts]
    accountant = PLDAccountant(value_discretization_interval=2.0**-14)
    for mechanism, steps in parts:
        accountant.compose(mechanism.event(steps))
    together = epsilon_composed(parts, 1e-5)
    assert max(alone) < together
    assert accountant.get_epsilon(1e-5) - 1e-6 <= together <= accountant.get_epsilon(1e-5) * 1.005


def test_curve_falls_with_delta() -> None:
    curve = epsilon_curve(CIFAR, 1000, (1e-4, 1e-5, 1e-6))
    assert curve[0] < curve[1] < curve[2]


@pytest.mark.parametrize("noise", [nan, inf, 0, -1.0, "1", None, True])
def test_noise_must_be_a_positive_number(noise: object) -> None:
    with pytest.raises(InputError, match="noise_multiplier must be"):
        SampledGaussian(0.01, noise)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [nan, inf, 0, -0.1, 1.0001, "0.1", None, True])
def test_rate_must_be_a_probability(rate: object) -> None:
    with pytest.raises(InputError, match="sample_rate must be"):
        SampledGaussian(rate, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [nan, inf, 0, -1e-5, 1.0, None])
def test_delta_must_be_a_probability(delta: object) -> None:
    with pytest.raises(InputError, match="delta must be"):
        epsilon(CIFAR, 10, delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [-1, 1.5, nan, True, "3", 10**9])
def test_steps_must_be_a_sensible_whole_number(steps: object) -> None:
    with pytest.raises(InputError, match="steps must be"):
        epsilon(CIFAR, steps, 1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("cap", [nan, inf, 0, -1.0])
def test_epsilon_asked_for_must_be_finite_and_positive(cap: float) -> None:
    with pytest.raises(InputError, match="epsilon must be"):
        max_steps(CIFAR, epsilon=cap, delta=1e-5)
    with pytest.raises(InputError, match="epsilon must be"):
        calibrate_noise(sample_rate=0.1, steps=10, epsilon=cap, delta=1e-5)


def test_rounding_margin_exceeds_what_an_80_bit_fft_shows() -> None:
    import numpy as np
    import scipy.fft
    from dp_accounting.pld import common

    steps, grid = 7006, accounting.interval(CIFAR, 7006)
    one = accounting._step_distribution(CIFAR, grid)._pmf_remove.to_dense_pmf()
    composed = one.self_compose(steps)
    low, high = common.compute_self_convolve_bounds(one._probs, steps, 1e-15)
    size = scipy.fft.next_fast_len(max(high - low + 1, len(one._probs)))
    padded = np.zeros(size, dtype=np.longdouble)
    padded[: len(one._probs)] = one._probs
    spectrum, power, left = scipy.fft.fft(padded), np.ones(size, dtype=np.clongdouble), steps
    while left:
        power = power * spectrum if left & 1 else power
        spectrum, left = spectrum * spectrum, left >> 1
    exact = np.roll(np.real(scipy.fft.ifft(power)), -low)[: high - low + 1]
    assert float(np.abs(exact - composed._probs).sum()) < accounting._ROUNDING * steps


def test_library_fault_rdp_answers_zero_for_nan_noise() -> None:
    # Pinned: when this fails the library has been mended and privacy.md §5 can say so.
    event = dp_accounting.PoissonSampledDpEvent(0.01, dp_accounting.GaussianDpEvent(nan))
    assert RdpAccountant().compose(event, 100).get_epsilon(1e-5) == 0


def test_library_fault_pld_ignores_the_count_of_randomized_response() -> None:
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    event = dp_accounting.RandomizedResponseDpEvent(0.5, 2)
    once = PLDAccountant(relation).compose(event).get_epsilon(1e-6)
    many = PLDAccountant(relation).compose(dp_accounting.SelfComposedDpEvent(event, 10)).get_epsilon(1e-6)
    assert once == many
    assert isfinite(once)


def test_library_fault_rdp_replace_one_omits_the_factor_two() -> None:
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    event = dp_accounting.GaussianDpEvent(5.0)
    replace = RdpAccountant(neighboring_relation=relation).compose(event).get_epsilon(1e-5)
    assert replace == RdpAccountant().compose(event).get_epsilon(1e-5)
