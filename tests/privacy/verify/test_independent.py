"""The second accountant: held against closed forms, quadrature and another library, and against wrong claims."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from math import erfc, exp, expm1, inf, log, nan, pi, sqrt
from typing import Any

import mpmath
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from independent_bodies import BOOK, RATE, TOTAL, sealed

from tuner.privacy.verify.accountant import loss as independent_loss
from tuner.privacy.verify.accountant.bounds import (
    EpsilonRange,
    TooLargeError,
    epsilon_ranges,
    epsilon_ranges_of_steps,
    judge,
    within,
)
from tuner.privacy.verify.accountant.loss import Exact, compose_losses, on_grid
from tuner.privacy.verify.accountant.one_step import Part, merged


def tail(z: float) -> float:
    return 0.5 * erfc(z / sqrt(2))


def one_step(rate: float, noise: float, epsilon: float, *, adding: bool) -> float:
    """δ of one sampled step, in closed form: the losses are monotone in the outcome."""
    excess = expm1(-epsilon if adding else epsilon) + rate  # of e^loss above 1 − q
    if excess <= 0:  # no loss is so small; or, adding, none so large
        return 0.0 if adding else -expm1(epsilon)
    x = 0.5 + noise**2 * log(excess / rate)
    if adding:
        return 1 - tail(x / noise) - exp(epsilon) * (
            (1 - rate) * (1 - tail(x / noise)) + rate * (1 - tail((x - 1) / noise))
        )  # fmt: skip
    return (1 - rate) * tail(x / noise) + rate * tail((x - 1) / noise) - exp(epsilon) * tail(x / noise)


def two_steps(first: Part, second: Part, epsilon: float) -> float:
    """δ of two sampled steps, the larger direction: the trapezoidal rule over the outcome of the first."""
    x = np.linspace(-14 * first.noise_multiplier, 1 + 14 * first.noise_multiplier, 20_001)
    rate, noise = first.sample_rate, first.noise_multiplier
    null = np.exp(-(x**2) / (2 * noise**2)) / (noise * sqrt(2 * pi))
    ratio = 1 - rate + rate * np.exp((2 * x - 1) / (2 * noise**2))
    found = []
    for adding in (False, True):
        losses = -np.log(ratio) if adding else np.log(ratio)
        rest = [one_step(second.sample_rate, second.noise_multiplier, epsilon - loss, adding=adding) for loss in losses]
        found.append(float(np.trapezoid((null if adding else null * ratio) * np.array(rest), x)))
    return max(found)


def test_it_loads_nothing_but_numpy() -> None:
    """The contract in pyproject.toml names what is forbidden; this is what is loaded."""
    script = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "import tuner.privacy.verify.accountant.bounds, tuner.privacy.verify.accountant.entries_recount\n"
        "loaded = sys.modules.keys() - before\n"
        "ours = {m for m in loaded if m.split('.')[0] == 'tuner'}\n"
        "print({m.split('.')[0] for m in loaded} - {'tuner', *sys.stdlib_module_names},"
        " {m for m in ours if m not in ('tuner', 'tuner.privacy') and not m.startswith('tuner.privacy.verify')})"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "{'numpy'} set()"


@given(mu=st.floats(1e-3, 9.0), epsilon=st.floats(-2.0, 300.0))
@example(mu=1e-3, epsilon=300.0)
@example(mu=9.0, epsilon=-2.0)
@example(mu=0.5, epsilon=0.0)
@settings(deadline=None)
def test_the_gaussian_mechanism_is_exact(mu: float, epsilon: float) -> None:
    with mpmath.workdps(60):
        near, far = epsilon / mpmath.mpf(mu) - mpmath.mpf(mu) / 2, epsilon / mpmath.mpf(mu) + mpmath.mpf(mu) / 2
        exact = mpmath.ncdf(-near) - mpmath.exp(epsilon) * mpmath.ncdf(-far)
    low, high = Exact(mu).delta(epsilon)
    assert low <= exact * (1 + 1e-12) + 1e-307, "subnormal numbers have fewer digits"
    assert high >= exact * (1 - 1e-12)
    assert high - low <= 1e-10 * float(mpmath.ncdf(-near)) * (1 + near**2) + 1e-300


@pytest.mark.parametrize(("noise", "epsilon"), [(14.06, 0.5), (7.46, 1.0), (3.99, 2.0), (2.16, 4.0), (1.20, 8.0)])
def test_published_noise_of_the_gaussian_mechanism(noise: float, epsilon: float) -> None:
    """Sensitivity 2 at δ = 1e-5, from Balle & Wang 2018."""
    found = epsilon_ranges_of_steps([(1.0, noise / 2, 1)], [1e-5])[0]
    assert found.low == pytest.approx(epsilon, rel=3e-3)
    assert found.high == pytest.approx(found.low, rel=1e-6)


def test_a_pool_of_released_scores() -> None:
    """100 counts with noise of 81: ε = 0.5 at δ = 1e-6."""
    body = {"kind": "total_steps", "sample_rate": 1.0, "noise_multiplier": 81.0, "step_cap": 100}
    (found,) = epsilon_ranges(body, [1e-6])
    assert found.high == pytest.approx(0.5, rel=0.01)
    assert judge(found.high, found).ok


@pytest.mark.parametrize(
    "parts",
    [
        [Part(1.0, 5.0, 30)],
        [Part(1.0, 40.0, 20_000)],
        [Part(1.0, 0.6, 2)],
        [Part(1.0, 3.0, 4), Part(1.0, 11.0, 500), Part(1.0, 200.0, 10_000)],
    ],
)
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_the_grid_brackets_the_closed_form(parts: list[Part], delta: float) -> None:
    grid, exact = on_grid(merged(parts), delta), compose_losses(merged(parts), delta)
    assert isinstance(exact.directions[0], Exact)
    low, high = grid.epsilon(delta)
    true = exact.epsilon(delta)
    assert low <= true[1]
    assert true[0] <= high
    assert high - low <= 0.005 * high
    for epsilon in (-0.5, 0.0, 0.3 * high, high, 1.5 * high):
        below, above = grid.delta(epsilon)
        assert below <= exact.delta(epsilon)[1]
        assert exact.delta(epsilon)[0] <= above


@pytest.mark.parametrize(("rate", "noise"), [(1e-4, 1.0), (0.01, 0.5), (0.05, 2.0), (0.5, 1.0), (0.9, 0.4), (0.3, 8.0)])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_one_step_is_bracketed(rate: float, noise: float, delta: float) -> None:
    whole = compose_losses((Part(rate, noise, 1),), delta)
    low, high = whole.epsilon(delta)
    for epsilon in (low, high, 0.0, 0.5 * high, 2 * high):
        true = max(one_step(rate, noise, epsilon, adding=adding) for adding in (False, True))
        below, above = whole.delta(epsilon)
        assert below <= true * (1 + 1e-9)
        assert true * (1 - 1e-9) <= above
    # Each direction by itself, or a swap of the two would go unseen.
    for direction, adding in zip(whole.directions, (False, True), strict=True):
        true = one_step(rate, noise, high / 3, adding=adding)
        below, above = direction.delta(high / 3)
        assert below <= true * (1 + 1e-9) + 1e-18
        assert true * (1 - 1e-9) - 1e-18 <= above
    assert high - low <= 0.006 * high


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Part(0.1, 1.0, 1), Part(0.1, 1.0, 1)),
        (Part(0.02, 0.8, 1), Part(0.4, 3.0, 1)),
        (Part(1.0, 4.0, 1), Part(0.05, 1.0, 1)),
    ],
)
def test_two_steps_are_bracketed(first: Part, second: Part) -> None:
    whole = on_grid(merged([first, second]), 1e-6)
    low, high = whole.epsilon(1e-6)
    for epsilon in (low, high, 0.4 * high):
        true = two_steps(first, second, epsilon)
        below, above = whole.delta(epsilon)
        assert below <= true * (1 + 1e-7)
        assert true * (1 - 1e-7) <= above
    assert high - low <= 0.005 * high


def _library(parts: list[Part], delta: float, grid: float, *, pessimistic: bool) -> float:
    from dp_accounting.pld import privacy_loss_distribution

    whole: Any = None
    for rate, noise, steps in parts:
        step = privacy_loss_distribution.from_gaussian_mechanism(
            noise,
            sampling_prob=rate,
            value_discretization_interval=grid,
            pessimistic_estimate=pessimistic,
            use_connect_dots=pessimistic,
        ).self_compose(steps)
        whole = step if whole is None else whole.compose(step)
    return float(whole.get_epsilon_for_delta(delta))


@given(
    rates=st.lists(st.floats(0.001, 0.5), min_size=1, max_size=3, unique=True),
    noises=st.lists(st.floats(0.7, 6.0), min_size=3, max_size=3),
    steps=st.lists(st.integers(1, 400), min_size=3, max_size=3),
    log_delta=st.floats(-8, -3),
)
@settings(max_examples=25, deadline=None)
def test_random_compositions_agree_with_the_library(
    rates: list[float], noises: list[float], steps: list[int], log_delta: float
) -> None:
    parts = [Part(*part) for part in zip(rates, noises, steps, strict=False)]
    delta = 10.0**log_delta
    (found,) = epsilon_ranges_of_steps(parts, [delta])
    grid = max(found.high, 1e-3) / 4000
    assert found.low <= _library(parts, delta, grid, pessimistic=True) * (1 + 1e-6) + 1e-9
    assert found.high >= _library(parts, delta, grid, pessimistic=False) * (1 - 1e-6) - 1e-9
    assert found.high - found.low <= 0.006 * found.high + 1e-6
    assert found.high <= _library(parts, delta, grid, pessimistic=True) * 1.003 + 1e-6


@pytest.mark.parametrize("steps", [1_000, 100_000, 1_000_000])
def test_many_steps_stay_tight_and_small(steps: int) -> None:
    from tuner.privacy.accountant import pld as accounting
    from tuner.privacy.accountant.mechanism import SampledGaussian

    (found,) = epsilon_ranges_of_steps([(RATE, 1.1, steps)], [1e-5])
    claimed = accounting.epsilon(SampledGaussian(RATE, 1.1), steps, 1e-5)
    assert judge(claimed, found).ok
    assert found.low <= claimed
    assert found.high - found.low <= 0.003 * found.high
    whole = compose_losses((Part(RATE, 1.1, steps),), 1e-5)
    assert all(len(direction.excess) <= 2**22 for direction in whole.directions)  # type: ignore[union-attr]


def test_a_curve_is_bracketed_at_every_delta() -> None:
    from tuner.privacy.accountant import pld as accounting
    from tuner.privacy.accountant.mechanism import SampledGaussian

    deltas = [1e-2, 1e-4, 1e-5, 1e-7, 1e-9]
    found = epsilon_ranges(TOTAL, deltas)
    for bracket, delta in zip(found, deltas, strict=True):
        assert judge(accounting.epsilon(SampledGaussian(RATE, 1.1), 7006, delta), bracket).ok
    assert [bracket.high for bracket in found] == sorted(bracket.high for bracket in found)


def test_where_delta_covers_everything_epsilon_is_zero() -> None:
    (found,) = epsilon_ranges_of_steps([(1e-6, 5.0, 1)], [1e-3])
    assert (found.low, found.high) == (0.0, 0.0)
    assert judge(1e-6, found).ok
    assert epsilon_ranges_of_steps([], [1e-5])[0].high == 0.0


WRONG: dict[str, Callable[[], tuple[float, EpsilonRange]]] = {
    "1 % too small": lambda: (_claim(TOTAL) * 0.99, epsilon_ranges(TOTAL, [1e-5])[0]),
    "steps less 10 %": lambda: (_claim({**TOTAL, "step_cap": 6305}), epsilon_ranges(TOTAL, [1e-5])[0]),
    "one step in a hundred forgotten": lambda: (_claim({**TOTAL, "step_cap": 6936}), epsilon_ranges(TOTAL, [1e-5])[0]),
    "noise in place of noise / 2": lambda: (
        _claim(TOTAL),
        epsilon_ranges({**TOTAL, "noise_multiplier": 0.55}, [1e-5])[0],
    ),
    "another delta": lambda: (_claim(TOTAL, 2e-5), epsilon_ranges(TOTAL, [1e-5])[0]),
    "the wrong direction alone": lambda: (
        _of_adding_alone(Part(0.3, 0.8, 20), 1e-5),
        epsilon_ranges_of_steps([(0.3, 0.8, 20)], [1e-5])[0],
    ),
    "replace-one in place of add-or-remove": lambda: (
        epsilon_ranges_of_steps([(1.0, 8.0, 100)], [1e-5])[0].high,
        epsilon_ranges_of_steps([(1.0, 4.0, 100)], [1e-5])[0],
    ),
    "a forgotten coupon": lambda: (
        _claim({**BOOK, "coupons": BOOK["coupons"][:1]}),
        epsilon_ranges(BOOK, [1e-5])[0],
    ),
    "half the sampling rate": lambda: (_claim({**TOTAL, "sample_rate": RATE / 2}), epsilon_ranges(TOTAL, [1e-5])[0]),
    "another law of K": lambda: (_claim(sealed("logarithmic")), epsilon_ranges(sealed("geometric"), [1e-5])[0]),
    "fewer runs than the mean": lambda: (_claim(sealed(mean=15.0)), epsilon_ranges(sealed(mean=30.0), [1e-5])[0]),
    "a winner priced as one run": lambda: (_claim(TOTAL), epsilon_ranges(sealed(), [1e-5])[0]),
    "a sampler that learns, unpriced": lambda: (_claim(sealed()), epsilon_ranges(sealed(ratio=[0.5, 2.0]), [1e-5])[0]),
    "absurdly large": lambda: (1000.0, epsilon_ranges(TOTAL, [1e-5])[0]),
    "twice too large, sealed": lambda: (_claim(sealed()) * 2, epsilon_ranges(sealed(), [1e-5])[0]),
    "NaN": lambda: (nan, epsilon_ranges(TOTAL, [1e-5])[0]),
    "infinite": lambda: (inf, epsilon_ranges(TOTAL, [1e-5])[0]),
    "negative": lambda: (-1.0, epsilon_ranges(TOTAL, [1e-5])[0]),
}


def _claim(body: dict[str, Any], delta: float = 1e-5) -> float:
    return epsilon_ranges(body, [delta])[0].high


def _of_adding_alone(part: Part, delta: float) -> float:
    whole = compose_losses((part,), delta)
    return independent_loss.ComposedLoss(whole.directions[1:], whole.near).epsilon(delta)[1]


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_claim_is_answered_no(fault: str) -> None:
    claimed, found = WRONG[fault]()
    verdict = judge(claimed, found)
    assert verdict.ok is False, verdict.why
    assert judge(found.high, found).ok, "the control: the right claim"


def test_what_is_too_large_is_neither_yes_nor_no(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLargeError, match="600"):
        epsilon_ranges_of_steps([(0.5, 0.02, 1)], [1e-5])
    monkeypatch.setattr(independent_loss, "_POINTS", 2**4)
    with pytest.raises(TooLargeError, match="more than 16 points"):
        epsilon_ranges_of_steps([(RATE, 1.1, 100_000)], [1e-5])
    monkeypatch.setattr(independent_loss, "_POINTS", 2**12)
    (wide,) = epsilon_ranges_of_steps([(RATE, 1.1, 100_000)], [1e-5])
    assert wide.high - wide.low > 0.05 * wide.high
    assert judge((wide.low + wide.high) / 2, wide).ok is None
    assert judge(wide.low * 0.9, wide).ok is False


@pytest.mark.parametrize(
    "steps",
    [
        [(nan, 1.0, 5)],
        [(0.5, nan, 5)],
        [(0.5, inf, 5)],
        [(0.5, 0.0, 5)],
        [(1.5, 1.0, 5)],
        [(0.5, 1.0, -1)],
        [(0.5, 1.0, 1.5)],
    ],
)
def test_numbers_out_of_range_are_refused(steps: list[tuple[float, float, int]]) -> None:
    with pytest.raises(ValueError, match="rate in"):
        epsilon_ranges_of_steps(steps, [1e-5])


@pytest.mark.parametrize("delta", [0.0, 1.0, nan, -1.0])
def test_a_delta_out_of_range_is_refused(delta: float) -> None:
    with pytest.raises(ValueError, match="delta"):
        epsilon_ranges(TOTAL, [delta])


def test_an_filter_of_another_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="known kind"):
        epsilon_ranges({"kind": "endless"}, [1e-5])


def test_steps_are_held_against_their_filter() -> None:
    assert within(TOTAL, [(RATE, 1.1, 7000), (RATE, 1.1, 6)]).ok
    assert within(TOTAL, [(RATE, 1.1, 7007)]).ok is False
    assert within(TOTAL, [(RATE, 1.0, 1)]).ok is False
    assert within(BOOK, [(0.01, 1.2, 900), (0.02, 1.5, 400)]).ok
    assert within(BOOK, [(0.01, 1.2, 901)]).ok is False
    assert within(sealed(), []).ok
    assert within(sealed(), [(RATE, 1.1, 1)]).ok is False


def test_the_spread_of_the_split_losses_is_that_of_the_proof() -> None:
    """The coupling of the lower end: the mean of what splitting adds to a loss lies in [0, h²/8]."""
    for grid in (1e-3, 0.1, 1.0, 5.0):
        for place in np.linspace(0, grid, 101)[1:-1]:
            share = expm1(-place) / expm1(-grid)
            assert -1e-15 <= share * grid - place <= grid**2 / 8 * (1 + 1e-9)
            assert (1 - share) + share * exp(-grid) == pytest.approx(exp(-place), rel=1e-12)
