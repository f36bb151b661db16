"""The second accountant: held against closed forms, quadrature and another library, and against wrong claims."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from math import erfc, exp, expm1, inf, log, nan, sqrt
from typing import Any

import mpmath
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution
from hypothesis import example, given, settings
from hypothesis import strategies as st
from independent_bodies import BOOK, RATE, TOTAL, sealed

from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant.mechanism import SampledGaussian
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


@pytest.mark.parametrize(
    ("parts", "delta"),
    [
        ([Part(1.0, 5.0, 30)], 1e-10),
        ([Part(1.0, 40.0, 20_000)], 1e-6),
        ([Part(1.0, 0.6, 2)], 1e-3),
        ([Part(1.0, 3.0, 4), Part(1.0, 11.0, 500), Part(1.0, 200.0, 10_000)], 1e-6),
    ],
)
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


@pytest.mark.parametrize(
    ("rate", "noise", "delta"),
    [(1e-4, 1.0, 1e-5), (0.01, 0.5, 1e-2), (0.05, 2.0, 1e-9), (0.5, 1.0, 1e-5), (0.9, 0.4, 1e-9), (0.3, 8.0, 1e-2)],
)
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


def _library(parts: list[Part], delta: float, grid: float, *, pessimistic: bool) -> float:
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
@settings(max_examples=15, deadline=None)
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


@pytest.mark.parametrize("steps", [1_000, 1_000_000])
def test_many_steps_stay_tight_and_small(steps: int) -> None:
    (found,) = epsilon_ranges_of_steps([(RATE, 1.1, steps)], [1e-5])
    claimed = accounting.epsilon(SampledGaussian(RATE, 1.1), steps, 1e-5)
    assert judge(claimed, found).ok
    assert found.low <= claimed
    assert found.high - found.low <= 0.003 * found.high
    whole = compose_losses((Part(RATE, 1.1, steps),), 1e-5)
    assert all(len(direction.excess) <= 2**22 for direction in whole.directions)  # type: ignore[union-attr]


def test_a_curve_is_bracketed_at_every_delta() -> None:
    deltas = [1e-2, 1e-4, 1e-5, 1e-7, 1e-9]
    found = epsilon_ranges(TOTAL, deltas)
    for bracket, delta in zip(found, deltas, strict=True):
        assert judge(accounting.epsilon(SampledGaussian(RATE, 1.1), 7006, delta), bracket).ok
    assert [bracket.high for bracket in found] == sorted(bracket.high for bracket in found)


@pytest.mark.parametrize(("rate", "noise", "steps"), [(0.01, 1.75, 21), (0.05, 1.75, 36), (0.01, 2.0, 3)])
def test_the_curve_of_few_steps_is_confirmed_at_every_delta(rate: float, noise: float, steps: int) -> None:
    deltas = [10.0**-digits for digits in range(2, 13)]
    for bracket, delta in zip(epsilon_ranges_of_steps([(rate, noise, steps)], deltas), deltas, strict=True):
        claimed = accounting.epsilon(SampledGaussian(rate, noise), steps, delta)
        assert judge(claimed, bracket).ok
        assert judge(claimed * 0.98, bracket).ok is not True or claimed < 1e-3


def test_where_delta_covers_everything_epsilon_is_zero() -> None:
    (found,) = epsilon_ranges_of_steps([(1e-6, 5.0, 1)], [1e-3])
    assert (found.low, found.high) == (0.0, 0.0)
    assert judge(1e-6, found).ok
    assert epsilon_ranges_of_steps([], [1e-5])[0].high == 0.0


SEALED = sealed()
WRONG = {  # what was claimed for, and what is done
    "steps less 10 %": ({**TOTAL, "step_cap": 6305}, TOTAL),
    "one step in a hundred forgotten": ({**TOTAL, "step_cap": 6936}, TOTAL),
    "noise in place of noise / 2": (TOTAL, {**TOTAL, "noise_multiplier": 0.55}),
    "half the sampling rate": ({**TOTAL, "sample_rate": RATE / 2}, TOTAL),
    "replace-one in place of add-or-remove": (
        {**TOTAL, "sample_rate": 1.0, "noise_multiplier": 8.0, "step_cap": 100},
        {**TOTAL, "sample_rate": 1.0, "noise_multiplier": 4.0, "step_cap": 100},
    ),
    "a forgotten coupon": ({**BOOK, "coupons": BOOK["coupons"][:1]}, BOOK),
    "another law of K": (sealed("logarithmic"), SEALED),
    "fewer runs than the mean": (sealed(mean=15.0), SEALED),
    "a winner priced as one run": (TOTAL, SEALED),
    "a sampler that learns, unpriced": (SEALED, sealed(ratio=[0.5, 2.0])),
}  # fmt: skip


@cache
def _range(body: str, delta: float = 1e-5) -> EpsilonRange:
    return epsilon_ranges(json.loads(body), [delta])[0]


def _judged_no(claimed: float, found: EpsilonRange) -> bool:
    assert judge(found.high, found).ok, "the control: the right claim"
    return judge(claimed, found).ok is False


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_claim_is_answered_no(fault: str) -> None:
    claimed, done = (_range(json.dumps(body)) for body in WRONG[fault])
    assert _judged_no(claimed.high, done)


def test_a_number_that_is_no_claim_is_answered_no() -> None:
    found, of_sealed = _range(json.dumps(TOTAL)), _range(json.dumps(SEALED))
    for claimed in (nan, inf, -1.0, 1000.0, 0.99 * found.high, _range(json.dumps(TOTAL), 2e-5).high):
        assert _judged_no(claimed, found), claimed
    assert _judged_no(2 * of_sealed.high, of_sealed)


def test_a_claim_for_one_direction_of_adjacency_is_answered_no() -> None:
    whole = compose_losses((Part(0.3, 0.8, 20),), 1e-5)
    alone = independent_loss.ComposedLoss(whole.directions[1:], whole.near).epsilon(1e-5)[1]
    assert _judged_no(alone, epsilon_ranges_of_steps([(0.3, 0.8, 20)], [1e-5])[0])


def test_what_is_too_large_is_neither_yes_nor_no(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TooLargeError, match="600"):
        epsilon_ranges_of_steps([(0.5, 0.02, 1)], [1e-5])
    monkeypatch.setattr(independent_loss, "_POINTS", 2**4)
    with pytest.raises(TooLargeError, match="more than 16 grid points"):
        epsilon_ranges_of_steps([(RATE, 1.1, 100_000)], [1e-5])
    monkeypatch.setattr(independent_loss, "_POINTS", 2**12)
    (wide,) = epsilon_ranges_of_steps([(RATE, 1.1, 100_000)], [1e-5])
    assert wide.high - wide.low > 0.05 * wide.high
    assert judge((wide.low + wide.high) / 2, wide).ok is None
    assert judge(wide.low * 0.9, wide).ok is False


@pytest.mark.parametrize(
    "step", [(nan, 1.0, 5), (0.5, nan, 5), (0.5, inf, 5), (0.5, 0.0, 5), (1.5, 1.0, 5), (0.5, 1.0, -1), (0.5, 1.0, 1.5)]
)
def test_numbers_out_of_range_are_refused(step: tuple[float, float, int]) -> None:
    with pytest.raises(ValueError, match="rate in"):
        epsilon_ranges_of_steps([step], [1e-5])


def test_a_delta_or_a_filter_of_no_known_kind_is_refused() -> None:
    for delta in (0.0, 1.0, nan, -1.0):
        with pytest.raises(ValueError, match="delta"):
            epsilon_ranges(TOTAL, [delta])
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
