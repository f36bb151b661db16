"""The accountant against other accountants, at its edges, and on input that must be refused."""

from __future__ import annotations

import random
import warnings
from decimal import Decimal
from math import erfc, exp, inf, log, nan, sqrt, ulp

import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from errors_helper import raises_code
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.errors import BudgetRefusedError, InputError
from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant.initial_guess import least_noise, previous, round_up
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.pld import (
    calibrate_noise,
    composed,
    epsilon,
    epsilon_composed,
    epsilon_curve,
    max_steps,
)

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
    # Published, rounded to three figures.
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
    lower = prv_lower(mechanism, steps, delta, error=max(min(0.01, claimed / 20), 1e-4))
    assert lower is None or lower <= claimed


def prv_lower(mechanism: SampledGaussian, steps: int, delta: float, *, error: float) -> float | None:
    """A lower estimate of another make, Opacus' PRV; None where its grid would take more than a gigabyte."""
    mesh = error / sqrt(steps * log(12e3 / delta) / 2)
    if 2 * (epsilon(mechanism, steps, max(delta * 1e-3, 1e-10)) + 3) / mesh > 8e6:
        return None
    accountant = pytest.importorskip("opacus.accountants").PRVAccountant()
    accountant.history = [(mechanism.noise_multiplier, mechanism.sample_rate, steps)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            discrete = accountant._get_dprv(eps_error=error, delta_error=delta / 1000)
            lower, _, _ = discrete.compute_epsilon(delta, delta / 1000, error)
        except (RuntimeError, ValueError):  # it cannot, for some; two of these mechanisms
            return None
    return float(lower)


def test_prv_notices_a_claim_that_is_too_low() -> None:
    lower = prv_lower(CIFAR, 7006, 1e-5, error=0.01)
    assert lower is not None
    assert lower > 0.97 * epsilon(CIFAR, 7006, 1e-5)


def test_full_batch_is_the_analytic_gaussian() -> None:
    mechanism = SampledGaussian(1.0, 10.0)
    found = epsilon(mechanism, 100, 1e-5)
    assert gaussian_delta(1.0, found) <= 1e-5 < gaussian_delta(1.0, found - 1e-4)


def gaussian_delta(mu: float, at: float) -> float:
    """δ of the Gaussian mechanism (Balle & Wang 2018, Theorem 8)."""
    near, far = (0.5 * erfc((at / mu + sign * mu / 2) / sqrt(2)) for sign in (-1, 1))
    return near - exp(at) * far


def test_zero_only_for_no_steps() -> None:
    assert epsilon(CIFAR, 0, 1e-5) == 0.0
    hidden = SampledGaussian(1e-6, 1000.0)  # δ alone covers it
    assert epsilon(hidden, 1, 1e-2) == accounting.EPSILON_FLOOR


def claims(parts: list[tuple[SampledGaussian, int]], delta: float) -> list[float]:
    """ε of the same steps by every function that reads one."""
    alone = [epsilon(*parts[0], delta)] if len(parts) == 1 else []
    return [*alone, epsilon_composed(parts, delta), *epsilon_curve(parts, [delta])]


@pytest.mark.parametrize("parts", [[(CIFAR, 2000)], [(CIFAR, 1000), (SampledGaussian(0.01, 1.3), 1000)]])
def test_the_rounding_margin_is_taken_from_delta_and_nothing_is_claimed_near_it(
    parts: list[tuple[SampledGaussian, int]],
) -> None:
    margin = 1e-13 + 5e-15 * 2000
    distribution, _ = composed(parts)
    for claimed in claims(parts, 2.5 * margin):
        assert distribution.get_delta_for_epsilon(claimed) <= 1.5 * margin * (1 + 1e-6)
    for delta in (0.5, 1.0, 1.5, 1.99):
        assert set(claims(parts, delta * margin)) == {inf}


@pytest.mark.parametrize("noises", [(1.0,), (1.0, 0.8)])
def test_the_mass_that_a_rounded_step_lacks_is_taken_from_delta(noises: tuple[float, ...]) -> None:
    from math import fsum

    parts = [(SampledGaussian(0.5, noise), 100) for noise in noises]
    grid = max(accounting.interval(mechanism, steps) for mechanism, steps in parts)
    lacking = 0.0
    for mechanism, steps in parts:
        step = accounting._step_distribution(mechanism, grid)
        sides = (step._pmf_remove.to_dense_pmf(), step._pmf_add.to_dense_pmf())
        lacking += steps * max(1 - fsum([*side._probs, side._infinity_mass]) for side in sides)
    assert lacking > 5 * (1e-13 + 5e-15 * 100 * len(parts))  # else the margin for rounding covers it
    distribution, _ = composed(parts)
    for claimed in claims(parts, 3e-11):
        assert distribution.get_delta_for_epsilon(claimed) + lacking <= 3e-11


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
    ("rate", "steps", "cap"),
    [
        (4096 / 60_000, 146, 0.3),
        (4096 / 60_000, 146, 0.1),
        (0.1, 500, 8.0),
        (1.0, 10, 1.0),
        (0.005, 1000, 1.0),  # long tails and many steps: other terms of the grid bind
        (0.01, 100_000, 0.1),
        (0.2, 1, 3.0),
        (1e-4, 50, 0.01),
    ],
)
def test_calibrated_noise_is_the_smallest_of_five_digits(rate: float, steps: int, cap: float) -> None:
    noise = calibrate_noise(sample_rate=rate, steps=steps, epsilon=cap, delta=1e-5)
    assert float(f"{noise:.4e}") == noise
    assert epsilon(SampledGaussian(rate, noise), steps, 1e-5) <= cap
    less = float(previous(Decimal(f"{noise:.4e}")))
    assert epsilon(SampledGaussian(rate, less), steps, 1e-5) > cap


def test_rounding_is_up_and_to_five_digits() -> None:
    assert float(round_up(1.234501)) == 1.2346
    assert float(round_up(0.999991)) == 1.0
    assert float(previous(Decimal("1.0000"))) == 0.99999


def test_calibration_asks_the_claims_own_grid_only_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def counted(mechanism: SampledGaussian, steps: int, delta: float, *, grid: float) -> float:
        asked.append(grid == accounting.interval(mechanism, steps))
        return whole(mechanism, steps, delta, grid=grid)

    whole = accounting.epsilon_on_grid.__wrapped__
    monkeypatch.setattr(accounting, "epsilon_on_grid", counted)
    for rate, steps, cap in ((0.07, 1000, 1.0), (0.2, 1000, 8.0), (0.1, 500, 8.0), (0.05, 300, 0.1)):
        asked.clear()
        calibrate_noise(sample_rate=rate, steps=steps, epsilon=cap, delta=1e-5)
        assert 2 <= sum(asked) <= 4, (rate, steps, cap, len(asked))


def test_calibration_does_not_depend_on_where_it_looks_first(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = calibrate_noise(sample_rate=0.1, steps=500, epsilon=8.0, delta=1e-5)
    for guess in ((0.06, -1.0), (9e4, -0.1), (wanted * 1.01, -50.0), (wanted, -1e-3)):
        monkeypatch.setattr(accounting, "guess_on_coarse_grid", lambda *_, guess=guess: guess)
        assert calibrate_noise(sample_rate=0.1, steps=500, epsilon=8.0, delta=1e-5) == wanted


def test_calibration_of_a_loose_cap_is_the_least_noise() -> None:
    assert calibrate_noise(sample_rate=1e-5, steps=1, epsilon=300.0, delta=1e-4) == 0.05


def test_steps_are_refused_where_the_rounding_was_not_measured() -> None:
    with raises_code(InputError, "too-many-steps"):
        epsilon(CIFAR, accounting.MAX_STEPS + 1, 1e-5)
    with raises_code(InputError, "too-many-steps"):
        epsilon_composed([(CIFAR, accounting.MAX_STEPS), (SampledGaussian(0.1, 1.0), 1)], 1e-5)


def test_calibration_says_no_where_no_noise_helps() -> None:
    with raises_code(BudgetRefusedError, "no-noise-fits"):
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
    curve = epsilon_curve([(CIFAR, 1000)], (1e-4, 1e-5, 1e-6))
    assert curve[0] < curve[1] < curve[2]


@pytest.mark.parametrize("noise", [nan, inf, 0, -1.0, "1", None, True])
def test_noise_must_be_a_positive_number(noise: object) -> None:
    with raises_code(InputError, "noise-out-of-range"):
        SampledGaussian(0.01, noise)  # type: ignore[arg-type]


@pytest.mark.parametrize("rate", [nan, inf, 0, -0.1, 1.0001, "0.1", None, True])
def test_rate_must_be_a_probability(rate: object) -> None:
    with raises_code(InputError, "sample-rate-out-of-range"):
        SampledGaussian(rate, 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("delta", [nan, inf, 0, -1e-5, 1.0, None])
def test_delta_must_be_a_probability(delta: object) -> None:
    with raises_code(InputError, "delta-out-of-range"):
        epsilon(CIFAR, 10, delta)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [-1, 1.5, nan, True, "3", 10**9])
def test_steps_must_be_a_sensible_whole_number(steps: object) -> None:
    with raises_code(InputError, "too-many-steps" if steps == 10**9 else "count-out-of-range"):
        epsilon(CIFAR, steps, 1e-5)  # type: ignore[arg-type]


@pytest.mark.parametrize("cap", [nan, inf, 0, -1.0])
def test_epsilon_asked_for_must_be_finite_and_positive(cap: float) -> None:
    with raises_code(InputError, "epsilon-out-of-range"):
        max_steps(CIFAR, epsilon=cap, delta=1e-5)
    with raises_code(InputError, "epsilon-out-of-range"):
        calibrate_noise(sample_rate=0.1, steps=10, epsilon=cap, delta=1e-5)


@pytest.mark.parametrize(
    ("mechanism", "steps"),
    [
        (CIFAR, 7006),
        (SampledGaussian(0.00034, 0.8437), 13),  # a long tail and few steps: the error does not start at zero
        (SampledGaussian(0.0015, 0.7875), 854),
        pytest.param(SampledGaussian(0.001, 1.0), accounting.MAX_STEPS, marks=pytest.mark.slow),
        pytest.param(SampledGaussian(0.2, 200.0), accounting.MAX_STEPS, marks=pytest.mark.slow),
    ],
)
def test_rounding_margin_is_twice_what_an_80_bit_fft_shows(mechanism: SampledGaussian, steps: int) -> None:
    import numpy as np
    import scipy.fft
    from dp_accounting.pld import common

    margin = accounting._ROUNDING_ONCE + accounting._ROUNDING * steps
    whole = accounting._step_distribution(mechanism, accounting.interval(mechanism, steps))
    for one in (whole._pmf_remove.to_dense_pmf(), whole._pmf_add.to_dense_pmf()):
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
        error = float(np.abs(exact - composed._probs).sum())
        assert error > ulp(0.5)  # else the reference is no finer than what it judges
        assert 2 * error < margin


def random_book(seed: int) -> list[tuple[SampledGaussian, int]]:
    rng = random.Random(seed)
    count = rng.randint(2, 12)
    return [
        (SampledGaussian(10 ** rng.uniform(-4, 0), 10 ** rng.uniform(-0.3, 1.5)), int(10 ** rng.uniform(0, 3.5)))
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    "parts",
    [
        [(SampledGaussian(0.01, 1.0 + 0.1 * i), 1) for i in range(20)],
        [
            (SampledGaussian(batch / 60_000, noise), 25 * 60_000 // batch)
            for noise in (1.0, 2.0)
            for batch in (128, 512)
        ],
        *[random_book(seed) for seed in range(4)],
        *[pytest.param(random_book(seed), marks=pytest.mark.slow) for seed in range(4, 24)],
        pytest.param([(SampledGaussian(0.003, 1.0 + 0.05 * i), 1) for i in range(60)], marks=pytest.mark.slow),
    ],
    ids=lambda parts: f"{len(parts)} mechanisms",
)
def test_rounding_margin_of_coupons_is_twice_what_an_80_bit_fft_shows(parts: list[tuple[SampledGaussian, int]]) -> None:
    import numpy as np
    import scipy.fft

    whole, margin = composed(parts)
    grid = max(accounting.interval(mechanism, steps) for mechanism, steps in parts)
    for side in ("_pmf_remove", "_pmf_add"):
        found = getattr(whole, side).to_dense_pmf()
        size = scipy.fft.next_fast_len(found.size * 5 // 4)  # what lies outside wraps around: 1e-15 of mass a mechanism
        power, place = np.ones(size, dtype=np.clongdouble), 0
        for mechanism, steps in parts:
            one = getattr(accounting._step_distribution(mechanism, grid), side).to_dense_pmf()
            padded = np.zeros(size, dtype=np.longdouble)
            np.add.at(padded, np.arange(one.size) % size, one._probs.astype(np.longdouble))
            spectrum, left, place = scipy.fft.fft(padded), steps, place + one._lower_loss * steps
            while left:
                power = power * spectrum if left & 1 else power
                spectrum, left = spectrum * spectrum, left >> 1
        exact = np.roll(np.real(scipy.fft.ifft(power)), place - found._lower_loss)[: found.size]
        assert 2 * float(np.abs(exact - found._probs).sum()) < margin


def test_a_coarser_grid_is_an_upper_bound_too() -> None:
    parts = [(CIFAR, 500), (SampledGaussian(0.05, 4.0), 300)]
    assert (
        epsilon_composed(parts, 1e-5) <= epsilon_composed(parts, 1e-5, coarser=8) <= epsilon_composed(parts, 1e-5) * 1.2
    )
    assert epsilon(CIFAR, 500, 1e-5) <= epsilon_composed([(CIFAR, 500)], 1e-5, coarser=4)


@pytest.mark.parametrize("guess", [0.06, 1.0, 5e4])
@pytest.mark.parametrize("slope", [-0.01, -1.0, -80.0])
def test_least_noise_is_exact_wherever_it_looks_first(guess: float, slope: float) -> None:
    asked: list[float] = []

    def cost(noise: float) -> float:
        asked.append(noise)
        return inf if noise < 0.3 else 7.0 / noise**1.5

    found = least_noise(cost, 2.0, guess=guess, slope=slope)
    assert found == float(round_up((7.0 / 2.0) ** (1 / 1.5)))
    assert found in asked
    assert float(previous(Decimal(str(found)))) in asked
    assert len(asked) < 60


def test_least_noise_at_its_ends() -> None:
    assert least_noise(lambda noise: 1.0 / noise, 100.0, guess=3.0) == 0.05
    assert least_noise(lambda noise: 1.0 / noise, 100.0, guess=3.0, low=0.2) == 0.2
    assert least_noise(lambda noise: 1.0 + 1.0 / noise, 0.5, guess=3.0) is None
