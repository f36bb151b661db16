"""The law of the number of runs: its mean, tail, quantiles and secret draw against exact sums."""

from __future__ import annotations

import inspect
import random
import secrets
from decimal import Decimal, localcontext
from functools import cache
from math import inf, log, nan

import pytest
from errors_helper import raises_code
from scipy.special import exp1

from tuner.errors import InputError
from tuner.privacy.accountant.run_laws import POISSON_MEAN, RunLaw

GEOMETRIC = RunLaw(name="geometric", mean=30)
LOGARITHMIC = RunLaw(name="logarithmic", mean=30)
POISSON = RunLaw(name="poisson", mean=6.5)
LAWS = [
    GEOMETRIC,
    LOGARITHMIC,
    POISSON,
    RunLaw(name="negative_binomial", mean=12.0, shape=-0.5),
    RunLaw(name="negative_binomial", mean=12.0, shape=0.5),
    RunLaw(name="negative_binomial", mean=5.0, shape=3.0),
    RunLaw(name="negative_binomial", mean=40.0, shape=25.0),
    RunLaw(name="logarithmic", mean=1.001),
]


@cache
def masses(law: RunLaw) -> list[Decimal]:
    """P[K = 0], P[K = 1], … in 60 digits, from the definition: products, and their own sum as normaliser."""
    with localcontext() as context:
        context.prec = 60
        if law.shape is None:
            found, term = [], (-Decimal(law.mean)).exp()
            for k in range(400):
                found.append(term)
                term = term * Decimal(law.mean) / (k + 1)
            return found
        keep, shape = 1 - Decimal(law.gamma), Decimal(law.shape)
        weights, term = [Decimal(0)], keep  # of k = 1, up to a factor: η/1 is left to the normaliser
        for k in range(1, 40_000):
            weights.append(term)
            term = term * keep * (k + shape) / (k + 1)
        total = sum(weights)
        return [weight / total for weight in weights]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_mass_and_mean_are_those_of_the_definition(law: RunLaw) -> None:
    exact = masses(law)
    for k in (0, 1, 2, 5, 30):
        assert law.pmf(k) == pytest.approx(float(exact[k]), rel=1e-9, abs=1e-300)
    assert float(sum(k * mass for k, mass in enumerate(exact))) == pytest.approx(law.mean, rel=1e-6)


def test_gamma_of_the_geometric_and_logarithmic_law_are_the_published_ones() -> None:
    assert GEOMETRIC.gamma == 1 / 30
    gamma = LOGARITHMIC.gamma
    assert (1 / gamma - 1) / log(1 / gamma) == pytest.approx(30, rel=1e-12)
    with raises_code(InputError, "run-law-without-gamma"):
        _ = POISSON.gamma


def test_shapes_one_and_zero_are_the_named_laws() -> None:
    for name, shape in (("geometric", 1.0), ("logarithmic", 0.0)):
        named, same = RunLaw(name=name, mean=20), RunLaw(name="negative_binomial", mean=20, shape=shape)
        assert (same.gamma, same.pmf(7), same.tail(50)) == (named.gamma, named.pmf(7), named.tail(50))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_tail_is_an_upper_bound_far_out_too(law: RunLaw) -> None:
    exact = masses(law)
    for runs in (0, 1, 5, 20, 100, 700, 3000):
        with localcontext() as context:
            context.prec = 60
            beyond = sum(exact[runs + 1 :], Decimal(0))
            reached = exact[0] if runs == 0 else Decimal(0)  # P[K > 0] is not 1 where K may be 0
        found = law.tail(runs)
        assert Decimal(found) >= min(beyond, 1 - reached) * (1 - Decimal("1e-12")), runs
        if beyond > Decimal("1e-250"):
            assert found <= float(beyond) * (1 + 5e-3 * max(1.0, law.shape or 1.0)), runs


def test_a_heavy_tail_does_not_take_a_million_terms() -> None:
    law = RunLaw(name="logarithmic", mean=50_000)
    assert law.gamma < 2e-6
    # By the integral of e^(−γx)/x, which the sum of (1−γ)^k/k approaches.
    keep = -log(1 - law.gamma)
    for runs in (10**5, 10**6, 10**7):
        assert law.tail(runs) == pytest.approx(exp1(keep * runs) / log(1 / law.gamma), rel=2e-3)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_quantile_is_the_least_that_suffices(law: RunLaw) -> None:
    exact = masses(law)
    for probability in (0.0, 0.37, 0.9, 0.999):
        runs = law.quantile(probability)
        assert sum(exact[: runs + 1]) >= Decimal(probability) - Decimal("1e-5")
        assert runs == 0 or sum(exact[:runs]) < Decimal(probability) + Decimal("1e-5")
    for none in (1.0, -0.1, nan, None):
        with raises_code(InputError, "probability-out-of-range"):
            law.quantile(none)  # type: ignore[arg-type]


def test_a_draw_takes_many_bits_of_the_operating_systems_generator() -> None:
    assert inspect.signature(RunLaw.draw).parameters["bits"].default is secrets.randbits
    asked: list[int] = []

    def counted(count: int) -> int:
        asked.append(count)
        return 0

    assert GEOMETRIC.draw(10, bits=counted) == 1
    assert sum(asked) >= 128
    assert len({GEOMETRIC.draw(10**6) for _ in range(40)}) > 5


@pytest.mark.parametrize("law", LAWS[:-1], ids=str)
def test_draws_follow_the_law(law: RunLaw) -> None:
    """By 2^210 of 2^256, or 1e-14, before and after every edge of the sums the draw is on either side of it."""
    exact = masses(law)
    for k in (1, 3, 20):
        with localcontext() as context:
            context.prec = 100
            edge = int(sum(exact[: k + 1]) * 2**256)
        assert law.draw(10**6, bits=lambda _, edge=edge: edge - 2**210) == k
        assert law.draw(10**6, bits=lambda _, edge=edge: edge + 2**210) == k + 1


def test_the_cut_keeps_what_is_below_and_gathers_what_is_above() -> None:
    generator, again = random.Random(3), random.Random(3)
    whole = [GEOMETRIC.draw(100_000, bits=generator.getrandbits) for _ in range(400)]
    assert [GEOMETRIC.draw(25, bits=again.getrandbits) for _ in whole] == [min(runs, 25) for runs in whole]
    assert GEOMETRIC.draw(7, bits=lambda count: 2**count - 1) == 7


def test_only_poisson_may_answer_no_run_at_all() -> None:
    assert POISSON.draw(5, bits=lambda _: 0) == 0
    assert GEOMETRIC.draw(5, bits=lambda _: 0) == LOGARITHMIC.draw(5, bits=lambda _: 0) == 1
    assert LOGARITHMIC.pmf(0) == POISSON.pmf(-1) == 0.0


@pytest.mark.parametrize(
    ("name", "mean", "shape", "code"),
    [
        ("uniform", 5, None, "run-law-unknown"),
        *[("geometric", mean, None, "run-mean-out-of-range") for mean in (nan, inf, True, 1)],
        ("logarithmic", 0.5, None, "run-mean-out-of-range"),
        *[("poisson", mean, None, "run-mean-out-of-range") for mean in (POISSON_MEAN + 0.5, 0)],
        ("geometric", 5, 2, "run-shape-out-of-range"),
        ("poisson", 5, 1, "run-shape-out-of-range"),
        *[("negative_binomial", 5, shape, "run-shape-out-of-range") for shape in (None, -1.0, nan, inf)],
        ("negative_binomial", 30, -0.9, "run-law-unbounded"),
        ("logarithmic", 10**9, None, "run-law-unbounded"),
    ],
)
def test_what_is_no_usable_law_is_refused(name: str, mean: float, shape: float | None, code: str) -> None:
    with raises_code(InputError, code):
        RunLaw(name=name, mean=mean, shape=shape)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_law_survives_the_ledger(law: RunLaw) -> None:
    assert RunLaw.from_body(law.body()) == law
    assert hash(RunLaw.from_body(law.body())) == hash(law)
    for at_most in (0, -1, 1.5, nan, True, None):
        with raises_code(InputError, "count-out-of-range"):
            law.draw(at_most)  # type: ignore[arg-type]
