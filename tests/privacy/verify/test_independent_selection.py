"""The second accountant, Rényi divergences and sealed searches: against quadrature, tables and the first one."""

from __future__ import annotations

from math import exp, inf, log, nan
from typing import Any

import mpmath
import pytest
from dp_accounting.rdp import RdpAccountant
from independent_bodies import RATE, sealed

from tuner.privacy.accountant.filters import from_body
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.verify.accountant.best_of_runs import Law, converted_epsilon, renyi
from tuner.privacy.verify.accountant.bounds import TooLargeError, epsilon_ranges, judge, within


@pytest.mark.parametrize(
    ("rate", "noise", "order"),
    [(1e-5, 10.0, 1.05), (RATE, 1.1, 2.0), (0.01, 0.3, 2.7), (0.5, 0.4, 1.05), (0.5, 0.4, 12.3), (1.0, 3.0, 12.3)],
)
def test_renyi_divergence_by_quadrature(rate: float, noise: float, order: float) -> None:
    def quadrature(power: float) -> float:
        with mpmath.workdps(30):
            q, s = mpmath.mpf(rate), mpmath.mpf(noise)
            places = sorted({s * k for k in range(-16, 17, 2)} | {power + s * k for k in range(-14, 15, 2)})
            places = sorted({*places, *(mpmath.mpf(power) * k / 10 for k in range(11))})
            value = mpmath.quad(
                lambda x: mpmath.npdf(x, 0, s) * (1 - q + q * mpmath.exp((2 * x - 1) / (2 * s * s))) ** power, places
            )
            return float(mpmath.log(value) / (order - 1))

    true = max(quadrature(order), quadrature(1 - order))
    low, high = renyi(rate, noise, order)
    assert low <= true * (1 + 1e-9)
    assert true * (1 - 1e-9) <= high
    assert high - low <= 1e-8 * high
    assert renyi(1.0, noise, order)[0] <= order / (2 * noise**2) <= renyi(1.0, noise, order)[1]


def test_a_large_divergence_settles() -> None:
    """Its logarithm has no eleven digits behind the point: halving the step until it does takes all the memory."""
    limit = 1996 / (2 * 0.12**2)
    assert renyi(0.01, 0.12, 1996.0)[1] == pytest.approx(limit, rel=1e-3)
    low, high = renyi(1.0, 0.12, 1996.0)
    assert low <= limit <= high


def test_renyi_divergence_agrees_with_the_library_at_whole_orders() -> None:
    accountant = RdpAccountant([2, 8, 64])
    accountant.compose(SampledGaussian(RATE, 1.1).event(1))
    for order, spent in zip((2, 8, 64), accountant._rdp, strict=True):
        assert renyi(RATE, 1.1, order)[1] == pytest.approx(spent, rel=1e-8)


def test_a_fixed_order_is_converted_and_held() -> None:
    body = {"kind": "fixed_order", "order": 8.0, "budget": 2 * 10**15}
    (found,) = epsilon_ranges(body, [1e-5])
    assert found.high == pytest.approx(2.0 + log(7 / 8) - (log(1e-5) + log(8)) / 7, rel=1e-12)
    assert found.high == pytest.approx(converted_epsilon(8.0, 2.0, 1e-5))
    assert judge(found.high, found).ok
    assert judge(found.high * 0.99, found).ok is False
    steps = int(2.0 / renyi(RATE, 1.1, 8.0)[1])
    assert within(body, [(RATE, 1.1, steps)]).ok
    assert within(body, [(RATE, 1.1, steps + 2)]).ok is False
    assert within(body, [(RATE, 1.1, steps), (1.0, 30.0, 1)]).ok is False


@pytest.mark.parametrize(
    ("name", "mean", "shape"),
    [
        ("geometric", 30.0, None),
        ("logarithmic", 12.0, None),
        ("negative_binomial", 8.0, 2.5),
        ("negative_binomial", 4.0, -0.5),
        ("negative_binomial", 5.0, 0.0),
        ("poisson", 4.0, None),
        ("geometric", 1.01, None),
    ],
)
def test_the_law_has_its_mean_and_its_tail(name: str, mean: float, shape: float | None) -> None:
    law = Law({"name": name, "mean": mean, "shape": shape})
    assert sum(law.tail(k) for k in range(2500)) == pytest.approx(mean, rel=1e-6)
    assert law.tail(0) == pytest.approx(1 - exp(-mean) if name == "poisson" else 1.0, rel=1e-8)
    other = RunLaw(name=name, mean=mean, shape=shape)
    for runs in (1, 2, 7, 40, 300):
        assert law.tail(runs) == pytest.approx(other.tail(runs), rel=1e-5, abs=1e-300)


@pytest.mark.parametrize(
    ("name", "mean", "shape"),
    [
        ("geometric", 1.0, None),
        ("geometric", nan, None),
        ("negative_binomial", 3.0, -1.0),
        ("negative_binomial", 3.0, inf),
        ("poisson", 0.0, None),
        ("zeta", 3.0, 1.0),
    ],
)
def test_a_law_that_is_none_is_refused(name: str, mean: float, shape: float | None) -> None:
    with pytest.raises(ValueError, match="distribution of the number of runs"):
        Law({"name": name, "mean": mean, "shape": shape})


def test_a_law_whose_tail_is_too_long_is_not_summed() -> None:
    with pytest.raises(TooLargeError, match="terms"):
        Law({"name": "logarithmic", "mean": 1e7, "shape": None}).tail(10)


@pytest.mark.parametrize(
    ("steps", "name", "epsilon"),
    [(7006, "geometric", 4.36), (36_424, "logarithmic", 8.4), (117_577, "geometric", 17.1)],
)
def test_published_prices_of_a_sealed_search(steps: int, name: str, epsilon: float) -> None:
    """The published table, which was computed by another program."""
    runs = [{"sample_rate": RATE, "noise_multiplier": 1.1, "steps": steps}]
    (found,) = epsilon_ranges(sealed(name, runs=runs), [1e-5])
    digits = 2 if epsilon < 5 else 1
    assert round(found.high, digits) == epsilon
    assert found.low >= found.high * 0.99


TWO_RUNS = [
    {"sample_rate": 0.01, "noise_multiplier": 1.0, "steps": 300},
    {"sample_rate": 0.02, "noise_multiplier": 2.0, "steps": 1500},
]
SEALED = {
    "geometric": sealed("geometric"),
    "logarithmic": sealed("logarithmic"),
    "poisson": sealed("poisson", 6.0),
    "shape -0.5": sealed("negative_binomial", 12.0, shape=-0.5),
    "cut": sealed("geometric", at_most=600),
    "ratio": sealed("geometric", ratio=[0.5, 2.0]),
    "two": sealed("geometric", 8.0, runs=TWO_RUNS),
}


@pytest.mark.parametrize("body", SEALED.values(), ids=SEALED)
def test_a_sealed_claim_of_the_other_accountant_is_confirmed(body: dict[str, Any]) -> None:
    claimed = from_body(body).claim(1e-5)
    (found,) = epsilon_ranges(body, [1e-5])
    verdict = judge(claimed, found)
    assert verdict.ok, verdict.why
    assert judge(found.high * 0.985, found).ok is not True


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (sealed(ratio=[1.1, 2.0]), "0 < c <= 1"),
        (sealed(ratio=[0.5, nan]), "0 < c <= 1"),
        (sealed("poisson", 4.0, ratio=[0.5, 2.0]), "no privacy proof"),
    ],
)
def test_a_sampler_without_a_proof_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        epsilon_ranges(body, [1e-5])


def test_a_cut_that_takes_all_of_delta_leaves_no_claim() -> None:
    (found,) = epsilon_ranges(sealed(at_most=100), [1e-5])
    assert found.high == inf
    assert judge(50.0, found).ok is not True
