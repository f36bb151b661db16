"""The law of the number of runs: its mean, tail and quantiles against exact sums, and its secret draw."""

from __future__ import annotations

import inspect
import random
import secrets
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, localcontext
from math import exp, inf, log, nan

import pytest
from errors_helper import raises_code
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

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


def masses(law: RunLaw, count: int) -> list[Decimal]:
    """P[K = 0], P[K = 1], … in 60 digits, from the definition: products, and their own sum as normaliser."""
    with localcontext() as context:
        context.prec = 60
        if law.shape is None:
            found, term = [], (-Decimal(law.mean)).exp()
            for k in range(count):
                found.append(term)
                term = term * Decimal(law.mean) / (k + 1)
            return found
        keep, shape = 1 - Decimal(law.gamma), Decimal(law.shape)
        weights, term = [Decimal(0)], keep  # of k = 1, up to a factor: η/1 is left to the normaliser
        for k in range(1, 40_000):
            weights.append(term)
            term = term * keep * (k + shape) / (k + 1)
        total = sum(weights)
        return [weight / total for weight in weights[:count]]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_mass_mean_and_generating_function_are_those_of_the_definition(law: RunLaw) -> None:
    exact = masses(law, 30_000)
    for k in (0, 1, 2, 5, 30):
        assert law.pmf(k) == pytest.approx(float(exact[k]), rel=1e-9, abs=1e-300)
    assert float(sum(k * mass for k, mass in enumerate(exact))) == pytest.approx(law.mean, rel=1e-6)
    assert law.pgf(0.0) == pytest.approx(law.pmf(0), abs=1e-15)
    for x in (0.3, 0.9, 1.0):
        value = Decimal(0)
        for mass in reversed(exact):
            value = value * Decimal(x) + mass
        assert law.pgf(x) == pytest.approx(float(value), rel=1e-6, abs=1e-12)


def test_gamma_of_the_geometric_and_logarithmic_law_are_the_published_ones() -> None:
    assert GEOMETRIC.gamma == 1 / 30
    gamma = LOGARITHMIC.gamma
    assert (1 / gamma - 1) / log(1 / gamma) == pytest.approx(30, rel=1e-12)
    with raises_code(InputError, "run-law-without-gamma"):
        _ = POISSON.gamma


def test_shapes_near_one_and_zero_are_continuous() -> None:
    for name, shape in (("geometric", 1.0), ("logarithmic", 0.0)):
        near = RunLaw(name="negative_binomial", mean=20, shape=shape + 1e-9)
        named = RunLaw(name=name, mean=20)
        assert near.gamma == pytest.approx(named.gamma, rel=1e-6)
        assert near.pmf(7) == pytest.approx(named.pmf(7), rel=1e-6)
        same = RunLaw(name="negative_binomial", mean=20, shape=shape)
        assert (same.gamma, same.pmf(7), same.tail(50)) == (named.gamma, named.pmf(7), named.tail(50))


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_tail_is_an_upper_bound_far_out_too(law: RunLaw) -> None:
    exact = masses(law, 39_000)
    for runs in (0, 1, 5, 20, 100, 700, 3000):
        with localcontext() as context:
            context.prec = 60
            beyond = sum(exact[runs + 1 :], Decimal(0))
            reached = exact[0] if runs == 0 else Decimal(0)  # P[K > 0] is not 1 where K may be 0
        found = law.tail(runs)
        assert Decimal(found) >= min(beyond, 1 - reached) * (1 - Decimal("1e-12")), runs
        if beyond > Decimal("1e-250"):
            assert found <= float(beyond) * (1 + 5e-3 * max(1.0, law.shape or 1.0)), runs


SHAPES = st.floats(-0.5, 30.0).map(lambda shape: shape if abs(shape) >= 1e-9 else 0.0)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(mean=st.floats(1.01, 200.0), shape=SHAPES, runs=st.integers(0, 4000))
def test_tail_falls_and_telescopes(mean: float, shape: float, runs: int) -> None:
    law = RunLaw(name="negative_binomial", mean=mean, shape=shape)
    here, next_one = law.tail(runs), law.tail(runs + 1)
    assert next_one <= here <= 1
    if here > 1e-200:
        assert here - next_one == pytest.approx(law.pmf(runs + 1), rel=2e-2, abs=2e-5 * here)


def test_a_heavy_tail_does_not_take_a_million_terms() -> None:
    law = RunLaw(name="logarithmic", mean=50_000)
    assert law.gamma < 2e-6
    # By the integral of e^(−γx)/x, which the sum of (1−γ)^k/k approaches.
    from scipy.special import exp1

    keep = -log(1 - law.gamma)
    for runs in (10**5, 10**6, 10**7):
        assert law.tail(runs) == pytest.approx(exp1(keep * runs) / log(1 / law.gamma), rel=2e-3)


def test_quantiles_are_the_published_ones() -> None:
    assert (GEOMETRIC.quantile(0.9), GEOMETRIC.quantile(0.99)) == (68, 136)
    assert (LOGARITHMIC.quantile(0.9), LOGARITHMIC.quantile(0.99)) == (83, 299)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_quantile_is_the_least_that_suffices(law: RunLaw) -> None:
    exact = masses(law, 5000)
    for probability in (0.0, 0.37, 0.9, 0.999):
        runs = law.quantile(probability)
        assert sum(exact[: runs + 1]) >= Decimal(probability) - Decimal("1e-5")
        assert runs == 0 or sum(exact[:runs]) < Decimal(probability) + Decimal("1e-5")


@pytest.mark.parametrize("probability", [1.0, -0.1, nan, None])
def test_a_quantile_of_no_probability_is_refused(probability: object) -> None:
    with raises_code(InputError, "probability-out-of-range"):
        GEOMETRIC.quantile(probability)  # type: ignore[arg-type]


def distance(law: RunLaw, drawn: list[int]) -> float:
    """p of a chi-square test of what was drawn against the law; values that are rare are put together."""
    counts, total = Counter(drawn), len(drawn)
    observed, expected, k = [], [], 0
    seen = reached = 0.0
    while reached < 1 - 20 / total:
        mass = law.pmf(k)
        observed.append(counts[k])
        expected.append(mass * total)
        seen, reached, k = seen + counts[k], reached + mass, k + 1
        if len(expected) > 1 and expected[-2] < 20:
            last, also = expected.pop(), observed.pop()
            expected[-1] += last
            observed[-1] += also
    observed.append(total - int(seen))
    expected.append(total - sum(expected))
    return float(chisquare(observed, expected).pvalue)


def drawn(law: RunLaw, count: int, bits: Callable[[int], int]) -> list[int]:
    return [law.draw(100_000, bits=bits) for _ in range(count)]


@pytest.mark.parametrize("law", LAWS[:-1], ids=str)
def test_draws_follow_the_law(law: RunLaw) -> None:
    assert distance(law, drawn(law, 3000, random.Random(20).getrandbits)) > 1e-3


@pytest.mark.parametrize(
    "wrong", [RunLaw(name="geometric", mean=33), RunLaw(name="negative_binomial", mean=30, shape=1.5), LOGARITHMIC]
)
def test_the_test_of_the_law_notices_another_law(wrong: RunLaw) -> None:
    assert distance(GEOMETRIC, drawn(wrong, 6000, random.Random(20).getrandbits)) < 1e-6


def test_the_test_of_the_law_notices_bits_that_are_not_fair() -> None:
    generator = random.Random(20)

    def biased(count: int) -> int:
        return generator.getrandbits(count) | generator.getrandbits(count) & generator.getrandbits(count)

    assert distance(GEOMETRIC, drawn(GEOMETRIC, 3000, biased)) < 1e-6


def test_a_draw_takes_many_bits_of_the_operating_systems_generator() -> None:
    assert inspect.signature(RunLaw.draw).parameters["bits"].default is secrets.randbits
    asked: list[int] = []

    def counted(count: int) -> int:
        asked.append(count)
        return 0

    assert GEOMETRIC.draw(10, bits=counted) == 1
    assert sum(asked) >= 128
    assert len({GEOMETRIC.draw(10**6) for _ in range(40)}) > 5


def test_inversion_is_exact_at_the_edges_of_the_sums() -> None:
    for law in (GEOMETRIC, LOGARITHMIC, POISSON):
        exact = masses(law, 400)
        for k in (1, 3, 20):
            with localcontext() as context:
                context.prec = 100
                edge = int(sum(exact[: k + 1]) * 2**256)  # 60 digits: right to about 2^57 of 2^256
            assert law.draw(10**6, bits=lambda _, edge=edge: edge - 2**80) == k
            assert law.draw(10**6, bits=lambda _, edge=edge: edge + 2**80) == k + 1


def test_the_cut_keeps_what_is_below_and_gathers_what_is_above() -> None:
    generator, again = random.Random(3), random.Random(3)
    whole = drawn(GEOMETRIC, 400, generator.getrandbits)
    cut = [GEOMETRIC.draw(25, bits=again.getrandbits) for _ in range(400)]
    assert cut == [min(runs, 25) for runs in whole]
    assert GEOMETRIC.draw(7, bits=lambda count: 2**count - 1) == 7


def test_only_poisson_may_answer_no_run_at_all() -> None:
    assert POISSON.draw(5, bits=lambda _: 0) == 0
    assert POISSON.pmf(0) == pytest.approx(exp(-6.5))
    for law in (GEOMETRIC, LOGARITHMIC):
        assert law.draw(5, bits=lambda _: 0) == 1
        assert law.pmf(0) == 0
        assert law.log_pmf(0) == -inf


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"name": "uniform", "mean": 5}, "run-law-unknown"),
        ({"name": "geometric", "mean": nan}, "run-mean-out-of-range"),
        ({"name": "geometric", "mean": inf}, "run-mean-out-of-range"),
        ({"name": "geometric", "mean": True}, "run-mean-out-of-range"),
        ({"name": "geometric", "mean": 1}, "run-mean-out-of-range"),
        ({"name": "logarithmic", "mean": 0.5}, "run-mean-out-of-range"),
        ({"name": "poisson", "mean": 10.5}, "run-mean-out-of-range"),
        ({"name": "poisson", "mean": 0}, "run-mean-out-of-range"),
        ({"name": "geometric", "mean": 5, "shape": 2}, "run-shape-out-of-range"),
        ({"name": "poisson", "mean": 5, "shape": 1}, "run-shape-out-of-range"),
        ({"name": "negative_binomial", "mean": 5}, "run-shape-out-of-range"),
        ({"name": "negative_binomial", "mean": 5, "shape": -1.0}, "run-shape-out-of-range"),
        ({"name": "negative_binomial", "mean": 5, "shape": nan}, "run-shape-out-of-range"),
        ({"name": "negative_binomial", "mean": 5, "shape": inf}, "run-shape-out-of-range"),
        ({"name": "negative_binomial", "mean": 30, "shape": -0.9}, "run-law-unbounded"),
        ({"name": "logarithmic", "mean": 10**9}, "run-law-unbounded"),
    ],
)
def test_what_is_no_usable_law_is_refused(arguments: dict[str, object], code: str) -> None:
    with raises_code(InputError, code):
        RunLaw(**arguments)  # type: ignore[arg-type]


def test_poisson_is_allowed_up_to_its_bound() -> None:
    assert RunLaw(name="poisson", mean=POISSON_MEAN).mean == 10.0


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_a_law_survives_the_ledger(law: RunLaw) -> None:
    assert RunLaw.from_body(law.body()) == law
    assert hash(RunLaw.from_body(law.body())) == hash(law)


@pytest.mark.parametrize("at_most", [0, -1, 1.5, nan, True, None])
def test_a_cut_must_be_a_number_of_runs(at_most: object) -> None:
    with raises_code(InputError, "count-out-of-range"):
        GEOMETRIC.draw(at_most)  # type: ignore[arg-type]
