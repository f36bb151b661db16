"""Shapes of the negative binomial law at the edges of what is allowed: against many digits, in both accountants."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from math import log
from types import SimpleNamespace
from typing import Any

import mpmath
import pytest
from covering import pairs
from errors_helper import raises_code
from gaussian import gaussian_delta
from independent_bodies import sealed
from scipy.stats import nbinom

from tuner.errors import InputError
from tuner.privacy.accountant.filters import from_body
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.selection import at_most_for, shift_of, winner_divergences
from tuner.privacy.verify.accountant.best_of_runs import Law, Selection
from tuner.privacy.verify.accountant.bounds import epsilon_ranges, judge

EDGES = (1e6, 123456.7, 1e3, 1.0, 1e-9, 0.0, -1e-9, -0.5, -0.9)
BEYOND = (1e6 * (1 + 1e-12), 1e9, 1e16, 3e16, 1e17, 1e300, 9e-10, -9e-10, 1e-98, -1e-99, 5e-324)


def negative_binomial(shape: float, mean: float = 3.0) -> RunLaw:
    return RunLaw(name="negative_binomial", mean=mean, shape=shape)


def delta_of(epsilon: float) -> float:
    """Of one run: any true profile will do, as long as both sides take the same."""
    return max(gaussian_delta(1.0, epsilon), 0.0)


def exact_gamma(mean: float, shape: float) -> Any:  # noqa: ANN401 - mpmath is untyped
    """γ in 60 digits, from the mean that was asked for."""
    eta = mpmath.mpf(shape)

    def mean_of(log_gamma: Any) -> Any:  # noqa: ANN401
        part = -1 / log_gamma if shape == 0 else eta / -mpmath.expm1(eta * log_gamma)
        return mpmath.expm1(-log_gamma) * part

    low, high = mpmath.mpf(-40), mpmath.mpf(-1) / 10**30
    for _ in range(260):
        middle = (low + high) / 2
        low, high = (middle, high) if mean_of(middle) > mean else (low, middle)
    return mpmath.exp(low)


def exact_shift(gamma: Any, shape: float) -> Any:  # noqa: ANN401
    """The least of (η+1)·log(e^ε₁ + (1−γ)/γ·δ(ε₁)) over a fine grid of ε₁, in 60 digits."""
    odds = (1 - gamma) / gamma

    def log_r(first: float) -> Any:  # noqa: ANN401
        return mpmath.log(mpmath.exp(first) + odds * mpmath.mpf(delta_of(first)))

    best = min([0.0, *(1e-3 * 1.1**k for k in range(110))], key=log_r)
    near = [best * (0.9 + 0.001 * k) for k in range(220)]
    return (1 + mpmath.mpf(shape)) * min(log_r(first) for first in near)


@pytest.mark.parametrize(("shape", "mean"), [*pairs(EDGES, (2.0, 3.0)), (1e6, 40.0), (-0.5, 30.0)])
def test_the_price_of_selection_is_that_of_many_digits_and_never_below(shape: float, mean: float) -> None:
    law = negative_binomial(shape, mean)
    with mpmath.workdps(60):
        gamma = exact_gamma(mean, shape)
        drawn = mpmath.mpf(law.gamma)  # what is drawn has the γ of the doubles
        for truth in (gamma, drawn):
            exact = exact_shift(truth, shape)
            found = shift_of(law, delta_of)
            tight = shape >= 1e3  # ε₁ = 0 is best there, so that both are known in all digits
            assert found.shift >= exact * (1 - (0 if tight else mpmath.mpf("1e-5")))
            assert found.shift <= exact * (1 + mpmath.mpf("3e-9" if tight else "1e-5"))
            single = {2.0: 0.5, 8.0: 2.0, 64.0: 16.0}
            for order, spent in winner_divergences(law, single, delta_of).items():
                second = min((1 - 1 / mpmath.mpf(b)) * d - mpmath.log(truth) / b for b, d in single.items())
                whole = single[order] + (1 + mpmath.mpf(shape)) * second + mpmath.log(mean) / (order - 1)
                assert whole <= spent <= whole * (1 + mpmath.mpf("3e-9"))


@pytest.mark.parametrize("shape", [1e9, 1e14])
def test_a_large_shape_does_not_multiply_a_rounded_logarithm(shape: float) -> None:
    """Such a law is refused; the bound itself must keep its digits all the same, in both accountants."""
    gamma = 1 - round(2.8 / shape * 2**53) * 2.0**-53
    law: Any = SimpleNamespace(gamma=gamma, shape=shape, mean=3.0, poisson=False)
    with mpmath.workdps(60):
        exact = float(exact_shift(mpmath.mpf(gamma), shape))
    assert exact <= shift_of(law, delta_of).shift <= exact * (1 + 1e-8)
    selection = Selection(sealed("geometric", 3.0, at_most=200), 1e-5)
    selection.law = law
    profile: Any = SimpleNamespace(delta=lambda epsilon: (delta_of(epsilon),) * 2, epsilon=lambda _: (0.0, 0.0))
    selection.profiles = [profile]
    assert selection._by_profile(1)(1e-5) == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("shape", [1e6, 1.0, 1e-9, 0.0, -0.5, -0.8])
def test_the_two_accountants_agree_at_the_edges(shape: float) -> None:
    body = sealed("negative_binomial", 3.0, shape=shape)
    body |= {"at_most": at_most_for(negative_binomial(shape), epsilon=40.0, delta=1e-5)}
    (found,) = epsilon_ranges(body, [1e-5])
    claimed = from_body(body).claim(1e-5)
    verdict = judge(claimed, found)
    assert verdict.ok, verdict.why
    assert judge(claimed * 0.985, found).ok is not True


@pytest.mark.parametrize(("shape", "mean"), pairs((*EDGES[:-1], -0.0), (2.0, 3.0)))
def test_what_is_drawn_adds_up_to_one_and_has_the_mean_asked_for(shape: float, mean: float) -> None:
    law = negative_binomial(shape, mean)
    whole = weighted = Decimal(0)
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 100, MAX_EMAX, MIN_EMIN
        for runs, mass in law._masses():  # far out they fall at least as (1 − γ)^k
            whole, weighted = whole + mass, weighted + runs * mass
            if runs > 3 * mean and runs * mass < Decimal("1e-13") * Decimal(law.gamma):
                break
    assert float(abs(whole - 1)) < 1e-11
    assert float(weighted) == pytest.approx(mean, rel=1e-9)
    other = Law(law.body())
    assert other.gamma == pytest.approx(law.gamma, rel=1e-12)
    assert (1 - other.gamma) == pytest.approx(1 - law.gamma, rel=1e-9)


@pytest.mark.parametrize("shape", BEYOND)
def test_shapes_that_doubles_cannot_hold_are_refused(shape: float) -> None:
    with raises_code(InputError, "run-shape-out-of-range"):
        negative_binomial(shape)
    with pytest.raises(ValueError, match="close to 0"):
        Law({"name": "negative_binomial", "mean": 3.0, "shape": shape})


def test_a_mean_that_cannot_be_told_from_one_is_refused() -> None:
    body = {"name": "negative_binomial", "mean": 1 + 2.0**-50, "shape": 1e6}
    with raises_code(InputError, "run-mean-out-of-range"):
        RunLaw(**body)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the mean .* close to 1"):
        Law(body)
    assert RunLaw(name="geometric", mean=1 + 1e-6).gamma < 1


@pytest.mark.parametrize(
    ("shape", "mean", "runs"),
    [
        (2000.0, 2000.0, (0, 1500, 2000, 2200, 2600)),
        (1e4, 1e6, (980_000, 1_005_000, 1_040_000)),
        (1e6, 3.0, (0, 5, 20)),
    ],
)
def test_the_tail_of_a_large_shape(shape: float, mean: float, runs: tuple[int, ...]) -> None:
    """Against SciPy's distribution of the failures, of which K is what is not 0."""
    law = negative_binomial(shape, mean)
    for k in runs:
        exact = float(nbinom.sf(k, shape, law.gamma)) / -float(mpmath.expm1(shape * log(law.gamma)))
        found = law.tail(k)
        assert exact * (1 - 1e-8) <= found, k
        if mean < 1e5:  # beyond, the bound of a block is loose
            assert found <= min(exact * 1.01, 1.0), k


def test_the_second_accountant_sums_a_tail_from_below_its_mode() -> None:
    for shape, mean in ((1000.0, 1000.0), (1e6, 5000.0)):
        law = Law({"name": "negative_binomial", "mean": mean, "shape": shape})
        assert law.tail(10) == pytest.approx(1.0, abs=1e-6)
        exact = float(nbinom.sf(int(1.1 * mean), shape, law.gamma))
        assert law.tail(int(1.1 * mean)) == pytest.approx(exact, rel=1e-6)


def test_a_draw_passes_no_exponent() -> None:
    law = negative_binomial(1e6, 9e6)  # γ^−η has a million digits before the point
    assert law.draw(50, bits=lambda _: 0) == 1
    assert law.draw(50, bits=lambda count: 2**count - 1) == 50


def test_a_cut_that_no_double_can_tell_is_refused() -> None:
    law = RunLaw(name="geometric", mean=3.0)
    with raises_code(InputError, "epsilon-too-large"):
        at_most_for(law, epsilon=700.0, delta=1e-5)
    with raises_code(InputError, "probability-out-of-range"):
        law.least_cut(1e-310)
    assert 1000 < at_most_for(law, epsilon=650.0, delta=1e-5) < 2000


def test_the_second_accountant_claims_nothing_beyond_the_doubles() -> None:
    """e^ε of an ε above 700 times a tail of 0 would be no cut at all."""
    body = sealed("geometric", 3.0, at_most=2000, runs=[{"sample_rate": 1.0, "noise_multiplier": 0.2, "steps": 100}])
    (found,) = epsilon_ranges(body, [1e-5])
    assert found.high == float("inf")
    assert Law({"name": "geometric", "mean": 3.0}).tail(2000) > 0
