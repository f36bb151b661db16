"""The price of a sealed search: the profile of a run, the bounds on the winner, the least of them, cut and noise."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, expm1, inf, log, log1p, nan

import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant
from errors_helper import raises_code
from gaussian import gaussian_delta

from tuner.errors import InputError
from tuner.privacy.accountant import pld as accounting
from tuner.privacy.accountant import selection
from tuner.privacy.accountant.filters import Sealed, from_body
from tuner.privacy.accountant.mechanism import SampledGaussian
from tuner.privacy.accountant.rdp import epsilon_of_divergence
from tuner.privacy.accountant.run_laws import RunLaw
from tuner.privacy.accountant.selection import Profile, at_most_for, epsilon_selection, profile, shift_of

CIFAR = SampledGaussian(256 / 50_000, 1.1)
RUNS = ((CIFAR, 2000),)
GEOMETRIC = RunLaw(name="geometric", mean=20)
LOGARITHMIC = RunLaw(name="logarithmic", mean=20)
BINOMIAL = RunLaw(name="negative_binomial", mean=20, shape=2.5)
HEAVY = RunLaw(name="negative_binomial", mean=20, shape=-0.3)
POISSON = RunLaw(name="poisson", mean=8)
LAWS = [GEOMETRIC, LOGARITHMIC, BINOMIAL, HEAVY, POISSON]
UNCUT = 10**6


@pytest.mark.parametrize("epsilon", [-6.0, -2.0, -0.3, 0.0, 0.3, 2.0, 6.0])
def test_profile_of_a_gaussian_is_the_exact_one_from_above_at_negative_epsilon_too(epsilon: float) -> None:
    found = profile(SampledGaussian(1.0, 10.0), 100).delta(epsilon)  # μ = 1
    assert gaussian_delta(1.0, epsilon) <= found <= gaussian_delta(1.0, epsilon) + 2e-5


def test_profile_is_the_larger_direction_and_agrees_with_the_librarys_on_a_finer_grid() -> None:
    grid = accounting.interval(CIFAR, 2000) / 4
    library = PLDAccountant(value_discretization_interval=grid).compose(CIFAR.event(2000))
    distribution, margin = accounting.composed([(CIFAR, 2000)])
    for epsilon in (0.0, 0.2, 0.8, 1.5):
        found, finer = profile(CIFAR, 2000).delta(epsilon), library.get_delta(epsilon)
        assert finer * (1 - 1e-9) <= found <= finer * 1.001 + 1e-9
        assert found == pytest.approx(distribution.delta(epsilon) + margin, rel=1e-12)


def test_profile_at_a_negative_epsilon_obeys_the_exchange_of_neighbours() -> None:
    # H_{−t}(P, Q) = 1 − e^{−t}·(1 − H_t(Q, P)): the larger of both directions at −t follows from the larger at t.
    found = profile(CIFAR, 2000)
    for t in (0.1, 0.7, 2.0, 40.0):
        other = 1 - exp(-t) * (1 - found.delta(t))
        assert -expm1(-t) <= found.delta(-t)
        assert found.delta(-t) == pytest.approx(other, abs=1e-4)
    assert found.delta(-800.0) == 1.0


def test_profile_and_epsilon_are_inverse_and_agree_with_the_accountant() -> None:
    found = profile(CIFAR, 2000)
    for delta in (1e-3, 1e-5, 1e-7):
        epsilon = found.epsilon(delta)
        assert epsilon == pytest.approx(accounting.epsilon(CIFAR, 2000, delta), rel=1e-12)
        assert found.delta(epsilon) <= delta * (1 + 1e-9) < found.delta(epsilon * 0.999)
    assert found.epsilon(1e-14) == inf


def test_a_hopeless_run_claims_nothing() -> None:
    hopeless = Profile(SampledGaussian(1.0, 0.01), 1000)
    assert (hopeless.delta(5.0), hopeless.epsilon(1e-5)) == (1.0, inf)
    assert epsilon_selection(GEOMETRIC, ((SampledGaussian(1.0, 0.01), 1000),), 1e-5, at_most=UNCUT) == inf


def shift_by_hand(law: RunLaw, delta_of: Callable[[float], float], first: float) -> float:
    """The shift of `shift_of` at one ε₁."""
    if law.shape is None:
        return law.mean * (exp(first) - 1) + law.mean * delta_of(first)
    r = exp(first) + (1 - law.gamma) / law.gamma * delta_of(first)
    return (law.shape + 1) * log(r)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_shift_is_the_proven_formula_at_the_best_epsilon_one(law: RunLaw) -> None:
    delta_of = profile(CIFAR, 2000).delta
    found = shift_of(law, delta_of)
    tried = [shift_by_hand(law, delta_of, float(first)) for first in np.linspace(0.0, 3.0, 601)]
    assert found.shift <= min(tried) * (1 + 1e-8)
    assert found.shift == pytest.approx(min(tried), rel=2e-3)
    assert found.factor == pytest.approx(law.mean, rel=2e-9)
    assert found.factor >= law.mean
    for epsilon in (0.1, 2.0, 4.0):
        by_hand = min(law.mean * delta_of(epsilon - found.shift), 1.0)
        assert by_hand <= found.delta(delta_of, epsilon) <= by_hand * (1 + 2e-9)


def test_a_sampler_that_learns_pays_for_its_ratio() -> None:
    delta_of = profile(CIFAR, 2000).delta
    none, some, more = (shift_of(GEOMETRIC, delta_of, ratio=ratio) for ratio in ((1.0, 1.0), (0.8, 1.2), (0.5, 2.0)))
    assert none.shift < some.shift < more.shift
    assert more.factor == pytest.approx(2.0 * 20, rel=2e-9)
    low, high, gamma = 0.5, 2.0, GEOMETRIC.gamma
    by_hand = [
        log(high / low) + 2 * log(high / low * exp(first) + (1 - gamma) / gamma * high * delta_of(first))
        for first in np.linspace(0.0, 3.0, 601)
    ]
    assert more.shift <= min(by_hand) * (1 + 1e-8)
    assert more.shift == pytest.approx(min(by_hand), rel=2e-3)
    epsilons = [epsilon_selection(GEOMETRIC, RUNS, 1e-5, at_most=UNCUT, ratio=r) for r in ((1.0, 1.0), (0.5, 2.0))]
    assert epsilons[0] < epsilons[1]


@pytest.mark.parametrize("ratio", [(0.0, 1.0), (1.1, 2.0), (0.5, 0.9), (nan, 1.0), (0.5, inf), (-1.0, 1.0)])
def test_a_ratio_without_a_bound_is_refused(ratio: tuple[float, float]) -> None:
    with raises_code(InputError, "filter-invalid"):
        epsilon_selection(GEOMETRIC, RUNS, 1e-5, at_most=UNCUT, ratio=ratio)
    with raises_code(InputError, "poisson-not-adaptive"):
        epsilon_selection(POISSON, RUNS, 1e-5, at_most=UNCUT, ratio=(0.5, 2.0))


def delta_selection(law: RunLaw, runs: selection.Runs, epsilon: float, *, at_most: int) -> float:
    """δ at `epsilon`: the least of the bounds, and what the cut of the law adds."""
    bounds = selection._bounds(law, runs, (1.0, 1.0))
    found = bounds.shift.delta(lambda at: max(part.delta(at) for part in bounds.profiles), epsilon)
    for order, spent in bounds.renyi:  # Canonne, Kamath & Steinke 2020, Proposition 12
        found = min(found, exp(min((order - 1) * (spent - epsilon + log1p(-1 / order)) - log(order), 0.0)))
    return found + (1 + exp(epsilon)) * law.tail(at_most)


def by_profile(law: RunLaw, runs: selection.Runs, delta: float, ratio: tuple[float, float] = (1.0, 1.0)) -> float:
    shift = selection._bounds(law, runs, ratio).shift
    return shift.shift + profile(*runs[0]).epsilon(delta / shift.factor)


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_claim_is_the_least_of_both_and_delta_says_the_same(law: RunLaw) -> None:
    found = epsilon_selection(law, RUNS, 1e-5, at_most=UNCUT)
    renyi = selection._bounds(law, RUNS, (1.0, 1.0)).renyi
    by_renyi = min(epsilon_of_divergence(order, spent, 1e-5) for order, spent in renyi)
    assert found == pytest.approx(min(by_profile(law, RUNS, 1e-5), by_renyi), rel=1e-6)
    assert delta_selection(law, RUNS, found, at_most=UNCUT) <= 1e-5
    assert delta_selection(law, RUNS, found * 0.999, at_most=UNCUT) > 1e-5


def test_renyi_counts_where_it_is_the_less_and_not_for_a_sampler_that_learns() -> None:
    # Where δ is below what the profile's rounding margin leaves, Rényi DP still says something.
    run, ratio = ((SampledGaussian(1.0, 40.0), 1000),), (0.99, 1.01)
    found = epsilon_selection(GEOMETRIC, run, 1e-11, at_most=UNCUT)
    assert found < by_profile(GEOMETRIC, run, 1e-11)
    assert delta_selection(GEOMETRIC, run, found, at_most=UNCUT) <= 1e-11
    assert epsilon_selection(GEOMETRIC, run, 1e-11, at_most=UNCUT, ratio=ratio) == inf, "no proof"
    learnt = epsilon_selection(GEOMETRIC, RUNS, 1e-5, at_most=UNCUT, ratio=ratio)
    assert learnt == pytest.approx(by_profile(GEOMETRIC, RUNS, 1e-5, ratio), rel=1e-6)


def test_several_configurations_cost_what_the_worst_of_them_does_or_more() -> None:
    other = (SampledGaussian(128 / 50_000, 0.9), 3000)
    alone = [epsilon_selection(GEOMETRIC, (run,), 1e-5, at_most=UNCUT) for run in (RUNS[0], other)]
    both = epsilon_selection(GEOMETRIC, (RUNS[0], other), 1e-5, at_most=UNCUT)
    assert max(alone) <= both <= max(alone) * 1.05
    assert epsilon_selection(GEOMETRIC, (RUNS[0], RUNS[0]), 1e-5, at_most=UNCUT) == alone[0]


@pytest.mark.parametrize("law", LAWS, ids=str)
def test_the_cut_costs_what_it_moves(law: RunLaw) -> None:
    whole = epsilon_selection(law, RUNS, 1e-5, at_most=UNCUT)
    at_most = at_most_for(law, epsilon=whole * 1.1, delta=1e-5)
    cut = epsilon_selection(law, RUNS, 1e-5, at_most=at_most)
    assert whole <= cut < whole * 1.01
    added = (1 + exp(cut)) * law.tail(at_most)
    assert 0 < added <= 1e-7 * (1 + 1e-9)
    assert delta_selection(law, RUNS, cut, at_most=at_most) <= 1e-5
    assert delta_selection(law, RUNS, cut, at_most=at_most) >= added
    # One run less in the cut and it takes more than its hundredth.
    assert (1 + exp(whole * 1.1)) * law.tail(at_most - 1) > 1e-7
    # A cut that alone takes all of δ leaves nothing to claim.
    assert epsilon_selection(law, RUNS, 1e-5, at_most=5) == inf


def test_input_that_is_none_is_refused() -> None:
    uses: list[tuple[str, Callable[[], object]]] = [
        ("delta-out-of-range", lambda: epsilon_selection(GEOMETRIC, RUNS, nan, at_most=100)),
        ("menu-empty", lambda: epsilon_selection(GEOMETRIC, (), 1e-5, at_most=100)),
        ("epsilon-out-of-range", lambda: at_most_for(GEOMETRIC, epsilon=nan, delta=1e-5)),
    ]
    for code, use in uses:
        with raises_code(InputError, code):
            use()


def test_a_sealed_filter_claims_the_same_and_survives_the_ledger() -> None:
    filter = Sealed(GEOMETRIC, 700, RUNS)
    assert filter.claim(1e-5) == epsilon_selection(GEOMETRIC, RUNS, 1e-5, at_most=700)
    assert from_body(filter.body()) == filter
    assert filter.left({}, CIFAR) == 0
